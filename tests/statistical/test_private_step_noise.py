"""Every parameter of a private step, and its monitor, gets the stated noise, each its own."""

import dataclasses

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from statistical.noise_checks import assert_gaussian
from statistical.test_training_noise import STDDEV, assert_independent
from tulle.data.prepared.feature import PreparedFeature
from tulle.mechanisms.entropy import SeededNoise
from tulle.train.models.batches import ExampleBatch
from tulle.train.models.trained_towers import build_model
from tulle.train.settings.models import (
    MLP,
    TOWERS,
    FactorizationMachine,
    LogisticRegression,
    ModelSettings,
)
from tulle.train.steps.gradient_noise import IndependentGradientNoise
from tulle.train.steps.private_step import BatchUnits, PrivateStep, StepRelease
from tulle.train.steps.step_settings import LOSS_BOUND, StepSettings
from tulle.train.steps.training_noise import TrainingNoise
from unit.train.steps.step_reference import NoNoise

Values = NDArray[np.float64]

SETTINGS = StepSettings(
    clip_norm=0.5, noise_multiplier=1.4, expected_size=20.0, monitor_share=0.1, towers=TOWERS
)
STATED = 1.4 * 0.5 / 20.0
MONITOR_STATED = STATED / SETTINGS.coordinates.scale
NUM_STEPS = 40_000


def features(num_ids: int) -> list[PreparedFeature]:
    return [
        PreparedFeature(name="a", role="public", num_ids=num_ids, table="a"),
        PreparedFeature(name="b", role="sensitive", num_ids=num_ids, table="b"),
    ]


def assert_stated_noise(values: Values, stddev: float = STATED) -> None:
    halves = iter(np.array_split(values, 2))
    assert_gaussian(lambda _, __: next(halves), stddev=stddev, num_draws=len(values))


def empty_batch() -> ExampleBatch:
    ids = torch.zeros(0, 1, dtype=torch.int64)
    return ExampleBatch(public_ids=ids, sensitive_ids=ids, labels=torch.zeros(0))


def first_entries(released: StepRelease) -> list[float]:
    entries = [gradient.values.view(-1)[0].item() for gradient in released.gradients]
    assert released.monitored is not None
    return [*entries, released.monitored.loss / LOSS_BOUND, released.monitored.clipped_share]


def many_steps(model: ModelSettings) -> dict[str, Values]:
    """The first entry of every parameter, and the monitor, over many steps without rows."""
    built = build_model(model, features(2), seed=0)
    step = PrivateStep(built, SETTINGS, IndependentGradientNoise(TrainingNoise(SeededNoise(11))))
    batch, weights = empty_batch(), torch.zeros(0)
    steps = np.array([first_entries(step.release(batch, weights)) for _ in range(NUM_STEPS)])
    return dict(zip([*built.parameters, "monitor.loss", "monitor.share"], steps.T, strict=True))


@pytest.mark.parametrize(
    "model",
    [
        pytest.param(MLP(embedding_dim=1, public_hidden=(2,), common_hidden=()), id="mlp"),
        pytest.param(
            LogisticRegression(),
            id="logistic regression",
            marks=pytest.mark.long(
                "the same noise on fewer parameters; make test has it on those of the mlp, and "
                "this model's noise beside a batch"
            ),
        ),
    ],
)
def test_noise_of_every_parameter_is_as_stated_and_independent(model: ModelSettings) -> None:
    samples = many_steps(model)
    same_scale = []
    for name, values in samples.items():
        stated = MONITOR_STATED if name.startswith("monitor.") else STATED
        assert_stated_noise(values, stated)
        same_scale.append(values / stated * STDDEV)
    assert_independent(same_scale)
    for values in same_scale:
        assert_independent([values[:-1], values[1:]])


LARGE = {
    "mlp": MLP(embedding_dim=8, public_hidden=(250,), sensitive_hidden=(250,), common_hidden=(80,)),
    "factorization machine": FactorizationMachine(factor_dim=7),
    "logistic regression": LogisticRegression(),
}


@pytest.mark.parametrize("units", [None, 3], ids=["rows", "users"])
@pytest.mark.parametrize("model", LARGE)
def test_noise_beside_a_batch_is_as_stated(model: str, units: int | None) -> None:
    built = build_model(LARGE[model], features(40_000), seed=0)
    ids = torch.arange(6)[:, None]
    batch = ExampleBatch(public_ids=ids, sensitive_ids=ids, labels=torch.ones(6))
    users = None
    if units is not None:
        segments = torch.arange(6) // (6 // units)
        users = BatchUnits(segments=segments, weights=torch.full((6,), 0.5), num_segments=units)
    noiseless = PrivateStep(built, SETTINGS, NoNoise())
    noisy = PrivateStep(built, SETTINGS, IndependentGradientNoise(TrainingNoise(SeededNoise(12))))
    raw = noiseless.release(batch, torch.ones(6), users).gradients
    found = noisy.release(batch, torch.ones(6), users).gradients
    checked = 0
    for one, other in zip(found, raw, strict=True):
        noise = (one.values - other.values).double().numpy().ravel()
        # Single-precision normals are exactly 0 once in 2^23 draws.
        assert np.count_nonzero(noise == 0) <= 3
        if noise.size >= 40_000:
            assert_stated_noise(noise[:40_000])
            checked += 1
    assert checked >= 2


def test_a_frozen_tower_leaves_the_noise_of_the_others_as_it_is() -> None:
    built = build_model(LogisticRegression(), features(40_000), seed=0)
    frozen = dataclasses.replace(SETTINGS, towers=TOWERS - {"public"})
    step = PrivateStep(built, frozen, IndependentGradientNoise(TrainingNoise(SeededNoise(13))))
    released = step.release(empty_batch(), torch.zeros(0)).gradients
    assert [gradient.name for gradient in released] == ["sensitive.table.0", "common.bias"]
    assert_stated_noise(released[0].values.double().numpy().ravel())
