"""Predictions against the labels of a table: noisy ones as they were released, or raw ones."""

from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray
from polars.exceptions import PolarsError

from tulle.data.source_files import content_sha256
from tulle.errors import DataError
from tulle.labels.release.label_table import LabelTable
from tulle.labels.release.noisy_table import (
    NOISY_LABEL,
    PROB_IF_NEGATIVE,
    PROB_IF_POSITIVE,
    read_noisy_columns,
)
from tulle.labels.release.release_record import ReleaseRecord
from tulle.mechanisms.binary_channel import BinaryChannel
from tulle.quality.metrics import QualityMetrics, evaluate_predictions
from tulle.quality.noisy_labels import NoisyLabelMetrics, evaluate_on_reports
from tulle.runs.release_files import read_record


def evaluate_on_release(predictions: Path, release: Path) -> NoisyLabelMetrics:
    """Estimates the quality of predictions for rows of a released table.

    Args:
      predictions: Parquet with `row`, a place in the released table from 0, and
        `probability`.
      release: A released table of binary labels, with its record beside it.

    Privacy:
      Post-processing of the release: no cost.

    Raises:
      DataError: The label is not binary, or rows do not match.
    """
    record = read_record(release, ReleaseRecord.from_json)
    if content_sha256(release) != record.table_sha256:
        raise DataError(
            f"{release.name} is not the table of its record; keep both as the release wrote them."
        )
    if PROB_IF_POSITIVE not in record.columns:
        raise DataError(
            f"{release.name} has no binary labels; compare numbers with its targets instead."
        )
    table = read_noisy_columns(release, (NOISY_LABEL, PROB_IF_NEGATIVE, PROB_IF_POSITIVE))
    rows, probabilities = _read_predictions(predictions, table.height)
    chosen = table[rows]
    channel = BinaryChannel(
        prob_if_negative=chosen[PROB_IF_NEGATIVE].to_numpy(),
        prob_if_positive=chosen[PROB_IF_POSITIVE].to_numpy(),
    )
    return evaluate_on_reports(chosen[NOISY_LABEL].to_numpy(), channel, probabilities)


def evaluate_on_raw(predictions: Path, table: LabelTable) -> QualityMetrics:
    """The exact quality of predictions for rows of a raw table.

    Args:
      predictions: Parquet with `row`, a place in the table from 0, and `probability`.
      table: The raw table.

    Privacy:
      Nothing is noised: the numbers are exact functions of raw labels, and publishing them
      releases something about these rows.
    """
    labels = np.concatenate(list(table.label_blocks()))
    rows, probabilities = _read_predictions(predictions, len(labels))
    return evaluate_predictions(labels[rows], probabilities)


def _read_predictions(path: Path, num_rows: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    try:
        table = pl.read_parquet(path, columns=["row", "probability"], glob=False)
        rows = table["row"].cast(pl.Int64).to_numpy()
        probabilities = table["probability"].cast(pl.Float64).to_numpy()
    except (PolarsError, OSError):
        raise DataError(
            f"{path.name} cannot be read; it must be Parquet with the columns row and probability."
        ) from None
    if table.null_count().sum_horizontal().item() or not len(rows):
        raise DataError(f"{path.name} has no rows, or missing values; write it anew.")
    if not table["row"].dtype.is_integer() or table["row"].n_unique() < table.height:
        raise DataError(f"{path.name} must name each row once, by a whole number from 0.")
    if rows.min() < 0 or rows.max() >= num_rows:
        raise DataError(
            f"{path.name} names rows that the table, with {num_rows} rows, does not have; use "
            "predictions for this table."
        )
    return rows, probabilities
