"""How likely a Poisson batch is cut to the size that fits, and how much room keeps it from that.

A cut batch hides its rows far less than a Poisson batch, so a run needs room enough that its
batches are practically never cut. Samplers and the accountant share these bounds.
"""

import math

CUT_SHARE_OF_DELTA = 0.05
"""Part of delta that cut batches may take. Then they cost epsilon one percent or so, even where
a cut batch is accounted without amplification; with all of delta it could be ten times as much."""


def cut_prob_bound(
    *, num_rows: int, sampling_prob: float, max_batch_size: int, max_rows_per_unit: int, steps: int
) -> float:
    """An upper bound of the probability that some batch of a run has no room for a whole unit.

    It is Chernoff's bound for one batch, times the steps, computed by logarithms alone, so that
    every machine and version of a library finds the same number.

    Args:
      num_rows: Rows of the data.
      sampling_prob: Probability of each row to be in a batch.
      max_batch_size: Rows that fit into a batch.
      max_rows_per_unit: Most rows that one unit owns; they need room beside those of others.
      steps: Number of batches.
    """
    others, room = num_rows - max_rows_per_unit, max_batch_size - max_rows_per_unit + 1
    if room > others:
        return 0.0
    share = room / others
    if room < 1 or share <= sampling_prob:
        return 1.0
    exponent = room * math.log(share / sampling_prob)
    if share < 1:
        exponent += (others - room) * (math.log1p(-share) - math.log1p(-sampling_prob))
    return min(1.0, steps * math.exp(-max(exponent, 0.0)))


def roomy_batch_size(
    *, num_rows: int, sampling_prob: float, max_rows_per_unit: int, steps: int, delta: float
) -> int:
    """The least number of rows that must fit for cut batches to cost next to nothing.

    Args:
      num_rows: Rows of the data.
      sampling_prob: Probability of each row to be in a batch.
      max_rows_per_unit: Most rows that one unit owns.
      steps: Number of batches.
      delta: Delta of the guarantee; cut batches may take a small part of it.
    """

    def is_roomy(max_batch_size: int) -> bool:
        bound = cut_prob_bound(
            num_rows=num_rows,
            sampling_prob=sampling_prob,
            max_batch_size=max_batch_size,
            max_rows_per_unit=max_rows_per_unit,
            steps=steps,
        )
        return bound <= CUT_SHARE_OF_DELTA * delta

    low, high = 0, num_rows
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if is_roomy(middle) else (middle, high)
    return high
