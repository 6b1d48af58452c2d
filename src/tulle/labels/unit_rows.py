"""The rows of protected units, from public columns alone, and their labels after the noise.

Labels are replaced, rows are not: owners, partners, times and so the number of rows of a unit are
the same in two neighbouring tables. Nothing here sees a label. That holds for a cap on the rows of
a unit too: one that kept converting rows would let a label decide which rows are released. A choice
of rows sees places in time and a keyed hash.

Units of one size are noised together, block by block. The result lists the kept rows in the order
of the table, each with the probabilities behind its report. A target is (report - a) / g, with a
the probability of a report of 1 for a label of 0, and g by how much a label of 1 raises it. Its
mean is the label within the cap on conversions. Reports of one unit are drawn together, so the
targets of two of its rows are correlated: with at most one conversion they repel each other.
"""

import dataclasses
import enum
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tulle.data.contribution import (
    GroupedRows,
    checked_unit_ids,
    first_places,
    group_by_ids,
    random_places,
    ranges,
    windows_of,
)
from tulle.errors import ConfigError, DataError
from tulle.labels.label_mechanism import NoisyLabels
from tulle.mechanisms.noisy_reports import BinaryChannel, SupportProbs
from tulle.mechanisms.subset_ranks import BitMatrix
from tulle.privacy.fields import check_count, check_prob
from tulle.privacy.units import Owner, Unit

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]
Bits = NDArray[np.uint8]

_BLOCK_CELLS = 1 << 20
"""Most labels in a block of units of one length, so that memory stays bounded."""
PARTNERS = {Owner.USER_ADVERTISER: "advertiser", Owner.USER_PUBLISHER: "publisher"}
"""Who beside the user makes a unit of pairs."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class UnitRows:
    """The rows of each unit, in the order of time where times were given. Public."""

    unit: Unit
    """What is protected."""
    grouped: GroupedRows
    """Order, starts and lengths; after a cap the order has the kept rows only."""
    num_table_rows: int
    """Number of rows of the table that the order points into."""

    @property
    def num_rows(self) -> int:
        """Number of rows in all units."""
        return int(self.grouped.order.size)

    @property
    def num_units(self) -> int:
        """Number of units with a row."""
        return int(self.grouped.starts.size)

    def length_counts(self) -> dict[int, int]:
        """How many units have each number of rows, by ascending number."""
        lengths, counts = np.unique(self.grouped.lengths, return_counts=True)
        return dict(zip(lengths.tolist(), counts.tolist(), strict=True))

    def blocks_of_equal_length(self) -> Iterator[IntArray]:
        """Matrices of rows: one line for each unit, units of one length together.

        Large groups come in several blocks, so that memory stays bounded.
        """
        by_length = np.argsort(self.grouped.lengths, kind="stable")
        lengths, counts = np.unique(self.grouped.lengths, return_counts=True)
        ends = np.cumsum(counts)
        for length, count, end in zip(
            lengths.tolist(), counts.tolist(), ends.tolist(), strict=True
        ):
            step = max(1, _BLOCK_CELLS // length)
            for first in range(end - count, end, step):
                units = by_length[first : min(first + step, end)]
                starts = self.grouped.starts[units]
                places = ranges(starts, np.full(units.size, length))
                yield self.grouped.order[places].reshape(units.size, length)


def group_rows(
    unit: Unit,
    *,
    owner_ids: ArrayLike,
    times: ArrayLike | None = None,
    partner_ids: ArrayLike | None = None,
) -> UnitRows:
    """Finds the rows of each unit.

    Ids are whole numbers of up to 64 bits: encode or hash other types first. Two owners
    with one hash become one unit, which protects both of them and costs accuracy only.

    Args:
      unit: What is protected.
      owner_ids: The user of each row. For an impression only their number counts.
      times: Seconds. Needed by a unit with a window; they also order the rows of a unit.
      partner_ids: The advertiser or publisher of each row, for units that have one.

    Privacy:
      Unit: that of `unit`, replace. No release. Relies on: owners, partners and times
      are public, and count from 1970 UTC, as the windows of the ledger do.
    """
    _check_columns(unit, times, partner_ids)
    owners = checked_unit_ids(owner_ids)
    if unit.owner is Owner.EXAMPLE:
        return single_rows(unit, owners.size)
    columns: list[ArrayLike] = [owners]
    if partner_ids is not None:
        columns.append(partner_ids)
    if unit.windows is not None and times is not None:
        # The ledger's windows and no others: else one of them held parts of two units, and would
        # be charged for one.
        columns.append(windows_of(times, unit.windows))
    grouped = group_by_ids(columns, times)
    return UnitRows(unit=unit, grouped=grouped, num_table_rows=grouped.order.size)


def single_rows(unit: Unit, num_rows: int) -> UnitRows:
    """Units of one row each, for a unit that is an impression."""
    if unit.owner is not Owner.EXAMPLE:
        raise ConfigError(f"unit={unit} owns several rows; use group_rows() with its ids.")
    check_count("num_rows", num_rows, least=0)
    rows = np.arange(num_rows, dtype=np.int64)
    grouped = GroupedRows(
        order=rows, starts=rows, lengths=np.ones(num_rows, np.int64), id_columns=(rows,)
    )
    return UnitRows(unit=unit, grouped=grouped, num_table_rows=num_rows)


class KeptRows(enum.Enum):
    """Which rows of a unit are kept if it has more than its cap."""

    FIRST = "first"
    RANDOM = "random"


def cap_rows(
    unit_rows: UnitRows,
    *,
    max_rows_per_unit: int | None,
    choice: KeptRows = KeptRows.FIRST,
    key: bytes | None = None,
) -> UnitRows:
    """Keeps at most `max_rows_per_unit` rows of each unit, in the order that they had.

    Args:
      unit_rows: All rows of each unit.
      max_rows_per_unit: Most rows to keep; None keeps all.
      choice: The first rows, or random ones that follow from the key.
      key: Key of at least 16 secret bytes for random rows; the same key keeps the same rows.

    Privacy:
      Unit: that of `unit_rows`, replace. No release. Relies on: ids and times are public.
    """
    if not isinstance(choice, KeptRows):
        raise ConfigError(f"choice={choice!r} must be a KeptRows, e.g. KeptRows.FIRST.")
    if max_rows_per_unit is None:
        return unit_rows
    check_count("max_rows_per_unit", max_rows_per_unit)
    grouped = unit_rows.grouped
    if choice is KeptRows.FIRST:
        places = first_places(grouped, max_rows_per_unit)
    elif key is None:
        raise ConfigError(
            "choice='random' needs a key of at least 16 bytes; "
            "make one with secrets.token_bytes(16) and keep it."
        )
    else:
        # Back in the order of units, on which the starts below rest.
        places = np.sort(random_places(grouped, max_rows_per_unit, key))
    lengths = np.minimum(grouped.lengths, max_rows_per_unit)
    capped = GroupedRows(
        order=grouped.order[places],
        starts=np.cumsum(lengths) - lengths,
        lengths=lengths,
        id_columns=grouped.id_columns,
    )
    return dataclasses.replace(unit_rows, grouped=capped)


def _check_columns(unit: Unit, times: ArrayLike | None, partner_ids: ArrayLike | None) -> None:
    partner = PARTNERS.get(unit.owner)
    if partner is not None and partner_ids is None:
        raise ConfigError(
            f"unit={unit} needs partner_ids, the {partner} of each row; "
            "without it use the unit 'user', which protects more."
        )
    if partner is None and partner_ids is not None:
        raise ConfigError(
            f"unit={unit} has no partner; leave partner_ids out, or choose the unit "
            "'user x advertiser' or 'user x publisher'."
        )
    if unit.windows is not None and unit.owner is not Owner.EXAMPLE and times is None:
        raise ConfigError(f"unit={unit} has a window and needs times, in seconds.")


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


def channel_of(probs: SupportProbs) -> BinaryChannel:
    """The channel with these probabilities."""
    return BinaryChannel(
        prob_if_negative=np.asarray(float(probs.if_not_held)),
        prob_if_positive=np.asarray(float(probs.if_held)),
    )


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
