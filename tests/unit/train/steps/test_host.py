"""The engine of one process hands every batch of its sampler to its updates, once."""

import dataclasses
from collections.abc import Mapping

import numpy as np
import pytest
import torch
from torch import Tensor

from tulle.data.samplers.poisson import Poisson
from tulle.data.samplers.truncated_poisson import TruncatedPoisson
from tulle.data.samplers.user_sampling import UserSampling
from tulle.errors import ConfigError
from tulle.mechanisms.entropy import SeededNoise
from tulle.train.examples import ExampleSet
from tulle.train.models.batches import ExampleBatch, batch_of
from tulle.train.settings.step_mechanism import StepSampler
from tulle.train.steps.host import HostPlace
from tulle.train.steps.private_step import BatchUnits, Monitored
from unit.train.small_data import make_examples

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
