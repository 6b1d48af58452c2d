"""Conversions of a past period, from which clips and shares are chosen.

What is chosen from them is written into public settings. So they must be public, simulated, or
from a period whose use for this purpose is covered by its own guarantee.
"""

import dataclasses
import functools
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import polars as pl

from tulle.data.tables.rows import reals_of
from tulle.errors import DataError
from tulle.measure.small_tables import read_rows, texts_of

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class ValueHistory:
    """Rows with one or more values, each row in one slice.

    Privacy:
      Read as it is and without noise: public or past data, never the data to be released.
    """

    names: tuple[str, ...]
    """Names of the value columns."""
    values: FloatArray = dataclasses.field(repr=False)
    """[rows, columns], finite and >= 0."""
    slices: IntArray = dataclasses.field(repr=False)
    """[rows], the number of each row's slice, from 0 on."""
    kept: FloatArray | None = dataclasses.field(default=None, repr=False)
    """[rows], the part of each row that a unit's bounds leave, from 0 to 1. None keeps all."""

    def __post_init__(self) -> None:
        if self.values.shape != (len(self.slices), len(self.names)) or self.values.size == 0:
            raise DataError(
                f"history has values of shape {self.values.shape} for {len(self.slices)} rows and "
                f"{len(self.names)} columns; it needs at least one of each."
            )
        if not np.all(np.isfinite(self.values)) or np.any(self.values < 0):
            raise DataError("values of the history must be finite and >= 0; drop the other rows.")
        for place, name in enumerate(self.names):
            if not np.any(self.values[:, place] > 0):
                raise DataError(f"column {name!r} of the history has only zeros; leave it out.")
        if np.any(self.slices < 0):
            raise DataError("numbers of slices in the history must be >= 0.")
        if self.kept is not None and (
            self.kept.shape != self.slices.shape or not np.all((self.kept >= 0) & (self.kept <= 1))
        ):
            raise DataError("kept must have a number from 0 to 1 for each row of the history.")

    @classmethod
    def from_frame(
        cls, frame: pl.DataFrame, *, slices: Sequence[str], values: Sequence[str]
    ) -> "ValueHistory":
        """The history in a table of conversions; slices are the distinct keys in it.

        Args:
          frame: Conversions, one a row.
          slices: Columns whose values make slices.
          values: Columns of values.
        """
        if frame.height == 0:
            raise DataError("the history has no rows; clips cannot be chosen from it.")
        if slices:
            numbers = frame.select(pl.struct(slices).rank("dense") - 1).to_series().to_numpy()
        else:
            numbers = np.zeros(frame.height)
        return cls(
            names=tuple(values),
            values=frame.select(pl.col(list(values)).cast(pl.Float64)).to_numpy(),
            slices=numbers.astype(np.int64),
        )

    @functools.cached_property
    def weights(self) -> FloatArray:
        """[rows], `kept` as an array."""
        return np.ones(len(self.slices)) if self.kept is None else self.kept

    @functools.cached_property
    def true_totals(self) -> FloatArray:
        """[slices, columns], all rows added up, whether bounds would leave them or not."""
        columns = [np.bincount(self.slices, weights=column) for column in self.values.T]
        return np.stack(columns, axis=1)

    @functools.cached_property
    def true_counts(self) -> FloatArray:
        """[slices], rows."""
        return np.bincount(self.slices).astype(np.float64)

    def kept_totals(self, row_values: FloatArray) -> FloatArray:
        """[slices], one number for each row added up as far as bounds leave it."""
        totals = np.bincount(self.slices, weights=self.weights * row_values)
        return totals.astype(np.float64)

    def default_taus(self) -> tuple[float, ...]:
        """Five usual rows: 5 medians of each column's values, and 5 for the count.

        A total below tau is not worth a smaller error (Aksu et al. 2024, section 5).
        """
        medians = [float(np.median(column[column > 0])) for column in self.values.T]
        return (*(5 * median for median in medians), 5.0)


def read_value_history(
    data: object, *, slices: Sequence[str], values: Sequence[str]
) -> ValueHistory:
    """Reads the history in a file or a table in memory.

    Args:
      data: A path, or a table of polars, pandas, Arrow or DuckDB.
      slices: Columns whose values make slices.
      values: Columns of values.

    Raises:
      DataError: It cannot be read, or lacks a column or has text in place of numbers.
    """
    rows = read_rows(data, [*slices, *values])
    columns = [texts_of(rows, name) for name in slices]
    columns += [reals_of(rows, name) for name in values]
    return ValueHistory.from_frame(pl.DataFrame(columns), slices=slices, values=values)
