"""The engine of one process hands every batch of its sampler to its updates, once."""

import dataclasses
import math
from collections.abc import Mapping

import numpy as np
import pytest
import torch
from torch import Tensor

from tulle.data.samplers.poisson import Poisson
from tulle.data.samplers.truncated_poisson import TruncatedPoisson
from tulle.data.samplers.user_sampling import UserSampling
from tulle.errors import ConfigError, RunStateError
from tulle.mechanisms.entropy import SeededNoise
from tulle.train.examples import ExampleSet
from tulle.train.models.batches import ExampleBatch, batch_of
from tulle.train.run_context import NoiseMemory, NoisePlacement
from tulle.train.settings.band_matrix import BandMatrix
from tulle.train.settings.models import MLP, TOWERS
from tulle.train.settings.optimizers import SGD, Adam, RMSprop
from tulle.train.settings.step_mechanism import StepSampler
from tulle.train.settings.step_noise import BandedNoise, LatticeNoise, SelectedRows, StepNoise
from tulle.train.steps.host import DenseStep, HostPlace, LazyStep
from tulle.train.steps.places import host_step
from tulle.train.steps.private_step import BatchUnits
from tulle.train.steps.selected import SelectedStep
from tulle.train.steps.step_settings import Monitored, StepSettings
from tulle.train.steps.training_noise import TrainingNoise
from unit.train.models.test_tower_model import DATASETS, MODELS, feature
from unit.train.small_data import make_examples
from unit.train.steps.noiseless_updates import DENSE, LAZY, Training, assert_same, train
from unit.train.steps.step_reference import NoNoise, make_case, step_settings

CPU = torch.device("cpu")
EXAMPLES = make_examples(120, rows_per_user=3)
TRUNCATED = TruncatedPoisson.with_headroom(num_rows=120, max_batch_size=50, steps=6)
USERS = UserSampling(num_users=40, sampling_prob=0.3, steps=6, max_rows_per_user=3)
SHOWN = Monitored(loss=0.5, clipped_share=0.1, loss_noise=0.01)


class NotingUpdates:
    """Takes the place of updates and keeps what it is handed."""

    noise_description = "in words"

    def __init__(self) -> None:
        self.batches: list[ExampleBatch] = []
        self.weights: list[Tensor] = []
        self.units: list[BatchUnits | None] = []
        self.rates: list[float] = []
        self.loaded: Mapping[str, Tensor] = {}
        self.settled = [torch.ones(2)]

    def take(
        self, batch: ExampleBatch, weights: Tensor, units: BatchUnits | None, rate: float
    ) -> Monitored | None:
        self.batches.append(batch)
        self.weights.append(weights)
        self.units.append(units)
        self.rates.append(rate)
        return SHOWN

    def state(self) -> dict[str, Tensor]:
        return {"num_steps": torch.tensor(len(self.rates))}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        self.loaded = state


def engine_of(
    sampler: StepSampler, examples: ExampleSet = EXAMPLES, seed: int = 1
) -> tuple[HostPlace, NotingUpdates]:
    updates = NotingUpdates()
    engine = HostPlace(
        examples,
        sampler,
        updates,
        rng=SeededNoise(seed),
        device=CPU,
    )
    return engine, updates


@pytest.mark.parametrize("first_step", [0, 4])
@pytest.mark.parametrize("sampler", [TRUNCATED, Poisson(num_rows=120, sampling_prob=0.2, steps=6)])
def test_batches_are_those_of_the_sampler_from_the_first_step_on(
    sampler: TruncatedPoisson | Poisson, first_step: int
) -> None:
    engine, updates = engine_of(sampler)
    engine.begin(first_step)
    for _ in range(first_step, 6):
        engine.take([0.1])
    expected = list(sampler.batches(SeededNoise(1), first_step=first_step))
    assert len(updates.batches) == len(expected) == 6 - first_step
    for found, weights, batch in zip(updates.batches, updates.weights, expected, strict=True):
        rows = batch_of(EXAMPLES, batch.indices)
        assert torch.equal(found.public_ids, rows.public_ids)
        assert rows.labels is not None
        assert found.labels is not None
        assert torch.equal(found.labels, rows.labels)
        assert np.array_equal(weights.numpy(), batch.weights)
    assert updates.units == [None] * len(expected)
    with pytest.raises(StopIteration):
        engine.take([0.1])


def test_there_is_a_figure_for_every_rate() -> None:
    engine, updates = engine_of(TRUNCATED)
    engine.begin(0)
    assert engine.take([0.3, 0.2]) == [SHOWN, SHOWN]
    assert engine.take([0.1]) == [SHOWN]
    assert updates.rates == [0.3, 0.2, 0.1]
    assert HostPlace.steps_at_a_time == 1


def test_rows_of_a_user_come_together_with_their_weights() -> None:
    engine, updates = engine_of(USERS)
    engine.begin(0)
    for _ in range(6):
        engine.take([0.1])
    assert EXAMPLES.units is not None
    for batch, units, weights in zip(updates.batches, updates.units, updates.weights, strict=True):
        assert units is not None
        assert batch.labels is not None
        assert len(units.segments) == len(batch.labels) == 3 * units.num_segments
        assert torch.equal(units.weights, weights)
        torch.testing.assert_close(weights, torch.full_like(weights, 1 / 3))
        assert torch.equal(units.segments, torch.arange(units.num_segments).repeat_interleave(3))


def test_users_without_a_unit_column_are_refused() -> None:
    engine, _ = engine_of(USERS, dataclasses.replace(EXAMPLES, units=None))
    with pytest.raises(ConfigError, match="unit column"):
        engine.begin(0)


def test_no_step_is_taken_before_the_engine_begins() -> None:
    engine, updates = engine_of(TRUNCATED)
    with pytest.raises(StopIteration):
        engine.take([0.1])
    assert updates.rates == []


def test_states_settled_weights_and_words_are_those_of_the_updates() -> None:
    engine, updates = engine_of(TRUNCATED)
    engine.begin(0)
    engine.take([0.1])
    assert int(engine.state()["num_steps"]) == 1
    state = {"num_steps": torch.tensor(3)}
    engine.load_state(state)
    assert updates.loaded is state
    assert engine.settled is updates.settled
    assert engine.noise_description == "in words"


def test_other_sources_draw_other_batches() -> None:
    drawn = []
    for seed in (1, 2):
        engine, updates = engine_of(TRUNCATED, seed=seed)
        engine.begin(0)
        engine.take([0.1])
        drawn.append(updates.batches[0].public_ids)
    assert not torch.equal(*drawn)


FROZEN = TOWERS - {"public"}
MIXED = DATASETS["two tables a role"]
SMALL = Training(settings=MODELS["semi-sensitive mlp"], features=MIXED)

VARIANTS = {
    "plain": {},
    "no momentum": {"momentum": 0.0},
    "weight decay": {"weight_decay": 0.3},
    "weight decay without momentum": {"weight_decay": 0.3, "momentum": 0.0},
    "parts of a batch": {"rows_at_a_time": 4},
    "users": {"user_sizes": (1, 3, 2, 1)},
    "padding": {"has_padding": True},
    "frozen public tower": {"towers": FROZEN},
    "common tower alone": {"towers": frozenset({"common"})},
}


@pytest.mark.parametrize("dataset", ["shared tables", "separate tables", "no sensitive features"])
@pytest.mark.parametrize("model", MODELS)
def test_without_noise_lazy_and_dense_updates_train_the_same_model(
    model: str, dataset: str
) -> None:
    training = Training(settings=MODELS[model], features=DATASETS[dataset])
    dense = train(training, DENSE)
    assert_same(train(training, LAZY), dense)
    assert any(monitored.clipped_share > 0 for monitored in dense.monitored)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("model", MODELS)
def test_every_kind_of_batch_and_optimizer_agrees(model: str, variant: str) -> None:
    training = Training(settings=MODELS[model], features=MIXED, **VARIANTS[variant])
    assert_same(train(training, LAZY), train(training, DENSE))


@pytest.mark.parametrize("model", MODELS)
def test_single_precision_agrees(model: str) -> None:
    training = Training(settings=MODELS[model], features=MIXED, dtype=torch.float32)
    assert_same(train(training, LAZY), train(training, DENSE), tolerance=1e-5)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("first", [LAZY, DENSE])
def test_a_run_may_change_between_both_ways(first: NoisePlacement, variant: str) -> None:
    training = dataclasses.replace(SMALL, **VARIANTS[variant])
    second = DENSE if first is LAZY else LAZY
    changed = train(training, first, {3: second, 4: second, 11: first, 17: second})
    assert_same(changed, train(training, DENSE))


def test_batches_of_this_file_are_empty_clipped_and_repeated_now_and_then() -> None:
    batches = SMALL.batches()
    assert any(len(batch.public_ids) == 0 for batch in batches)
    ids = torch.cat([batch.public_ids[:, :4] for batch in batches]).tolist()
    assert any(len(set(row)) < len(row) for row in ids)
    shares = [monitored.clipped_share for monitored in train(SMALL, DENSE).monitored]
    # Of the public size of 7, with 9 rows in a batch.
    assert any(0 < share < 1 for share in shares)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_states_of_both_ways_have_the_same_entries(model: str, momentum: float) -> None:
    training = Training(settings=MODELS[model], features=MIXED, momentum=momentum)
    states = [training.start(training.new_model(), way).state() for way in (LAZY, DENSE)]
    shapes = [
        {name: (values.shape, values.dtype) for name, values in state.items()} for state in states
    ]
    assert shapes[0] == shapes[1]


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_a_state_settles_every_row_and_the_run_goes_on(momentum: float) -> None:
    training = dataclasses.replace(SMALL, momentum=momentum)
    models = [training.new_model() for _ in range(2)]
    lazy, dense = (training.start(m, way) for m, way in zip(models, (LAZY, DENSE), strict=True))
    has_waited = False
    for step, batch in enumerate(training.batches()):
        for updates in (lazy, dense):
            training.take(updates, step, batch)
        if step % 3 == 2:
            has_waited |= not agree(models[0].parameters, models[1].parameters)
            lazy.state()
            assert agree(models[0].parameters, models[1].parameters)
    assert has_waited, "rows were never behind, so nothing was settled"


def agree(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return all(
        torch.allclose(values, other[name], rtol=0, atol=1e-10) for name, values in one.items()
    )


def test_a_second_state_in_a_row_changes_nothing() -> None:
    case = make_case(SMALL.settings, MIXED, dtype=torch.float32)
    updates = noisy_updates(case.model)
    for _ in range(3):
        updates.take(case.batch, torch.ones(9), None, 0.1)
    first = {name: values.clone() for name, values in updates.state().items()}
    weights = {name: values.clone() for name, values in case.model.parameters.items()}
    again = updates.state()
    for name, values in first.items():
        assert torch.equal(values, again[name])
    for name, values in weights.items():
        assert torch.equal(values, case.model.parameters[name])


def noisy_updates(model: object) -> LazyStep:
    noise = TrainingNoise(SeededNoise(3))
    return LazyStep(model, step_settings(), SGD(learning_rate=0.1), noise)  # type: ignore[arg-type]


def test_after_a_state_every_entry_of_every_table_has_its_noise() -> None:
    case = make_case(SMALL.settings, MIXED, dtype=torch.float32)
    before = {name: values.clone() for name, values in case.model.parameters.items()}
    updates = noisy_updates(case.model)
    updates.take(case.batch, torch.ones(9), None, 0.1)
    for name in case.model.tables:
        assert torch.equal(case.model.parameters[name], before[name])
    state = updates.state()
    for name, values in case.model.parameters.items():
        assert bool((values != before[name]).all()), name
        assert bool((state[f"momentum.{name}"] != 0).all()), name


@pytest.mark.parametrize("towers", [TOWERS, FROZEN, frozenset({"common"})])
@pytest.mark.parametrize("model", MODELS)
def test_settled_are_exactly_the_trained_parameters_that_are_no_tables(
    model: str, towers: frozenset[str]
) -> None:
    training = Training(settings=MODELS[model], features=MIXED, towers=towers)
    built = training.new_model()
    trained = {n for n in built.parameters if n.partition(".")[0] in towers}
    for way, wanted in ((LAZY, trained - built.tables), (DENSE, trained)):
        places = {values.data_ptr() for values in training.start(built, way).settled}
        assert places == {built.parameters[name].data_ptr() for name in wanted}


def test_settled_parameters_have_their_noise_after_every_step() -> None:
    case = make_case(SMALL.settings, MIXED, dtype=torch.float32)
    updates = noisy_updates(case.model)
    for _ in range(3):
        before = [values.clone() for values in updates.settled]
        updates.take(case.batch, torch.ones(9), None, 0.1)
        for old, new in zip(before, updates.settled, strict=True):
            assert bool((old != new).all())


def with_entry(state: dict[str, Tensor], name: str, values: Tensor | None) -> dict[str, Tensor]:
    rest = {key: kept for key, kept in state.items() if key != name}
    return rest if values is None else rest | {name: values}


WRONG_ENTRIES = {
    "no momentum of a table": ("momentum.public.table.0", None),
    "no momentum of a layer": ("momentum.common.bias", None),
    "no number of steps": ("num_steps", None),
    "an unknown entry": ("velocity.public.table.0", torch.zeros(2)),
    "a table of another shape": ("momentum.public.table.0", torch.zeros(3, 1)),
    "a table of another type": ("momentum.public.table.0", torch.zeros(5, 1)),
    "a layer of another shape": ("momentum.common.bias", torch.zeros(2, dtype=torch.float64)),
    "a negative number of steps": ("num_steps", torch.tensor(-1)),
}


@pytest.mark.parametrize("wrong", WRONG_ENTRIES)
@pytest.mark.parametrize("way", [LAZY, DENSE])
def test_a_wrong_state_is_refused_and_changes_nothing(way: NoisePlacement, wrong: str) -> None:
    training = Training(
        settings=MODELS["logistic regression"], features=DATASETS["shared tables"], momentum=0.9
    )
    model = training.new_model()
    updates = training.start(model, way)
    for step, batch in enumerate(training.batches()[:3]):
        training.take(updates, step, batch)
    before = {name: values.clone() for name, values in updates.state().items()}
    other = {name: torch.full_like(values, 7) for name, values in before.items()}
    with pytest.raises(RunStateError, match=r"momentum|num_steps|velocity"):
        updates.load_state(with_entry(other, *WRONG_ENTRIES[wrong]))
    after = updates.state()
    assert after.keys() == before.keys()
    for name, values in before.items():
        torch.testing.assert_close(after[name], values, rtol=0, atol=1e-12)


def test_a_state_with_momentum_is_refused_without() -> None:
    model = SMALL.new_model()
    state = SMALL.start(model, LAZY).state()
    for way in (LAZY, DENSE):
        plain = dataclasses.replace(SMALL, momentum=0.0).start(model, way)
        with pytest.raises(RunStateError, match="momentum"):
            plain.load_state(state)


@pytest.mark.parametrize("optimizer", [Adam(learning_rate=0.1), RMSprop(learning_rate=0.1)])
def test_lazy_noise_is_refused_where_it_is_not_exact(optimizer: Adam | RMSprop) -> None:
    model = SMALL.new_model()
    arguments = (model, step_settings(), optimizer, NoNoise())
    with pytest.raises(ConfigError, match="under SGD only"):
        host_step(*arguments, NoisePlacement.LAZY, rng=SeededNoise(2))  # type: ignore[arg-type]
    for placement in (NoisePlacement.AUTO, NoisePlacement.DENSE):
        assert isinstance(
            host_step(*arguments, placement, rng=SeededNoise(2)),  # type: ignore[arg-type]
            DenseStep,
        )


@pytest.mark.parametrize(
    ("placement", "kind"),
    [
        (NoisePlacement.AUTO, LazyStep),
        (NoisePlacement.LAZY, LazyStep),
        (NoisePlacement.DENSE, DenseStep),
    ],
)
def test_sgd_is_lazy_unless_it_must_not_be(placement: NoisePlacement, kind: type) -> None:
    assert isinstance(SMALL.start(SMALL.new_model(), placement), kind)


MECHANISMS = [
    (LatticeNoise(), DenseStep),
    (BandedNoise(num_bands=2), DenseStep),
    (SelectedRows(), SelectedStep),
]


def with_noise(noise: StepNoise) -> StepSettings:
    return dataclasses.replace(step_settings(), mechanism=noise, num_steps=10)


@pytest.mark.parametrize(("mechanism", "kind"), MECHANISMS)
@pytest.mark.parametrize("optimizer", [SGD(learning_rate=0.1), Adam(learning_rate=0.1)])
def test_noise_is_what_the_settings_name(
    mechanism: StepNoise, kind: type, optimizer: SGD | Adam
) -> None:
    case = make_case(SMALL.settings, MIXED, dtype=torch.float32)
    noise = TrainingNoise(SeededNoise(1))
    arguments = (case.model, with_noise(mechanism), optimizer, noise)
    with pytest.raises(ConfigError, match="IndependentNoise"):
        host_step(*arguments, NoisePlacement.LAZY, rng=SeededNoise(2))
    for placement in (NoisePlacement.AUTO, NoisePlacement.DENSE):
        updates = host_step(*arguments, placement, rng=SeededNoise(2))
        assert type(updates) is kind
        assert updates.noise_description.startswith("fixed seed")
        updates.take(case.batch, torch.ones(9), None, 0.1)
    assert all(bool(values.isfinite().all()) for values in case.model.parameters.values())


def test_more_bands_than_steps_are_refused() -> None:
    settings = dataclasses.replace(with_noise(BandedNoise(num_bands=2)), num_steps=1)
    noise = TrainingNoise(SeededNoise(1))
    with pytest.raises(ConfigError, match="num_bands=2"):
        host_step(SMALL.new_model(), settings, Adam(learning_rate=0.1), noise, rng=SeededNoise(2))


@pytest.mark.parametrize("memory", [NoiseMemory.STORED, NoiseMemory.REGENERATED])
def test_correlated_noise_starts_again_where_a_state_is_loaded(memory: NoiseMemory) -> None:
    case = make_case(SMALL.settings, MIXED, size=0, dtype=torch.float64)
    updates = host_step(
        case.model,
        with_noise(BandedNoise(num_bands=3)),
        SGD(learning_rate=1.0, momentum=0.0),
        TrainingNoise(SeededNoise(1)),
        rng=SeededNoise(2),
        memory=memory,
    )
    moves = []
    for step in range(6):
        if step == 3:
            updates.load_state({name: values.clone() for name, values in updates.state().items()})
        before = flat(case.model.parameters)
        updates.take(case.batch, torch.zeros(0), None, 1.0)
        moves.append(before - flat(case.model.parameters))
    settings = with_noise(BandedNoise(num_bands=3))
    first, second, third = BandMatrix(num_bands=3, num_steps=10).coefficients.tolist()
    whole = [
        first * moves[step]
        + (second * moves[step - 1] if step not in (0, 3) else 0)
        + (third * moves[step - 2] if step not in (0, 1, 3, 4) else 0)
        for step in range(6)
    ]
    # Times the matrix, with its restart, the noise of steps is independent.
    scaled = torch.stack(whole) * settings.expected_size / settings.noise_stddev
    products = scaled @ scaled.T / scaled.shape[1]
    assert float((products - torch.eye(6)).abs().max()) < 6 / scaled.shape[1] ** 0.5


def flat(parameters: dict[str, Tensor]) -> Tensor:
    return torch.cat([values.flatten() for values in parameters.values()]).clone()


@pytest.mark.parametrize("user_sizes", [(), (2, 4, 3)])
def test_rows_whose_gradient_is_no_number_are_left_out(user_sizes: tuple[int, ...]) -> None:
    training = Training(
        settings=MLP(embedding_dim=2, public_hidden=(), common_hidden=(3,)),
        features=[feature("a", "public", 10)],
        user_sizes=user_sizes,
        num_steps=8,
    )
    ended = []
    for way in (LAZY, DENSE):
        model = training.new_model()
        model.parameters["public.table.0"][8] = math.nan
        updates = training.start(model, way)
        for step, batch in enumerate(training.batches()):
            training.take(updates, step, batch)
        updates.state()
        table = model.parameters["public.table.0"]
        assert bool(table[8].isnan().all())
        assert bool(table[:8].isfinite().all())
        assert bool(table[9].isfinite().all())
        ended.append(model.parameters)
    assert any(8 in batch.public_ids for batch in training.batches())
    for name, values in ended[0].items():
        torch.testing.assert_close(values, ended[1][name], rtol=0, atol=1e-10, equal_nan=True)
