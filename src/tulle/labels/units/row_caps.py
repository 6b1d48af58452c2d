"""A cap on the rows of a unit, chosen without looking at labels.

A cap that kept converting rows would let a label decide which rows are released.
Here a choice sees places in time and a keyed hash, and cannot be given labels.
"""

import dataclasses
import enum

import numpy as np

from tulle.data.contribution import GroupedRows, first_places, random_places
from tulle.errors import ConfigError
from tulle.labels.units.unit_rows import UnitRows
from tulle.privacy.fields import check_count


class RowChoice(enum.Enum):
    """Which rows of a unit are kept if it has more than its cap."""

    FIRST = "first"
    RANDOM = "random"


def cap_rows(
    unit_rows: UnitRows,
    *,
    max_rows_per_unit: int | None,
    choice: RowChoice = RowChoice.FIRST,
    key: bytes | None = None,
) -> UnitRows:
    """Keeps at most so many rows of each unit, in the order that they had.

    Args:
      unit_rows: All rows of each unit.
      max_rows_per_unit: Most rows to keep; None keeps all.
      choice: The first rows, or random ones that follow from the key.
      key: At least 16 secret bytes for random rows; the same key keeps the same rows.

    Privacy:
      Unit: that of `unit_rows`, replace. No release. Relies on: ids and times are public.
    """
    check_row_choice(choice)
    if max_rows_per_unit is None:
        return unit_rows
    check_count("max_rows_per_unit", max_rows_per_unit)
    grouped = unit_rows.grouped
    if choice is RowChoice.FIRST:
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


def check_row_choice(choice: object) -> None:
    """Refuses anything but a RowChoice."""
    if not isinstance(choice, RowChoice):
        raise ConfigError(f"choice={choice!r} must be a RowChoice, e.g. RowChoice.FIRST.")
