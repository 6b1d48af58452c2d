"""A figure of quality with its standard error, from one influence a row."""

import dataclasses
import math

import numpy as np
from numpy.typing import NDArray

from tulle.privacy.fields import null_if_infinite

NORMAL_QUANTILE = 1.959963984540054
"""Of 0.975: two-sided 95% intervals."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Estimate:
    """A number and how far the luck of the rows may have moved it."""

    value: float
    standard_error: float
    """Infinite if the rows are too few to tell."""

    @property
    def interval(self) -> tuple[float, float]:
        """95%, by the normal law."""
        reach = NORMAL_QUANTILE * self.standard_error
        return self.value - reach, self.value + reach

    def to_dict(self) -> dict[str, object]:
        """Plain data; an infinite standard error is null."""
        return {"value": self.value, "standard_error": null_if_infinite(self.standard_error)}


def estimate_of(value: float, influences: NDArray[np.float64]) -> Estimate:
    """The standard error of a smooth function of means, from how each row moves it.

    Args:
      value: The function at the means.
      influences: The derivative of the function by the share of each row; a constant in
        all of them changes nothing. For a plain mean these are the rows themselves.
    """
    num_rows = len(influences)
    if num_rows < 2:
        return Estimate(value=value, standard_error=math.inf)
    return Estimate(value=value, standard_error=float(influences.std(ddof=1)) / math.sqrt(num_rows))
