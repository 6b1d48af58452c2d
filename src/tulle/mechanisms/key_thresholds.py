"""Keys whose noisy count passes a threshold, published with that count.

Noise hides how many units a key has; the threshold hides keys that one unit
alone brought in. Take it over `key_selection` where the counts are wanted too.

Why the events are sound. A key that only the changed unit has is published
with probability p at most, independently of all other keys; a unit has at most k
such keys, so with probability 1 - (1 - p)^k <= k p <= delta one of them shows. All
other keys exist on both sides and carry plain noise. Under add-remove the
pair of outputs is thus noise on common keys times a (0, delta) event. Under
replace each side may show keys of its own with probability at most delta, and the
(0, delta) event covers both: it lets each side betray itself. So the delta is
not doubled; only the noise sees two k changed counts, by its replace factor.
"""

import dataclasses
import math
from fractions import Fraction
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tulle.errors import ConfigError
from tulle.mechanisms.discrete_laplace import sample_discrete_laplace
from tulle.mechanisms.entropy import NoiseSource, release_rng
from tulle.mechanisms.exact import check_scale
from tulle.mechanisms.gaussian import sample_rounded_normal
from tulle.mechanisms.key_selection import check_unit_counts
from tulle.mechanisms.thresholds import exponential_bounds
from tulle.privacy.events import Composed, DiscreteLaplace, EpsilonDelta, Gaussian, KeySelection
from tulle.privacy.fields import check_epsilon

IntArray = NDArray[np.int64]

# math.erfc errs by a few units in the last place; this is far above it.
_ERFC_SLACK = 1 + 1e-9


class KeyThresholdConfig(Protocol):
    """Settings of noise and threshold."""

    @property
    def threshold(self) -> int:
        """Least noisy count with which a key is published."""

    def sample_noise(self, num_keys: int, *, rng: NoiseSource) -> IntArray:
        """Noise for each key."""

    def event(self) -> Composed:
        """What one release costs."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class LaplaceKeyThresholdConfig:
    """Discrete Laplace noise and its threshold. Every field is public information."""

    epsilon: float
    """Epsilon of all counts of one unit together, under add-remove; twice that under replace."""
    delta: float
    """Probability that a key which one unit alone has is published, over all its keys."""
    max_keys_per_unit: int = 1
    """Most keys that one unit may be counted in."""

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)
        _check_keys(self.delta, self.max_keys_per_unit)
        check_scale("noise_scale", self.noise_scale)

    @property
    def noise_scale(self) -> float:
        """Scale of the noise on each count, rounded up."""
        return math.nextafter(self.max_keys_per_unit / self.epsilon, math.inf)

    @property
    def threshold(self) -> int:
        """Least noisy count with which a key is published."""
        odds = math.exp(-1 / self.noise_scale)
        largest_prob = self.delta / self.max_keys_per_unit
        guess = math.ceil(-self.noise_scale * (math.log(largest_prob) + math.log1p(odds)))
        noise = max(0, guess)
        # The guess is a float; the certified bound decides, upwards first, so that the threshold is
        # never below what delta asks for.
        while not self._is_rare(noise):
            noise += 1
        while noise > 0 and self._is_rare(noise - 1):
            noise -= 1
        return 1 + noise

    def event(self) -> Composed:
        """What one release costs."""
        noise = DiscreteLaplace(scale=self.noise_scale, max_contribution=self.max_keys_per_unit)
        return Composed((noise, EpsilonDelta(epsilon=0.0, delta=self.delta)))

    def sample_noise(self, num_keys: int, *, rng: NoiseSource) -> IntArray:
        """Noise for each key."""
        return sample_discrete_laplace(self.noise_scale, num_keys, rng=rng)

    def _is_rare(self, noise: int) -> bool:
        """True if k P(Z >= noise) <= delta for certain; P(Z >= t) = p^t / (1 + p)."""
        step = 1 / Fraction(self.noise_scale)
        tail = exponential_bounds(-noise * step)[1] / (1 + exponential_bounds(-step)[0])
        return self.max_keys_per_unit * tail <= Fraction(self.delta)


@dataclasses.dataclass(frozen=True, kw_only=True)
class GaussianKeyThresholdConfig:
    """Rounded Gaussian noise and its threshold. Every field is public information."""

    noise_multiplier: float
    """Noise standard deviation over the L2 sensitivity, sqrt(max_keys_per_unit)."""
    delta: float
    """Probability that a key which one unit alone has is published, over all its keys.

    What the Gaussian noise itself costs comes on top.
    """
    max_keys_per_unit: int = 1
    """Most keys that one unit may be counted in."""

    def __post_init__(self) -> None:
        _check_keys(self.delta, self.max_keys_per_unit)
        self.event()
        check_scale("noise_stddev", self.noise_stddev)

    @property
    def noise_stddev(self) -> float:
        """Standard deviation of the noise on each count before rounding, rounded up."""
        # Root and product round by half a unit in the last place each; the factor is above both.
        stddev = self.noise_multiplier * math.sqrt(self.max_keys_per_unit)
        return math.nextafter(stddev * (1 + 2.0**-51), math.inf)

    @property
    def threshold(self) -> int:
        """Least noisy count with which a key is published."""
        # Beyond 40 deviations a normal tail is below every float, and so below every delta.
        low, high = -1, 2 + math.ceil(40 * self.noise_stddev)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self._is_rare(middle) else (middle, high)
        return 1 + high

    def event(self) -> Composed:
        """What one release costs."""
        # Counts are not negative: replacing a unit moves them by sqrt(2 k) in L2.
        noise = Gaussian(noise_multiplier=self.noise_multiplier, replace_factor=math.sqrt(2))
        return Composed((noise, EpsilonDelta(epsilon=0.0, delta=self.delta)))

    def sample_noise(self, num_keys: int, *, rng: NoiseSource) -> IntArray:
        """Noise for each key."""
        return sample_rounded_normal(self.noise_stddev, num_keys, rng=rng)

    def _is_rare(self, noise: int) -> bool:
        """True if k P(round(z) >= noise) <= delta for certain."""
        tail = math.erfc((noise - 0.5) / (self.noise_stddev * math.sqrt(2))) / 2
        return self.max_keys_per_unit * tail * _ERFC_SLACK <= self.delta


@dataclasses.dataclass(frozen=True, kw_only=True)
class PublishedKeys:
    """The keys that passed, and their noisy counts. Both may be published."""

    is_published: NDArray[np.bool_]
    """Whether each key that was given passed. Its length is not public; publish the keys that
    passed."""
    noisy_counts: IntArray
    """Noisy count of each key that passed, in order."""


def release_key_counts(
    raw_unit_counts: ArrayLike, config: KeyThresholdConfig, *, rng: NoiseSource | None = None
) -> PublishedKeys:
    """Publishes the keys whose noisy number of units reaches the threshold.

    Args:
      raw_unit_counts: How many different units each key has. Which keys are
        listed here is as sensitive as the counts; those with 0 never pass.
      config: Noise and threshold.
      rng: Source of the noise; None: the operating system. Sensitive: never log its state.

    Privacy:
      Unit: any, add-remove or replace. A unit changes at most
      `max_keys_per_unit` counts by one (twice as many under replace).
      Event: the noise's, plus (0, delta). Relies on: every unit counted once a
      key and in at most `max_keys_per_unit` keys.
    """
    rng = rng or release_rng()
    counts = check_unit_counts(raw_unit_counts)
    noisy_counts = counts + config.sample_noise(counts.size, rng=rng)
    # A key that nobody has never passes: a neighbour could not have listed it either, and delta
    # pays only for keys that one unit brings.
    is_published = (counts > 0) & (noisy_counts >= config.threshold)
    return PublishedKeys(is_published=is_published, noisy_counts=noisy_counts[is_published])


def _check_keys(delta: float, max_keys_per_unit: int) -> None:
    KeySelection(epsilon=0.0, delta=delta, max_keys_per_unit=max_keys_per_unit)
    if delta < 1e-300:
        raise ConfigError(
            f"delta={delta} must be in [1e-300, 1): without it no key that is not public "
            "may ever be published. Choose e.g. 1e-7."
        )
