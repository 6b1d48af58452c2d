"""Released numbers, one row a slice and number, each with its noise and its interval."""

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from tulle.errors import ConfigError
from tulle.privacy.events import Event
from tulle.privacy.release import Interval, Release

FloatArray = npt.NDArray[np.float64]

NUMBER_COLUMNS = ("number", "value", "low", "high", "noise_stddev")
"""Behind the columns of the slices. Where nothing is known, low and high are infinite."""
MEASURED_COLUMNS = ("measured_value", "measured_stddev")
"""Of a hierarchy: a number as its noise left it, before all were made to add up."""
RESULT_COLUMNS = (*NUMBER_COLUMNS, "level", "nonnegative", *MEASURED_COLUMNS)
"""All columns that are no slices; those after the numbers are of a hierarchy."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Answer:
    """One kind of number for every slice, and the range that holds it."""

    number: str
    value: FloatArray
    low: FloatArray
    high: FloatArray
    noise_stddev: FloatArray

    @classmethod
    def around(
        cls,
        number: str,
        value: FloatArray,
        *,
        half_width: float | FloatArray,
        noise_stddev: float | FloatArray,
    ) -> "Answer":
        """An answer whose interval is symmetric."""
        half_width = np.broadcast_to(np.asarray(half_width, np.float64), value.shape)
        stddev = np.broadcast_to(np.asarray(noise_stddev, np.float64), value.shape)
        return cls(
            number=number,
            value=value,
            low=value - half_width,
            high=value + half_width,
            noise_stddev=stddev,
        )


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class AnswerTable:
    """The released table of one query. Everything in it may be published."""

    name: str
    frame: pl.DataFrame
    """Columns of the slices, then `NUMBER_COLUMNS`, then what a kind of query adds."""
    event: Event
    """What the whole table costs; its numbers share it."""
    confidence: float

    def __post_init__(self) -> None:
        missing = [name for name in NUMBER_COLUMNS if name not in self.frame.columns]
        if missing:
            raise ConfigError(f"table {self.name!r} lacks the columns {missing}.")

    @property
    def slice_columns(self) -> list[str]:
        """The columns that say which slice a row is about."""
        return [name for name in self.frame.columns if name not in RESULT_COLUMNS]

    def plain_rows(self) -> Iterator[dict[str, Any]]:
        """Rows as JSON has them: None for what is not known or has no limit."""
        for row in self.frame.iter_rows(named=True):
            yield {name: _finite_or_none(value) for name, value in row.items()}

    def releases(self) -> Iterator[Release]:
        """Each number as a release, in the order of the rows."""
        for row in self.frame.iter_rows(named=True):
            yield self._release(row)

    def release(self, number: str, **slice_values: str) -> Release:
        """The one number of a slice.

        Args:
          number: Its name, e.g. "conversions".
          slice_values: The value of each slice column.

        Raises:
          ConfigError: There is no such row.
        """
        found = self.frame.filter(
            pl.col("number") == number, *(pl.col(name) == v for name, v in slice_values.items())
        )
        if found.height != 1:
            raise ConfigError(
                f"table {self.name!r} has {found.height} rows for number={number!r} and "
                f"{slice_values}; name one number and a value for each slice column."
            )
        return self._release(found.row(0, named=True))

    def _release(self, row: Mapping[str, float]) -> Release:
        interval = Interval(low=row["low"], high=row["high"], confidence=self.confidence)
        return Release(
            value=row["value"],
            noise_stddev=row["noise_stddev"],
            interval=interval,
            event=self.event,
        )


def _finite_or_none(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def answer_frame(slices: pl.DataFrame, answers: Sequence[Answer]) -> pl.DataFrame:
    """One row for each slice and number, the numbers of a slice together."""
    num_slices = len(answers[0].value)
    order = np.arange(num_slices * len(answers)).reshape(len(answers), num_slices).T.reshape(-1)
    columns = {
        name: np.concatenate([getattr(answer, name) for answer in answers])[order]
        for name in NUMBER_COLUMNS[1:]
    }
    numbers = pl.Series("number", [answer.number for answer in answers] * num_slices, pl.String)
    series = [numbers, *(pl.Series(name, data) for name, data in columns.items())]
    if not slices.width:
        return pl.DataFrame(series)
    return slices[np.repeat(np.arange(num_slices), len(answers))].hstack(series)
