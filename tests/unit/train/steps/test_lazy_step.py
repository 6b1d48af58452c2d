"""A lazy step reads rows that are up to date, touches those alone, and releases no table."""

import dataclasses
import math

import pytest
import torch
from torch import Tensor

from tulle.mechanisms.entropy import SeededNoise
from tulle.train.models.contributions import RowGradient
from tulle.train.settings.models import TOWERS
from tulle.train.settings.optimizers import SGD
from tulle.train.steps.age_table import AgeTable
from tulle.train.steps.host import LazyStep
from tulle.train.steps.lazy_rows import LazyRows
from tulle.train.steps.private_step import PrivateStep
from tulle.train.steps.step_settings import StepSettings
from tulle.train.steps.training_noise import TrainingNoise
from unit.train.models.test_tower_model import DATASETS, MODELS
from unit.train.steps.step_reference import EXPECTED_SIZE, Case, NoNoise, make_case, step_settings

MIXED = DATASETS["two tables a role"]
FROZEN = TOWERS - {"public"}


@dataclasses.dataclass
class Lazy:
    """A step with the tables of its towers."""

    step: LazyStep
    ages: AgeTable
    rows: dict[str, LazyRows]


def lazy_step(case: Case, settings: StepSettings, noise: object, *, stddev: float = 0.0) -> Lazy:
    ages = AgeTable(momentum=0.9)
    rows = {
        name: LazyRows(case.model.parameters[name], ages, noise=noise, noise_stddev=stddev)  # type: ignore[arg-type]
        for name in sorted(case.model.tables)
        if name.partition(".")[0] in settings.towers
    }
    step = LazyStep(case.model, settings, SGD(learning_rate=1.0, momentum=0.9), noise)  # type: ignore[arg-type]
    step._ages, step._rows = ages, rows
    return Lazy(step, ages, rows)


def read_rows(case: Case) -> dict[str, set[int]]:
    reads = case.model.reads(case.batch.public_ids, case.batch.sensitive_ids)
    return {read.table: set(read.rows.flatten().tolist()) for read in reads.tables}


@pytest.mark.parametrize("towers", [TOWERS, FROZEN, frozenset({"public"})])
@pytest.mark.parametrize("model", MODELS)
def test_parameters_that_are_no_tables_are_released_as_by_the_dense_step(
    model: str, towers: frozenset[str]
) -> None:
    case = make_case(MODELS[model], MIXED)
    settings = step_settings(towers=towers)
    dense = PrivateStep(case.model, settings, NoNoise()).release(case.batch, torch.ones(9))
    lazy = lazy_step(case, settings, NoNoise()).step.release(case.batch, torch.ones(9))
    wanted = {g.name: g.values for g in dense.gradients if g.name not in case.model.tables}
    assert {gradient.name for gradient in lazy.gradients} == wanted.keys()
    for gradient in lazy.gradients:
        torch.testing.assert_close(gradient.values, wanted[gradient.name])
    assert lazy.monitored == dense.monitored


@pytest.mark.parametrize("rows_at_a_time", [16384, 2])
@pytest.mark.parametrize("model", MODELS)
def test_tables_take_the_mean_gradient_of_the_dense_step(model: str, rows_at_a_time: int) -> None:
    case = make_case(MODELS[model], MIXED)
    settings = step_settings(rows_at_a_time=rows_at_a_time)
    dense = PrivateStep(case.model, settings, NoNoise()).release(case.batch, torch.ones(9))
    before = {name: values.clone() for name, values in case.model.parameters.items()}
    lazy = lazy_step(case, settings, NoNoise())
    lazy.step.release(case.batch, torch.ones(9))
    lazy.ages.end_step(1.0)
    for gradient in dense.gradients:
        if gradient.name in lazy.rows:
            lazy.rows[gradient.name].flush()
            moved = before[gradient.name] - case.model.parameters[gradient.name]
            torch.testing.assert_close(moved, gradient.values, rtol=0, atol=1e-12)


def test_rows_are_up_to_date_before_they_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    case = make_case(MODELS["factorization machine"], MIXED)
    lazy = lazy_step(case, step_settings(), NoNoise())
    lazy.step.release(case.batch, torch.ones(9))
    lazy.ages.end_step(0.5)
    seen: list[Tensor] = []
    forward = type(case.model).forward_reads

    def noting(self: object, reads: object) -> object:
        found = forward(self, reads)  # type: ignore[arg-type]
        seen.append(found.logits.clone())
        return found

    monkeypatch.setattr(type(case.model), "forward_reads", noting)
    lazy.step.release(case.batch, torch.ones(9))
    for rows in lazy.rows.values():
        rows.flush()
    found = case.model.forward(case.batch.public_ids, case.batch.sensitive_ids).logits
    torch.testing.assert_close(seen[0], found)


@pytest.mark.parametrize("model", MODELS)
def test_only_rows_of_the_batch_are_touched(model: str) -> None:
    case = make_case(MODELS[model], MIXED, size=2, dtype=torch.float32)
    settings = step_settings()
    lazy = lazy_step(case, settings, TrainingNoise(SeededNoise(1)), stddev=0.1)
    lazy.ages.end_step(0.5)
    before = {name: case.model.parameters[name].clone() for name in lazy.rows}
    lazy.step.release(case.batch, torch.ones(2))
    for name, rows in read_rows(case).items():
        changed = (case.model.parameters[name] != before[name]).any(1).nonzero().squeeze(1)
        assert set(changed.tolist()) == rows


@pytest.mark.parametrize("model", MODELS)
def test_a_frozen_table_is_left_alone(model: str) -> None:
    case = make_case(MODELS[model], MIXED, dtype=torch.float32)
    before = {name: values.clone() for name, values in case.model.parameters.items()}
    noise = TrainingNoise(SeededNoise(1))
    lazy = lazy_step(case, step_settings(towers=FROZEN), noise, stddev=0.1)
    for _ in range(3):
        lazy.step.release(case.batch, torch.ones(9))
        lazy.ages.end_step(0.5)
    for rows in lazy.rows.values():
        rows.flush()
    for name, values in case.model.parameters.items():
        if name.startswith("public."):
            assert torch.equal(values, before[name])
        elif name in case.model.tables:
            assert bool((values != before[name]).all())


def test_noise_of_the_sum_goes_to_the_layers_and_the_monitor_only() -> None:
    case = make_case(MODELS["semi-sensitive mlp"], MIXED)
    noise = NoNoise()
    settings = step_settings(clip_norm=3.0, noise_multiplier=0.5)
    lazy = lazy_step(case, settings, noise, stddev=0.1)
    lazy.ages.end_step(0.5)
    lazy.step.release(case.batch, torch.ones(9))
    of_sums = [stddev for _, stddev in noise.asked if stddev == settings.noise_stddev]
    assert len(of_sums) == len(case.model.parameters) - len(case.model.tables) + 1
    # Tables draw standard normals and scale them by the ages of rows.
    assert {stddev for _, stddev in noise.asked} == {settings.noise_stddev, 1.0}


def test_a_gradient_is_divided_by_the_public_size() -> None:
    case = make_case(MODELS["logistic regression"], MIXED)
    lazy = lazy_step(case, step_settings(), NoNoise())
    rows = lazy.rows["public.table.0"]
    before = case.model.parameters["public.table.0"].clone()
    rows.catch_up(torch.tensor([2]))
    values = torch.full((1, 1), 3.0, dtype=torch.float64)
    lazy.step._accumulate(RowGradient(name="public.table.0", rows=torch.tensor([2]), values=values))
    lazy.ages.end_step(1.0)
    rows.flush()
    moved = before - case.model.parameters["public.table.0"]
    assert moved[2].item() == pytest.approx(3.0 / EXPECTED_SIZE)
    assert moved.count_nonzero() == 1


@pytest.mark.parametrize("size", [0, 1])
def test_a_batch_without_a_finite_row_moves_nothing(size: int) -> None:
    case = make_case(MODELS["hybrid mlp"], MIXED, size=size)
    if size:
        case.model.parameters["common.layer.0.bias"].fill_(math.nan)
    before = {name: case.model.parameters[name].clone() for name in case.model.tables}
    lazy = lazy_step(case, step_settings(), NoNoise())
    released = lazy.step.release(case.batch, torch.ones(size))
    lazy.ages.end_step(1.0)
    for rows in lazy.rows.values():
        rows.flush()
    assert not any(gradient.values.any() for gradient in released.gradients)
    for name, values in before.items():
        assert torch.equal(case.model.parameters[name], values)
