"""A logistic regression in a few lines, with and without privacy.

Both start at zero and take full gradient steps. The private one clips what each example adds,
sums, adds noise, and divides by a number that is public. It is made for attacks on synthetic data;
models of real data are trained by `tulle train`.
"""

import dataclasses
import math

import numpy as np
from numpy.typing import NDArray

from tulle.accounting.calibration import calibrate_noise
from tulle.errors import ConfigError
from tulle.mechanisms.entropy import NoiseSource
from tulle.mechanisms.gaussian import GaussianConfig, release_gaussian
from tulle.privacy.events import Event, Gaussian, Repeated
from tulle.privacy.fields import check_count
from tulle.privacy.units import Adjacency

FloatArray = NDArray[np.float64]


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlainGradientSteps:
    """Gradient steps without noise: the model may learn its examples by heart."""

    num_steps: int = 300
    learning_rate: float = 1.0

    def __post_init__(self) -> None:
        _check_steps(self.num_steps, self.learning_rate)


@dataclasses.dataclass(frozen=True, kw_only=True)
class NoisyGradientSteps:
    """Gradient steps with noise. Every field is public information."""

    noise_multiplier: float
    """Noise standard deviation over the clip norm, in each step."""
    expected_examples: int
    """What sums are divided by: public, never the number of examples that there are."""
    num_steps: int = 30
    learning_rate: float = 1.0
    clip_norm: float = 1.0
    """Largest L2 norm of what one example adds to the sum of gradients."""

    def __post_init__(self) -> None:
        _check_steps(self.num_steps, self.learning_rate)
        check_count("expected_examples", self.expected_examples)
        for name in ("noise_multiplier", "clip_norm"):
            if not 0 < getattr(self, name) < math.inf:
                raise ConfigError(
                    f"{name}={getattr(self, name)} must be > 0 and finite; for a model without "
                    "noise use PlainGradientSteps."
                )

    @classmethod
    def for_epsilon(
        cls, epsilon: float, delta: float, *, expected_examples: int, num_steps: int = 30
    ) -> "NoisyGradientSteps":
        """The least noise with which all steps together are (epsilon, delta)-private.

        Args:
          epsilon: Target of all steps together.
          delta: Target of all steps together.
          expected_examples: What sums are divided by.
          num_steps: Number of steps.
        """
        noise = calibrate_noise(
            lambda noise: Repeated(event=Gaussian(noise_multiplier=noise), count=num_steps),
            epsilon=epsilon,
            delta=delta,
            adjacency=Adjacency.ADD_OR_REMOVE,
        )
        return cls(noise_multiplier=noise, expected_examples=expected_examples, num_steps=num_steps)

    def event(self) -> Event:
        """What one model costs."""
        return Repeated(
            event=Gaussian(noise_multiplier=self.noise_multiplier), count=self.num_steps
        )


def train_plainly(
    features: FloatArray, raw_labels: FloatArray, settings: PlainGradientSteps
) -> FloatArray:
    """Weights of a model that nothing protects.

    Args:
      features: [examples, features].
      raw_labels: -1 or 1 for each example.
      settings: How many steps, and how large.

    Privacy:
      None. The weights are raw data.
    """
    weights = np.zeros(features.shape[1])
    for _ in range(settings.num_steps):
        gradient = example_gradients(weights, features, raw_labels).mean(axis=0)
        weights = weights - settings.learning_rate * gradient
    return weights


def train_privately(
    features: FloatArray, raw_labels: FloatArray, settings: NoisyGradientSteps, *, rng: NoiseSource
) -> FloatArray:
    """Weights of a model that is private at the cost of `settings.event()`.

    Args:
      features: [examples, features].
      raw_labels: -1 or 1 for each example.
      settings: Noise, clip norm and steps.
      rng: Source of the noise. Sensitive: never log or save its state.

    Privacy:
      Unit: example with its features and its label, add-or-remove. L2 sensitivity of each step:
      clip_norm. Event: one Gaussian a step. Relies on: nothing; every example is clipped here.
    """
    weights = np.zeros(features.shape[1])
    noise = GaussianConfig(
        noise_multiplier=settings.noise_multiplier,
        max_contribution=settings.clip_norm,
        max_values_per_unit=features.shape[1],
    )
    for _ in range(settings.num_steps):
        raw_sum = clipped_sum(example_gradients(weights, features, raw_labels), settings.clip_norm)
        noisy_sum = release_gaussian(raw_sum, noise, rng=rng)
        weights = weights - settings.learning_rate * noisy_sum / settings.expected_examples
    return weights


def example_gradients(
    weights: FloatArray, features: FloatArray, raw_labels: FloatArray
) -> FloatArray:
    """[examples, features]: how each example's loss log(1 + e^-margin) changes.

    Args:
      weights: One for each feature.
      features: [examples, features].
      raw_labels: -1 or 1, one an example.

    Privacy:
      None: exact, to be clipped and noised.
    """
    margins = raw_labels * (features @ weights)
    # 1 / (1 + e^margin) without overflow.
    slopes = -raw_labels * 0.5 * (1 - np.tanh(margins / 2))
    return np.asarray(slopes[:, None] * features, dtype=np.float64)


def clipped_sum(gradients: FloatArray, clip_norm: float) -> FloatArray:
    """The sum of gradients, each scaled down to the clip norm first.

    Privacy:
      None: exact, to be noised. L2 sensitivity under add-or-remove: clip_norm.
    """
    norms = np.linalg.norm(gradients, axis=1, keepdims=True)
    # A hair below the norm, so that rounding does not exceed it.
    scales = np.minimum(1.0, clip_norm * (1 - 1e-12) / np.maximum(norms, 1e-300))
    return np.asarray((gradients * scales).sum(axis=0), dtype=np.float64)


def _check_steps(num_steps: int, learning_rate: float) -> None:
    check_count("num_steps", num_steps)
    if not 0 < learning_rate < math.inf:
        raise ConfigError(f"learning_rate={learning_rate} must be > 0 and finite, e.g. 1.0.")
