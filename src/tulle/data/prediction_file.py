"""Predictions: written as a Parquet file that is there as a whole, read from any file or table."""

import os
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tulle.atomic_files import sync_folder
from tulle.data.tables.rows import (
    RowSource,
    chances_of,
    read_row_tables,
    source_name,
    whole_numbers_of,
)
from tulle.errors import DataError, RunStateError

_COLUMNS = ("row", "probability")
_ROWS_AT_ONCE = 1 << 20
"""Rows that are read at once."""


def write_predictions(
    path: Path,
    rows: NDArray[np.int64],
    probabilities: NDArray[np.float32] | NDArray[np.float64],
    *,
    are_values: bool = False,
    classes: Sequence[str] | None = None,
    overwrite: bool = False,
) -> None:
    """Writes the columns `row` (int64) and `probability`, in the order given.

    Args:
      path: The new file.
      rows: Which row of the data each prediction is for, from 0.
      probabilities: The predicted probability of label 1, one a row; [rows, classes] for classes.
      classes: Names of the classes; the columns are then `probability_` and the name.
      are_values: True if they are expected values, from 0 on; the column is then `value`.
      overwrite: Whether a file that is there is replaced.

    Privacy:
      A prediction is a function of the features of its row: the file is as sensitive
      as they are, however private the model is.

    Raises:
      DataError: Shapes or types are wrong, or a probability is not in [0, 1].
      RunStateError: The path exists, or the file cannot be written there.
    """
    if classes is None:
        table = _checked_table(rows, probabilities, are_values=are_values)
    else:
        parts = [_checked_table(rows, one, are_values=False) for one in probabilities.T]
        named = zip(class_columns(classes), parts, strict=True)
        table = parts[0].select("row", *(part["probability"].alias(name) for name, part in named))
    if path.is_dir():
        raise RunStateError(f"{path.name} is a folder; name a file in it.")
    if path.exists() and not overwrite:
        raise _exists(path)
    staged = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        with staged.open("xb") as file:
            table.write_parquet(file)
            file.flush()
            os.fsync(file.fileno())
        if overwrite:
            os.replace(staged, path)
        else:
            os.link(staged, path)  # unlike a rename, it refuses a file that came meanwhile
        sync_folder(path.parent)
    except FileExistsError:
        raise _exists(path) from None
    except OSError as error:
        raise RunStateError(
            f"{path.name} cannot be written: {error.strerror}; name a folder that exists, has "
            "room and may be written to."
        ) from None
    finally:
        staged.unlink(missing_ok=True)


def class_columns(classes: Sequence[str]) -> tuple[str, ...]:
    """Names of the columns of the probabilities of classes."""
    return tuple(f"probability_{name}" for name in classes)


def read_predictions(
    source: RowSource, num_rows: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Reads rows and their probabilities, in the order of the source.

    Args:
      source: A file, such as `write_predictions` makes, or a table in memory, with the columns
        `row` and `probability`.
      num_rows: Number of rows of the table that the predictions are for.

    Privacy:
      Reads sensitive numbers and releases nothing.

    Raises:
      DataError: It cannot be read, has no rows, missing values, a row twice or a row that
        the table does not have, or a probability is not in [0, 1].
    """
    rows, probabilities = [], []
    for part in read_row_tables(source, _COLUMNS, rows_per_table=_ROWS_AT_ONCE):
        rows.append(whole_numbers_of(part, "row").to_numpy())
        probabilities.append(chances_of(part, "probability").to_numpy())
    name = source_name(source)
    if not sum(map(len, rows)):
        raise DataError(f"{name} has no rows; give one prediction a row.")
    all_rows = np.concatenate(rows)
    if all_rows.min() < 0 or all_rows.max() >= num_rows:
        raise DataError(
            f"{name} names rows that the table, with {num_rows} rows, does not have; use "
            "predictions for this table."
        )
    if np.bincount(all_rows).max() > 1:
        raise DataError(f"{name} must name each row once, by a whole number from 0.")
    return all_rows, np.concatenate(probabilities).astype(np.float64)


def _checked_table(
    rows: NDArray[np.int64], probabilities: NDArray[Any], *, are_values: bool
) -> pl.DataFrame:
    if rows.ndim != 1 or rows.shape != probabilities.shape:
        raise DataError(
            f"rows have the shape {rows.shape} and probabilities {probabilities.shape}; both must "
            "be one number a prediction."
        )
    if rows.dtype.kind not in "iu":
        raise DataError(f"rows have the type {rows.dtype}, must be whole numbers.")
    if probabilities.dtype not in (np.float32, np.float64):
        raise DataError(
            f"probabilities have the type {probabilities.dtype}, must be float32 or float64."
        )
    if are_values:
        if not np.all((probabilities >= 0) & np.isfinite(probabilities)):
            raise DataError("predicted values must be finite and not negative.")
        return pl.DataFrame({"row": rows.astype(np.int64), "value": probabilities})
    if not np.all((probabilities >= 0) & (probabilities <= 1)):
        raise DataError("probabilities must lie in [0, 1] and not be NaN; pass no logits.")
    return pl.DataFrame({"row": rows.astype(np.int64), "probability": probabilities})


def _exists(path: Path) -> RunStateError:
    return RunStateError(
        f"{path.name} exists already; name another file, or replace it with overwrite=True."
    )
