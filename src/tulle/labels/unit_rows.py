"""Which rows belong to one protected unit, and which of them are kept, from public columns alone.

Labels are replaced, rows are not: owners, partners, times and so the number of rows of a unit are
the same in two neighbouring tables. Nothing here sees a label. That holds for a cap on the rows of
a unit too: one that kept converting rows would let a label decide which rows are released. A choice
of rows sees places in time and a keyed hash.
"""

import dataclasses
import enum
from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tulle.data.contribution import (
    GroupedRows,
    checked_unit_ids,
    first_places,
    group_by_ids,
    random_places,
    ranges,
    windows_of,
)
from tulle.errors import ConfigError
from tulle.privacy.fields import check_count
from tulle.privacy.units import Owner, Unit

IntArray = NDArray[np.int64]

_BLOCK_CELLS = 1 << 20
"""Most labels in a block of units of one length, so that memory stays bounded."""
_PARTNERS = {Owner.USER_ADVERTISER: "advertiser", Owner.USER_PUBLISHER: "publisher"}


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class UnitRows:
    """The rows of each unit, in the order of time where times were given. Public."""

    unit: Unit
    """What is protected."""
    grouped: GroupedRows
    """Order, starts and lengths; after a cap the order has the kept rows only."""
    num_table_rows: int
    """Number of rows of the table that the order points into."""

    @property
    def num_rows(self) -> int:
        """Number of rows in all units."""
        return int(self.grouped.order.size)

    @property
    def num_units(self) -> int:
        """Number of units with a row."""
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


class KeptRows(enum.Enum):
    """Which rows of a unit are kept if it has more than its cap."""

    FIRST = "first"
    RANDOM = "random"


def cap_rows(
    unit_rows: UnitRows,
    *,
    max_rows_per_unit: int | None,
    choice: KeptRows = KeptRows.FIRST,
    key: bytes | None = None,
) -> UnitRows:
    """Keeps at most `max_rows_per_unit` rows of each unit, in the order that they had.

    Args:
      unit_rows: All rows of each unit.
      max_rows_per_unit: Most rows to keep; None keeps all.
      choice: The first rows, or random ones that follow from the key.
      key: Key of at least 16 secret bytes for random rows; the same key keeps the same rows.

    Privacy:
      Unit: that of `unit_rows`, replace. No release. Relies on: ids and times are public.
    """
    if not isinstance(choice, KeptRows):
        raise ConfigError(f"choice={choice!r} must be a KeptRows, e.g. KeptRows.FIRST.")
    if max_rows_per_unit is None:
        return unit_rows
    check_count("max_rows_per_unit", max_rows_per_unit)
    grouped = unit_rows.grouped
    if choice is KeptRows.FIRST:
        places = first_places(grouped, max_rows_per_unit)
    elif key is None:
        raise ConfigError(
            "choice='random' needs a key of at least 16 bytes; "
            "make one with secrets.token_bytes(16) and keep it."
        )
    else:
        places = np.sort(random_places(grouped, max_rows_per_unit, key))
    lengths = np.minimum(grouped.lengths, max_rows_per_unit)
    capped = GroupedRows(
        order=grouped.order[places],
        starts=np.cumsum(lengths) - lengths,
        lengths=lengths,
        id_columns=grouped.id_columns,
    )
    return dataclasses.replace(unit_rows, grouped=capped)


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
