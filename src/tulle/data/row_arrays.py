"""Label, unit, time and weight of each row as numbers, and how many rows there are.

A row without one of them is refused: nobody would notice a guess. Messages name
the column and the place of the first such row, never its value. Rows that name no
unit may be dropped instead, if somebody asks for it.
"""

import dataclasses
from collections.abc import Iterator

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tulle.data.features.hashing import ValueHasher
from tulle.data.schema import Kind, Schema
from tulle.data.tables.kinds import (
    FLAG_WORDS,
    MOST_SECONDS,
    as_numbers,
    as_text,
    class_numbers,
    label_numbers,
)
from tulle.data.tables.layout import Block, Position
from tulle.data.tables.refusals import Place, refuse_missing, refuse_values
from tulle.data.tables.sources import Log, LogFiles, block_place, read_blocks
from tulle.errors import DataError

_SECONDS_PER_DAY = 86_400
_MOST_DAYS = 1_000_000
"""2,700 years and more: larger numbers are times in a smaller unit, which would make wrong
windows."""
MOST_DOUBTFUL_TIME = 100_000
"""Days up to the year 2243 since 1970, and little more than one day in seconds."""
_MOST_VALUE = 1e30
"""Largest label that is a value: 32-bit floats hold up to 3e38."""
DOUBTFUL_TIME = "has a number that may count days as well as seconds"
"""Reason why a time without a declared kind is refused, for messages."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class RowArrays:
    """Makes the arrays that are not features. Every field is public information."""

    schema: Schema
    num_classes: int | None
    """Labels must be whole numbers from 0 to num_classes - 1; None: values from 0 on."""
    salt: bytes
    """Salt of the hash that makes a unit's id from text."""
    classes: tuple[str, ...] | None = None
    """Names that labels are one of, in the order of their numbers; None: labels are numbers."""

    def make(self, table: pl.DataFrame, place: Place) -> dict[str, NDArray[np.generic]]:
        """One array for each of label, unit, time, day and weight that the schema has."""
        made: dict[str, NDArray[np.generic]] = {}
        if self.schema.label is not None:
            made["labels"] = self._labels(table[self.schema.label], place)
        if self.schema.unit is not None:
            made["units"] = self.ids(
                table[self.schema.unit], place, reason="every row needs a unit"
            )
        if self.schema.time is not None:
            made |= self.times(table[self.schema.time], place)
        if self.schema.weight is not None:
            made["weights"] = self._weights(table[self.schema.weight], place)
        return made

    def ids(self, values: pl.Series, place: Place, *, reason: str) -> NDArray[np.int64]:
        """Numbers that are equal for equal values of a column of ids.

        Args:
          values: The column.
          place: Says where a row is.
          reason: Why no value may be missing, for the message.
        """
        kind = self.schema.kind(values.name)
        if kind is Kind.INTEGER:
            ids = as_numbers(values, kind, place)
            refuse_missing(ids, place, reason)
            return ids.to_numpy()
        if kind is Kind.CATEGORICAL and values.dtype.is_float():
            # 12 in one file and 12.0 in the next would make two units of one user.
            raise DataError(
                f"column {values.name!r} holds ids, is {kind.value} and has the type "
                f"{values.dtype}; declare it integer in the schema's kinds or store it as text."
            )
        texts = as_text(values, kind, place)
        refuse_missing(texts, place, reason)
        return ValueHasher(column=values.name, salt=self.salt).hashes(texts).view(np.int64)

    def times(self, values: pl.Series, place: Place) -> dict[str, NDArray[np.generic]]:
        """Days, and seconds where the column has them."""
        kind = self.schema.kind(values.name)
        if kind is Kind.TIMESTAMP:
            numbers = as_numbers(values, kind, place)
            refuse_missing(numbers, place, "every row needs a time")
            if values.name not in self.schema.kinds:
                _refuse_doubtful(values, numbers, place)
            _refuse_beyond(numbers, MOST_SECONDS, place, "seconds", "milliseconds")
            times = numbers.to_numpy()
            return {"times": times, "days": (times // _SECONDS_PER_DAY).astype(np.int32)}
        if kind is Kind.INTEGER:
            numbers = as_numbers(values, kind, place)
            refuse_missing(numbers, place, "every row needs a time")
            _refuse_beyond(numbers, _MOST_DAYS, place, "days", "seconds")
            days = numbers.to_numpy()
            return {"days": days.astype(np.int32)}
        raise DataError(
            f"column {values.name!r} of role time is {kind.value}; declare it a timestamp "
            "(seconds) or an integer (a number of days) in the schema's kinds."
        )

    def _weights(self, values: pl.Series, place: Place) -> NDArray[np.float32]:
        numbers = as_numbers(values, self.schema.kind(values.name), place)
        refuse_missing(numbers, place, "every row needs a weight, 0 for one that does not count")
        weights = numbers.cast(pl.Float32)
        refuse_values(
            values.name,
            ~(weights.is_finite() & (weights >= 0)),
            place,
            "of role weight is below 0 or infinite",
            "weights are finite numbers from 0; mend or drop such rows",
        )
        return weights.to_numpy()

    def seconds(self, values: pl.Series, place: Place) -> NDArray[np.int64]:
        """The second of each row, or the first one of its day where only days are known."""
        found = self.times(values, place)
        if "times" in found:
            return found["times"].astype(np.int64)
        return found["days"].astype(np.int64) * _SECONDS_PER_DAY

    def _labels(self, values: pl.Series, place: Place) -> NDArray[np.float32]:
        if self.classes is not None:
            found = class_numbers(values, self.classes)
            refuse_values(
                values.name,
                found.is_null(),
                place,
                "of role label is none of the classes that were named",
                "name all classes that labels may be: classes=['none', 'sale'], or mend or drop "
                "such rows",
            )
            return found.to_numpy()
        numbers = label_numbers(values)
        if self.num_classes is None:
            is_value = (numbers >= 0) & numbers.is_finite() & (numbers <= _MOST_VALUE)
            refuse_values(
                values.name,
                ~is_value.fill_null(False),
                place,
                f"of role label is no number from 0 to {_MOST_VALUE:.0e}",
                "mend or drop such rows; write 0 where nothing happened, and add a constant to "
                "all labels if some are below 0",
            )
            return numbers.cast(pl.Float32).to_numpy()
        is_class = (numbers >= 0) & (numbers < self.num_classes) & (numbers == numbers.floor())
        refuse_values(
            values.name,
            ~is_class.fill_null(False),
            place,
            "of role label is neither a whole number from 0 to "
            f"{self.num_classes - 1} nor {FLAG_WORDS}",
            "mend or drop such rows. To learn classes, name all that labels may be: "
            "classes=['none', 'sale']. To learn an amount or a count, give the largest value that "
            "a label counts as: clip=400",
        )
        return numbers.cast(pl.Float32).to_numpy()


def _refuse_beyond(times: pl.Series, most: int, place: Place, unit: str, smaller: str) -> None:
    refuse_values(
        times.name,
        (times > most) | (times < -most),
        place,
        f"of role time is taken for {unit} and is beyond {most:,}",
        f"such times look like {smaller}. Convert them, or give the column the right kind: "
        "timestamp for seconds, integer for days",
    )


def _refuse_doubtful(values: pl.Series, times: pl.Series, place: Place) -> None:
    """Refuses numbers that may count days, where the schema does not say what they count."""
    if values.dtype in (pl.Date, pl.Datetime):
        return
    texts = values if values.dtype.is_numeric() else values.cast(pl.String)
    is_number = texts.cast(pl.Float64, strict=False).is_not_null()
    refuse_values(
        values.name,
        is_number & times.is_between(-MOST_DOUBTFUL_TIME, MOST_DOUBTFUL_TIME),
        place,
        f"of role time {DOUBTFUL_TIME}",
        f'say which in the schema: kinds = {{{values.name} = "integer"}} for days, "timestamp" '
        "for seconds",
    )


def check_units(table: pl.DataFrame, schema: Schema) -> None:
    """Refuses a table in which a row names no unit.

    Without a unit column each row is its own unit and there is nothing to check.
    """
    if schema.unit is not None and _lacks_unit(table, schema.unit).any():
        raise DataError(
            f"column {schema.unit!r} has nulls or empty text; every row needs a unit. Drop such "
            "rows first, or prepare the data with drop_rows_without_unit=True."
        )


def drop_rows_without_unit(table: pl.DataFrame, schema: Schema) -> pl.DataFrame:
    """The rows that name their unit, in their order.

    Privacy:
      Unit: that of the schema. Every row is kept or dropped by its own unit
      column alone, so what is kept of one unit does not depend on another.
      How many rows were dropped is exact and must not be released.
    """
    return table if schema.unit is None else table.filter(~_lacks_unit(table, schema.unit))


def _lacks_unit(table: pl.DataFrame, unit: str) -> pl.Series:
    if unit not in table.columns:
        raise DataError(f"column {unit!r} of role unit is not in the table; read it as well.")
    column = table[unit]
    if column.dtype.is_float():
        column = column.fill_nan(None)
    return column.is_null()


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
    for block, _ in narrow_blocks(log, (_cheapest(schema),)):
        num_rows += len(block.table)
        if at_most is not None and num_rows >= at_most:
            return at_most
    return num_rows


def count_rows_and_units(
    log: Log, schema: Schema, salt: bytes
) -> tuple[int, NDArray[np.int64] | None, NDArray[np.int64] | None]:
    """Counts rows, and says whose each is and when it was.

    Args:
      log: The rows.
      schema: Roles of the columns.
      salt: Salt of the hash that makes a unit's id from text.

    Returns:
      The number of rows; one id a row, equal for rows of one unit, or None without a unit column;
      and the second of each row, or None without a unit or time column.

    Privacy:
      Looks at the columns of unit and time alone, which are public under replace. Ids are as
      sensitive as the unit column.

    Raises:
      DataError: A row names no unit, or a file cannot be read.
    """
    if schema.unit is None:
        return count_rows(log, schema), None, None
    maker = RowArrays(schema=schema, num_classes=_ANY_NUMBER_OF_CLASSES, salt=salt)
    columns = (schema.unit,) if schema.time is None else (schema.unit, schema.time)
    parts, seconds = [], []
    for block, start in narrow_blocks(log, columns):
        check_units(block.table, schema)
        place = block_place(log, block, start, len(block.table))
        units = maker.ids(block.table[schema.unit], place, reason="every row needs a unit")
        parts.append(units)
        if schema.time is not None:
            seconds.append(maker.seconds(block.table[schema.time], place))
    units = np.concatenate(parts) if parts else np.empty(0, np.int64)
    return len(units), units, np.concatenate(seconds) if seconds else None


def _cheapest(schema: Schema) -> str:
    """A column to count rows by: a public one, or else any that has a role."""
    return next(iter((*schema.public, *schema.used)))


def narrow_blocks(log: Log, columns: tuple[str, ...]) -> Iterator[tuple[Block, Position]]:
    """Blocks that have at least some columns, each with the position before it.

    Args:
      log: The rows.
      columns: What is read of files; a log of another form gives all of its columns.
    """
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
