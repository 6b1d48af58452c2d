"""Money in whole millionths of the currency ("micros").

A price is rounded down once, before anything is added up. From then on there are whole numbers
alone, so totals do not depend on the order of lines, and parts add up to the whole.
"""

import numpy as np

from tulle.errors import DataError
from tulle.select.auctions import FloatArray, IntArray

MICROS_PER_UNIT = 1_000_000
MAX_PRICE = 100_000_000
"""In units of the currency. Up to here a price is known to a tenth of a micro."""

_ROUNDING_NOISE = 2.0**-50  # a few roundings of float64, each of 2^-53 at most
_LOW_BITS = 32


def to_micros(amounts: FloatArray) -> IntArray:
    """Prices in micros, rounded down.

    What differs from a whole micro by no more than the rounding of float64 is that micro: 8.2 is
    8,200,000 micros, although the nearest float64 is a little less. A lower price is never more.
    """
    if not np.all((amounts >= 0) & (amounts <= MAX_PRICE)):
        raise DataError(
            f"prices must be in [0, {MAX_PRICE:,}] units of the currency; use a larger unit."
        )
    micros = amounts * MICROS_PER_UNIT
    nearest = np.rint(micros)
    is_whole = np.abs(micros - nearest) <= nearest * _ROUNDING_NOISE
    return np.where(is_whole, nearest, np.floor(micros)).astype(np.int64)


def from_micros(micros: IntArray) -> FloatArray:
    """The nearest float64 prices; `to_micros` gives the same micros back."""
    return micros / MICROS_PER_UNIT


def sum_by_group(micros: IntArray, groups: IntArray, num_groups: int) -> list[int]:
    """Exact sums, without a limit on their size.

    Args:
      micros: [rows], each of one price.
      groups: [rows], from 0 to `num_groups` - 1.
      num_groups: How many sums there are.
    """
    # Two halves of each price, because the sum of whole prices may not fit into 64 bits.
    halves = (micros >> _LOW_BITS, micros & ((1 << _LOW_BITS) - 1))
    high_sums, low_sums = (np.zeros(num_groups, np.int64) for _ in halves)
    np.add.at(high_sums, groups, halves[0])
    np.add.at(low_sums, groups, halves[1])
    return [
        (high << _LOW_BITS) + low
        for high, low in zip(high_sums.tolist(), low_sums.tolist(), strict=True)
    ]


def money_text(micros: int) -> str:
    """All digits, e.g. "12.345678"."""
    units, rest = divmod(micros, MICROS_PER_UNIT)
    return f"{units}.{rest:06d}"
