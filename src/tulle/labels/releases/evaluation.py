"""Predictions against the labels of a table: noisy ones as they were released, or raw ones."""

from pathlib import Path

import numpy as np

from tulle.data.prediction_file import read_predictions
from tulle.data.source_files import content_sha256
from tulle.data.tables.rows import RowSource
from tulle.errors import DataError
from tulle.labels.releases.label_release import ReleaseRecord
from tulle.labels.releases.label_table import LabelTable
from tulle.labels.releases.noisy_table import (
    NOISY_LABEL,
    PROB_IF_NEGATIVE,
    PROB_IF_POSITIVE,
    read_noisy_columns,
)
from tulle.mechanisms.noisy_reports import BinaryChannel
from tulle.quality.metrics import QualityMetrics, evaluate_predictions
from tulle.quality.noisy_labels import NoisyLabelMetrics, evaluate_on_reports
from tulle.runs.release_files import read_record


def stored_record(release: Path) -> ReleaseRecord:
    """The record of a released table, which must be the table that it speaks of.

    Raises:
      DataError: There is none, or the table is another one.
    """
    record = read_record(release, ReleaseRecord.from_json)
    if content_sha256(release) != record.table_sha256:
        raise DataError(
            f"{release.name} is not the table of its record; keep both as the release wrote them."
        )
    return record


def evaluate_on_release(predictions: RowSource, release: Path) -> NoisyLabelMetrics:
    """Estimates the quality of predictions for rows of a released table.

    Args:
      predictions: File or table with `row`, a place in the released table from 0, and
        `probability`.
      release: A released table of binary labels, with its record beside it.

    Privacy:
      Post-processing of the release: no cost.

    Raises:
      DataError: The label is not binary, or rows do not match.
    """
    record = stored_record(release)
    if PROB_IF_POSITIVE not in record.columns:
        raise DataError(
            f"{release.name} has no binary labels; compare numbers with its targets instead."
        )
    table = read_noisy_columns(release, (NOISY_LABEL, PROB_IF_NEGATIVE, PROB_IF_POSITIVE))
    rows, probabilities = read_predictions(predictions, table.height)
    chosen = table[rows]
    channel = BinaryChannel(
        prob_if_negative=chosen[PROB_IF_NEGATIVE].to_numpy(),
        prob_if_positive=chosen[PROB_IF_POSITIVE].to_numpy(),
    )
    return evaluate_on_reports(chosen[NOISY_LABEL].to_numpy(), channel, probabilities)


def evaluate_on_raw(predictions: RowSource, table: LabelTable) -> QualityMetrics:
    """The exact quality of predictions for rows of a raw table.

    Args:
      predictions: File or table with `row`, a place in the table from 0, and `probability`.
      table: The raw table.

    Privacy:
      Nothing is noised: the numbers are exact functions of raw labels, and publishing them
      releases something about these rows.
    """
    labels = np.concatenate(list(table.label_blocks()))
    rows, probabilities = read_predictions(predictions, len(labels))
    return evaluate_predictions(labels[rows], probabilities)
