"""Which mechanism for labels that are numbers, compared before a label is read.

Training on noisy labels asks for targets without bias: the gradient of the squared,
logistic and Poisson loss is affine in the label, so noise averages out and bias does
not. Among the unbiased the least variance wins. The distance of a noisy label from the
label, which bias makes smaller, matters only to those who read single labels.
"""

import dataclasses
import math
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from tulle.errors import ConfigError
from tulle.labels.label_grid import LabelGrid, check_prior
from tulle.labels.label_mechanism import LabelKind, NumberMechanism
from tulle.labels.label_noise import LabelNoise, RowNoise
from tulle.labels.mechanisms.catalogue import (
    LABEL_MECHANISMS,
    mechanism_by_word,
    settings_of_word,
)
from tulle.labels.mechanisms.unbiased_response import MOST_ATOMS

FloatArray = NDArray[np.float64]


@dataclasses.dataclass(frozen=True, kw_only=True)
class NumericOption:
    """What one mechanism promises, on average over the prior. Public."""

    name: str
    """The word for the mechanism."""
    variance: float
    """Variance of the noisy label around its own mean."""
    squared_bias: float
    """Squared distance of that mean from the label."""

    @property
    def is_clipped(self) -> bool:
        """True if outputs are cut to the range, which biases them at every epsilon."""
        return self.name.endswith("-clipped")

    @property
    def mean_squared_error(self) -> float:
        """Mean squared distance of the noisy label from the label."""
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
    """Best first."""
    left_out: tuple[str, ...]
    """Reasons why mechanisms are missing."""

    @property
    def recommended(self) -> NumericOption:
        """The option without bias that has the least variance."""
        return self.options[0]

    @property
    def remarks(self) -> tuple[str, ...]:
        """What to know about the comparison, in sentences."""
        return tuple(f"left out: {reason}" for reason in self.left_out)

    def table(self) -> list[dict[str, Any]]:
        """One row for each option, best first."""
        return [option.describe() for option in self.options]

    def describe(self) -> dict[str, Any]:
        """Plain data, for a file."""
        return {"options": self.table(), "left_out": list(self.left_out)}


def plan_numeric(
    grid: LabelGrid, *, epsilon: float, prior: FloatArray | None = None, atoms: int = MOST_ATOMS
) -> NumericPlan:
    """Compares the mechanisms for a label in a range.

    Args:
      grid: The declared values.
      epsilon: What one noisy label may cost.
      prior: Public weights of the values; None: all alike.
      atoms: Values that the unbiased mechanism rounds labels to.
    """
    weights = np.full(grid.num_values, 1 / grid.num_values) if prior is None else prior
    check_prior(weights, grid.num_values)
    settings = {
        "label_low": grid.low,
        "label_high": grid.high,
        "label_step": grid.step,
        "prior": tuple(weights.tolist()),
        "atoms": atoms,
    }
    options, left_out = [], []
    for word in numeric_words():
        names = settings_of_word(word)
        given = {name: value for name, value in settings.items() if name in names}
        try:
            options.append(_judged(mechanism_by_word(word, given).noise(epsilon), grid, weights))
        except ConfigError as error:
            left_out.append(f"{word}: {error}")
    if not options:
        raise ConfigError(f"no mechanism works for epsilon={epsilon}: {left_out[0]}")
    # Rounding leaves a bias of a billionth of the range where there is none by design.
    least = (1e-6 * (grid.high - grid.low)) ** 2
    ranked = sorted(
        options, key=lambda o: (o.is_clipped or o.squared_bias > least, o.mean_squared_error)
    )
    return NumericPlan(options=tuple(ranked), left_out=tuple(left_out))


def numeric_words() -> list[str]:
    """The words of all mechanisms for numbers, those without clipping before those with it."""
    return [
        word
        for word, settings in LABEL_MECHANISMS.items()
        if settings.mechanism_class.label_kind is LabelKind.NUMBERS
    ]


def _judged(noise: LabelNoise, grid: LabelGrid, prior: FloatArray) -> NumericOption:
    mechanism = cast(NumberMechanism, cast(RowNoise, noise).mechanism)
    variance = squared_bias = 0.0
    for label, weight in zip(grid.values.tolist(), prior.tolist(), strict=True):
        if weight > 0:
            variance += weight * float(mechanism.variance(label))
            squared_bias += weight * (float(mechanism.mean(label)) - label) ** 2
    return NumericOption(name=noise.name, variance=variance, squared_bias=squared_bias)
