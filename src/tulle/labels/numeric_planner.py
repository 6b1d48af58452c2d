"""Which mechanism for labels that are numbers, compared before a label is read.

Training on noisy labels asks for targets without bias: the gradient of the squared,
logistic and Poisson loss is affine in the label, so noise averages out and bias does
not. Among the unbiased the least variance wins. The distance of a noisy label from the
label, which bias makes smaller, matters only to those who read single labels.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Iterator
from typing import Any, Protocol, SupportsFloat

import numpy as np
from numpy.typing import NDArray

from tulle.errors import ConfigError
from tulle.labels.additive_noise import DiscreteLaplaceLabels, LaplaceLabels
from tulle.labels.bins.bin_response import BinResponse
from tulle.labels.label_grid import LabelGrid, check_prior
from tulle.labels.row_mechanism import RowMechanism
from tulle.labels.staircase import StaircaseLabels
from tulle.labels.unbiased.unbiased_response import UnbiasedResponse

FloatArray = NDArray[np.float64]


class NumericMechanism(RowMechanism, Protocol):
    """A mechanism that knows the moments of what it draws."""

    def mean(self, label: float, /) -> SupportsFloat:
        """Mean of the target, or of the noisy label where there is none."""

    def variance(self, label: float, /) -> SupportsFloat:
        """Its variance."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class NumericOption:
    """What one mechanism promises, on average over the prior. Public."""

    name: str
    variance: float
    """Of the noisy label around its own mean."""
    squared_bias: float
    """Of that mean around the label."""

    @property
    def is_clipped(self) -> bool:
        """True if outputs are cut to the range, which biases them at every epsilon."""
        return self.name.endswith("-clipped")

    @property
    def mean_squared_error(self) -> float:
        """Of the noisy label around the label."""
        return self.variance + self.squared_bias

    def describe(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "mechanism": self.name,
            "variance": self.variance,
            "bias": math.sqrt(self.squared_bias),
            "mean_squared_error": self.mean_squared_error,
        }


@dataclasses.dataclass(frozen=True, kw_only=True)
class NumericPlan:
    """All options: those without bias by variance, then the others by error. Public."""

    options: tuple[NumericOption, ...]
    left_out: tuple[str, ...]
    """Why a mechanism is missing."""

    @property
    def recommended(self) -> NumericOption:
        """The option without bias that has the least variance."""
        return self.options[0]


def plan_numeric(
    grid: LabelGrid, *, epsilon: float, prior: FloatArray | None = None, atoms: int = 40
) -> NumericPlan:
    """Compares the mechanisms for a label in a range.

    Args:
      grid: The declared values.
      epsilon: For one label.
      prior: Public weights of the values; None: all alike.
      atoms: Values that the unbiased mechanism rounds labels to.
    """
    weights = np.full(grid.num_values, 1 / grid.num_values) if prior is None else prior
    check_prior(weights, grid.num_values)
    options, left_out = [], []
    for name, make in _candidates(grid, epsilon, weights, atoms):
        try:
            options.append(_judged(make(), grid, weights))
        except ConfigError as error:
            left_out.append(f"{name}: {error}")
    if not options:
        raise ConfigError(f"no mechanism works for epsilon={epsilon}: {left_out[0]}")
    # Rounding leaves a bias of a billionth of the range where there is none by design.
    least = (1e-6 * (grid.high - grid.low)) ** 2
    ranked = sorted(
        options, key=lambda o: (o.is_clipped or o.squared_bias > least, o.mean_squared_error)
    )
    return NumericPlan(options=tuple(ranked), left_out=tuple(left_out))


def _candidates(
    grid: LabelGrid, epsilon: float, prior: FloatArray, atoms: int
) -> Iterator[tuple[str, Callable[[], NumericMechanism]]]:
    num_atoms = min(atoms, grid.num_values)
    yield (
        "unbiased",
        lambda: UnbiasedResponse(epsilon=epsilon, grid=grid, prior=prior, atoms=num_atoms),
    )
    yield "rr-on-bins", lambda: BinResponse(epsilon=epsilon, grid=grid, prior=prior)
    for additive in (LaplaceLabels, DiscreteLaplaceLabels, StaircaseLabels):
        for clip in (False, True):
            make = functools.partial(additive, epsilon=epsilon, grid=grid, clip=clip)
            yield additive.__name__, make


def _judged(mechanism: NumericMechanism, grid: LabelGrid, prior: FloatArray) -> NumericOption:
    variance = squared_bias = 0.0
    for label, weight in zip(grid.values.tolist(), prior.tolist(), strict=True):
        if weight > 0:
            variance += weight * float(mechanism.variance(label))
            squared_bias += weight * (float(mechanism.mean(label)) - label) ** 2
    return NumericOption(name=mechanism.name, variance=variance, squared_bias=squared_bias)
