"""Models trained with lazy noise have the law of those trained with dense noise.

Clipping, noise, updates and checkpoints are those of training. Models without layers train
side by side: each training has table rows of its own, and a batch holds examples of all of
them. Perceptrons train one by one.
"""

import dataclasses
import functools
import inspect
from collections.abc import Callable

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from statistical import faulty_lazy_updates as faulty
from statistical.law_checks import worst_score_between
from tulle.data.prepared.feature import PreparedFeature
from tulle.mechanisms.entropy import SeededNoise
from tulle.train.models.batches import ExampleBatch
from tulle.train.models.tower_model import TowerModel
from tulle.train.models.trained_towers import build_model
from tulle.train.settings.models import (
    MLP,
    TOWERS,
    FactorizationMachine,
    LogisticRegression,
    ModelSettings,
)
from tulle.train.settings.optimizers import SGD
from tulle.train.settings.phases import CosineDecay
from tulle.train.steps.gradient_noise import IndependentGradientNoise
from tulle.train.steps.host import DenseStep, LazyStep, ModelStep
from tulle.train.steps.step_settings import StepSettings
from tulle.train.steps.training_noise import TrainingNoise

Values = NDArray[np.float64]
MakeUpdates = Callable[..., ModelStep]

NUM_SIDE_BY_SIDE = 50_000
NUM_ONE_BY_ONE = 600
NUM_STEPS = 8
RESUME_AT = 5
IDS_PER_RUN = 3
PATTERN = ((0, 1), (0, 0), (), (1,), (0, 1), (), (1, 1), (0,))
"""The own ids whose examples are in the batch of each step. Id 2 is never read."""
MODELS: dict[str, ModelSettings] = {
    "logistic regression": LogisticRegression(),
    "factorization machine": FactorizationMachine(factor_dim=1, initial_stddev=0.5),
}
SETTINGS = StepSettings(
    clip_norm=0.8,
    noise_multiplier=0.7,
    expected_size=2.0,
    monitor_share=0.1,
    towers=TOWERS - {"common"},
)


def features(num_ids: int) -> list[PreparedFeature]:
    """Two features that share a table, and one of the other role."""
    names = (("a", "public", "p"), ("b", "public", "p"), ("c", "sensitive", "s"))
    return [
        PreparedFeature(name=name, role=role, num_ids=num_ids, table=table)
        for name, role, table in names
    ]


def batch_of(step: int, num_runs: int) -> ExampleBatch:
    """The same examples in every training; feature b always reads the first of its ids."""
    own = torch.tensor(PATTERN[step], dtype=torch.int64)
    first = IDS_PER_RUN * torch.arange(num_runs)[:, None]
    ids = (first + own).reshape(-1, 1)
    labels = (torch.arange(len(own)) + step).remainder(2).float().repeat(num_runs)
    return ExampleBatch(
        public_ids=torch.cat([ids, first.expand(-1, len(own)).reshape(-1, 1)], dim=1),
        sensitive_ids=ids,
        labels=labels,
    )


def trained(
    make: MakeUpdates,
    model: TowerModel,
    settings: StepSettings,
    noise: TrainingNoise,
    num_runs: int,
    momentum: float,
) -> list[dict[str, Tensor]]:
    """Weights and state at the checkpoint that the run goes on from, and at the end."""
    sgd = SGD(learning_rate=0.8, momentum=momentum)
    updates = make(model, settings, sgd, noise)
    seen = []
    for step in range(NUM_STEPS):
        if step == RESUME_AT:
            seen.append(_copy(model, updates))
            state = {name: values.clone() for name, values in updates.state().items()}
            updates = make(model, settings, sgd, noise)
            updates.load_state(state)
        batch = batch_of(step, num_runs)
        rate = 0.8 * CosineDecay().rate_factor(step, NUM_STEPS)
        updates.take(batch, torch.ones(len(batch.public_ids)), None, rate)
    seen.append(_copy(model, updates))
    return seen


def dense_updates(
    model: TowerModel, settings: StepSettings, sgd: SGD, noise: TrainingNoise
) -> DenseStep:
    return DenseStep(model, settings, sgd, IndependentGradientNoise(noise))


def _copy(model: TowerModel, updates: ModelStep) -> dict[str, Tensor]:
    state = updates.state()
    return {name: values.clone() for name, values in (model.parameters | state).items()}


@functools.cache
def side_by_side(make: MakeUpdates, model: str, seed: int, momentum: float = 0.9) -> Values:
    """[numbers seen, trainings]: first and last column of every own row of both tables."""
    num_runs = NUM_SIDE_BY_SIDE
    built = build_model(MODELS[model], features(IDS_PER_RUN * num_runs), seed=0)
    for name in built.tables:
        # All trainings start alike.
        table = built.parameters[name].view(num_runs, -1)
        table.copy_(table[0].clone())
    noise = TrainingNoise(SeededNoise(seed))
    seen = trained(make, built, SETTINGS, noise, num_runs, momentum)
    numbers = [
        checkpoint[key].view(num_runs, IDS_PER_RUN, -1)[:, :, column]
        for checkpoint in seen
        for name in sorted(built.tables)
        for key in (name, f"momentum.{name}")
        if key in checkpoint
        for column in ({0, -1} if built.parameters[name].shape[1] > 1 else {0})
    ]
    return torch.cat(numbers, dim=1).T.double().numpy()


@pytest.mark.parametrize(
    ("model", "momentum"),
    [("logistic regression", 0.0), ("logistic regression", 0.9), ("factorization machine", 0.9)],
)
def test_models_without_layers_have_the_law_of_dense_ones(model: str, momentum: float) -> None:
    dense = side_by_side(dense_updates, model, 1, momentum)
    lazy = side_by_side(LazyStep, model, 2, momentum)
    assert worst_score_between(dense, lazy) < 1
    assert worst_score_between(dense, 1.05 * lazy) > 1


FAULTS = [
    faulty.AddsTheSum,
    faulty.ReadsStaleRows,
    faulty.NoiseOfTheSum,
    faulty.LeavesRowsBehind,
    faulty.ForgetsMomentum,
    faulty.EndsStepsTwice,
]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_shows_in_models_without_layers(fault: type[LazyStep]) -> None:
    dense = side_by_side(dense_updates, "logistic regression", 1)
    wrong = side_by_side.__wrapped__(fault, "logistic regression", 2)
    assert worst_score_between(dense, wrong) > 1


@functools.cache
def one_by_one(make: MakeUpdates, seed: int) -> Values:
    """[numbers seen, trainings]: a few weights of every parameter of a perceptron."""
    settings = dataclasses.replace(SETTINGS, towers=TOWERS, noise_multiplier=0.4)
    model = MLP(embedding_dim=2, public_hidden=(), common_hidden=(3,), initial_stddev=0.5)
    built = build_model(model, features(IDS_PER_RUN), seed=0)
    start = {name: values.clone() for name, values in built.parameters.items()}
    noise = TrainingNoise(SeededNoise(seed))
    runs = []
    for _ in range(NUM_ONE_BY_ONE):
        for name, values in built.parameters.items():
            values.copy_(start[name])
        last = trained(make, built, settings, noise, 1, 0.9)[-1]
        runs.append([value for name in start for value in _few(last[name])])
    return np.array(runs).T


def _few(values: Tensor) -> list[float]:
    """The first entries of the first and the last row."""
    rows = values.reshape(len(values), -1)[:, 0]
    return [float(rows[0]), float(rows[-1])] if len(rows) > 1 else [float(rows[0])]


@pytest.mark.long("trains hundreds of perceptrons; models without layers are compared in make test")
def test_perceptrons_have_the_law_of_dense_ones() -> None:
    dense, lazy = one_by_one(dense_updates, 3), one_by_one(LazyStep, 4)
    assert worst_score_between(dense, lazy) < 1
    # Few trainings, so what they can tell apart is larger.
    assert worst_score_between(dense, 1.5 * lazy) > 1


@pytest.mark.long("trains hundreds of perceptrons; models without layers show it in make test")
def test_the_noise_of_the_sum_shows_in_perceptrons() -> None:
    wrong = one_by_one(faulty.NoiseOfTheSum, 4)
    assert worst_score_between(one_by_one(dense_updates, 3), wrong) > 1


def test_every_faulty_update_in_the_file_is_listed() -> None:
    planted = {
        member
        for _, member in inspect.getmembers(faulty, inspect.isclass)
        if member.__module__ == faulty.__name__ and not member.__name__.startswith("_")
    }
    assert planted == set(FAULTS)
