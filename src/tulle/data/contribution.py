"""Bounds on the rows of one unit: the last step before rows are sampled or counted.

Each rule looks at the rows of one unit alone, so what is kept of a unit does not
depend on any other unit. With windows, a unit is an owner within one time window.
Rules read unit ids and times only; these are public under replace.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tulle.data.keyed_hash import hash_columns
from tulle.errors import ConfigError, DataError
from tulle.privacy.time_zones import DAY_SECONDS
from tulle.privacy.windows import TimeWindows

IntArray = NDArray[np.int64]
Times = NDArray[np.int64] | NDArray[np.float64]

_LARGEST_TIME = 2**62
"""The difference of two such times still fits a 64-bit integer; a wrapped one would put rows into a
wrong window."""


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class BoundReport:
    """What a bound did.

    Except for the setting, every number is an exact statistic of the log. Where the
    rows of a unit are public (replace, with public unit ids and times) they may be
    shown; where it is sensitive that a unit has rows at all (add-or-remove), they
    must not be released, nor logged.
    """

    max_rows_per_unit: int
    num_rows: int
    num_kept: int
    """Entries of the result, repeats included."""
    num_units: int
    """Units, or pairs of owner and window, with a row."""

    def __repr__(self) -> str:
        return f"BoundReport(max_rows_per_unit={self.max_rows_per_unit})"


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class BoundedRows:
    """The rows to go on with, in ascending order, and what was dropped."""

    rows: IntArray
    report: BoundReport


def keep_first_rows(
    raw_unit_ids: ArrayLike,
    *,
    max_rows_per_unit: int,
    times: ArrayLike | None = None,
    windows: ArrayLike | None = None,
) -> BoundedRows:
    """Keeps the earliest rows of each unit.

    Args:
      raw_unit_ids: The unit of each row, as whole numbers.
      max_rows_per_unit: Most rows to keep, public.
      times: When each row happened; without them rows are in order. Of rows at the
        same time the one that comes first is kept.
      windows: Time window of each row, see `windows_of`; bounds each window by itself.

    Privacy:
      Unit: the owner of rows with one id (and window). Afterwards a unit owns at most
      `max_rows_per_unit` rows. No release, no event. Relies on: nothing later gives
      rows another unit or repeats them.
    """
    units = _group(raw_unit_ids, max_rows_per_unit, windows, times)
    kept = units.order[first_places(units, max_rows_per_unit)]
    return _bounded(np.sort(kept), units, max_rows_per_unit)


def keep_random_rows(
    raw_unit_ids: ArrayLike,
    *,
    max_rows_per_unit: int,
    key: bytes,
    windows: ArrayLike | None = None,
) -> BoundedRows:
    """Keeps a random subset of the rows of each unit, the same one for the same key.

    The choice follows from a keyed hash of the unit (and window) and of the row's
    number within it, so other units coming or going do not change it.

    Args:
      raw_unit_ids: The unit of each row, as whole numbers.
      max_rows_per_unit: Most rows to keep, public.
      key: Key of the hash, at least 16 secret bytes: who knows them can place rows to be kept.
      windows: Time window of each row, see `windows_of`; bounds each window by itself.

    Privacy:
      As for `keep_first_rows`.
    """
    units = _group(raw_unit_ids, max_rows_per_unit, windows, None)
    kept = units.order[random_places(units, max_rows_per_unit, key)]
    return _bounded(np.sort(kept), units, max_rows_per_unit)


def draw_rows_with_replacement(
    raw_unit_ids: ArrayLike,
    *,
    max_rows_per_unit: int,
    key: bytes,
    windows: ArrayLike | None = None,
) -> BoundedRows:
    """Draws exactly `max_rows_per_unit` rows of each unit, with replacement.

    All units then weigh the same, as in Chua et al. 2024 (arXiv 2401.15246,
    section on user-level privacy). A row may come several times; each time counts
    as a row of its unit. The draws follow from a keyed hash; their bias is below
    (rows of the unit) / 2^32.

    Args:
      raw_unit_ids: The unit of each row, as whole numbers.
      max_rows_per_unit: Rows to draw, public.
      key: Key of the hash, at least 16 secret bytes: who knows them can place rows to be drawn.
      windows: Time window of each row, see `windows_of`; draws from each by itself.

    Privacy:
      As for `keep_first_rows`.
    """
    units = _group(raw_unit_ids, max_rows_per_unit, windows, None)
    # A draw's number, not a row's, is hashed, so that each unit has the same number of draws.
    places = np.repeat(units.starts, max_rows_per_unit)
    numbers = np.tile(np.arange(max_rows_per_unit), units.starts.size)
    hashes = hash_columns(key, "draw rows with replacement", *units.names(places), numbers)
    lengths = np.repeat(units.lengths, max_rows_per_unit).astype(np.uint64)
    # A product in place of a remainder: its bias is spread over all rows of the unit.
    places += ((hashes >> np.uint64(32)) * lengths >> np.uint64(32)).astype(np.int64)
    return _bounded(np.sort(units.order[places]), units, max_rows_per_unit)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class GroupedRows:
    """Rows in the order of their units."""

    order: IntArray
    """Rows, those of one unit side by side: a place is an index into this order."""
    starts: IntArray
    """Place of the first row of each unit."""
    lengths: IntArray
    """Rows of each unit."""
    id_columns: tuple[NDArray[np.int64] | NDArray[np.uint64], ...]
    """What rows of one unit share, one value for each row of the log."""

    def names(self, places: IntArray) -> list[IntArray]:
        """Identifiers of the units of the rows at these places of the order."""
        rows = self.order[places]
        return [column[rows].astype(np.int64) for column in self.id_columns]


def group_by_ids(id_columns: Sequence[ArrayLike], times: ArrayLike | None = None) -> GroupedRows:
    """Puts the rows that share all identifiers side by side.

    Args:
      id_columns: One or more columns of whole numbers, e.g. unit and window.
      times: When each row happened; without them rows of a unit stay in their order.

    Privacy:
      As for `keep_first_rows`: a step before a release, not one itself.
    """
    checked_columns = tuple(checked_unit_ids(column) for column in id_columns)
    sort_columns: list[NDArray[Any]] = [*checked_columns]
    if times is not None:
        sort_columns.append(checked_times(times))
    if any(column.size != sort_columns[0].size for column in sort_columns):
        raise DataError("windows, times and unit ids must have one value for each row; align them.")
    # Logs are mostly written in time order; then row order is time order.
    if times is not None and _is_ascending(sort_columns[-1]):
        sort_columns.pop()
    order = (
        np.argsort(sort_columns[0], kind="stable")
        if len(sort_columns) == 1
        else np.lexsort(sort_columns[::-1])
    )
    is_first = np.ones(order.size, np.bool_)
    if order.size:
        is_first[1:] = False
        for column in checked_columns:
            sorted_column = column[order]
            is_first[1:] |= sorted_column[1:] != sorted_column[:-1]
    starts = np.flatnonzero(is_first)
    lengths = np.diff(starts, append=order.size)
    return GroupedRows(order=order, starts=starts, lengths=lengths, id_columns=checked_columns)


def first_places(units: GroupedRows, max_rows_per_unit: int) -> IntArray:
    """Places of the first rows of each unit, ascending."""
    return ranges(units.starts, np.minimum(units.lengths, max_rows_per_unit))


def random_places(units: GroupedRows, max_rows_per_unit: int, key: bytes) -> IntArray:
    """Places of a keyed random choice of the rows of each unit, see `keep_random_rows`.

    Args:
      units: Rows by unit.
      max_rows_per_unit: Most rows of a unit that are kept.
      key: At least 16 secret bytes. The same key keeps the same rows.
    """
    is_over = units.lengths > max_rows_per_unit
    starts, lengths = units.starts[is_over], units.lengths[is_over]
    places = ranges(starts, lengths)
    unit_numbers = np.repeat(np.arange(starts.size), lengths)
    # Numbered within the unit: with the number in the log, a row of another unit that comes or goes
    # would change which rows are kept here, and one unit would move the rows of many.
    numbers = places - np.repeat(starts, lengths)
    hashes = hash_columns(key, "keep random rows", *units.names(places), numbers)
    # Within a unit in the order of the hashes; equal hashes stay in row order.
    shuffled = places[np.lexsort((hashes, unit_numbers))]
    chosen = shuffled[ranges(np.cumsum(lengths) - lengths, np.full(starts.size, max_rows_per_unit))]
    whole = ranges(units.starts[~is_over], units.lengths[~is_over])
    return np.concatenate([whole, chosen])


def ranges(starts: IntArray, lengths: IntArray) -> IntArray:
    """start, start + 1, … for each start, as many as its length says."""
    offsets = np.repeat(starts - (np.cumsum(lengths) - lengths), lengths)
    return offsets + np.arange(offsets.size)


def windows_of(times: ArrayLike, windows: TimeWindows) -> IntArray:
    """The number of the time window of each row, as a ledger numbers them.

    Args:
      times: Time of each row, in seconds since 1970 UTC.
      windows: How time is cut, which is public.
    """
    checked = checked_times(times)
    if ((checked < -_LARGEST_TIME) | (checked > _LARGEST_TIME)).any():
        raise DataError("times are beyond 2^62 in size; give them in seconds.")
    # Windows begin at whole seconds. Unsigned or short numbers would wrap around before 1970.
    whole = np.floor(checked) if checked.dtype.kind == "f" else checked
    seconds: IntArray = whole.astype(np.int64)
    begins, offsets = (np.array(column, np.int64) for column in zip(*windows.offsets, strict=True))
    # The first offset holds before its begin, too.
    steps = np.searchsorted(begins[1:], seconds, side="right")
    local = seconds + offsets[steps]
    if windows.seconds is not None:
        numbers: IntArray = (local - windows.origin) // windows.seconds
        return numbers
    days = np.floor_divide(local, DAY_SECONDS).astype("datetime64[D]")
    months: IntArray = days.astype("datetime64[M]").astype(np.int64)
    return months


def checked_unit_ids(raw_unit_ids: ArrayLike) -> NDArray[np.int64] | NDArray[np.uint64]:
    """A vector of whole numbers, one for each row.

    Privacy:
      Releases nothing: the error shows no id.
    """
    unit_ids = np.asarray(raw_unit_ids)
    if unit_ids.ndim != 1 or unit_ids.dtype.kind not in "iu":
        raise DataError(
            f"unit ids of type {unit_ids.dtype} and shape {unit_ids.shape} must be a vector of "
            "whole numbers, one for each row; drop rows without a unit and number the units first."
        )
    return unit_ids


def checked_times(times: ArrayLike) -> Times:
    """A vector of finite numbers."""
    checked = np.asarray(times)
    if checked.ndim != 1 or checked.dtype.kind not in "iuf":
        raise DataError(
            f"times of type {checked.dtype} and shape {checked.shape} must be a vector of "
            "numbers, one for each row; use seconds."
        )
    if checked.dtype.kind == "f" and not np.isfinite(checked).all():
        raise DataError("times have missing or infinite values; drop those rows first.")
    return checked


def _group(
    raw_unit_ids: ArrayLike,
    max_rows_per_unit: int,
    windows: ArrayLike | None,
    times: ArrayLike | None,
) -> GroupedRows:
    if isinstance(max_rows_per_unit, bool) or not isinstance(max_rows_per_unit, int):
        raise ConfigError(f"max_rows_per_unit={max_rows_per_unit!r} must be a whole number.")
    if max_rows_per_unit < 1:
        raise ConfigError(
            f"max_rows_per_unit={max_rows_per_unit} must be >= 1; drop the units instead."
        )
    id_columns = (raw_unit_ids,) if windows is None else (raw_unit_ids, windows)
    return group_by_ids(id_columns, times)


def _is_ascending(values: NDArray[Any]) -> bool:
    return bool((values[1:] >= values[:-1]).all())


def _bounded(rows: IntArray, units: GroupedRows, max_rows_per_unit: int) -> BoundedRows:
    report = BoundReport(
        max_rows_per_unit=max_rows_per_unit,
        num_rows=units.order.size,
        num_kept=rows.size,
        num_units=units.starts.size,
    )
    return BoundedRows(rows=rows, report=report)
