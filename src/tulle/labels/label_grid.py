"""The values that a label may take: equally spaced numbers, declared before data are read."""

import dataclasses
import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tulle.errors import ConfigError, DataError
from tulle.privacy.fields import check_finite

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

MOST_VALUES = 1_000_000


@dataclasses.dataclass(frozen=True, kw_only=True)
class LabelGrid:
    """The declared range of a label. Public: it must not be read off the labels."""

    low: float
    high: float
    step: float = 1.0

    def __post_init__(self) -> None:
        for name in ("low", "high", "step"):
            check_finite(name, getattr(self, name))
        if not (self.low < self.high and self.step > 0):
            raise ConfigError(
                f"low={self.low}, high={self.high}, step={self.step} must satisfy low < high and "
                "step > 0."
            )
        steps = (self.high - self.low) / self.step
        if abs(steps - round(steps)) > 1e-9 * max(1.0, steps):
            raise ConfigError(
                f"high - low = {self.high - self.low:g} must be a multiple of step={self.step:g}; "
                "move high to the next multiple."
            )
        if steps + 1 > MOST_VALUES:
            raise ConfigError(
                f"low={self.low:g}, high={self.high:g}, step={self.step:g} give more than "
                f"{MOST_VALUES} values; take a larger step."
            )

    @property
    def num_values(self) -> int:
        """How many values there are."""
        return round((self.high - self.low) / self.step) + 1

    @property
    def values(self) -> FloatArray:
        """All values, ascending."""
        return np.linspace(self.low, self.high, self.num_values)

    def index_of(self, raw_labels: ArrayLike) -> IntArray:
        """The place of each label among the values, the nearest one where it lies between.

        Privacy:
          Releases nothing: places are as sensitive as the labels.

        Raises:
          DataError: A label is missing, not a number, or outside [low, high].
        """
        labels = self.check(raw_labels)
        places = np.rint((labels - self.low) / self.step).astype(np.int64)
        return np.clip(places, 0, self.num_values - 1)

    def check(self, raw_labels: ArrayLike) -> FloatArray:
        """The labels as floats; refuses what is outside of the declared range.

        Privacy:
          Releases nothing: the error shows none of the labels.
        """
        labels = np.asarray(raw_labels)
        if labels.dtype.kind not in "biuf":
            raise DataError(
                f"labels have the type {labels.dtype}, must be numbers from {self.low:g} to "
                f"{self.high:g}; drop rows without a label and turn text into numbers first."
            )
        numbers = labels.astype(np.float64)
        if not np.all((numbers >= self.low) & (numbers <= self.high)):
            raise DataError(
                f"labels must be numbers from {self.low:g} to {self.high:g}, the declared range, "
                "and not missing; clip or drop the other rows first, by a rule that is fixed "
                "before the data are read."
            )
        return numbers


def check_prior(prior: ArrayLike, num_values: int) -> FloatArray:
    """A vector of weights that add up to 1; else an error."""
    weights = np.asarray(prior, np.float64)
    if weights.shape != (num_values,):
        raise ConfigError(
            f"prior has the shape {weights.shape}; give one weight for each of the {num_values} "
            "values of the label."
        )
    if not np.all(np.isfinite(weights)) or np.any(weights < 0):
        raise ConfigError("prior must have no negative and no missing weights.")
    if abs(math.fsum(weights) - 1) > 1e-9:
        raise ConfigError(f"prior adds up to {math.fsum(weights):.6g} and must add up to 1.")
    return weights
