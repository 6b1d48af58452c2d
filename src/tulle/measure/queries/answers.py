"""Released numbers, one row a slice and number, each with its noise and its interval.

The slices are those that were given, or those that were found privately among all that occur.
"""

import bisect
import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from tulle.errors import ConfigError
from tulle.measure.slice_jobs import IntArray, SliceTotals
from tulle.mechanisms.entropy import NoiseSource
from tulle.mechanisms.key_selection import KeySelectionConfig, select_keys
from tulle.privacy.events import Event
from tulle.privacy.guarantee import Interval, Release

FloatArray = npt.NDArray[np.float64]
METRIC_COLUMNS = ("metric", "value", "low", "high", "noise_stddev")
"""Columns behind those of the slices. Where nothing is known, low and high are infinite."""
MEASURED_COLUMNS = ("measured_value", "measured_stddev")
"""Columns of a hierarchy: a number as its noise left it, before all were made to add up."""
RESULT_COLUMNS = (*METRIC_COLUMNS, "level", "nonnegative", *MEASURED_COLUMNS)
"""All columns that are no slices; those after the numbers are of a hierarchy."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class SliceNumbers:
    """One kind of number for every slice, and the range that holds it."""

    metric: str
    """Name of the metric, e.g. "conversions"."""
    value: FloatArray
    low: FloatArray
    high: FloatArray
    noise_stddev: FloatArray

    @classmethod
    def around(
        cls,
        metric: str,
        value: FloatArray,
        *,
        half_width: float | FloatArray,
        noise_stddev: float | FloatArray,
    ) -> "SliceNumbers":
        """An answer whose interval is symmetric.

        Args:
          metric: Name of the number.
          value: The number of each slice.
          half_width: Half-width of the intervals.
          noise_stddev: Standard deviation of the noise.
        """
        half_width = np.broadcast_to(np.asarray(half_width, np.float64), value.shape)
        stddev = np.broadcast_to(np.asarray(noise_stddev, np.float64), value.shape)
        return cls(
            metric=metric,
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
    """Columns of the slices, then `METRIC_COLUMNS`, then what a kind of query adds."""
    event: Event
    """What the whole table costs; its numbers share it."""
    confidence: float

    def __post_init__(self) -> None:
        missing = [name for name in METRIC_COLUMNS if name not in self.frame.columns]
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

    def release(self, metric: str, **slice_values: str) -> Release:
        """The one number of a slice.

        Args:
          metric: Name of the number, e.g. "conversions".
          slice_values: The value of each slice column.

        Raises:
          ConfigError: There is no such row.
        """
        found = self.frame.filter(
            pl.col("metric") == metric, *(pl.col(name) == v for name, v in slice_values.items())
        )
        if found.height != 1:
            raise ConfigError(
                f"table {self.name!r} has {found.height} rows for metric={metric!r} and "
                f"{slice_values}; name one metric and a value for each slice column."
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


def answer_frame(slices: pl.DataFrame, answers: Sequence[SliceNumbers]) -> pl.DataFrame:
    """One row for each slice and number, the numbers of a slice together."""
    num_slices = len(answers[0].value)
    order = np.arange(num_slices * len(answers)).reshape(len(answers), num_slices).T.reshape(-1)
    columns = {
        name: np.concatenate([getattr(answer, name) for answer in answers])[order]
        for name in METRIC_COLUMNS[1:]
    }
    metrics = pl.Series("metric", [answer.metric for answer in answers] * num_slices, pl.String)
    series = [metrics, *(pl.Series(name, data) for name, data in columns.items())]
    if not slices.width:
        return pl.DataFrame(series)
    return slices[np.repeat(np.arange(num_slices), len(answers))].hstack(series)


def chosen_slices(
    slices: pl.DataFrame,
    raw_unit_counts: IntArray,
    selection: KeySelectionConfig | None,
    *,
    rng: NoiseSource,
) -> pl.DataFrame:
    """The slices that are published.

    Args:
      slices: Slices that occur, or those that were asked for.
      raw_unit_counts: Units in each, after bounding.
      selection: How they are chosen; None if they were asked for, and are public.
      rng: Source of the choice. Sensitive: never log or save its state.

    Privacy:
      Event: one key selection, or none for public slices. Relies on: a unit is in at most
      `selection.max_keys_per_unit` slices.
    """
    if selection is None:
        return slices
    return slices.filter(pl.Series(select_keys(raw_unit_counts, selection, rng=rng)))


def units_to_be_found(selection: KeySelectionConfig) -> tuple[int, int]:
    """Units with which a slice is found as often as not, and with which it always is."""
    sure = selection.num_units_sure
    counts = range(sure + 1)
    likely = bisect.bisect_left(counts, 0.5, key=selection.keep_prob)
    return likely, sure


def steps_of(totals: SliceTotals, slices: pl.DataFrame) -> IntArray:
    """The raw steps of these slices, 0 for those that the totals lack."""
    if not slices.width or totals.slices.equals(slices):
        return totals.raw_steps
    places = rows_of(totals.slices, slices)
    found = places.is_not_null().to_numpy()
    steps = np.zeros((slices.height, totals.raw_steps.shape[1]), np.int64)
    steps[found] = totals.raw_steps[places.drop_nulls().to_numpy()]
    return steps


def rows_of(slices: pl.DataFrame, wanted: pl.DataFrame) -> pl.Series:
    """The row of `slices` that each wanted slice is at, null for those that it lacks."""
    name = "".join(("row ", *slices.columns))  # longer than any of them, so none of them
    rows = slices.with_row_index(name)
    return wanted.join(rows, on=wanted.columns, how="left", maintain_order="left")[name]


def _finite_or_none(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
