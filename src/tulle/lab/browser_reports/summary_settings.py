"""Settings of summary reports: what is measured, and how a source's budget is shared.

The noise is the same on every key, so a value is scaled up to the share of the budget that
its goal has, and scaled back afterwards. The API is retired by Chrome; its arithmetic is
that of any L1 budget.
"""

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tulle.errors import ConfigError, DataError
from tulle.mechanisms.discrete_laplace import DiscreteLaplaceConfig
from tulle.privacy.fields import check_count, check_finite, check_text
from tulle.privacy.units import Adjacency

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

MOST_EPSILON = 64.0
"""The aggregation service's own limit."""
MOST_REPORTS_PER_SOURCE = 20
"""The browser's own limit."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Goal:
    """One number that is measured for each slice. Public: it is part of the registration."""

    name: str
    by: tuple[str, ...] = ("campaign",)
    """Columns whose values make the slices of this goal."""
    column: str | None = None
    """The column of conversions that is added up; None counts them."""
    max_value: float = 1.0
    """Largest value of a conversion; larger ones are cut to this."""
    budget_share: float = 1.0
    """Share of a conversion's budget."""

    def __post_init__(self) -> None:
        check_text("name", self.name)
        object.__setattr__(self, "by", tuple(self.by))
        if not self.by:
            raise ConfigError(f"goal {self.name!r} needs a column to slice by, e.g. campaign.")
        if not check_finite("max_value", self.max_value) > 0:
            raise ConfigError(f"max_value={self.max_value} must be > 0, e.g. the 99% quantile.")
        if not 0 < check_finite("budget_share", self.budget_share) <= 1:
            raise ConfigError(f"budget_share={self.budget_share} must be in (0, 1].")
        if self.column is None and self.max_value != 1:
            raise ConfigError(f"max_value={self.max_value} needs a column; a count has 1.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class SummarySettings:
    """Settings of a summary report. Every field is public information."""

    goals: tuple[Goal, ...] = (Goal(name="conversions"),)
    epsilon: float = 10.0
    """Epsilon of one source, for all keys of one aggregation together."""
    max_conversions_per_source: int = 1
    """The budget is divided by this, so that this many conversions of a source fit for sure."""
    max_reports_per_source: int = MOST_REPORTS_PER_SOURCE
    tau: float = 5.0
    """Totals below this many conversions count as this many in relative errors."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "goals", tuple(self.goals))
        if not 1 <= len(self.goals) <= MOST_CONTRIBUTIONS:
            raise ConfigError(
                f"there are {len(self.goals)} goals; a report has 1 to {MOST_CONTRIBUTIONS} "
                "contributions, one for each."
            )
        names = [goal.name for goal in self.goals]
        if len(set(names)) < len(names):
            raise ConfigError(f"goals {', '.join(names)} must have different names.")
        if math.fsum(goal.budget_share for goal in self.goals) > 1 + 1e-9:
            raise ConfigError(
                "the budget_share of all goals adds up to more than 1; every report would be "
                "dropped. Lower the shares."
            )
        if not 0 < check_finite("epsilon", self.epsilon) <= MOST_EPSILON:
            raise ConfigError(f"epsilon={self.epsilon} must be in (0, {MOST_EPSILON:g}].")
        check_count("max_conversions_per_source", self.max_conversions_per_source)
        if check_count("max_reports_per_source", self.max_reports_per_source) > (
            MOST_REPORTS_PER_SOURCE
        ):
            raise ConfigError(
                f"max_reports_per_source={self.max_reports_per_source} must be <= "
                f"{MOST_REPORTS_PER_SOURCE}."
            )
        if not check_finite("tau", self.tau) > 0:
            raise ConfigError(f"tau={self.tau} must be > 0, e.g. 5.")
        for goal in self.goals:
            if self.most_steps(goal) < 1:
                raise ConfigError(
                    f"goal {goal.name!r} gets less than 1 of {L1_BUDGET} for a conversion; raise "
                    "its budget_share or lower max_conversions_per_source."
                )

    @property
    def noise(self) -> DiscreteLaplaceConfig:
        """The noise on every key that is asked for, whether or not it occurred."""
        return DiscreteLaplaceConfig.for_epsilon(
            self.epsilon, adjacency=Adjacency.ADD_OR_REMOVE, max_contribution=L1_BUDGET
        )

    def most_steps(self, goal: Goal) -> int:
        """The largest contribution of a conversion to a goal, which stands for `max_value`."""
        # Rounded down: otherwise the last conversion that should fit may miss by one.
        return math.floor(
            L1_BUDGET * goal.budget_share / self.max_conversions_per_source * (1 + 1e-12)
        )

    def steps_per_unit(self, goal: Goal) -> float:
        """Divide a summary by this to get the total back."""
        return self.most_steps(goal) / goal.max_value

    def scale(self, values: ArrayLike, goal: Goal) -> IntArray:
        """Contributions of conversions with these values; a contribution of 0 is not sent."""
        numbers = np.asarray(values, np.float64)
        if not np.all(numbers >= 0) or not np.all(np.isfinite(numbers)):
            raise DataError(
                f"goal {goal.name!r} adds up column {goal.column!r}, which must be finite and >= 0 "
                "in every row; drop or correct the others."
            )
        steps = np.minimum(numbers, goal.max_value) * self.steps_per_unit(goal)
        return np.rint(steps).astype(np.int64)

    def unscale(self, steps: ArrayLike, goal: Goal) -> FloatArray:
        """Totals out of summaries."""
        return np.asarray(steps, np.float64) / self.steps_per_unit(goal)

    def noise_stddev(self, goal: Goal) -> float:
        """Standard deviation of the noise on a total, in units of the goal."""
        return self.noise.noise_stddev / self.steps_per_unit(goal)


KEY_BITS = 128
"""Bits of an aggregation key, by the API's specification."""
L1_BUDGET = 1 << 16
"""The most that all reports of one source may add up to."""
MOST_CONTRIBUTIONS = 20
"""Contributions of one report."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class TriggerPiece:
    """A piece of a key that a trigger adds to some names. Names no source has are ignored."""

    piece: int
    source_keys: tuple[str, ...]

    def __post_init__(self) -> None:
        _check_piece(self.piece)


@dataclasses.dataclass(frozen=True, kw_only=True)
class KeyContribution:
    """One value that a report adds to one key."""

    key: int
    value: int


def contributions_of(
    source_pieces: Mapping[str, int],
    trigger_pieces: Sequence[TriggerPiece],
    values: Mapping[str, int],
) -> tuple[KeyContribution, ...]:
    """The contributions of the report that a trigger makes on a source.

    Args:
      source_pieces: The source's piece of each name.
      trigger_pieces: What the trigger adds.
      values: What the trigger contributes under each name; names the source lacks are ignored.
    """
    made = []
    for name, source_piece in source_pieces.items():
        key = _check_piece(source_piece)
        for part in trigger_pieces:
            if name in part.source_keys:
                key |= part.piece
        if name in values:
            made.append(KeyContribution(key=key, value=_check_value(name, values[name])))
    if len(made) > MOST_CONTRIBUTIONS:
        raise ConfigError(
            f"a report would have {len(made)} contributions and may have {MOST_CONTRIBUTIONS}; "
            "give values for fewer names."
        )
    return tuple(made)


@dataclasses.dataclass(frozen=True, kw_only=True)
class KeyLayout:
    """Which bits of a key say what: a run of bits for each field, from the lowest on."""

    field_sizes: Mapping[str, int]
    """How many values each field has."""

    def __post_init__(self) -> None:
        for name, size in self.field_sizes.items():
            check_count(name, size)
        if self.num_bits > KEY_BITS:
            raise ConfigError(
                f"the fields {', '.join(self.field_sizes)} need {self.num_bits} bits and a key "
                f"has {KEY_BITS}; slice by fewer columns or coarser values."
            )

    @property
    def num_bits(self) -> int:
        """Bits that the fields take together."""
        return sum(_bits(size) for size in self.field_sizes.values())

    def piece(self, codes: Mapping[str, int]) -> int:
        """The piece that says these fields and leaves all other bits 0."""
        widths = [_bits(size) for size in self.field_sizes.values()]
        offsets = dict(zip(self.field_sizes, itertools.accumulate(widths, initial=0), strict=False))
        piece = 0
        for name, code in codes.items():
            if not 0 <= code < self.field_sizes[name]:
                raise ConfigError(
                    f"field {name} has {self.field_sizes[name]} values; code {code} is none."
                )
            piece |= code << offsets[name]
        return piece


def _bits(size: int) -> int:
    return max(1, (size - 1).bit_length())


def _check_piece(piece: int) -> int:
    if check_count("key piece", piece, least=0) >> KEY_BITS:
        raise ConfigError(f"key piece {hex(piece)} must fit {KEY_BITS} bits.")
    return piece


def _check_value(name: str, value: int) -> int:
    if check_count(f"value of {name!r}", value) > L1_BUDGET:
        raise ConfigError(
            f"value of {name!r} must be from 1 to {L1_BUDGET}; scale values to the budget."
        )
    return value
