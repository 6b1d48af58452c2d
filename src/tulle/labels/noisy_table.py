"""The released table: public columns as they are, and what to train on in place of the label.

It is written in a stream, in the order of the input, into a hidden file. Putting
that file in place is a step of its own, which comes after the ledger was charged.
"""

import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl
from polars.exceptions import PolarsError

from tulle.data.tables.columnar import sink_tables
from tulle.errors import ConfigError, DataError, RunStateError
from tulle.labels.label_mechanism import NoisyLabels

NOISY_LABEL, TARGET, WEIGHT = "noisy_label", "target", "weight"
PROB_IF_NEGATIVE, PROB_IF_POSITIVE = "prob_if_negative", "prob_if_positive"
"""Names of the columns that a release adds."""

ADDED_COLUMNS = {
    NOISY_LABEL: "The label after the noise.",
    TARGET: "A number to train on as if it were the label: over the noise its mean is the label, "
    "up to the bias that `mechanism` states (labels in one bin, or between declared values). It "
    "can lie outside the label's range.",
    WEIGHT: "Weight of the row in a mean or a loss on targets: 1 for the rows with the least "
    "noise.",
    PROB_IF_NEGATIVE: "Probability that noisy_label is 1 where the label is 0, for forward "
    "correction.",
    PROB_IF_POSITIVE: "Probability that noisy_label is 1 where the label is 1, for forward "
    "correction.",
}
"""Columns a release may add, with what they mean."""


def check_names(kept: tuple[str, ...]) -> None:
    """Refuses a column of the input that has the name of an added one."""
    for name in kept:
        if name in ADDED_COLUMNS:
            raise ConfigError(
                f"column {name!r} has the name of a column that the release adds; rename it, or "
                "make it ignored in the schema."
            )


def with_noisy_labels(public_columns: pl.DataFrame, noisy: NoisyLabels) -> pl.DataFrame:
    """Puts public columns and noisy labels together to rows of the released table.

    Args:
      public_columns: What goes out as it is, of all rows of a block.
      noisy: One noisy label for each row of the block that was kept.
    """
    num_rows = len(noisy.labels)
    kept = public_columns if noisy.rows is None else public_columns[noisy.rows]
    weights = np.ones(()) if noisy.weights is None else noisy.weights
    columns = [pl.Series(NOISY_LABEL, noisy.labels)]
    if noisy.targets is not None:
        columns.append(pl.Series(TARGET, noisy.targets))
        columns.append(_column(WEIGHT, weights, num_rows))
    if noisy.channel is not None:
        columns.append(_column(PROB_IF_NEGATIVE, noisy.channel.prob_if_negative, num_rows))
        columns.append(_column(PROB_IF_POSITIVE, noisy.channel.prob_if_positive, num_rows))
    if not kept.width:
        return pl.DataFrame(columns)
    return kept.hstack(columns)


def write_rows(staged: Path, frames: Iterator[pl.DataFrame]) -> tuple[str, ...]:
    """Writes a Parquet file, safely on disk, and returns the names of its columns.

    Raises:
      RunStateError: The disk refuses it. The file is gone then.
    """
    first = next(frames)
    schema = first.schema
    problem: list[BaseException] = []

    def watched() -> Iterator[pl.DataFrame]:
        try:
            yield from itertools.chain([first], frames)
        except BaseException as error:
            problem.append(error)  # polars would wrap it in one of its own
            raise

    try:
        sink_tables(staged, schema, watched())
        with staged.open("rb") as file:
            os.fsync(file.fileno())
    except BaseException as error:
        staged.unlink(missing_ok=True)
        if problem:
            raise problem[0] from None
        if isinstance(error, OSError | PolarsError | pl.exceptions.PanicException):
            raise RunStateError(
                f"{staged.parent.absolute()} cannot be written to: {error}; make room, or choose "
                "another folder."
            ) from None
        raise
    return tuple(schema.names())


def read_noisy_columns(path: Path, columns: tuple[str, ...]) -> pl.DataFrame:
    """Some columns of a released table."""
    try:
        return pl.scan_parquet(path, glob=False).select(columns).collect()
    except (PolarsError, OSError):
        raise DataError(
            f"{path.name} lacks one of the columns {', '.join(columns)} or cannot be read; name "
            "the table that the release wrote."
        ) from None


def _column(name: str, values: np.ndarray, num_rows: int) -> pl.Series:
    if values.ndim:
        return pl.Series(name, values)
    return pl.Series(name, [float(values)]).new_from_index(0, num_rows)
