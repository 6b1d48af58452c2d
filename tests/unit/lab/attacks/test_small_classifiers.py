"""The private classifier bounds and noises every example; faults are seen by the same audit."""

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statistical.noise_checks import assert_gaussian
from tulle.accounting.accountant import pld_epsilon, privacy_curve
from tulle.audit.profile import ProfileAuditConfig, audit_profile
from tulle.errors import ConfigError
from tulle.lab.attacks.small_classifiers import (
    FloatArray,
    NoisyGradientSteps,
    PlainGradientSteps,
    clipped_sum,
    example_gradients,
    train_plainly,
    train_privately,
)
from tulle.mechanisms.entropy import NoiseSource, SeededNoise
from tulle.privacy.units import Adjacency

ONE_STEP = NoisyGradientSteps(noise_multiplier=1.0, expected_examples=1, num_steps=1)
SURE = ProfileAuditConfig(false_alarm_prob=1e-9)
CLAIM = privacy_curve(ONE_STEP.event(), Adjacency.ADD_OR_REMOVE)


def examples(num_examples: int, num_features: int, seed: int = 1) -> tuple[FloatArray, FloatArray]:
    rng = np.random.default_rng(seed)
    features = rng.standard_normal((num_examples, num_features))
    return features, np.where(features[:, 0] + rng.standard_normal(num_examples) > 0, 1.0, -1.0)


def test_gradients_are_slopes_of_the_loss() -> None:
    features, labels = examples(7, 4)
    weights = np.array([0.5, -1.0, 2.0, 0.1])

    def losses(at: FloatArray) -> FloatArray:
        return np.log1p(np.exp(-labels * (features @ at)))

    for feature in range(4):
        step = np.eye(4)[feature] * 1e-6
        slopes = (losses(weights + step) - losses(weights - step)) / 2e-6
        found = example_gradients(weights, features, labels)[:, feature]
        assert found == pytest.approx(slopes, abs=1e-8)


@given(seed=st.integers(0, 2**32), clip_norm=st.floats(1e-3, 1e3), size=st.floats(0, 1e6))
def test_one_example_moves_the_clipped_sum_by_no_more_than_the_clip_norm(
    seed: int, clip_norm: float, size: float
) -> None:
    gradients = size * np.random.default_rng(seed).standard_normal((5, 3))
    moved = clipped_sum(gradients, clip_norm) - clipped_sum(gradients[1:], clip_norm)
    assert np.linalg.norm(moved) <= clip_norm * (1 + 1e-9)


def test_clipping_the_sum_instead_would_be_seen() -> None:
    # The planted fault: one example turns the direction of the whole sum.
    gradients = np.array([[100.0, 0.0], [-60.0, 0.0]])

    def clip_after_summing(rows: FloatArray) -> FloatArray:
        total = rows.sum(axis=0)
        return np.asarray(total / max(1.0, float(np.linalg.norm(total))))

    moved = clip_after_summing(gradients) - clip_after_summing(gradients[1:])
    assert np.linalg.norm(moved) > 1.9
    assert np.linalg.norm(clipped_sum(gradients, 1.0) - clipped_sum(gradients[1:], 1.0)) <= 1.0


def test_small_gradients_are_not_scaled() -> None:
    gradients = np.array([[0.1, 0.2], [0.3, -0.4], [0.0, 0.0]])
    assert clipped_sum(gradients, 1.0) == pytest.approx([0.4, -0.2], abs=1e-15)


def test_a_step_has_noise_of_the_stated_scale() -> None:
    def sample(rng: NoiseSource, size: int) -> FloatArray:
        return train_privately(np.zeros((0, size)), np.zeros(0), settings, rng=rng)

    settings = dataclasses.replace(
        ONE_STEP, noise_multiplier=3.0, clip_norm=0.5, learning_rate=2.0, expected_examples=10
    )
    assert_gaussian(sample, stddev=3.0 * 0.5 * 2.0 / 10)


def scores_of_steps(
    settings: NoisyGradientSteps, num_runs: int, *, size: float = 4.0
) -> tuple[FloatArray, FloatArray]:
    """The weight that an example would move, over many runs with and without it."""
    features, labels = np.array([[size, 0.0]]), np.array([1.0])
    runs = []
    for offset, num_rows in ((0, 1), (num_runs, 0)):
        runs.append(
            np.array(
                [
                    train_privately(
                        features[:num_rows],
                        labels[:num_rows],
                        settings,
                        rng=SeededNoise(offset + number),
                    )[0]
                    for number in range(num_runs)
                ]
            )
        )
    return runs[0], runs[1]


def test_the_trained_weights_keep_the_claim_and_half_the_noise_does_not() -> None:
    with_example, without = scores_of_steps(ONE_STEP, 4000)
    result = audit_profile(with_example, without, CLAIM, SURE)
    assert not result.is_violated
    assert result.epsilon_lower_bound > 0.5
    half = dataclasses.replace(ONE_STEP, noise_multiplier=0.5)
    assert audit_profile(*scores_of_steps(half, 4000), CLAIM, SURE).is_violated
    # An example that is clipped to twice the norm that the noise is for.
    loose = dataclasses.replace(ONE_STEP, clip_norm=2.0, noise_multiplier=0.5)
    assert audit_profile(*scores_of_steps(loose, 4000), CLAIM, SURE).is_violated


def test_all_steps_together_meet_the_target_and_less_noise_does_not() -> None:
    settings = NoisyGradientSteps.for_epsilon(1.5, 1e-5, expected_examples=100)
    spent = pld_epsilon(settings.event(), 1e-5, Adjacency.ADD_OR_REMOVE)
    assert 1.49 < spent <= 1.5
    less = dataclasses.replace(settings, noise_multiplier=0.95 * settings.noise_multiplier)
    assert pld_epsilon(less.event(), 1e-5, Adjacency.ADD_OR_REMOVE) > 1.5


def test_without_clip_and_noise_private_training_is_plain_training() -> None:
    features, labels = examples(50, 5)
    plain = train_plainly(features, labels, PlainGradientSteps(num_steps=20, learning_rate=0.5))
    settings = NoisyGradientSteps(
        noise_multiplier=1e-6,
        expected_examples=50,
        num_steps=20,
        learning_rate=0.5,
        clip_norm=100.0,
    )
    found = train_privately(features, labels, settings, rng=SeededNoise(1))
    assert found == pytest.approx(plain, abs=1e-4)
    assert np.mean(labels * (features @ plain) > 0) > 0.6


def test_sums_are_divided_by_a_public_number_not_by_that_of_the_examples() -> None:
    features = np.full((10, 1), 2.0)
    settings = NoisyGradientSteps(
        noise_multiplier=1e-6, expected_examples=40, num_steps=1, clip_norm=10.0
    )
    found = train_privately(features, np.ones(10), settings, rng=SeededNoise(1))
    # Ten gradients of -1 each, over 40.
    assert found == pytest.approx([0.25], abs=1e-5)


@pytest.mark.parametrize(
    "settings",
    [
        {"noise_multiplier": 0.0},
        {"noise_multiplier": math.inf},
        {"clip_norm": 0.0},
        {"num_steps": 0},
        {"learning_rate": 0.0},
        {"expected_examples": 0},
    ],
)
def test_settings_out_of_range_are_refused(settings: dict[str, float]) -> None:
    given = {"noise_multiplier": 1.0, "expected_examples": 10} | settings
    with pytest.raises(ConfigError, match=next(iter(settings))):
        NoisyGradientSteps(**given)  # type: ignore[arg-type]
