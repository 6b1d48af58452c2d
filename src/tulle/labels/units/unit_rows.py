"""Which rows belong to one protected unit, from public columns alone.

Labels are replaced, rows are not: owners, partners, times and so the number of
rows of a unit are the same in two neighbouring tables. Nothing here sees a label.
"""

import dataclasses
from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tulle.data.contribution import (
    GroupedRows,
    checked_unit_ids,
    group_by_ids,
    ranges,
    windows_of,
)
from tulle.errors import ConfigError
from tulle.privacy.fields import check_count
from tulle.privacy.units import Owner, Unit

IntArray = NDArray[np.int64]

_BLOCK_CELLS = 1 << 20
_PARTNERS = {Owner.USER_ADVERTISER: "advertiser", Owner.USER_PUBLISHER: "publisher"}


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class UnitRows:
    """The rows of each unit, in the order of time where times were given. Public."""

    unit: Unit
    grouped: GroupedRows
    """Order, starts and lengths; after a cap the order has the kept rows only."""
    num_table_rows: int
    """Rows of the table that the order points into."""

    @property
    def num_rows(self) -> int:
        """Rows in all units."""
        return int(self.grouped.order.size)

    @property
    def num_units(self) -> int:
        """Units with a row."""
        return int(self.grouped.starts.size)

    def length_counts(self) -> dict[int, int]:
        """How many units have each number of rows, by ascending number."""
        lengths, counts = np.unique(self.grouped.lengths, return_counts=True)
        return dict(zip(lengths.tolist(), counts.tolist(), strict=True))

    def blocks_of_equal_length(self) -> Iterator[IntArray]:
        """Matrices of rows: one line for each unit, units of one length together.

        Large groups come in several blocks, so that memory stays bounded.
        """
        by_length = np.argsort(self.grouped.lengths, kind="stable")
        lengths, counts = np.unique(self.grouped.lengths, return_counts=True)
        ends = np.cumsum(counts)
        for length, count, end in zip(
            lengths.tolist(), counts.tolist(), ends.tolist(), strict=True
        ):
            step = max(1, _BLOCK_CELLS // length)
            for first in range(end - count, end, step):
                units = by_length[first : min(first + step, end)]
                starts = self.grouped.starts[units]
                places = ranges(starts, np.full(units.size, length))
                yield self.grouped.order[places].reshape(units.size, length)


def group_rows(
    unit: Unit,
    *,
    owner_ids: ArrayLike,
    times: ArrayLike | None = None,
    partner_ids: ArrayLike | None = None,
) -> UnitRows:
    """Finds the rows of each unit.

    Ids are whole numbers of up to 64 bits: encode or hash other types first. Two owners
    with one hash become one unit, which protects both of them and costs accuracy only.

    Args:
      unit: What is protected.
      owner_ids: The user of each row. For an impression only their number counts.
      times: Seconds. Needed by a unit with a window; they also order the rows of a unit.
      partner_ids: The advertiser or publisher of each row, for units that have one.

    Privacy:
      Unit: that of `unit`, replace. No release. Relies on: owners, partners and times
      are public, and windows begin where the ledger's do (1970 UTC).
    """
    _check_columns(unit, times, partner_ids)
    owners = checked_unit_ids(owner_ids)
    if unit.owner is Owner.EXAMPLE:
        return single_rows(unit, owners.size)
    columns: list[ArrayLike] = [owners]
    if partner_ids is not None:
        columns.append(partner_ids)
    if unit.window_seconds is not None and times is not None:
        columns.append(windows_of(times, window_seconds=unit.window_seconds))
    grouped = group_by_ids(columns, times)
    return UnitRows(unit=unit, grouped=grouped, num_table_rows=grouped.order.size)


def single_rows(unit: Unit, num_rows: int) -> UnitRows:
    """Units of one row each, for a unit that is an impression."""
    if unit.owner is not Owner.EXAMPLE:
        raise ConfigError(f"unit={unit} owns several rows; use group_rows() with its ids.")
    check_count("num_rows", num_rows, least=0)
    rows = np.arange(num_rows, dtype=np.int64)
    grouped = GroupedRows(
        order=rows, starts=rows, lengths=np.ones(num_rows, np.int64), id_columns=(rows,)
    )
    return UnitRows(unit=unit, grouped=grouped, num_table_rows=num_rows)


def _check_columns(unit: Unit, times: ArrayLike | None, partner_ids: ArrayLike | None) -> None:
    partner = _PARTNERS.get(unit.owner)
    if partner is not None and partner_ids is None:
        raise ConfigError(
            f"unit={unit} needs partner_ids, the {partner} of each row; "
            "without it use the unit 'user', which protects more."
        )
    if partner is None and partner_ids is not None:
        raise ConfigError(
            f"unit={unit} has no partner; leave partner_ids out, or choose the unit "
            "'user x advertiser' or 'user x publisher'."
        )
    if unit.window_seconds is not None and unit.owner is not Owner.EXAMPLE and times is None:
        raise ConfigError(f"unit={unit} has a window and needs times, in seconds.")
