"""Labels of units after the noise, row by row, and the exact moments of their targets.

Units of one size are noised together, block by block. The result lists the kept rows in the order
of the table, each with the probabilities behind its report.

A target is (report - a) / g, with a the probability of a report of 1 for a label of 0, and g by how
much a label of 1 raises it. Its mean is the label within the cap on conversions. Reports of one
unit are drawn together, so the targets of two of its rows are correlated: with at most one
conversion they repel each other.
"""

import dataclasses
from collections.abc import Callable
from fractions import Fraction
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tulle.errors import DataError
from tulle.labels.label_mechanism import NoisyLabels
from tulle.labels.unit_rows import UnitRows
from tulle.mechanisms.noisy_reports import BinaryChannel, SupportProbs
from tulle.mechanisms.subset_ranks import BitMatrix
from tulle.privacy.fields import check_prob

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]
Bits = NDArray[np.uint8]


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class UnitNoisyLabels(NoisyLabels):
    """Noisy labels of the kept rows. Reports and public numbers alone: may be published."""

    rows: IntArray
    """Which rows of the table were kept, ascending."""
    labels: Bits
    """The report of each kept row, 0 or 1."""
    targets: FloatArray
    """What to train on: its mean over the noise is the label, within the cap of conversions."""
    channel: BinaryChannel
    """The probabilities behind each report, one pair a kept row."""
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
      channel_of_length: What one report says, in a unit that keeps that many rows.
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


class VectorConfig(Protocol):
    """Settings of a randomizer of the label vector of a unit."""

    @property
    def row_probs(self) -> SupportProbs:
        """Probability that a row is reported as 1, by its label within the cap."""

    def pair_prob(self, label: int, other_label: int) -> Fraction:
        """Probability that two rows are both reported as 1."""


def row_channel(config: VectorConfig) -> BinaryChannel:
    """The channel of each single row of the unit."""
    return channel_of(config.row_probs)


def channel_of(probs: SupportProbs) -> BinaryChannel:
    """The channel with these probabilities."""
    return BinaryChannel(
        prob_if_negative=np.asarray(float(probs.if_not_held)),
        prob_if_positive=np.asarray(float(probs.if_held)),
    )


def row_variance(config: VectorConfig, label: int) -> Fraction:
    """Variance of the target of a row with this label within the cap, over the noise."""
    probs = config.row_probs
    prob = probs.if_held if label else probs.if_not_held
    return prob * (1 - prob) / (probs.if_held - probs.if_not_held) ** 2


def row_covariance(config: VectorConfig, label: int, other_label: int) -> Fraction:
    """Covariance of the targets of two rows of one unit, over the noise.

    Args:
      config: Settings of the randomizer of the label vector.
      label: Label of one row within the cap.
      other_label: Label of the other row.
    """
    probs = config.row_probs
    first, second = (
        probs.if_held if value else probs.if_not_held for value in (label, other_label)
    )
    gain = probs.if_held - probs.if_not_held
    return (config.pair_prob(label, other_label) - first * second) / gain**2


def mean_covariance(config: VectorConfig, base_rate: float, max_conversions: int) -> float:
    """Covariance of two rows where this share of labels within the cap is 1.

    The labels of the two rows are taken as independent, but never both 1 with a
    cap of one conversion.

    Args:
      config: Settings of the randomizer of the label vector.
      base_rate: Share of labels that are 1.
      max_conversions: Most conversions of a unit that count.
    """
    check_prob("base_rate", base_rate)
    both = 0.0 if max_conversions == 1 else base_rate**2
    neither = float(row_covariance(config, 0, 0)) * (1 - 2 * base_rate + both)
    one = float(row_covariance(config, 0, 1)) * 2 * (base_rate - both)
    return neither + one + (float(row_covariance(config, 1, 1)) * both if both else 0.0)
