"""The best mechanism above public floors.

Let m_y be the least chance of ad y over all private data. Whatever epsilon-local mechanism has
these floors stays below e^epsilon m_y. Starting from the floors and giving the rest to the best
private scores, each up to e^epsilon m_y, stays within the same limits, so it is as private; and
no chances within them have a larger expected score, for any private data. So a mechanism is
worth no more than its floors: the greedy fill makes the most of them.
"""

import dataclasses
import functools
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from tulle.errors import ConfigError, DataError
from tulle.mechanisms.entropy import Words
from tulle.mechanisms.thresholds import WORD_VALUES, exponential_bounds

MOST_EPSILON = 64.0
"""e^64 is more than there are words, so a larger epsilon allows no more than this one."""

_MOST_FLOAT_EPSILON = 700.0
# Floats add up to a limit only but for rounding; such floors are moved inside by this share.
_MARGIN = 2.0**-40
_MOST_ROUNDING = 1e-9
_LARGEST_FLOAT_BELOW_ALL = 2.0**64 - 2.0**11


@dataclasses.dataclass(frozen=True, kw_only=True)
class Floors:
    """Least chances of one auction's candidates, as words. Public information.

    Candidates come in a public order, which decides between equal private scores.
    """

    epsilon: float
    """Largest log-likelihood ratio of a choice."""
    words: tuple[int, ...]
    """Words, of 2^64, that lead to each candidate at least; 0 for one that is never chosen."""

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)
        if not self.words or min(self.words) < 0:
            raise ConfigError("floors need at least one candidate, and no floor below 0.")
        if sum(self.words) > WORD_VALUES or sum(self.caps) < WORD_VALUES:
            raise infeasible_floors(self.epsilon, sum(self.words) / WORD_VALUES)

    @classmethod
    def from_chances(cls, chances: ArrayLike, *, epsilon: float) -> "Floors":
        """Floors from chances, rounded to whole words.

        How is no matter of privacy: how far a candidate may rise follows from its rounded floor.
        """
        return cls(epsilon=epsilon, words=tuple(floor_words(chances, epsilon).tolist()))

    @functools.cached_property
    def caps(self) -> tuple[int, ...]:
        """Most words for each candidate: at most e^epsilon times its floor, with proof."""
        factor = cap_factor(self.epsilon)
        return tuple(min(words * factor // WORD_VALUES, WORD_VALUES) for words in self.words)


def fill(floors: Floors, raw_scores: Sequence[float]) -> tuple[int, ...]:
    """Words that lead to each candidate: 2^64 together, the best scores at their caps.

    Args:
      floors: Of the candidates, in a public order.
      raw_scores: One finite private score for each.

    Privacy:
      Not noised: as sensitive as the scores. A choice drawn by these words has log-likelihood
      ratios within epsilon between any two devices, because all words are within public limits.
    """
    if len(raw_scores) != len(floors.words) or not all(map(math.isfinite, raw_scores)):
        raise DataError(
            f"raw_scores must have one finite score for each of the {len(floors.words)} "
            "candidates; give those that should lose a low finite one."
        )
    words = list(floors.words)
    left = WORD_VALUES - sum(words)
    # sorted() is stable, so equals are filled in the public order.
    for place in sorted(range(len(words)), key=lambda place: -raw_scores[place]):
        given = min(left, floors.caps[place] - words[place])
        words[place] += given
        left -= given
    return tuple(words)


def floor_value(floor_probs: ArrayLike, raw_scores: ArrayLike, *, epsilon: float) -> float:
    """Expected private score of the greedy fill, the most that any mechanism above it gets.

    The dual of the fill: the least value over t of
    t + sum_y m_y (e^epsilon (s_y - t)^+ - (t - s_y)^+), which is convex and has its kinks at the
    scores. Computed from private scores: as sensitive as they are.

    Args:
      floor_probs: m, adding up to at most 1 and at least e^-epsilon.
      raw_scores: s, one for each floor.
      epsilon: Largest log-likelihood ratio of a choice.

    Privacy:
      Releases nothing: the value is as sensitive as the scores.
    """
    check_epsilon(epsilon)
    floors, scores = np.asarray(floor_probs, np.float64), np.asarray(raw_scores, np.float64)
    if floors.shape != scores.shape or floors.ndim != 1 or not np.isfinite(scores).all():
        raise DataError("raw_scores must have one finite score for each floor.")
    total, growth = float(floors.sum()), math.exp(min(epsilon, _MOST_FLOAT_EPSILON))
    is_within = total <= 1 + _MOST_ROUNDING and total * growth >= 1 - _MOST_ROUNDING
    if np.any(floors < 0) or not is_within:
        raise infeasible_floors(epsilon, total)
    excess = scores - scores[:, np.newaxis]
    gains = np.where(excess > 0, growth * excess, excess)
    return float(np.min(scores + gains @ floors))


def floor_words(chances: ArrayLike, epsilon: float) -> Words:
    """Chances, one auction a row, as whole numbers of words."""
    checked = np.asarray(chances, np.float64)
    if not np.all((checked >= 0) & (checked <= 1 + _MOST_ROUNDING)):
        raise ConfigError("floors must be chances in [0, 1].")
    totals = checked.sum(axis=-1, keepdims=True)
    inside = np.clip(totals, math.exp(-epsilon) * (1 + _MARGIN), 1 - _MARGIN)
    is_near = np.abs(inside - totals) <= _MOST_ROUNDING * totals
    scale = np.divide(inside, totals, out=np.ones_like(totals), where=is_near & (totals > 0))
    words = checked * scale * float(WORD_VALUES)
    rounded: Words = np.minimum(words, _LARGEST_FLOAT_BELOW_ALL).astype(np.uint64)
    return rounded


@functools.lru_cache(maxsize=1024)
def cap_factor(epsilon: float) -> int:
    """A whole number just below 2^64 e^epsilon, and at least 2^64."""
    lower, _ = exponential_bounds(min(epsilon, MOST_EPSILON))
    return max(math.floor(lower * WORD_VALUES), WORD_VALUES)


def check_epsilon(epsilon: float) -> None:
    """Refuses what is no epsilon of a private choice."""
    if not 0 < epsilon < math.inf:
        raise ConfigError(f"epsilon={epsilon} must be > 0 and finite, e.g. 1.0.")


def infeasible_floors(epsilon: float, total: float) -> ConfigError:
    """Why no mechanism has floors of this sum."""
    return ConfigError(
        f"floors add up to {total:.12g}; with epsilon={epsilon} they must add up to at most 1 and, "
        f"as no chance may exceed e^epsilon times its floor, to at least "
        f"e^-epsilon = {math.exp(-epsilon):.6g}. Scale them."
    )
