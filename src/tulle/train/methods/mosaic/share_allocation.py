"""Which tables get how much of a noise budget: wherever the next bit of it gains most."""

import heapq
from collections.abc import Sequence

from tulle.train.methods.mosaic.candidate_table import CandidateTable

_NUM_BITS = 1_000


def allocate_shares(
    tables: Sequence[CandidateTable],
    *,
    share: float,
    most: float,
    noise_variance: float,
    rate: float,
) -> list[float]:
    """A part of `share` for each table; many get none.

    Args:
      tables: That may be asked for. What they expect to gain follows from public and noisy
        numbers alone.
      share: Of the budget, for all of them.
      most: For one of them.
      noise_variance: Of sums with the whole budget.
      rate: Typical prediction.
    """
    bit = share / _NUM_BITS

    def gain(place: int, num_bits: int) -> float:
        if num_bits == 0:
            return 0.0
        return tables[place].expected_gain(noise_variance / (num_bits * bit), rate)

    bits = [0] * len(tables)
    # Gains are concave in the share, so the greedy choice is the best one.
    queue = [(-gain(place, 1), place) for place in range(len(tables))]
    heapq.heapify(queue)
    for _ in range(_NUM_BITS):
        if not queue or queue[0][0] >= 0:
            break
        _, place = heapq.heappop(queue)
        bits[place] += 1
        more = bits[place] + 1
        if more * bit <= most:
            heapq.heappush(queue, (gain(place, bits[place]) - gain(place, more), place))
    return [number * bit for number in bits]
