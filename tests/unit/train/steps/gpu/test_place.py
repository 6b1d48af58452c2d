"""The engine of a GPU, run eagerly on the processor, takes the steps of its sampler."""

import dataclasses

import numpy as np
import pytest
import torch
from torch import Tensor

from tulle.data.samplers.truncated_poisson import TruncatedPoisson
from tulle.errors import ConfigError, DataError
from tulle.mechanisms.entropy import NoiseSource, SeededNoise, release_rng
from tulle.train.examples import ExampleSet
from tulle.train.models.batches import batch_of
from tulle.train.models.tower_model import TowerModel
from tulle.train.models.trained_towers import build_model
from tulle.train.settings.models import FactorizationMachine, LogisticRegression, ModelSettings
from tulle.train.settings.optimizers import SGD
from tulle.train.steps.gpu.device_step import DeviceStep
from tulle.train.steps.gpu.place import DeviceBatches, GpuPlace
from tulle.train.steps.host import HostPlace, LazyStep
from tulle.train.steps.training_noise import TrainingNoise
from unit.train.small_data import FEATURES, SMALL_MLP, make_examples
from unit.train.steps.gpu.device_steps import CPU, HALF_SLACK, quiet_settings
from unit.train.steps.step_reference import NoNoise

EXAMPLES = make_examples(200)
SAMPLER = TruncatedPoisson.with_headroom(num_rows=200, max_batch_size=60, steps=200)
SGD_SETTINGS = SGD(learning_rate=0.5, momentum=0.9, weight_decay=0.01)
RATES = [0.5, 0.4, 0.0, 0.3, 0.3, 0.2, 0.1]
MODELS: dict[str, ModelSettings] = {
    "mlp": SMALL_MLP,
    "factorization machine": FactorizationMachine(factor_dim=3),
    "logistic regression": LogisticRegression(),
}


@dataclasses.dataclass
class Setup:
    engine: GpuPlace
    step: DeviceStep
    model: TowerModel


def build(model: str = "mlp") -> TowerModel:
    built = build_model(MODELS[model], FEATURES, seed=2)
    rng = torch.Generator().manual_seed(1)
    for values in built.parameters.values():
        values.copy_(0.5 * torch.randn(values.shape, generator=rng))
    return built


def graph_engine(
    model: TowerModel,
    *,
    noise_multiplier: float = 0.0,
    rng: NoiseSource | None = None,
    examples: ExampleSet = EXAMPLES,
    monitor_share: float = 0.1,
    products: torch.dtype = torch.float32,
) -> Setup:
    rng = SeededNoise(3) if rng is None else rng
    settings = quiet_settings(
        noise_multiplier=noise_multiplier,
        monitor_share=monitor_share,
        clip_norm=0.7,
        clip_slack=HALF_SLACK,
    )
    step = DeviceStep(
        model,
        settings,
        SGD_SETTINGS,
        rng=rng,
        max_reads=SAMPLER.max_batch_size * 5,
        max_steps=40,
        products=products,
    )
    engine = GpuPlace(examples, SAMPLER, step, settings=settings, rng=rng, device=CPU)
    engine.begin(0)
    return Setup(engine, step, model)


def lazy_updates(model: TowerModel) -> LazyStep:
    settings = quiet_settings(noise_multiplier=1.0, clip_norm=0.7, clip_slack=HALF_SLACK)
    return LazyStep(model, settings, SGD_SETTINGS, NoNoise())  # type: ignore[arg-type]


def copies(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: values.clone() for name, values in tensors.items()}


def assert_same(one: dict[str, Tensor], other: dict[str, Tensor]) -> None:
    assert one.keys() == other.keys()
    for name, values in one.items():
        torch.testing.assert_close(values, other[name], rtol=0, atol=2e-6, msg=name)


@pytest.mark.parametrize("model", MODELS)
def test_without_noise_steps_are_those_of_the_processor_on_the_same_batches(model: str) -> None:
    setup = graph_engine(build(model))
    updates = lazy_updates(other := build(model))
    batches = DeviceBatches(SAMPLER, rng=rng_after_keys(build(model)), device=CPU)
    for rates in (RATES, RATES[:1], RATES[2:5]):
        monitored = setup.engine.take(rates)
        indices, weights = batches.draw(len(rates))
        for rate, own, own_weights, seen in zip(rates, indices, weights, monitored, strict=True):
            batch = batch_of(EXAMPLES, own.numpy())
            expected = updates.take(batch, own_weights, None, rate)
            assert seen is not None
            assert expected is not None
            assert seen.loss == pytest.approx(expected.loss, abs=1e-4)
            assert seen.clipped_share == pytest.approx(expected.clipped_share, abs=1e-4)
    assert_same(setup.engine.state(), updates.state())
    assert_same(dict(setup.model.parameters), dict(other.parameters))


def rng_after_keys(model: TowerModel) -> NoiseSource:
    """The source as it is once a step has taken its keys."""
    rng = SeededNoise(3)
    DeviceStep(model, quiet_settings(), SGD_SETTINGS, rng=rng, max_reads=10, max_steps=2)
    return rng


def test_batches_are_those_of_the_sampler_and_never_come_twice() -> None:
    setup = graph_engine(build())
    seen = []
    for count in (7, 3, 32):
        setup.engine.take([0.1] * count)
        seen += [tuple(row) for row in setup.engine._indices[:count].tolist()]
        setup.engine.state()
    assert len(set(seen)) == 42
    batches = DeviceBatches(SAMPLER, rng=rng_after_keys(build()), device=CPU)
    assert seen == [tuple(row) for row in batches.draw(42)[0].tolist()]


@pytest.mark.parametrize("count", [1, 5, 32])
def test_there_is_a_noisy_figure_for_every_rate(count: int) -> None:
    setup = graph_engine(build(), noise_multiplier=1.0)
    monitored = setup.engine.take([0.01] * count)
    assert len(monitored) == count
    losses = {seen.loss for seen in monitored if seen is not None}
    assert len(losses) == count
    quiet = graph_engine(build()).engine.take([0.01] * count)
    for noisy, plain in zip(monitored, quiet, strict=True):
        assert noisy is not None
        assert plain is not None
        assert plain.loss_noise == 0
        assert noisy.loss != plain.loss
        assert noisy.loss_noise > 0


def test_a_run_without_a_monitor_shows_nothing() -> None:
    setup = graph_engine(build(), monitor_share=0.0, noise_multiplier=1.0)
    assert setup.engine.take([0.1, 0.1]) == [None, None]


@pytest.mark.parametrize("count", [0, 33])
def test_more_steps_than_fit_are_refused_and_not_taken(count: int) -> None:
    setup = graph_engine(build(), noise_multiplier=1.0)
    before = copies(setup.model.parameters)
    with pytest.raises(ConfigError, match=f"{count} steps at once"):
        setup.engine.take([0.1] * count)
    assert int(setup.engine.state()["num_steps"]) == 0
    assert_same(before, dict(setup.model.parameters))


def test_more_steps_than_there_is_room_for_are_refused_before_one_is_taken() -> None:
    setup = graph_engine(build(), noise_multiplier=1.0)
    setup.engine.take([0.1] * 30)
    drawn = setup.engine._batches._num_drawn.clone()
    with pytest.raises(ConfigError, match="max_steps=40"):
        setup.engine.take([0.1] * 11)
    assert torch.equal(setup.engine._batches._num_drawn, drawn)
    assert int(setup.engine.state()["num_steps"]) == 30
    setup.engine.take([0.1] * 11)


@pytest.mark.parametrize("model", MODELS)
def test_a_state_of_the_processor_is_taken_over_and_the_other_way_round(model: str) -> None:
    updates = lazy_updates(first := build(model))
    host = HostPlace(
        EXAMPLES,
        SAMPLER,
        updates,
        rng=SeededNoise(1),
        device=CPU,
    )
    host.begin(0)
    host.take(RATES)
    state = copies(host.state())
    setup = graph_engine(second := build(model))
    for name, values in first.parameters.items():
        second.parameters[name].copy_(values)
    setup.engine.load_state(state)
    assert_same(setup.engine.state(), state)
    assert_same(dict(second.parameters), dict(first.parameters))
    setup.engine.take(RATES)
    later = copies(setup.engine.state())
    assert int(later["num_steps"]) == 2 * len(RATES)
    third = build(model)
    for name, values in second.parameters.items():
        third.parameters[name].copy_(values)
    back = lazy_updates(third)
    back.load_state(later)
    assert_same(back.state(), later)
    # Both go on alike.
    rows = batch_of(EXAMPLES, np.arange(60))
    back.take(rows, torch.ones(60), None, 0.3)
    assert rows.labels is not None
    setup.step.prepare(rows)
    setup.step.count(1)
    setup.step.take(rows.labels, torch.ones(60), torch.tensor([0.3]).double(), None)
    assert_same(setup.engine.state(), back.state())
    assert_same(dict(second.parameters), dict(third.parameters))


@pytest.mark.parametrize("products", [torch.float32, torch.bfloat16])
def test_no_two_engines_share_noise_or_batches(products: torch.dtype) -> None:
    ended, batches = [], []
    for _ in range(2):
        rng = release_rng()
        setup = graph_engine(build(), noise_multiplier=1.0, rng=rng, products=products)
        setup.engine.take(RATES)
        batches.append(setup.engine._indices.clone())
        state = setup.engine.state()
        found = [*setup.model.parameters.values(), *state.values()]
        ended.append(torch.cat([v.flatten().float() for v in found if v.dim()]))
    assert not bool((ended[0] == ended[1]).any())
    assert not torch.equal(*batches)


def test_one_seed_gives_one_run() -> None:
    ended = []
    for _ in range(2):
        setup = graph_engine(build(), noise_multiplier=1.0)
        setup.engine.take(RATES)
        setup.engine.state()
        ended.append(torch.cat([v.flatten() for v in setup.model.parameters.values()]))
    assert torch.equal(*ended)


def test_a_rehearsal_before_the_first_step_changes_no_number() -> None:
    setup = graph_engine(build(), noise_multiplier=1.0)
    setup.engine.take(RATES)
    state, weights = copies(setup.engine.state()), copies(setup.model.parameters)
    batch = setup.engine._rows.ids(setup.engine._indices[0])
    setup.step.rehearse(batch, setup.engine._rates[:1])
    again = setup.engine.state()
    for one, other in ((state, again), (weights, setup.model.parameters)):
        for name, values in one.items():
            assert torch.equal(values, other[name]), name


def test_settled_weights_are_noisy_after_every_call_and_tables_with_a_state() -> None:
    setup = graph_engine(build(), noise_multiplier=1.0)
    before = [values.clone() for values in setup.engine.settled]
    setup.engine.take([0.1])
    for old, new in zip(before, setup.engine.settled, strict=True):
        assert bool((old != new).all())
    places = {values.data_ptr() for values in setup.engine.settled}
    names = setup.model.parameters.keys() - setup.model.tables
    assert places == {setup.model.parameters[name].data_ptr() for name in names}


def test_the_description_names_source_and_generator() -> None:
    setup = graph_engine(build(), rng=SeededNoise(7))
    assert setup.engine.noise_description.startswith("fixed seed 7, Philox")
    assert "not cryptographic" in setup.engine.noise_description


def test_rows_that_were_selected_are_the_ones_that_are_read() -> None:
    """Places of the sampler count selected rows, some of them repeated."""
    places = np.arange(400) % 150 + 20
    chosen = make_examples(300).select(places)
    rows = graph_engine(build(), examples=chosen).engine._rows
    some = torch.tensor([0, 7, 150, 399])
    found, expected = rows.ids(some), batch_of(chosen, some.numpy())
    assert found.sensitive_ids is not None
    assert torch.equal(found.public_ids, expected.public_ids)
    assert expected.sensitive_ids is not None
    assert torch.equal(found.sensitive_ids, expected.sensitive_ids)
    assert expected.labels is not None
    assert torch.equal(rows.labels(some), expected.labels)


def test_data_without_labels_are_refused() -> None:
    with pytest.raises(DataError, match="no labels"):
        graph_engine(build(), examples=dataclasses.replace(EXAMPLES, labels=None))


def test_training_noise_of_the_processor_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("noise of the processor")

    monkeypatch.setattr(TrainingNoise, "add_to", refuse)
    monkeypatch.setattr(TrainingNoise, "fill", refuse)
    setup = graph_engine(build(), noise_multiplier=1.0)
    assert len(setup.engine.take(RATES)) == len(RATES)
    assert int(setup.engine.state()["num_steps"]) == len(RATES)
