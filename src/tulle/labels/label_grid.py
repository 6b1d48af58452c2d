"""The values that a label may take, and how likely each is: declared before data are read."""

import dataclasses
import json
import math
import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tulle.errors import ConfigError, DataError
from tulle.privacy.fields import check_finite

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

Prior = tuple[float, ...] | Path | str
"""Weights of the values of a label in any scale, or a JSON file with a list of them."""

MOST_VALUES = 1_000_000
"""Most values of a grid: mechanisms keep a few arrays of this length in memory."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class LabelGrid:
    """The declared range of a label. Public: it must not be read off the labels."""

    low: float
    """Least label."""
    high: float
    """Largest label, a whole number of steps above the least."""
    step: float = 1.0
    """Distance of two neighbouring labels."""

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
        """Number of values."""
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


@dataclasses.dataclass(frozen=True, kw_only=True)
class NumberRange:
    """The declared values of a label that is a number: from low to high in equal steps."""

    label_low: float
    """Least label: a public number, not read off the labels."""
    label_high: float
    """Largest label, public too."""
    label_step: float = 1.0
    """Distance of two neighbouring labels."""

    def __post_init__(self) -> None:
        _ = self.grid

    @property
    def grid(self) -> LabelGrid:
        """All declared values."""
        try:
            return LabelGrid(low=self.label_low, high=self.label_high, step=self.label_step)
        except ConfigError as error:
            raise ConfigError(f"label_low, label_high and label_step: {error}") from None


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


def as_prior(prior: object) -> Any:
    """The prior as frozen settings keep it: arrays and lists become tuples."""
    if isinstance(prior, np.ndarray):
        prior = prior.tolist()
    return tuple(prior) if isinstance(prior, list) else prior


def prior_weights(prior: Prior | None, num_values: int) -> FloatArray:
    """Weights of all values that add up to 1.

    Args:
      prior: Weights in any scale, a JSON file with them, or None for equal ones.
      num_values: How many values the label can have.

    Raises:
      DataError: They are no list of numbers >= 0 with one above 0.
    """
    if prior is None:
        return np.full(num_values, 1 / num_values)
    said, what = "prior", "a list"
    try:
        weights: Any = prior
        if isinstance(prior, str | os.PathLike):
            said, what = f"prior={str(prior)!r}", "a JSON file with a list"
            weights = json.loads(Path(prior).read_text(encoding="utf-8"))
        numbers = np.array([_weight(weight) for weight in weights])
    except (OSError, ValueError, TypeError, OverflowError, RecursionError):
        raise DataError(
            f"{said} must be {what} of numbers >= 0, one for each of the {num_values} values."
        ) from None
    if not numbers.sum() > 0:
        raise DataError(f"{said} must have a weight above 0.")
    return check_prior(numbers / numbers.sum(), num_values)


def _weight(weight: object) -> float:
    is_number = isinstance(weight, int | float | np.integer | np.floating)
    if isinstance(weight, bool) or not is_number or not weight >= 0:  # type: ignore[operator]
        raise ValueError("not a weight")
    return float(weight)  # type: ignore[arg-type]
