"""What a user with several rows adds to the sums of tables, if labels are 0 or 1.

Weights that add up to that of one row (`row_parts`) bound what k rows of a user add, but they are
made for the worst case, in which all labels of the user are replaced at once. Labels of 1 are rare,
and what a row adds besides is its prediction, which is small. So it is enough to bound these:

- The labels of 1 of a user are divided by their number, and add up to at most 1.
- A row of a user with k rows is predicted with at most c/k in the sums (c is that of `cell_sums`),
  so that the predictions of the user add up to at most c, which is what one row may have.
- Each row of such a user may weigh sqrt(1/2), whatever k is: the theorem for a single row uses
  that its label and its prediction are in one cell, and those of several rows need not be.

All this is decided by the number of rows of a user, which is public. The proof is in
docs/theory/mosaic.md, "Labels of several rows".

Divided labels are smaller than whole ones, so they are compared with predictions that are smaller
by the same factor, which depends on k alone. It follows from one number, which is released with
noise: how likely another row of a user with a label of 1 has one, too. Where users repeat their
labels so often that little would be left of them, rows weigh 1/k as before.
"""

import dataclasses
import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tulle.train.methods.mosaic.cell_sums import (
    MOST_PREDICTED,
    PROBABILITY_BITS,
    log_odds_steps,
)
from tulle.train.methods.mosaic.row_parts import PART_BITS, DividedLabels, RowParts

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

ROOT_OF_HALF = math.isqrt(1 << 2 * PART_BITS - 1)
"""sqrt(1/2) in parts of 2^30, rounded down: the part of each row of a user with several rows."""
_LEAST_REPEAT_PROB = 1e-3
"""Least probability that a user repeats a label of 1: noise could make the estimate negative, and
below this no label is divided to speak of."""
_LEAST_ADVANTAGE = 1.2
"""Least factor by which rows of divided labels must tell more than rows of weight 1/k. On real
clicks, where users who buy often buy again, it is near 1, and dividing neither helped nor hurt."""
_NUM_BISECTIONS = 40
"""Halvings of the interval of that probability: far more exact than its noise."""


class OwnedRows(NamedTuple):
    """Whose each row is. Public."""

    owners: IntArray
    """[rows]: number of the unit of each row, from 0 on."""
    sizes: IntArray
    """[rows]: number of rows of the unit of each row."""

    @property
    def have_several(self) -> NDArray[np.bool_]:
        """[rows]: True for rows of units with several rows."""
        return self.sizes > 1


def owned_rows(units: IntArray | None) -> OwnedRows | None:
    """Whose each row is, or None if no unit has several rows."""
    if units is None:
        return None
    _, owners, numbers = np.unique(units, return_inverse=True, return_counts=True)
    sizes = numbers[owners]
    return OwnedRows(owners, sizes) if (sizes > 1).any() else None


def divided_labels(labels: NDArray[np.int32], owners: IntArray) -> NDArray[np.int32]:
    """Labels over the number of labels of 1 of their unit, rounded down: at most 1 for a unit.

    Args:
      labels: [rows]: labels in parts of 2^30, each 0 or 1. Sensitive, and so is the result.
      owners: [rows]: number of the unit of each row, from 0 on.
    """
    numbers = np.bincount(owners, labels > 0).astype(np.int64)
    divided: NDArray[np.int32] = labels // np.maximum(numbers, 1)[owners].astype(np.int32)
    return divided


def repeat_prob(
    noisy_sum: float, noisy_lost: float, stddev: float, sizes: IntArray, rate: float
) -> float:
    """How likely another row of a user with a label of 1 has one, too.

    Args:
      noisy_sum: Noisy sum of labels of the rows of users with several rows, each divided by their
        number of rows.
      noisy_lost: The same sum of what the division of labels takes from each label.
      stddev: Standard deviation of the noise on either.
      sizes: [rows]: number of rows of each row's user.
      rate: Noisy rate of labels, the answer if the sums do not stand out of the noise.
    """
    if noisy_sum < 3 * stddev:
        return rate
    numbers, counts = np.unique(sizes[sizes > 1], return_counts=True)
    parts = counts / numbers
    wanted = noisy_lost / noisy_sum * parts.sum()
    low, high = _LEAST_REPEAT_PROB, 1.0
    # What is lost grows with the probability.
    for _ in range(_NUM_BISECTIONS):
        middle = (low + high) / 2
        if float(parts @ (1 - kept_parts(numbers, middle))) < wanted:
            low = middle
        else:
            high = middle
    return low


def kept_parts(sizes: IntArray, repeats: float) -> FloatArray:
    """Expected part of a label of 1 that is left after the division, by number of rows of the user.

    It is the mean of 1/(1 + n), where n of the k - 1 other rows have a label of 1 as well, each of
    them with the same probability, independently: (1 - (1 - r)^k) / (k r).

    Args:
      sizes: Numbers of rows of users.
      repeats: That probability, above 0.
    """
    kept: FloatArray = (1 - (1 - repeats) ** sizes) / (sizes * repeats)
    return kept


def divides(sizes: IntArray, repeats: float, rate: float) -> NDArray[np.bool_]:
    """True where divided labels tell more than rows of weight 1/k, which have whole labels.

    Args:
      sizes: Numbers of rows of users.
      repeats: How likely another row of a user with a label of 1 has one, too.
      rate: Noisy rate of labels.
    """
    kept = kept_parts(sizes, repeats)
    most = math.ldexp(MOST_PREDICTED, -PROBABILITY_BITS) / sizes
    # A row that is predicted with more than `most` counts less (`cell_sums.row_sums`). What the
    # division takes is lost to what sums tell, and, as it is not the same in all cells, stays in
    # the model as an error of about that size: it counts twice.
    told = math.sqrt(0.5) * kept**2 * np.minimum(1, most / (kept * rate))
    is_better: NDArray[np.bool_] = (sizes > 1) & (told * sizes > _LEAST_ADVANTAGE)
    return is_better


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class UserLabels:
    """How rows count in the sums of tables. Labels are sensitive, the rest is public or noisy."""

    parts: RowParts
    """What each row may weigh. The parts of a user add up to more than 1 where labels are divided:
    they hold for sums of these labels alone, never for counts or whole labels."""
    divided: DividedLabels
    """Labels, bounds on predictions, and the factors that both are smaller by."""


def user_labels(
    labels: NDArray[np.int32], users: OwnedRows, parts: RowParts, *, repeats: float, rate: float
) -> UserLabels:
    """Divides the labels of users with several rows, where that tells more.

    Args:
      labels: [rows]: labels in parts of 2^30, each 0 or 1. Sensitive.
      users: Whose each row is.
      parts: Parts of rows that add up to at most 1 for each user, for rows that are not divided.
      repeats: How likely another row of a user with a label of 1 has one, too; from noisy sums.
      rate: Noisy rate of labels.

    Privacy:
      Unit: that of `users`, with all its labels replaced, and all its sensitive columns.
      L2 sensitivity: that of one row, if each row pays for its weight what `parts` allow.
    """
    numbers, places = np.unique(users.sizes, return_inverse=True)
    is_divided = divides(numbers, repeats, rate)
    offsets = np.where(is_divided, np.log(kept_parts(numbers, repeats)), 0.0)
    caps = MOST_PREDICTED // np.where(is_divided, numbers, 1)
    chosen = is_divided[places]
    return UserLabels(
        parts=_parts_of_tables(parts, chosen),
        divided=DividedLabels(
            labels=np.where(chosen, divided_labels(labels, users.owners), labels),
            caps=caps.astype(np.int32)[places],
            offsets=log_odds_steps(offsets)[places],
        ),
    )


def _parts_of_tables(parts: RowParts, are_divided: NDArray[np.bool_]) -> RowParts:
    """The same parts, but sqrt(1/2) of its sample weight for each row whose label is divided."""
    whole = np.full(parts.num_rows, 1 << PART_BITS, np.int64)
    linear, squared, given = (
        whole if some is None else some for some in (parts.linear, parts.squared, parts.given)
    )
    divided = given * ROOT_OF_HALF >> PART_BITS
    more = {}
    if parts.shared is not None and parts.owners is not None:
        # Rows of divided labels do not pay for other rows of their user in the same cell.
        is_left = ~are_divided[parts.shared]
        more = {"owners": parts.owners[is_left], "shared": parts.shared[is_left]}
    return RowParts(
        num_rows=parts.num_rows,
        linear=np.where(are_divided, divided, linear),
        squared=np.where(are_divided, divided * divided >> PART_BITS, squared),
        **more,
    )
