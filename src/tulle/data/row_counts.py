"""Numbers of rows, and whose each row is, before anything else of a log is looked at."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from tulle.data.row_arrays import RowArrays
from tulle.data.schema import Schema
from tulle.data.tables.blocks import Block, Position
from tulle.data.tables.sources import Log, LogFiles, block_place, read_blocks
from tulle.data.units import check_units

_ANY_NUMBER_OF_CLASSES = 2
"""Labels are not looked at here."""


def count_rows(log: Log, schema: Schema, *, at_most: int | None = None) -> int:
    """Counts the rows of a log.

    Args:
      log: The rows.
      schema: Roles of the columns; a public one is read where one must be.
      at_most: Number at which counting stops; None: all rows are counted.

    Privacy:
      The number of rows is public under replace. No sensitive value is looked at.
    """
    num_rows = 0
    for block, _ in _narrow_blocks(log, (_cheapest(schema),)):
        num_rows += len(block.table)
        if at_most is not None and num_rows >= at_most:
            return at_most
    return num_rows


def count_rows_and_units(
    log: Log, schema: Schema, salt: bytes
) -> tuple[int, NDArray[np.int64] | None]:
    """Counts rows, and says whose each is.

    Args:
      log: The rows.
      schema: Roles of the columns.
      salt: Salt of the hash that makes a unit's id from text.

    Returns:
      The number of rows, and one id a row, equal for rows of one unit; None without a unit column.

    Privacy:
      Looks at the unit column alone, which is public under replace. Ids are as sensitive as that
      column.

    Raises:
      DataError: A row names no unit, or a file cannot be read.
    """
    if schema.unit is None:
        return count_rows(log, schema), None
    maker = RowArrays(schema=schema, num_classes=_ANY_NUMBER_OF_CLASSES, salt=salt)
    parts = []
    for block, start in _narrow_blocks(log, (schema.unit,)):
        check_units(block.table, schema)
        place = block_place(log, block, start, len(block.table))
        units = maker.ids(block.table[schema.unit], place, reason="every row needs a unit")
        parts.append(units)
    units = np.concatenate(parts) if parts else np.empty(0, np.int64)
    return len(units), units


def _cheapest(schema: Schema) -> str:
    """A column to count rows by: a public one, or else any that has a role."""
    return next(iter((*schema.public, *schema.used)))


def _narrow_blocks(log: Log, columns: tuple[str, ...]) -> Iterator[tuple[Block, Position]]:
    """Blocks of some columns, each with the position before it."""
    start = Position(0, 0, 0, 0)
    if isinstance(log, LogFiles):
        blocks = read_blocks(log.paths, log.layout, bad_lines=log.bad_lines, columns=columns)
    else:
        blocks = log.blocks()
    for block in blocks:
        if block.next.file_index != start.file_index:
            start = Position(block.next.file_index, 0, 0, 0)
        yield block, start
        start = block.next
