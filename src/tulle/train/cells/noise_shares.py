"""One Gaussian budget, given out in shares.

A release of sensitivity s with share w gets noise of standard deviation s * noise_multiplier /
sqrt(w). However shares are chosen, also by what came out before, all releases together tell no
more than one number of sensitivity 1 with noise of standard deviation noise_multiplier, as long
as their shares add up to at most 1: each is what a Brownian motion with the data's drift shows
over a stretch of time w, and the whole is its path up to time 1 (Smith and Thakurta 2022).
"""

import math

import numpy as np
from numpy.typing import NDArray

from tulle.errors import ConfigError
from tulle.mechanisms.entropy import NoiseSource
from tulle.train.normal_stream import NormalStream

FloatArray = NDArray[np.float64]


class NoiseShares:
    """Draws noise and keeps count of what is left. Its generator is never stored."""

    def __init__(self, noise_multiplier: float, *, rng: NoiseSource) -> None:
        """Starts a budget.

        Args:
          noise_multiplier: Of the whole budget, for sensitivity 1.
          rng: Keys the generator. Sensitive: never log or save its state.
        """
        if not (math.isfinite(noise_multiplier) and noise_multiplier > 0):
            raise ConfigError(f"noise_multiplier={noise_multiplier} must be a number above 0.")
        self._noise_multiplier = noise_multiplier
        # The noise reads its generator, so the seeded source of an experiment repeats a run.
        self._normals = NormalStream(np.random.Philox(key=rng.words(2)))
        self._left = 1.0

    @property
    def left(self) -> float:
        """The share that has not been given out."""
        return self._left

    def stddev(self, share: float, sensitivity: float) -> float:
        """Standard deviation of the noise on a release with this share."""
        if not 0 < share <= 1:
            raise ConfigError(f"share={share} must be above 0, at most 1.")
        return sensitivity * self._noise_multiplier / math.sqrt(share)

    def release(self, raw: FloatArray, *, sensitivity: float, share: float) -> FloatArray:
        """Adds noise to sums and takes their share from the budget, first.

        Args:
          raw: Sums over rows, of any shape.
          sensitivity: Largest L2 distance of all of `raw` together if one unit is replaced.
          share: Of the budget.

        Privacy:
          Unit and adjacency: those of `sensitivity`. Event: this share of one Gaussian.

        Raises:
          ConfigError: Less is left than is asked for.
        """
        stddev = self.stddev(share, sensitivity)
        if share > self._left:
            raise ConfigError(
                f"share={share:.6g} is more than the {self._left:.6g} that is left of the noise "
                "budget; ask for less."
            )
        self._left -= share
        noise = np.empty(raw.size, np.float64)
        self._normals.fill(noise, stddev)
        return raw + noise.reshape(raw.shape)
