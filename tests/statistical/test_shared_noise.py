"""Several processes add the noise of one: each entry once, and each independently."""

import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from statistical.noise_checks import assert_gaussian
from tulle.data.prepared.feature import PreparedFeature
from tulle.mechanisms.entropy import NoiseSource, SeededNoise
from tulle.train.models.batches import ExampleBatch
from tulle.train.models.contributions import DenseGradient
from tulle.train.models.tower_model import TowerModel
from tulle.train.models.trained_towers import build_model
from tulle.train.settings.models import MLP, TOWERS, LogisticRegression
from tulle.train.settings.optimizers import SGD
from tulle.train.steps.gradient_noise import IndependentGradientNoise
from tulle.train.steps.private_step import StepRelease
from tulle.train.steps.processes.sharded import ShardedStep
from tulle.train.steps.processes.shared_steps import ReplicatedStep, SharedStep
from tulle.train.steps.step_settings import StepSettings
from tulle.train.steps.training_noise import TrainingNoise
from unit.train.models.reference_models import Settings
from unit.train.steps.processes.thread_processes import ThreadProcesses, run_together

WIDE = MLP(embedding_dim=16, public_hidden=(60,), sensitive_hidden=(60,), common_hidden=(160,))
SETTINGS = StepSettings(
    clip_norm=3.0, noise_multiplier=2.0, expected_size=12.0, monitor_share=0.1, towers=TOWERS
)
# Without dense sums all processes draw noise for rows alone, in step: one key would show.
ROWS_ALONE = dataclasses.replace(SETTINGS, monitor_share=0.0, towers=TOWERS - {"common"})
STEPS, RATE, MOMENTUM = 3, 0.5, 0.9
NUM_DRAWS = 40_000
# The noise of a step moves weights in this step and, through the momentum, in all later ones.
REACHES = [sum(MOMENTUM**later for later in range(left)) for left in range(1, STEPS + 1)]
STDDEV = (
    RATE
    * math.sqrt(sum(reach**2 for reach in REACHES))
    * SETTINGS.noise_stddev
    / SETTINGS.expected_size
)
BATCH = ExampleBatch(
    public_ids=torch.zeros((0, 1), dtype=torch.int64),
    sensitive_ids=torch.zeros((0, 1), dtype=torch.int64),
    labels=torch.zeros(0),
)

Start = Callable[[TowerModel, StepSettings, TrainingNoise, ThreadProcesses], SharedStep]
Values = NDArray[np.float64]


def sharded(
    model: TowerModel, settings: StepSettings, noise: TrainingNoise, processes: ThreadProcesses
) -> SharedStep:
    return ShardedStep(
        model, settings, SGD(learning_rate=RATE, momentum=MOMENTUM), noise, processes
    )


def replicated(
    model: TowerModel, settings: StepSettings, noise: TrainingNoise, processes: ThreadProcesses
) -> SharedStep:
    sgd, of_sums = SGD(learning_rate=RATE, momentum=MOMENTUM), IndependentGradientNoise(noise)
    return ReplicatedStep(model, settings, sgd, of_sums, processes)


def moves(
    start: Start, model_settings: Settings, settings: StepSettings, seeds: Sequence[int]
) -> dict[str, Values]:
    """How far steps without any row move the leader's weights: by noise alone."""
    num_ids = 20_000 if isinstance(model_settings, LogisticRegression) else 700
    features = [
        PreparedFeature(name=role, role=role, num_ids=num_ids, table=role)
        for role in ("public", "sensitive")
    ]

    def train(processes: ThreadProcesses) -> dict[str, Tensor]:
        model = build_model(model_settings, features, seed=0, dtype=torch.float64)
        before = {name: values.clone() for name, values in model.parameters.items()}
        noise = TrainingNoise(SeededNoise(seeds[processes.rank]))
        updates = start(model, settings, noise, processes)
        updates.share()
        for step in range(STEPS):
            updates.take(BATCH, torch.zeros(0), None, RATE)
            if step == 0:
                updates.state()
        updates.state()
        if processes.rank:
            return {}
        return {name: values - before[name] for name, values in model.parameters.items()}

    leader, _ = run_together(2, train)
    return {name: values.numpy() for name, values in leader.items()}


def entries(start: Start, *, of_tables: bool) -> Callable[[NoiseSource, int], Values]:
    """Weights of tables, or all others."""

    def draw(rng: NoiseSource, size: int) -> Values:
        seeds = [int(word) for word in rng.words(2)]
        moved = moves(start, WIDE, SETTINGS, seeds)
        chosen = [
            values.ravel() for name, values in moved.items() if ("table" in name) == of_tables
        ]
        return np.concatenate(chosen)[:size]

    return draw


def sums_of_neighbours(
    start: Start, *, same_key: bool = False
) -> Callable[[NoiseSource, int], Values]:
    """Of rows that different processes own, scaled back to the noise of one."""

    def draw(rng: NoiseSource, size: int) -> Values:
        first, second = (int(word) for word in rng.words(2))
        seeds = (first, first if same_key else second)
        moved = moves(start, LogisticRegression(), ROWS_ALONE, seeds)
        tables = [values for name, values in moved.items() if "table" in name]
        pairs = [(values[0::2] + values[1::2]) / math.sqrt(2) for values in tables]
        return np.concatenate([pair.ravel() for pair in pairs])[:size]

    return draw


@pytest.mark.parametrize("of_tables", [False, True], ids=["dense", "tables"])
@pytest.mark.parametrize("start", [sharded, replicated])
def test_every_weight_gets_the_noise_of_one_process(start: Start, of_tables: bool) -> None:
    assert_gaussian(entries(start, of_tables=of_tables), stddev=STDDEV, num_draws=NUM_DRAWS)


@pytest.mark.parametrize("start", [sharded, replicated])
def test_rows_of_different_processes_have_independent_noise(start: Start) -> None:
    assert_gaussian(sums_of_neighbours(start), stddev=STDDEV, num_draws=NUM_DRAWS)


@contextmanager
def each_adds_noise() -> Iterator[None]:
    """Planted: every process adds noise to its part before the parts are summed."""

    def noisy(self: SharedStep) -> StepRelease:
        for name, values in self._sums.items():
            self._noise.add_to_sum(name, values, self._settings.noise_stddev)
            self._processes.sum_at_leader(values)
            values.div_(self._settings.expected_size)
        gradients = [DenseGradient(name=name, values=self._sums[name]) for name in self._sums]
        return StepRelease(gradients=gradients, monitored=None)

    right = SharedStep._noisy
    SharedStep._noisy = noisy  # type: ignore[method-assign]
    try:
        yield
    finally:
        SharedStep._noisy = right  # type: ignore[method-assign]


@pytest.mark.parametrize("start", [sharded, replicated])
def test_noise_that_every_process_adds_is_caught(start: Start) -> None:
    with each_adds_noise(), pytest.raises(AssertionError, match="wrong for scale"):
        assert_gaussian(entries(start, of_tables=False), stddev=STDDEV, num_draws=NUM_DRAWS)


def test_one_key_for_the_rows_of_all_processes_is_caught() -> None:
    sampler = sums_of_neighbours(sharded, same_key=True)
    with pytest.raises(AssertionError, match="wrong for scale"):
        assert_gaussian(sampler, stddev=STDDEV, num_draws=NUM_DRAWS)
