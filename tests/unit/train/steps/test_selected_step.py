"""A step on selected rows: which gradients it has, with how much noise, and what it leaves out."""

import dataclasses
import math

import pytest
import torch
from torch import Tensor

from tulle.errors import ConfigError
from tulle.mechanisms.entropy import SeededNoise
from tulle.train.models.contributions import DenseGradient, RowGradient
from tulle.train.settings.models import TOWERS
from tulle.train.settings.optimizers import SGD
from tulle.train.settings.step_noise import IndependentNoise, SelectedRows
from tulle.train.steps.private_step import LOSS_BOUND, BatchUnits, StepRelease, StepSettings
from tulle.train.steps.selected import SelectedStep
from tulle.train.steps.training_noise import TrainingNoise
from unit.train.models.test_tower_model import DATASETS, MODELS
from unit.train.steps.step_reference import (
    EXPECTED_SIZE,
    Case,
    NoNoise,
    make_case,
    release_without_noise,
    step_settings,
    user_units,
)

MIXED = DATASETS["two tables a role"]
SHARE = 0.3
USERS = [1, 3, 2, 3]
PLAIN = SGD(learning_rate=0.1)
# With this little noise a row that two or three examples read is near the threshold.
LITTLE = 0.2


def selecting(settings: StepSettings, *, threshold: float = 1.5) -> StepSettings:
    mechanism = SelectedRows(selection_share=SHARE, threshold=threshold)
    return dataclasses.replace(settings, mechanism=mechanism)


def release(
    case: Case, settings: StepSettings, weights: Tensor, units: BatchUnits | None = None
) -> StepRelease:
    """With coins for rows that nobody reads, and without any noise."""
    step = SelectedStep(case.model, settings, PLAIN, NoNoise(), SeededNoise(3))  # type: ignore[arg-type]
    return step.release(case.batch, weights, units)


def assert_rows_of_the_dense_step(
    case: Case, settings: StepSettings, weights: Tensor, units: BatchUnits | None = None
) -> None:
    found = release(case, selecting(settings), weights, units)
    dense = release_without_noise(case, settings, weights, units)
    wanted = {gradient.name: gradient.values for gradient in dense.gradients}
    assert {gradient.name for gradient in found.gradients} == wanted.keys()
    num_selected = 0
    for gradient in found.gradients:
        whole = wanted[gradient.name]
        if isinstance(gradient, RowGradient):
            assert gradient.name in case.model.tables
            num_selected += len(gradient.rows)
            whole = whole[gradient.rows]
        torch.testing.assert_close(gradient.values, whole, rtol=1e-9, atol=1e-12)
    num_rows = sum(len(wanted[name]) for name in case.model.tables & wanted.keys())
    assert 0 < num_selected < num_rows
    assert found.monitored is not None
    assert dense.monitored is not None
    assert found.monitored.loss == pytest.approx(dense.monitored.loss)
    assert found.monitored.clipped_share == pytest.approx(dense.monitored.clipped_share)


@pytest.mark.parametrize("towers", [TOWERS, TOWERS - {"public"}], ids=["all", "frozen public"])
@pytest.mark.parametrize("model", MODELS)
def test_selected_rows_get_the_clipped_sums_of_the_dense_step(
    model: str, towers: frozenset[str]
) -> None:
    case = make_case(MODELS[model], MIXED)
    settings = step_settings(clip_norm=0.3, noise_multiplier=LITTLE, towers=towers)
    assert_rows_of_the_dense_step(case, settings, torch.ones(9))
    padded = torch.tensor([1.0, 0, 1, 1, 0, 1, 1, 0, 1])
    assert_rows_of_the_dense_step(case, settings, padded)
    assert_rows_of_the_dense_step(
        case, dataclasses.replace(settings, rows_at_a_time=2), torch.ones(9)
    )
    units = user_units(USERS)
    assert_rows_of_the_dense_step(case, settings, units.weights, units)


def test_rows_that_many_examples_read_are_selected_and_the_rest_left_to_coins() -> None:
    case = make_case(MODELS["logistic regression"], MIXED)
    settings = selecting(step_settings(noise_multiplier=LITTLE), threshold=5.0)
    found = release(case, settings, torch.ones(9))
    reads = case.model.reads(case.batch.public_ids, case.batch.sensitive_ids)
    num_features = sum(read.rows.shape[1] for read in reads.tables)
    least = 5.0 * LITTLE / math.sqrt(SHARE) * math.sqrt(num_features)
    selected = {g.name: g.rows.tolist() for g in found.gradients if isinstance(g, RowGradient)}
    for read in reads.tables:
        times = {
            row: sum(row in example for example in read.rows.tolist())
            for row in set(read.rows.flatten().tolist())
        }
        # Without noise, and with coins that fall once in three million times.
        assert selected[read.table] == sorted(row for row in times if times[row] > least)
    assert sum(len(rows) for rows in selected.values()) >= 2


def test_counts_and_gradients_are_asked_for_their_own_noise() -> None:
    case = make_case(MODELS["semi-sensitive mlp"], MIXED)
    settings = selecting(step_settings(clip_norm=0.5, noise_multiplier=2.0))
    noise = NoNoise()
    step = SelectedStep(case.model, settings, PLAIN, noise, SeededNoise(3))  # type: ignore[arg-type]
    released = step.release(case.batch, torch.ones(9))
    asked = [stddev for _, stddev in noise.asked]
    num_tables = len(case.model.tables)
    of_counts, of_gradients = 2.0 / math.sqrt(SHARE), 0.5 * 2.0 / math.sqrt(1 - SHARE)
    assert asked[:num_tables] == pytest.approx([of_counts] * num_tables)
    # Every parameter, and the monitor.
    assert asked[num_tables:] == pytest.approx([of_gradients] * (len(case.model.parameters) + 1))
    assert released.monitored is not None
    scale = settings.coordinates.scale
    assert released.monitored.loss_noise == pytest.approx(
        LOSS_BOUND * of_gradients / (scale * EXPECTED_SIZE)
    )


def test_every_selected_row_has_noise_and_no_two_steps_share_it() -> None:
    case = make_case(MODELS["factorization machine"], MIXED)
    rng = SeededNoise(5)
    settings = selecting(step_settings(), threshold=0.5)
    step = SelectedStep(case.model, settings, PLAIN, TrainingNoise(rng), rng)
    raw = release_without_noise(case, settings, torch.ones(9))
    whole = {gradient.name: gradient.values for gradient in raw.gradients}
    noises = []
    for _ in range(2):
        released = step.release(case.batch, torch.ones(9))
        noise = torch.zeros(len(whole["public.table.0"]), 4, dtype=torch.float64)
        for gradient in released.gradients:
            if isinstance(gradient, RowGradient):
                assert ((gradient.values - whole[gradient.name][gradient.rows]) != 0).all()
            if gradient.name == "public.table.0":
                assert isinstance(gradient, RowGradient)
                noise[gradient.rows] = gradient.values - whole[gradient.name][gradient.rows]
        noises.append(noise)
    in_both = (noises[0] != 0) & (noises[1] != 0)
    assert in_both.sum() > 20
    assert not (noises[0] == noises[1])[in_both].any()


@pytest.mark.parametrize("sizes", [None, []], ids=["rows", "users"])
def test_an_empty_batch_selects_by_coins_alone(sizes: list[int] | None) -> None:
    case = make_case(MODELS["semi-sensitive mlp"], MIXED, size=0)
    units = None if sizes is None else user_units(sizes)
    found = release(case, selecting(step_settings(), threshold=0.1), torch.zeros(0), units)
    rows = [gradient for gradient in found.gradients if isinstance(gradient, RowGradient)]
    num_selected = sum(len(gradient.rows) for gradient in rows)
    num_rows = sum(len(case.model.parameters[name]) for name in case.model.tables)
    # The chance is 0.46.
    assert 0.2 * num_rows < num_selected < 0.8 * num_rows
    assert not any(gradient.values.any() for gradient in found.gradients)


def test_tables_that_a_truncated_batch_does_not_read_are_selected_by_coins() -> None:
    case = make_case(MODELS["semi-sensitive mlp"], MIXED)
    case.batch = dataclasses.replace(case.batch, sensitive_ids=None)
    found = release(case, selecting(step_settings(), threshold=0.1), torch.ones(9))
    rows = {g.name: g for g in found.gradients if isinstance(g, RowGradient)}
    assert rows.keys() == case.model.tables
    assert len(rows["sensitive.table.0"].rows) > 5
    assert not rows["sensitive.table.0"].values.any()


def test_parameters_outside_tables_get_whole_gradients() -> None:
    case = make_case(MODELS["semi-sensitive mlp"], MIXED)
    found = release(case, selecting(step_settings()), torch.ones(9))
    dense = {g.name for g in found.gradients if isinstance(g, DenseGradient)}
    assert dense == case.model.parameters.keys() - case.model.tables


def test_a_model_without_trained_tables_is_refused() -> None:
    case = make_case(MODELS["semi-sensitive mlp"], MIXED)
    settings = selecting(step_settings(towers=frozenset({"common"})))
    with pytest.raises(ConfigError, match="needs a trained table"):
        SelectedStep(case.model, settings, PLAIN, TrainingNoise(SeededNoise(1)), SeededNoise(1))


def test_settings_that_select_nothing_are_refused() -> None:
    case = make_case(MODELS["semi-sensitive mlp"], MIXED)
    settings = dataclasses.replace(step_settings(), mechanism=IndependentNoise())
    with pytest.raises(ConfigError, match="selects no rows"):
        SelectedStep(case.model, settings, PLAIN, TrainingNoise(SeededNoise(1)), SeededNoise(1))
