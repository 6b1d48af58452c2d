"""What an engine computes: exact totals per slice of contributions that were bounded.

Bounds come last. A unit's credited conversions are added up by slice; then they are clipped,
turned into whole steps, cut to few slices and scaled to the most that one unit may have.
Nothing can be joined, derived or renamed after that, so what the noise is made for holds.
"""

import dataclasses
import enum

import numpy as np
import numpy.typing as npt
import polars as pl

from tulle.errors import ConfigError
from tulle.measure.ad_log import Side
from tulle.privacy.fields import check_count, check_text

IntArray = npt.NDArray[np.int64]

FINE_STEPS = 1 << 24
"""Steps of one conversion where credit or value is a fraction."""
NO_IMPRESSION = "(none)"
"""The slice value of conversions that no impression has a share in."""


class Subject(enum.Enum):
    """What is added up."""

    CONVERSIONS = "conversions"
    """Credit for conversions, by slices of impressions and conversions."""
    IMPRESSIONS = "impressions"
    """Impressions, by slices of impressions."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class SliceColumn:
    """A column whose values make slices. `name` is that in the result."""

    name: str
    side: Side
    column: str
    """Name of the column in its table. Values are compared as text."""
    is_day: bool = False
    """True if `column` is a time, and slices are its days, as 2026-01-14 (UTC)."""

    def __post_init__(self) -> None:
        check_text("name", self.name)
        check_text("column", self.column)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Amount:
    """A number that every row brings along, as a share of one contribution.

    Of a row with credit c and value v it is c * share * min(v, clip) / clip, or c * share
    without a column. Shares of all amounts of a job add up to 1 at most.
    """

    name: str
    share: float = 1.0
    column: str | None = None
    """A column of the conversions, >= 0. None counts rows."""
    clip: float = 1.0

    def __post_init__(self) -> None:
        check_text("name", self.name)
        if not 0 < self.share <= 1:
            raise ConfigError(f"share={self.share} of amount {self.name!r} must be in (0, 1].")
        if not 0 < self.clip < float("inf"):
            raise ConfigError(f"clip={self.clip} of amount {self.name!r} must be > 0 and finite.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bounds:
    """The most that one unit may add, in contributions (1 is one whole conversion)."""

    max_per_slice: float
    """Most that one unit adds to one slice, over all amounts together."""
    max_slices_per_unit: int | None = None
    """Slices that are kept of a unit, chosen by keyed hash. None keeps all."""
    max_per_unit: float | None = None
    """Most that one unit adds to all slices; what is above is scaled down. None: slices times
    max_per_slice."""

    def __post_init__(self) -> None:
        for name in ("max_per_slice", "max_per_unit"):
            limit = getattr(self, name)
            if limit is not None and not 0 < limit <= 1e6:
                raise ConfigError(f"{name}={limit} must be > 0 and at most 1e6.")
        if self.max_slices_per_unit is not None:
            check_count("max_slices_per_unit", self.max_slices_per_unit)
        if self.max_slices_per_unit is None and self.max_per_unit is None:
            raise ConfigError(
                "a unit may be in any number of slices; set max_per_unit, or "
                "max_slices_per_unit as well as max_per_slice."
            )

    def max_steps_per_slice(self, steps: int) -> int:
        """The bound on one slice in whole steps; `steps` make one contribution."""
        return max(1, int(self.max_per_slice * steps))

    def max_steps_per_unit(self, steps: int) -> int:
        """The bound on all slices of a unit in whole steps: its L1 sensitivity."""
        limits = []
        if self.max_per_unit is not None:
            limits.append(max(1, int(self.max_per_unit * steps)))
        if self.max_slices_per_unit is not None:
            limits.append(self.max_slices_per_unit * self.max_steps_per_slice(steps))
        return min(limits)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class SliceJob:
    """One table of bounded totals."""

    name: str
    subject: Subject
    slices: tuple[SliceColumn, ...]
    """Columns of the slices; empty for one total over everything."""
    amounts: tuple[Amount, ...]
    has_rest: bool = False
    """Adds the amount "rest", so that the amounts of a row add up to its credit."""
    bounds: Bounds | None
    """Bounds of what a unit adds; None if each row is a unit of its own, and the sensitivity
    follows from the rule."""
    steps: int
    """Whole steps of one contribution."""
    keys: pl.DataFrame | None
    """The slices that are wanted, one text column for each of `slices`; rows of other slices
    are dropped before bounding. None for all that occur: then they are private."""
    counts_unattributed: bool = False
    """Whether conversions without impression count, with NO_IMPRESSION for columns of
    impressions. Else they are dropped."""
    only_kinds: tuple[str, ...] = ()
    """Kinds of impressions that count, if the subject is IMPRESSIONS. Empty for all."""
    is_histogram: bool = False
    """Whether units are counted by how much they have, 1, 2, … up to `bounds.max_per_slice`,
    in place of sums of what they have."""

    @property
    def amount_names(self) -> tuple[str, ...]:
        """The amounts in the order of the totals."""
        return (*(amount.name for amount in self.amounts), *(["rest"] if self.has_rest else []))

    @property
    def num_columns(self) -> int:
        """Columns of the totals: amounts, or the frequencies of a histogram."""
        if self.is_histogram and self.bounds is not None:
            return int(self.bounds.max_per_slice)
        return len(self.amount_names)


def frequency_job(
    name: str,
    slices: tuple[SliceColumn, ...],
    *,
    max_frequency: int,
    max_slices_per_unit: int | None,
    keys: pl.DataFrame | None,
    only_kinds: tuple[str, ...] = (),
) -> SliceJob:
    """How many units had 1, 2, ... impressions, for each slice.

    Args:
      name: Name of the job.
      slices: Columns of impressions.
      max_frequency: More impressions of a unit in a slice count as this many.
      max_slices_per_unit: Most slices of a unit; None only without slices.
      keys: The slices that are wanted; None for all that occur.
      only_kinds: Kinds of impressions that count; empty for all.
    """
    check_count("max_frequency", max_frequency)
    if max_slices_per_unit is None and slices:
        raise ConfigError(f"job {name!r}: set max_slices_per_unit; a unit may be in many.")
    return SliceJob(
        name=name,
        subject=Subject.IMPRESSIONS,
        slices=slices,
        amounts=(Amount(name="impressions"),),
        bounds=Bounds(max_per_slice=max_frequency, max_slices_per_unit=max_slices_per_unit or 1),
        steps=1,
        keys=keys,
        only_kinds=only_kinds,
        is_histogram=True,
    )


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class SliceTotals:
    """Exact totals of one job. Sensitive: nothing of it may get out without noise."""

    slices: pl.DataFrame = dataclasses.field(repr=False)
    """One text column for each slice column, sorted; with keys: exactly theirs, in their order."""
    raw_steps: IntArray = dataclasses.field(repr=False)
    """[slices, amounts], in whole steps; of a histogram [slices, frequencies], units with exactly
    1, 2, ..., and at least as many as the last."""
    raw_unit_counts: IntArray = dataclasses.field(repr=False)
    """[slices], units with anything in the slice after all bounds."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Frequencies:
    """Exact frequency histograms. Sensitive: nothing of it may get out without noise."""

    slices: pl.DataFrame = dataclasses.field(repr=False)
    raw_counts: IntArray = dataclasses.field(repr=False)
    """[slices, max_frequency]: units with exactly 1, 2, ..., and at least max_frequency."""
