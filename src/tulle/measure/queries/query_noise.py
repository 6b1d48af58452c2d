"""Noise on totals that are whole steps, and how a budget is divided among queries.

A budget is divided by shares: epsilon for Laplace noise, the square of the inverse noise
multiplier for Gaussian noise. Parts of one budget together cost what the whole does.
"""

import dataclasses
import math

import numpy as np
import numpy.typing as npt

from tulle.errors import ConfigError, DataError
from tulle.measure.expected_error import CountNoise, NoisePart, sum_half_width
from tulle.measure.queries.query import MeasureConfig, Quantity, Query
from tulle.mechanisms.centred_noise import check_confidence, normal_quantile
from tulle.mechanisms.discrete_laplace import DiscreteLaplaceConfig, release_discrete_laplace
from tulle.mechanisms.entropy import NoiseSource
from tulle.mechanisms.gaussian import GaussianConfig, release_gaussian
from tulle.mechanisms.key_selection import KeySelectionConfig
from tulle.privacy.events import Event
from tulle.privacy.units import Adjacency

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

_EXACT_FLOATS = 2**53
"""Bound below which whole numbers are exact as floats; larger totals are refused."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sensitivity:
    """The most that one unit changes a table of totals by, in whole steps."""

    l1: int
    l2: float
    num_values: int
    """Most totals that one unit changes."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepNoise:
    """Noise on whole steps: discrete Laplace, or Gaussian on a lattice."""

    config: CountNoise

    @property
    def noise_stddev(self) -> float:
        """Standard deviation of the noise on one total, in steps."""
        return self.config.noise_stddev

    def half_width(self, confidence: float) -> float:
        """What the noise on one total exceeds with probability <= 1 - confidence, in steps."""
        return float(self.config.half_width(confidence))

    def sum_half_width(self, num_totals: int, confidence: float) -> float:
        """Half-width for the sum of that many totals, each with noise of its own."""
        part = NoisePart(noise=self.config, weights=(1.0,) * num_totals)
        return sum_half_width(part, confidence=confidence)

    def combined_half_width(self, stddev: FloatArray, confidence: float) -> FloatArray:
        """Half-widths for sums of weighted noises, weights <= 1, with these standard deviations.

        No Laplace noise in the sums may have a smaller scale than this one.
        """
        if isinstance(self.config, GaussianConfig):
            return np.asarray(normal_quantile(confidence) * stddev + 0.5)
        return combined_half_width(stddev, confidence, scale=self.config.scale)

    def event(self) -> Event:
        """What one table costs."""
        return self.config.event()

    def release(self, raw_steps: IntArray, *, rng: NoiseSource) -> FloatArray:
        """Adds noise to each total.

        Privacy:
          Unit: add-remove, sensitivity `config.max_contribution` steps, in L1 for Laplace and in
          L2 for Gaussian noise. Event: `event()`. Relies on: the totals were bounded accordingly.
        """
        if isinstance(self.config, DiscreteLaplaceConfig):
            return release_discrete_laplace(raw_steps, self.config, rng=rng).astype(np.float64)
        # A total that a float rounds would move by more than its contribution says.
        if raw_steps.size and int(np.abs(raw_steps).max()) >= _EXACT_FLOATS:
            raise DataError("a total is too large for Gaussian noise; use Laplace noise.")
        return release_gaussian(raw_steps.astype(np.float64), self.config, rng=rng)


@dataclasses.dataclass(frozen=True, kw_only=True)
class LaplaceBudget:
    """An epsilon for noise of pure differential privacy."""

    epsilon: float

    def part(self, share: float) -> "LaplaceBudget":
        """A share of it."""
        return LaplaceBudget(epsilon=self.epsilon * share)

    def noise(self, sensitivity: Sensitivity) -> StepNoise:
        """The least noise that it pays for."""
        config = DiscreteLaplaceConfig.for_epsilon(
            self.epsilon, adjacency=Adjacency.ADD_OR_REMOVE, max_contribution=sensitivity.l1
        )
        return StepNoise(config=config)


@dataclasses.dataclass(frozen=True, kw_only=True)
class GaussianBudget:
    """A noise multiplier at which one Gaussian release costs what is to be spent."""

    noise_multiplier: float

    def part(self, share: float) -> "GaussianBudget":
        """A share of it: Gaussian releases compose by their inverse squares."""
        return GaussianBudget(noise_multiplier=self.noise_multiplier / math.sqrt(share))

    def noise(self, sensitivity: Sensitivity) -> StepNoise:
        """The least noise that it pays for."""
        config = GaussianConfig(
            noise_multiplier=self.noise_multiplier,
            max_contribution=sensitivity.l2,
            max_values_per_unit=sensitivity.num_values,
        )
        return StepNoise(config=config)


NoiseBudget = LaplaceBudget | GaussianBudget


def combined_half_width(stddev: FloatArray, confidence: float, *, scale: float) -> FloatArray:
    """What weighted sums of discrete Laplace noises exceed with probability <= 1 - confidence.

    One Laplace noise has the heaviest tail of all sums with the same variance where
    confidence is high, a normal number where it is low; half a step covers that noise is in
    whole steps. Discrete noise is never further out than Laplace noise of the same scale,
    rounded; where scales are small that has more variance, and widths are taken from it. The
    statement is proven for one noise and checked numerically over weights.

    Args:
      stddev: Standard deviation of the noise of each sum.
      confidence: Confidence of the interval.
      scale: The smallest of the noises, in steps.
    """
    check_confidence(confidence)
    laplace = -math.log1p(-confidence) / math.sqrt(2)
    discrete_stddev = DiscreteLaplaceConfig(scale=scale).noise_stddev
    widening = math.sqrt(2) * scale / discrete_stddev if discrete_stddev > 0 else 1.0
    return np.asarray(max(laplace, normal_quantile(confidence)) * widening * stddev + 0.5)


class BudgetShares:
    """Parts of the budget: for finding slices, for noise. All parts together cost the whole."""

    def __init__(self, config: MeasureConfig) -> None:
        total = sum(query.share for query in config.queries)
        finding = [query for query in config.queries if query.has_private_keys]
        self._config = config
        self._epsilon = {q.name: config.query_epsilon * q.share / total for q in config.queries}
        is_gaussian = config.noise == "gaussian"
        # Laplace noise needs no delta, so finding slices gets all of it; else each gets one half.
        key_delta = config.delta / 2 if is_gaussian else config.delta
        self._key_delta = key_delta / max(len(finding), 1)
        noisy = [q for q in config.queries if q.quantity is not Quantity.REACH]
        self._noisy_total = sum(q.share for q in noisy)
        self._gaussian: GaussianBudget | None = None
        if is_gaussian and noisy:
            from tulle.mechanisms.analytic_gaussian import calibrate_gaussian

            # One calibration for all queries, split by variances below: several small epsilons
            # would each pay for a tail of their own.
            epsilon = sum(self.noise_epsilon(query) for query in noisy)
            noise_delta = config.delta / 2 if finding else config.delta
            multiplier = calibrate_gaussian(epsilon, noise_delta)
            self._gaussian = GaussianBudget(noise_multiplier=multiplier)

    def noise_epsilon(self, query: Query) -> float:
        """What is left of a query's epsilon after finding its slices."""
        used = self._config.key_share if query.has_private_keys else 0.0
        return self._epsilon[query.name] * (1 - used)

    def noise(self, query: Query) -> NoiseBudget:
        """Budget of the noise on the totals of a query."""
        if self._config.noise == "laplace":
            return LaplaceBudget(epsilon=self.noise_epsilon(query))
        if self._gaussian is None:
            raise ConfigError(f"query {query.name!r} has no Gaussian budget.")
        return self._gaussian.part(query.share / self._noisy_total)

    def selection(self, query: Query, max_slices_per_unit: int | None) -> KeySelectionConfig | None:
        """How the slices of a query are found privately; None if they are given."""
        if not query.has_private_keys:
            return None
        if max_slices_per_unit is None:
            raise ConfigError(
                f"query {query.name!r} finds its slices privately and needs max_slices_per_unit."
            )
        # Each key costs its own part; a unit is in that many at most.
        return KeySelectionConfig(
            epsilon=self._epsilon[query.name] * self._config.key_share / max_slices_per_unit,
            delta=self._key_delta / max_slices_per_unit,
            max_keys_per_unit=max_slices_per_unit,
        )
