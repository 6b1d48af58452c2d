"""Synthetic users with columns that others know too, and one bit that nobody should.

Bits are fair coins that depend on nothing: whoever guesses better than half of them learned it
from the release about the user, not from what users have in common.
"""

import dataclasses

import numpy as np
from numpy.typing import NDArray

from tulle.privacy.fields import check_count

IntArray = NDArray[np.int64]

_NUM_VALUES = {"area": 400, "age band": 10, "device": 200, "day": 90}
COLUMN_NAMES = tuple(_NUM_VALUES)
_SKEW = 0.7
"""A value of rank r has a share proportional to r^-skew: some are common, many are rare."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class SyntheticUsers:
    """One row a user."""

    columns: dict[str, IntArray]
    """Columns that others know: where people live, their age, what they use, when they came."""
    bits: IntArray
    """Private bit of each user, 0 or 1: whether they bought."""

    def __len__(self) -> int:
        return self.bits.size

    def cells(self, names: tuple[str, ...]) -> IntArray:
        """A number for each user, the same for users who are alike in these columns."""
        codes = np.zeros(len(self), dtype=np.int64)
        for name in names:
            codes = codes * _NUM_VALUES[name] + self.columns[name]
        return np.unique(codes, return_inverse=True)[1].astype(np.int64)


def draw_users(num_users: int, *, seed: int) -> SyntheticUsers:
    """Independent users, the same for the same seed."""
    check_count("num_users", num_users)
    rng = np.random.default_rng(seed)
    columns = {}
    for name, num_values in _NUM_VALUES.items():
        shares = np.arange(1, num_values + 1) ** -_SKEW
        columns[name] = rng.choice(num_values, size=num_users, p=shares / shares.sum())
    return SyntheticUsers(columns=columns, bits=rng.integers(0, 2, size=num_users))
