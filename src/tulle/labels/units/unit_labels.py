"""Labels of units before and after the noise, row by row.

Units of one size are noised together, block by block. The result lists the kept
rows in the order of the table, each with the chances behind its report.
"""

import dataclasses
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tulle.errors import DataError
from tulle.labels.units.unit_rows import UnitRows
from tulle.mechanisms.binary_channel import BinaryChannel
from tulle.mechanisms.subset_ranks import BitMatrix

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]
Bits = NDArray[np.uint8]


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class UnitNoisyLabels:
    """Noisy labels of the kept rows. Reports and public numbers alone: may be published."""

    rows: IntArray
    """Which rows of the table were kept, ascending."""
    labels: Bits
    """The report of each kept row, 0 or 1."""
    targets: FloatArray
    """What to train on: its mean over the noise is the label, within the cap of conversions."""
    channel: BinaryChannel
    """The chances behind each report, one pair a kept row."""
    noise_variance: FloatArray
    """Variance of each target over the noise, at the assumed base rate."""


def check_binary_labels(raw_labels: ArrayLike, num_rows: int) -> Bits:
    """The labels as bytes of 0 and 1, one for each row; else an error that hides them.

    Privacy:
      Releases nothing: the error shows none of the labels.
    """
    labels = np.asarray(raw_labels)
    if labels.shape != (num_rows,):
        raise DataError(
            f"labels have the shape {labels.shape}; give one label for each of the rows that "
            "were grouped into units."
        )
    if labels.dtype.kind not in "biuf" or not ((labels == 0) | (labels == 1)).all():
        raise DataError(
            "labels must be the numbers 0 and 1 and not missing; drop or encode the other rows "
            "first, by a rule that is fixed before the data are read."
        )
    return labels.astype(np.uint8, copy=False)


def release_blocks(
    raw_labels: Bits,
    unit_rows: UnitRows,
    draw: Callable[[BitMatrix], BitMatrix],
    channel_of_length: Callable[[int], BinaryChannel],
    *,
    base_rate: float,
) -> UnitNoisyLabels:
    """Noises the labels of units of one size together.

    Args:
      raw_labels: 0 or 1 for each row of the table.
      unit_rows: The kept rows of each unit.
      draw: The mechanism: noisy label vectors, one line a unit, from raw ones.
      channel_of_length: What one report says, in a unit that keeps so many rows.
      base_rate: Public guess of the share of labels that are 1, for the variance.

    Privacy:
      Unit: that of `unit_rows`, replace. Event: that of `draw`, which must treat each line
      by itself. Relies on: every row of the table is in one unit at most.
    """
    is_kept = np.zeros(raw_labels.size, np.bool_)
    is_kept[unit_rows.grouped.order] = True
    kept = np.flatnonzero(is_kept)
    if kept.size < unit_rows.num_rows:
        raise DataError("a row is in two units; group the rows again with group_rows().")
    noisy = np.zeros(raw_labels.size, np.uint8)
    negative = np.zeros(raw_labels.size)
    positive = np.zeros(raw_labels.size)
    for rows in unit_rows.blocks_of_equal_length():
        noisy[rows] = draw(raw_labels[rows])
        channel = channel_of_length(rows.shape[1])
        negative[rows] = channel.prob_if_negative
        positive[rows] = channel.prob_if_positive
    if kept.size < raw_labels.size:
        noisy, negative, positive = noisy[kept], negative[kept], positive[kept]
    rows_channel = BinaryChannel(prob_if_negative=negative, prob_if_positive=positive)
    return UnitNoisyLabels(
        rows=kept,
        labels=noisy,
        targets=rows_channel.debiased_targets(noisy),
        channel=rows_channel,
        noise_variance=rows_channel.mean_variance(base_rate),
    )
