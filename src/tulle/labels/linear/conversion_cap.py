"""The first conversions of each unit, over blocks of rows in their order.

Rows and their order are public; which rows convert is not. A unit keeps its first few
conversions and the others count as no conversion. What is kept depends on the unit's
own labels alone, so replacing one unit's labels changes nothing of another's.
"""

import numpy as np
from numpy.typing import NDArray

from tulle.privacy.fields import check_count

IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


class ConversionCap:
    """Keeps count of every unit's conversions. Raw data: never log or save it."""

    def __init__(self, max_conversions_per_unit: int) -> None:
        self._most = check_count("max_conversions_per_unit", max_conversions_per_unit)
        self._units = np.empty(0, np.int64)
        self._counts = np.empty(0, np.int64)

    def keep(self, is_conversion: BoolArray, units: IntArray) -> BoolArray:
        """Which rows of the next block are among the first conversions of their unit.

        Privacy:
          Raw. Unit: all rows with one number in `units`, over all blocks. At most
          max_conversions_per_unit rows of it are kept.
        """
        rows = np.flatnonzero(is_conversion)
        kept = np.zeros(len(is_conversion), np.bool_)
        kept[rows[self._ranks(units[rows].astype(np.int64)) < self._most]] = True
        return kept

    def _ranks(self, units: IntArray) -> IntArray:
        """How many conversions each of these units had before this one."""
        names, places, counts = np.unique(units, return_inverse=True, return_counts=True)
        order = np.argsort(places, kind="stable")
        firsts = np.cumsum(counts) - counts
        within = np.empty(len(units), np.int64)
        within[order] = np.arange(len(units)) - np.repeat(firsts, counts)
        earlier = self._counts_of(names)
        self._add(names, counts.astype(np.int64))
        result: IntArray = within + earlier[places]
        return result

    def _counts_of(self, names: IntArray) -> IntArray:
        places = np.searchsorted(self._units, names)
        found = np.zeros(len(names), np.int64)
        is_inside = places < len(self._units)
        is_inside[is_inside] = self._units[places[is_inside]] == names[is_inside]
        found[is_inside] = self._counts[places[is_inside]]
        return found

    def _add(self, names: IntArray, counts: IntArray) -> None:
        units, places = np.unique(np.concatenate([self._units, names]), return_inverse=True)
        both = np.concatenate([self._counts, counts])
        # Exact: counts of rows are far below 2^53.
        self._counts = np.bincount(places, both, minlength=len(units)).astype(np.int64)
        self._units = units
