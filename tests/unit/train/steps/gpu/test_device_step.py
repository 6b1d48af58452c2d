"""Steps that can be recorded equal autograd in float64, and the lazy steps of the processor."""

import dataclasses
import itertools
import math
from typing import Any

import pytest
import torch
from torch import Tensor

from tulle.errors import ConfigError, RunStateError
from tulle.train.models.batches import ExampleBatch
from tulle.train.settings.models import MLP, TOWERS
from tulle.train.steps.gpu.device_passes import device_passes
from tulle.train.steps.gpu.device_step import LayerParameters
from unit.train.models.test_tower_model import DATASETS, MODELS, feature
from unit.train.steps.gpu.device_steps import (
    SIZE,
    flat_sums,
    quiet_settings,
    raw_norms,
    start_step,
    sums_of,
    take,
    train_on_device,
)
from unit.train.steps.gpu.test_recorded_steps import GPU, RATES, engine_on, flat
from unit.train.steps.noiseless_updates import LAZY, Training, assert_same, train
from unit.train.steps.step_reference import Case, expected_rows, make_case

FROZEN = TOWERS - {"public"}
MIXED = DATASETS["two tables a role"]
TRAINED = {"all": TOWERS, "frozen public": FROZEN, "common alone": frozenset({"common"})}
ALL_MODELS = MODELS | {
    "mlp without layers": MLP(embedding_dim=3, public_hidden=(), common_hidden=()),
    "mlp with two layers in both towers": MLP(
        embedding_dim="fourth root",
        public_hidden=(4, 5),
        sensitive_hidden=(3, 4),
        common_hidden=(5,),
    ),
}
CLOSE = 1e-9


def assert_near(found: Tensor, expected: Tensor) -> None:
    scale = float(expected.abs().max()) if expected.numel() else 0.0
    torch.testing.assert_close(found, expected, rtol=CLOSE, atol=CLOSE * scale)


def clipped_rows(case: Case, towers: frozenset[str], limit: float) -> Tensor:
    rows = expected_rows(case, towers).gradients
    norms = rows.norm(dim=1, keepdim=True)
    return rows * torch.clamp(limit / norms.clamp(min=1e-300), max=1)


@pytest.mark.parametrize("dataset", DATASETS)
@pytest.mark.parametrize("model", ALL_MODELS)
def test_norms_and_clipped_sums_are_those_of_autograd(model: str, dataset: str) -> None:
    case = make_case(ALL_MODELS[model], DATASETS[dataset])
    settings = quiet_settings(clip_norm=0.9)
    step = start_step(case.model, settings)
    expected = expected_rows(case)
    norms = expected.gradients.norm(dim=1)
    assert_near(raw_norms(step, case.batch), norms)
    limit = settings.gradient_limit(1)
    assert bool((norms > limit).any())
    monitor = take(step, case.batch, torch.ones(9))
    rows = clipped_rows(case, TOWERS, limit)
    assert_near(flat_sums(step, case.model), rows.sum(0))
    sums = settings.coordinates.sums(expected.losses, norms > limit, torch.ones(9).double())
    assert_near(monitor.double(), sums)


@pytest.mark.parametrize("trained", TRAINED)
@pytest.mark.parametrize("model", ALL_MODELS)
def test_frozen_towers_and_padding_add_nothing(model: str, trained: str) -> None:
    towers = TRAINED[trained]
    case = make_case(ALL_MODELS[model], MIXED, seed=1)
    settings = quiet_settings(clip_norm=0.9, towers=towers)
    step = start_step(case.model, settings)
    weights = torch.tensor([1.0, 0, 1, 1, 0, 1, 0, 0, 1])
    monitor = take(step, case.batch, weights)
    limit = settings.gradient_limit(1)
    rows = clipped_rows(case, towers, limit)
    assert_near(flat_sums(step, case.model), weights.double() @ rows)
    expected = expected_rows(case, towers)
    is_clipped = expected.gradients.norm(dim=1) > limit
    sums = settings.coordinates.sums(expected.losses, is_clipped, weights.double())
    assert_near(monitor.double(), sums)
    names = {name for name in case.model.parameters if name.partition(".")[0] in towers}
    assert sums_of(step).keys() == names


@pytest.mark.parametrize("model", ALL_MODELS)
def test_a_batch_of_padding_adds_nothing(model: str) -> None:
    case = make_case(ALL_MODELS[model], MIXED)
    step = start_step(case.model, quiet_settings())
    assert float(take(step, case.batch, torch.zeros(9)).abs().max()) == 0
    assert float(flat_sums(step, case.model).abs().max()) == 0


@pytest.mark.parametrize("model", ALL_MODELS)
def test_a_row_that_one_example_reads_often_counts_once_with_its_sum(model: str) -> None:
    case = make_case(ALL_MODELS[model], DATASETS["shared tables"], size=3)
    case.batch.public_ids[:2] = torch.tensor([[2, 2, 2, 2], [1, 3, 1, 3]])
    assert case.batch.sensitive_ids is not None
    case.batch.sensitive_ids[:2] = torch.tensor([[1, 1, 1], [0, 2, 0]])
    step = start_step(case.model, quiet_settings(clip_norm=0.5))
    rows = expected_rows(case).gradients
    assert_near(raw_norms(step, case.batch), rows.norm(dim=1))
    take(step, case.batch, torch.ones(3))
    limit = quiet_settings(clip_norm=0.5).gradient_limit(1)
    assert_near(flat_sums(step, case.model), clipped_rows(case, TOWERS, limit).sum(0))


VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "no momentum": {"momentum": 0.0},
    "weight decay": {"weight_decay": 0.3},
    "weight decay without momentum": {"weight_decay": 0.3, "momentum": 0.0},
    "padding": {"has_padding": True},
    "frozen public tower": {"towers": FROZEN},
    "common tower alone": {"towers": frozenset({"common"})},
}


@pytest.mark.parametrize("dataset", ["shared tables", "separate tables", "no public features"])
@pytest.mark.parametrize("model", ALL_MODELS)
def test_without_noise_a_training_is_that_of_lazy_updates(model: str, dataset: str) -> None:
    training = Training(settings=ALL_MODELS[model], features=DATASETS[dataset], num_steps=12)
    assert_same(train_on_device(training), train(training, LAZY))


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(
    "model", ["semi-sensitive mlp", "factorization machine", "logistic regression"]
)
def test_every_kind_of_batch_and_optimizer_agrees(model: str, variant: str) -> None:
    training = Training(settings=MODELS[model], features=MIXED, num_steps=14)
    training = dataclasses.replace(training, **VARIANTS[variant])
    expected = train(training, LAZY)
    assert_same(train_on_device(training), expected)
    assert_same(train_on_device(training, prepares_ahead=False), expected)


@pytest.mark.parametrize("variant", ["plain", "no momentum", "weight decay"])
def test_a_training_may_go_on_from_its_state(variant: str) -> None:
    training = Training(settings=MODELS["semi-sensitive mlp"], features=MIXED, num_steps=14)
    training = dataclasses.replace(training, **VARIANTS[variant])
    changed = train_on_device(training, changes=(1, 5, 6, 13))
    assert_same(changed, train(training, LAZY))


@pytest.mark.parametrize("model", MODELS)
def test_single_precision_agrees(model: str) -> None:
    training = Training(settings=MODELS[model], features=MIXED, num_steps=12, dtype=torch.float32)
    assert_same(train_on_device(training), train(training, LAZY), tolerance=1e-5)


BAD = {"inf": math.inf, "minus inf": -math.inf, "nan": math.nan, "too large": 3e38}
# The gradient of a logistic regression is a number even where its logit is infinite.
WITHOUT_NORM = [
    (model, bad)
    for model, bad in itertools.product(ALL_MODELS, BAD)
    if "regression" not in model or bad == "nan"
]


@pytest.mark.parametrize("role", ["public", "sensitive"])
@pytest.mark.parametrize(("model", "bad"), WITHOUT_NORM)
def test_an_example_without_a_norm_adds_nothing_and_harms_no_other(
    model: str, bad: str, role: str
) -> None:
    features = [
        feature("p", "public", 20),
        feature("q", "public", 20),
        feature("s", "sensitive", 9),
    ]
    case = make_case(ALL_MODELS[model], features, dtype=torch.float32, size=9)
    # Every feature has rows of its own, so one example alone reads row 4 of a table.
    case.batch.public_ids[:] = torch.arange(9).unsqueeze(1)
    assert case.batch.sensitive_ids is not None
    case.batch.sensitive_ids[:] = torch.arange(9).unsqueeze(1)
    case.model.parameters[f"{role}.table.0"][4] = BAD[bad]
    for products in (torch.float32, torch.bfloat16):
        found = []
        for own_weight in (0.0, 1.0):
            weights = torch.ones(9)
            weights[4] = own_weight
            step = start_step(case.model, quiet_settings(clip_norm=0.5), products=products)
            assert raw_norms(step, case.batch).isfinite().tolist() == [n != 4 for n in range(9)]
            take(step, case.batch, weights)
            found.append(flat_sums(step, case.model))
        assert bool(found[0].isfinite().all())
        assert float(found[0].abs().max()) > 0
        assert torch.equal(*found)


def test_examples_without_a_norm_leave_a_training_as_it_was() -> None:
    training = Training(
        settings=MLP(embedding_dim=2, public_hidden=(), common_hidden=(3,)),
        features=[feature("a", "public", 10)],
        num_steps=8,
    )
    case = make_case(training.settings, training.features, size=0)
    case.model.parameters["public.table.0"][8] = math.nan
    step = start_step(case.model, quiet_settings())
    for batch in training.batches():
        if batch.labels is not None and len(batch.labels):
            take(step, batch, torch.ones(9), 0.1)
    step.state()
    is_number = case.model.parameters["public.table.0"].isfinite().all(1).tolist()
    assert is_number == [row != 8 for row in range(10)]
    for name in ("common.layer.0.weight", "common.layer.1.bias"):
        assert bool(case.model.parameters[name].isfinite().all())


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("model", ["semi-sensitive mlp", "factorization machine"])
def test_a_rehearsal_changes_nothing_but_the_numbers_of_draws(model: str, momentum: float) -> None:
    case = make_case(MODELS[model], MIXED, dtype=torch.float32)
    settings = quiet_settings(noise_multiplier=1.0)
    step = start_step(case.model, settings, momentum=momentum, weight_decay=0.1)
    take(step, case.batch, torch.ones(9), 0.1)
    step.state()

    def all_numbers() -> list[Tensor]:
        rows = step._rows.values()
        inner = [values for table in rows for values in (table.mean, table.variance)]
        clock = [step.ages.now, step.ages.drift, step.ages.kept, step.ages.weight_variance]
        found = [*case.model.parameters.values(), *inner, *step._layers.means.values(), *clock]
        return [values.clone() for values in found]

    before = all_numbers()
    for _ in range(2):
        step.rehearse(case.batch, torch.tensor([0.3], dtype=torch.float64))
    for old, new in zip(before, all_numbers(), strict=True):
        assert torch.equal(old, new)


def test_settled_are_the_trained_parameters_that_are_no_tables() -> None:
    case = make_case(MODELS["semi-sensitive mlp"], MIXED)
    names = {name for name in case.model.parameters if name.partition(".")[0] in FROZEN}
    step = start_step(case.model, quiet_settings(towers=FROZEN))
    places = {values.data_ptr() for values in step.settled}
    wanted = names - case.model.tables
    assert places == {case.model.parameters[name].data_ptr() for name in wanted}


def test_layers_have_their_noise_at_once_and_tables_with_a_state() -> None:
    case = make_case(MODELS["semi-sensitive mlp"], MIXED, dtype=torch.float32)
    before = {name: values.clone() for name, values in case.model.parameters.items()}
    step = start_step(case.model, quiet_settings(noise_multiplier=1.0))
    take(step, case.batch, torch.ones(9), 0.1)
    for name, values in case.model.parameters.items():
        has_moved = values != before[name]
        assert not bool(has_moved.any()) if name in case.model.tables else bool(has_moved.all())
    state = step.state()
    for name, values in case.model.parameters.items():
        assert bool((values != before[name]).all()), name
        assert bool((state[f"momentum.{name}"] != 0).all()), name


def test_a_second_state_in_a_row_changes_nothing() -> None:
    case = make_case(MODELS["semi-sensitive mlp"], MIXED, dtype=torch.float32)
    step = start_step(case.model, quiet_settings(noise_multiplier=1.0))
    for _ in range(3):
        take(step, case.batch, torch.ones(9), 0.1)
    first = {name: values.clone() for name, values in step.state().items()}
    weights = {name: values.clone() for name, values in case.model.parameters.items()}
    again = step.state()
    assert int(first["num_steps"]) == 3
    assert first.keys() == again.keys()
    assert all(torch.equal(values, again[name]) for name, values in first.items())
    for name, values in weights.items():
        assert torch.equal(values, case.model.parameters[name])


@pytest.mark.parametrize("name", ["public.table.0", "common.layer.0.weight"])
@pytest.mark.parametrize("values", [None, torch.zeros(1, 1)])
def test_a_state_without_a_momentum_is_refused(name: str, values: Tensor | None) -> None:
    case = make_case(MODELS["semi-sensitive mlp"], MIXED)
    step = start_step(case.model, quiet_settings())
    state = {key: kept for key, kept in step.state().items() if key != f"momentum.{name}"}
    if values is not None:
        state[f"momentum.{name}"] = values
    with pytest.raises(RunStateError, match="own settings"):
        step.load_state(state)


def test_a_step_without_a_batch_is_refused() -> None:
    case = make_case(MODELS["logistic regression"], MIXED)
    step = start_step(case.model, quiet_settings())
    with pytest.raises(RunStateError, match="prepare"):
        step.take(case.labels, torch.ones(9), torch.zeros(1).double(), None)


def test_more_steps_than_there_is_room_for_are_refused() -> None:
    case = make_case(MODELS["logistic regression"], MIXED)
    step = start_step(case.model, quiet_settings())
    step.count(200)
    with pytest.raises(ConfigError, match="max_steps=200"):
        step.count(1)
    step.state()
    step.count(1)


def test_a_model_of_another_kind_is_refused() -> None:
    with pytest.raises(ConfigError, match="object cannot be recorded"):
        device_passes(object(), TOWERS)  # type: ignore[arg-type]


def test_the_next_batch_is_read_in_place_of_the_first() -> None:
    """Recorded work looks at the memory of the first batch for good."""
    case = make_case(MODELS["semi-sensitive mlp"], MIXED)
    other = make_case(MODELS["semi-sensitive mlp"], MIXED, seed=5)
    step = start_step(case.model, quiet_settings())
    step.prepare(case.batch)
    assert step._reads is not None
    places = [read.rows.data_ptr() for read in step._reads.tables]
    step.prepare(other.batch)
    assert places == [read.rows.data_ptr() for read in step._reads.tables]
    wanted = case.model.reads(other.batch.public_ids, other.batch.sensitive_ids)
    for found, expected in itertools.zip_longest(step._reads.tables, wanted.tables):
        assert torch.equal(found.rows, expected.rows)


def test_sums_are_divided_by_the_expected_size_whatever_the_batch() -> None:
    case = make_case(MODELS["semi-sensitive mlp"], MIXED)
    before = case.model.parameters["common.layer.0.bias"].clone()
    step = start_step(case.model, quiet_settings(clip_norm=0.9), momentum=0.0)
    half = ExampleBatch(
        public_ids=case.batch.public_ids,
        sensitive_ids=case.batch.sensitive_ids,
        labels=case.labels,
    )
    weights = torch.tensor([1.0, 1, 1, 0, 0, 0, 0, 0, 0])
    take(step, half, weights, 0.5)
    moved = before - case.model.parameters["common.layer.0.bias"]
    assert_near(moved, 0.5 * sums_of(step)["common.layer.0.bias"] / SIZE)


def test_a_row_that_is_read_in_every_step_gets_new_noise_each_time() -> None:
    case = make_case(MODELS["semi-sensitive mlp"], MIXED, dtype=torch.float32)
    step = start_step(case.model, quiet_settings(noise_multiplier=1.0), momentum=0.0)
    table = case.model.parameters["public.table.0"]
    reads = case.model.reads(case.batch.public_ids, case.batch.sensitive_ids).tables[0]
    rows = torch.tensor(sorted(set(reads.rows.flatten().tolist())))
    seen = []
    for _ in range(4):
        take(step, case.batch, torch.zeros(9), 0.5, case.batch)
        seen.append(table[rows].clone())
    moves = torch.stack(seen).diff(dim=0)
    for one, other in itertools.combinations(moves, 2):
        assert float(((one - other).abs() < 1e-6).double().mean()) < 0.1


_CYCLES = 20_000_000


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_noise_that_is_drawn_late_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    engine, in_time = engine_on(GPU, "logistic regression")
    engine.take(RATES[:8])
    draw_noise = LayerParameters.draw_noise

    def late(self: LayerParameters, draw: Tensor) -> None:
        torch.cuda._sleep(_CYCLES)  # type: ignore[no-untyped-call]
        draw_noise(self, draw)

    monkeypatch.setattr(LayerParameters, "draw_noise", late)
    engine, delayed = engine_on(GPU, "logistic regression")
    engine.take(RATES[:8])
    for (name, values), others in zip(
        in_time.parameters.items(), delayed.parameters.values(), strict=True
    ):
        if name not in in_time.tables:
            assert torch.allclose(flat({name: values}), flat({name: others}), atol=1e-5), name
