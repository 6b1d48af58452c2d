"""Uniform floors as whole numbers of words: all finalists alike, and a few boosted.

A word of 2^64 leads to one of K finalists. First come `floor_words` for each finalist, whatever a
device prefers; what is left goes to the d boosted ones. Words are rounded so that no finalist
exceeds e^epsilon times its floor.
"""

import dataclasses
import functools
import math
from fractions import Fraction

from tulle.errors import ConfigError
from tulle.mechanisms.thresholds import WORD_VALUES, absent_mass, exponential_bounds
from tulle.select.floors.greedy_fill import MOST_EPSILON


@dataclasses.dataclass(frozen=True, kw_only=True)
class BoostedMasses:
    """Words for the finalists of one auction. Public."""

    num_finalists: int
    num_boosted: int
    """From 1 to num_finalists - 1; or 1 of 1."""
    floor_words: int
    """Words that lead to each finalist at least."""
    boost_words: int
    """Words on top for each boosted one; for the last of them what is left."""

    @property
    def first_boost(self) -> int:
        """The first word that leads to a boosted finalist because it is boosted."""
        return self.num_finalists * self.floor_words

    @property
    def boosted_words(self) -> tuple[int, ...]:
        """Words that lead to each boosted finalist, from the best private score down."""
        others = [self.floor_words + self.boost_words] * (self.num_boosted - 1)
        num_unboosted = self.num_finalists - self.num_boosted
        return (*others, WORD_VALUES - num_unboosted * self.floor_words - sum(others))

    @property
    def realised_ratio(self) -> Fraction:
        """Largest likelihood ratio of a choice; at most e^epsilon."""
        if self.num_finalists == 1:
            return Fraction(1)
        return Fraction(max(self.boosted_words), self.floor_words)


@functools.lru_cache(maxsize=1 << 16)
def boosted_masses(epsilon: float, num_finalists: int, num_boosted: int) -> BoostedMasses:
    """The largest boost that keeps every ratio of chances within e^epsilon.

    The floor is the least whole number >= 2^64 / (K - d + d e^epsilon) for which it works out.

    Args:
      epsilon: Largest log-likelihood ratio of a choice.
      num_finalists: K.
      num_boosted: d, at least 1; cut at K - 1, because boosting all boosts none.
    """
    if num_finalists == 1:
        half = WORD_VALUES // 2  # every word leads to it, as a finalist or as the boosted one
        return BoostedMasses(num_finalists=1, num_boosted=1, floor_words=half, boost_words=half)
    num_boosted = min(num_boosted, num_finalists - 1)
    num_unboosted = num_finalists - num_boosted
    floor = -(-absent_mass(epsilon, num_finalists, num_boosted) // num_unboosted)
    least_bound, _ = exponential_bounds(min(epsilon, MOST_EPSILON))
    while True:
        boost = -(-(WORD_VALUES - num_finalists * floor) // num_boosted)
        if floor + boost <= math.floor(least_bound * floor):
            break
        floor += 1
    masses = BoostedMasses(
        num_finalists=num_finalists,
        num_boosted=num_boosted,
        floor_words=floor,
        boost_words=boost,
    )
    if boost < 1 or min(masses.boosted_words) <= floor:
        raise ConfigError(
            f"epsilon={epsilon} is too small for {num_finalists} finalists with {num_boosted} "
            "boosted: 64-bit words cannot favour any by so little. Raise epsilon or shorten the "
            "list of finalists."
        )
    return masses
