"""One Gaussian noise budget, given out in shares.

A share is a fraction w of the budget. A release of sensitivity s with share w gets noise of
standard deviation s * noise_multiplier / sqrt(w). Shares may be chosen by what was released
before. As long as they add up to at most 1, all releases together tell no more than one number of
sensitivity 1 with noise of standard deviation noise_multiplier. The reason: each release is what a
Brownian motion with the data's drift shows over a time w, and all of them are its path up to time
1 (the privacy filter of Smith and Thakurta 2022).

Each row may also spend a share on its own. Releases then have weighted rows, and the squares of
the weights of each row add up to at most the share. Rows divide the share differently, but none
spends more than the others. The proof is in docs/theory/mosaic.md.
"""

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from tulle.errors import ConfigError
from tulle.mechanisms.entropy import NoiseSource
from tulle.train.steps.normal_stream import NormalStream, SecretNoise

FloatArray = NDArray[np.float64]

_ROUNDING = 1e-9
"""Fraction by which the parts that a row spends may exceed its share, because floats are rounded.
This reserve is taken from the budget together with the share; beyond it a release is refused."""


class NoiseShares(SecretNoise):
    """Draws noise and keeps count of what is left. Make one object for each run and process."""

    def __init__(self, noise_multiplier: float, *, rng: NoiseSource) -> None:
        """Starts a budget.

        Args:
          noise_multiplier: Noise multiplier of the whole budget, for sensitivity 1.
          rng: Source of the generator's key. Sensitive: never log or save its state.
        """
        super().__init__()
        if not (math.isfinite(noise_multiplier) and noise_multiplier > 0):
            raise ConfigError(f"noise_multiplier={noise_multiplier} must be a number above 0.")
        self._noise_multiplier = noise_multiplier
        # All noise comes from this generator: with the seeded source of an experiment a run can be
        # repeated.
        self._normals = NormalStream(np.random.Philox(key=rng.words(2)))
        self._left = 1.0

    @property
    def left(self) -> float:
        """Share of the budget that has not been given out."""
        return self._left

    def stddev(self, share: float, sensitivity: float) -> float:
        """Standard deviation of the noise on a release with this share."""
        if not 0 < share <= 1:
            raise ConfigError(f"share={share} must be above 0, at most 1.")
        return sensitivity * self._noise_multiplier / math.sqrt(share)

    def release(self, raw: FloatArray, *, sensitivity: float, share: float) -> FloatArray:
        """Takes a share from the budget, and then adds noise to sums.

        Args:
          raw: Sums over rows, of any shape.
          sensitivity: Largest L2 distance of all of `raw` together if one unit is replaced.
          share: Share of the budget for this release.

        Privacy:
          Unit and adjacency: those of `sensitivity`. Event: this share of one Gaussian.

        Raises:
          ConfigError: Less is left than is asked for.
        """
        self.stddev(share, sensitivity)
        self._take(share)
        return self._noisy(raw, sensitivity, share)

    def for_rows(self, share: float, num_rows: int, *, sensitivity: float) -> "RowShares":
        """Takes a share from the budget that each row then spends on its own.

        Args:
          share: Share of the budget that each row may spend.
          num_rows: Number of all rows that are in the sums.
          sensitivity: Largest L2 distance of all releases together, if one unit is replaced and
            squares of the weights of every row add up to at most 1.

        Raises:
          ConfigError: Less is left than is asked for.
        """
        self.stddev(share, sensitivity)
        self._take(share * (1 + _ROUNDING))

        def noisy(raw: FloatArray) -> FloatArray:
            # Weights have the factor sqrt(share), so the noise is that of the whole budget: the
            # ratio of both is that of a release with this share.
            return self._noisy(raw, sensitivity, 1.0)

        return RowShares(share, num_rows, noisy)

    def _take(self, share: float) -> None:
        """Deducts a share before anything is released, so that a failure can only over-count."""
        # A forked process would draw the same noise, and count the same budget, twice.
        self.check_own_process()
        if share > self._left:
            raise ConfigError(
                f"share={share:.6g} is more than the {self._left:.6g} that is left of the noise "
                "budget; ask for less."
            )
        self._left -= share

    def _noisy(self, raw: FloatArray, sensitivity: float, share: float) -> FloatArray:
        """Adds noise. Precondition: the caller has already deducted `share` from the budget."""
        self.check_own_process()
        noise = np.empty(raw.size, np.float64)
        self._normals.fill(noise, self.stddev(share, sensitivity))
        return raw + noise.reshape(raw.shape)


class RowShares(SecretNoise):
    """A share that every row spends on its own. Sensitive, as what rows have spent may be.

    It cannot be copied: a copy would let rows spend their share a second time.

    Args:
      share: Share of the budget that each row may spend.
      num_rows: Number of all rows that are in the sums.
      noisy: Function that adds the noise of the whole budget to raw sums.
    """

    def __init__(
        self, share: float, num_rows: int, noisy: Callable[[FloatArray], FloatArray]
    ) -> None:
        super().__init__()
        self._share = share
        self._spent = np.zeros(num_rows)
        self._noisy = noisy

    def weights(self, parts: FloatArray) -> FloatArray:
        """The weight of each row in a release on which it spends these fractions of its share."""
        weights: FloatArray = np.sqrt(self._share * parts)
        return weights

    def release(
        self, raw_sums: Callable[[FloatArray], FloatArray], *, parts: FloatArray
    ) -> FloatArray:
        """Adds noise to sums of weighted rows, after each row has paid for its weight.

        Args:
          raw_sums: Function from the weights of rows to their raw sums.
          parts: [rows]: fraction of its share that each row spends on this release. It may depend
            on the row itself and on earlier releases, never on other rows.

        Privacy:
          Unit and adjacency: those of the sensitivity that the share was taken with. Event: all
          releases together are that share of one Gaussian.

        Raises:
          ConfigError: A row would spend more than its share.
        """
        spent = self._spent + parts
        # Written so that NaN is refused, too: a comparison with NaN is false.
        if not (parts.min(initial=0.0) >= 0 and spent.max(initial=0.0) <= 1 + _ROUNDING):
            raise ConfigError("a row would spend more than its share; ask for smaller parts.")
        self._spent = spent
        return self._noisy(raw_sums(self.weights(parts)))
