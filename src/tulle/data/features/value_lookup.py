"""The place of many hashes in a sorted list of them, in a few steps each.

Hashes are uniform, so their leading bits tell almost exactly where they stand:
a table gives the first entry with the same leading bits, and the entry is there
or at most a few places on.
"""

import numpy as np
from numpy.typing import NDArray

from tulle.data.features.hashing import Hashes

_LARGEST = np.uint64(2**64 - 1)


class ValueLookup:
    """Finds hashes in a sorted array without repeats."""

    def __init__(self, sorted_hashes: Hashes) -> None:
        self.num_entries = len(sorted_hashes)
        # About two to four buckets an entry, so that most searches end at once.
        num_bits = max(1, (2 * self.num_entries).bit_length())
        self._shift = np.uint64(64 - num_bits)
        buckets = (sorted_hashes >> self._shift).astype(np.int64)
        sizes = np.bincount(buckets, minlength=2**num_bits)
        self._starts: NDArray[np.int32] = (np.cumsum(sizes) - sizes).astype(np.int32)
        # Nothing is larger than the last entry, so a search stops there.
        self._entries = np.append(sorted_hashes, _LARGEST)

    def ranks(self, hashes: Hashes) -> NDArray[np.int32]:
        """1 for the first entry, 2 for the next, …; 0 for a hash that is no entry."""
        places = self._starts[(hashes >> self._shift).view(np.int64)]
        found = self._entries[places]
        left = np.flatnonzero(found < hashes)
        while left.size:
            places[left] += 1
            found[left] = self._entries[places[left]]
            left = left[found[left] < hashes[left]]
        is_entry = (found == hashes) & (places < self.num_entries)
        return np.where(is_entry, places + np.int32(1), np.int32(0))
