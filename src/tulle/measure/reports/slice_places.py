"""Slices of rows by the values of some columns, compared as text."""

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tulle.errors import ConfigError

MISSING = "(missing)"
"""What a row without a value is called."""

_PLACE = "(place)"


def as_text(frame: pl.DataFrame, by: tuple[str, ...]) -> pl.DataFrame:
    """Only these columns, as text without gaps."""
    for name in by:
        if name not in frame.columns or by.count(name) > 1:
            raise ConfigError(
                f"slices by {', '.join(by)}: {name!r} must be a column that was read, named once; "
                f"those are {', '.join(frame.columns)}."
            )
    return frame.select(pl.col(by).cast(pl.String).fill_null(MISSING))


def distinct_slices(frame: pl.DataFrame, by: tuple[str, ...]) -> pl.DataFrame:
    """All combinations that occur, in their order."""
    return as_text(frame, by).unique().sort(by)


def places_in(frame: pl.DataFrame, slices: pl.DataFrame) -> NDArray[np.int64]:
    """The row of `slices` that each row of `frame` belongs to. Each must belong to one."""
    by = tuple(slices.columns)
    numbered = slices.with_row_index(_PLACE)
    joined = as_text(frame, by).join(numbered, on=by, how="left", maintain_order="left")
    places: NDArray[np.int64] = joined[_PLACE].cast(pl.Int64).to_numpy()
    return places


def slice_names(slices: pl.DataFrame) -> pl.Series:
    """Each slice as one text: its values with " / " between them."""
    return slices.select(pl.concat_str(pl.all(), separator=" / ").alias("slice"))["slice"]
