"""Label, unit and time of each row as numbers.

A row without one of them is refused: nobody would notice a guess. Messages name
the column and the place of the first such row, never its value.
"""

import dataclasses
from collections.abc import Callable

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tulle.data.features.canonical_values import as_numbers, as_text
from tulle.data.features.hashing import ValueHasher
from tulle.data.schema import Kind, Schema
from tulle.errors import DataError

_SECONDS_PER_DAY = 86_400
_MOST_DAYS = 1_000_000
_MOST_SECONDS = 100_000_000_000
# Over 2,700 years of either: a column in a smaller unit, which would make wrong windows.

_WORDS = {"true": 1.0, "yes": 1.0, "false": 0.0, "no": 0.0}
LABEL_WORDS = "true, false, yes or no"
"""The words that a label may be in place of 1 and 0, for messages."""

Place = Callable[[int], str]
"""Says where a row of a block is, e.g. `clicks.csv, row 17`."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class RowArrays:
    """Makes the arrays that are not features. Every field is public information."""

    schema: Schema
    num_classes: int
    salt: bytes
    """Of the hash that makes a unit's id from text."""

    def make(self, table: pl.DataFrame, place: Place) -> dict[str, NDArray[np.generic]]:
        """One array for each of label, unit, time and day that the schema has."""
        made: dict[str, NDArray[np.generic]] = {}
        if self.schema.label is not None:
            made["labels"] = self._labels(table[self.schema.label], place)
        if self.schema.unit is not None:
            made["units"] = self.ids(
                table[self.schema.unit], place, reason="every row needs a unit"
            )
        if self.schema.time is not None:
            made |= self.times(table[self.schema.time], place)
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
            ids = as_numbers(values, kind)
            _refuse_nulls(ids, reason, place)
            return ids.to_numpy()
        if kind is Kind.CATEGORICAL and values.dtype.is_float():
            # 12 in one file and 12.0 in the next would make two units of one user.
            raise DataError(
                f"column {values.name!r} holds ids, is {kind.value} and has the type "
                f"{values.dtype}; declare it integer in the schema's kinds or store it as text."
            )
        texts = as_text(values, kind)
        _refuse_nulls(texts, reason, place)
        return ValueHasher(column=values.name, salt=self.salt).hashes(texts).view(np.int64)

    def times(self, values: pl.Series, place: Place) -> dict[str, NDArray[np.generic]]:
        """Days, and seconds where the column has them."""
        kind = self.schema.kind(values.name)
        if kind is Kind.TIMESTAMP:
            numbers = as_numbers(values, kind)
            _refuse_nulls(numbers, "every row needs a time", place)
            times = numbers.to_numpy()
            _refuse_beyond(times, _MOST_SECONDS, values.name, "seconds", "milliseconds")
            return {"times": times, "days": (times // _SECONDS_PER_DAY).astype(np.int32)}
        if kind is Kind.INTEGER:
            numbers = as_numbers(values, kind)
            _refuse_nulls(numbers, "every row needs a time", place)
            days = numbers.to_numpy()
            _refuse_beyond(days, _MOST_DAYS, values.name, "days", "seconds")
            return {"days": days.astype(np.int32)}
        raise DataError(
            f"column {values.name!r} of role time is {kind.value}; declare it a timestamp "
            "(seconds) or an integer (a number of days) in the schema's kinds."
        )

    def _labels(self, values: pl.Series, place: Place) -> NDArray[np.float32]:
        numbers = label_numbers(values)
        is_class = (numbers >= 0) & (numbers < self.num_classes) & (numbers == numbers.floor())
        is_class = is_class.fill_null(False)
        if not is_class.all():
            raise DataError(
                f"column {values.name!r} of role label is neither a whole number from 0 to "
                f"{self.num_classes - 1} nor {LABEL_WORDS} in {place(_first(~is_class))}; mend or "
                "drop such rows, or set the number of classes."
            )
        return numbers.cast(pl.Float32).to_numpy()


def label_numbers(values: pl.Series) -> pl.Series:
    """Labels as floats, each by itself; null where a value is missing or stands for no number.

    Truth values and the words true, false, yes and no, in capitals or not, stand for 1 and 0.
    """
    if values.dtype in (pl.Categorical, pl.Enum):
        values = values.cast(pl.String)
    numbers = values.cast(pl.Float64, strict=False).fill_nan(None)
    if values.dtype != pl.String:
        return numbers
    words = values.str.to_lowercase()
    return numbers.fill_null(words.replace_strict(_WORDS, default=None, return_dtype=pl.Float64))


def _refuse_beyond(
    times: NDArray[np.int64], most: int, column: str, unit: str, smaller: str
) -> None:
    if len(times) and max(abs(int(times.min())), abs(int(times.max()))) > most:
        raise DataError(
            f"column {column!r} of role time is taken for {unit}, and some are beyond {most:,}: "
            f"they look like {smaller}. Convert it, or give it the right kind: timestamp for "
            "seconds, integer for days."
        )


def _refuse_nulls(values: pl.Series, reason: str, place: Place) -> None:
    if values.null_count():
        raise DataError(
            f"column {values.name!r} has nulls, the first in {place(_first(values.is_null()))}; "
            f"{reason}. Drop such rows first."
        )


def _first(is_wrong: pl.Series) -> int:
    return int(is_wrong.arg_true()[0])
