"""What few rows can tell under noise, as far as it is known before anything is read.

A plan knows how many units there are, how many columns, and the noise. That is enough to say how
many values a column may have so that the effect of each still stands out: the more values, the
fewer rows each of them has. If only columns of a few values can be told apart, the plan says so,
and says which epsilon would do. If not even those can, a run would end as a constant, and is
refused before it is charged, unless it was asked for.

All of that follows from public numbers. A run then asks once more, with the noisy rate of labels,
and divides its budget otherwise where rows are few (`StageRules`). The constants were chosen on
synthetic and real logs of 2,000 to 25,000 rows that no published figure is of.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tulle.data.prepared.feature import PreparedFeature
from tulle.errors import ConfigError
from tulle.mechanisms.analytic_gaussian import gaussian_epsilon
from tulle.train.settings.units import DataShape

if TYPE_CHECKING:
    from tulle.train.methods.mosaic.method import CellSettings

_USUAL_RATE = 0.1
"""Rate of labels that is taken to be usual, as the true one is not known before a release."""
_USUAL_SPREAD = 0.5
"""Standard deviation of the log odds between the values of a usual column: a factor of 1.6."""
_ENOUGH_VALUES = 25
"""Number of values of a column that can be told apart where rows are not few. In trials, randomized
labels or the label rate alone were better only below 15; more is said to be few, to be safe."""
_MOST_NOISE = 0.5 * _USUAL_RATE * (1 - _USUAL_RATE) * _USUAL_SPREAD
"""Noise, for each unit, above which a run is refused: it hides a usual effect of each of two values
that have half of the rows each. In trials such models had a larger log loss than the label rate."""
_MARGIN = 1.002
"""Factor on an epsilon that is named, as the noise of a plan is a little above the least."""
_MOST_EPSILON = 50.0
"""An epsilon above which none is suggested: it would protect nobody."""
_LEAST_SIGNAL = 3_000.0
"""Labels of all rows together, as variance over the standard deviation of the noise on one sum that
has the whole budget, from which on tables of several columns are worth looking for. In trials with
200 to 2,000 the AUC loss was 4 to 8 percent lower without them, and at 5,700 it was the same."""
_FIRST_LOOK_OF_FEW = 0.4
"""Fraction of a stage for a first look where rows are few, whatever the settings say. With 0.15 the
AUC loss was up to 13 percent higher in trials."""
_MOST_OF_FEW = 0.5
"""Largest share of one table in that look, where a run starts from nothing: no cap, but for a stage
of a single table."""
_SINGLES = "_values"
"""How the names of stages end whose tables have one column."""


def telling_values(num_units: int, num_columns: int, noise_multiplier: float) -> int:
    """Most values of a column of which each is expected to stand out of the noise.

    Args:
      num_units: Number of units: rows, or users where these are protected.
      num_columns: Number of columns, which divide the noise budget.
      noise_multiplier: Noise multiplier of the whole budget.
    """
    # A value of n rows with the effect b moves its sum of labels by slope * b, where slope is
    # n p (1 - p). The sum varies by the slope, as labels do, and by noise of this variance. Both
    # are equal at slope^2 spread^2 = slope + noise.
    noise, square = num_columns * noise_multiplier**2, _USUAL_SPREAD**2
    slope = (1 + math.sqrt(1 + 4 * square * noise)) / (2 * square)
    return int(num_units * _USUAL_RATE * (1 - _USUAL_RATE) / slope)


def are_few(num_rows: int, rate: float, noise_stddev: float) -> bool:
    """True if all of the budget should go to tables of one column.

    Args:
      num_rows: Number of rows.
      rate: Noisy rate of labels.
      noise_stddev: Standard deviation of the noise on a sum that has the whole budget.
    """
    return num_rows * rate * (1 - rate) < _LEAST_SIGNAL * noise_stddev


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class StageRules:
    """Which part of the budget each stage gets, and how much of it a first look at new tables.

    All of it follows from settings, from the roles of columns and from the first noisy rate.
    """

    settings: "CellSettings"
    """How the budget is divided where rows are not few."""
    features: Sequence[PreparedFeature]
    """Columns, of which roles matter here."""
    _: dataclasses.KW_ONLY
    are_few: bool
    """Whether rows are few, see `are_few`."""
    is_started: bool
    """Whether the run continues from a released model."""

    def part(self, stage: str) -> float:
        """Part of the budget of tables that a stage asks for."""
        part: float = getattr(self.settings.stages, stage)
        if not self.are_few:
            return part
        if not stage.endswith(_SINGLES):
            return 0.0
        if not self.is_started:
            return part
        # Once for each column: most of the budget makes cells of known tables more exact, and the
        # more columns of a role there are, the more tables of it are known.
        role = stage.removesuffix(_SINGLES)
        return part * sum(feature.role == role for feature in self.features)

    def first_look(self, stage: str) -> tuple[float, float]:
        """Fraction of a stage's share for a first look at new tables, and the most for one."""
        num_columns = 1 if stage.endswith(_SINGLES) else 2 if stage.endswith("_pairs") else 3
        most = self.settings.most_screening_shares[num_columns - 1]
        if not self.are_few:
            return getattr(self.settings.screening, stage), most
        # A small first look that shows nothing would drop what is there. Where a run continues, the
        # few tables that are new have mostly shown nothing before: without a cap, one or two of
        # them would get, night after night, what known tables need.
        return _FIRST_LOOK_OF_FEW, most if self.is_started else _MOST_OF_FEW


def warning_of_few(shape: DataShape, noise_multiplier: float, delta: float) -> str:
    """What a plan says where rows are few for the noise; empty where they are not.

    Args:
      shape: Numbers of rows, of users where these are protected, and of columns.
      noise_multiplier: Noise multiplier of the whole budget.
      delta: Delta of the guarantee.
    """
    num_units, num_columns, unit = _sizes(shape)
    values = telling_values(num_units, num_columns, noise_multiplier)
    if values >= _ENOUGH_VALUES:
        return ""
    if is_hopeless(shape, noise_multiplier):
        told = "no table can be expected to show an effect, so that the model will be a constant"
        enough = _least_epsilon(num_units, num_columns, delta)
        way_out = f"epsilon={enough:g} is the least that could do"
    else:
        which = f"in columns of at most {values} values" if values > 1 else "in no column"
        told = (
            f"only {which} can each value be expected to show an effect of the usual size, and "
            "randomized labels (method rr) may be better"
        )
        found = _epsilon_for(_ENOUGH_VALUES, num_units, num_columns, delta)
        none = f"no epsilon would do, more {unit} would"
        way_out = none if found is None else f"epsilon={found:g} would do"
    return (
        f"{num_units:,} {unit} of {num_columns} columns are few for this noise: {told}; {way_out}."
    )


def is_hopeless(shape: DataShape, noise_multiplier: float) -> bool:
    """True if a run can be expected to end as a constant."""
    num_units, num_columns, _ = _sizes(shape)
    # Not even a column of two values: noise alone counts, as labels vary at any epsilon.
    return math.sqrt(num_columns) * noise_multiplier > _MOST_NOISE * num_units


def check_hope(shape: DataShape, noise_multiplier: float, delta: float) -> None:
    """Refuses a run that can be expected to end as a constant.

    Args:
      shape: Numbers of rows, of users where these are protected, and of columns.
      noise_multiplier: Noise multiplier of the whole budget.
      delta: Delta of the guarantee.

    Raises:
      ConfigError: There are too few units for so much noise.
    """
    if not is_hopeless(shape, noise_multiplier):
        return
    num_units, num_columns, unit = _sizes(shape)
    least = _least_epsilon(num_units, num_columns, delta)
    raise ConfigError(
        f"{num_units:,} {unit} of {num_columns} columns are too few for this noise: no table can "
        "be expected to show an effect, and the budget would be spent on a constant. "
        f"epsilon={least:g} is the least that could do; or name fewer columns, use method='rr', or "
        "set allow_constant=True for the noisy rate of labels."
    )


def _sizes(shape: DataShape) -> tuple[int, int, str]:
    """Numbers of units and of columns, and the word for units."""
    if shape.num_users is not None:
        return shape.num_users, len(shape.features), "users"
    return shape.num_private_rows, len(shape.features), "rows"


def _epsilon_for(values: int, num_units: int, num_columns: int, delta: float) -> float | None:
    """About the least epsilon with which columns of so many values can be told apart."""
    slope = num_units * _USUAL_RATE * (1 - _USUAL_RATE) / values
    noise = (slope**2 * _USUAL_SPREAD**2 - slope) / num_columns
    if noise <= 0:
        return None  # labels themselves vary too much, even without noise
    epsilon = _rounded_up(gaussian_epsilon(delta, math.sqrt(noise)))
    return epsilon if epsilon <= _MOST_EPSILON else None


def _least_epsilon(num_units: int, num_columns: int, delta: float) -> float:
    """About the least epsilon with which a run is not refused."""
    return _rounded_up(gaussian_epsilon(delta, _MOST_NOISE * num_units / math.sqrt(num_columns)))


def _rounded_up(epsilon: float) -> float:
    """Two digits of an epsilon, never below what is needed."""
    unit = 10.0 ** (math.floor(math.log10(max(epsilon, 0.01))) - 1)
    return round(math.ceil(_MARGIN * epsilon / unit) * unit, 4)
