"""The best mechanism above public floors, by greedy fill: a theorem, and a mechanism made of it.

Let m_y be the least probability of ad y over all private data. Whatever epsilon-local mechanism has
these floors stays below e^epsilon m_y. Starting from the floors and giving the rest to the best
private scores, each up to e^epsilon m_y, stays within the same limits, so it is as private; and
no probabilities within them have a larger expected score, for any private data. So a mechanism is
worth no more than its floors: the greedy fill makes the most of them. For example the fill at the
least probabilities of a noisy-max rule with clipped scores has the same epsilon and a larger
expected score for every device.

Nothing here leaves 64-bit integers. A candidate that takes all 2^64 words is kept as 2^64 - 1: the
draw gives the last word to the fullest.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import ArrayLike

from tulle.errors import ConfigError, DataError
from tulle.mechanisms.entropy import NoiseSource, Words
from tulle.mechanisms.thresholds import WORD_VALUES, exponential_bounds
from tulle.privacy.events import Composed, EpsilonDelta, Event
from tulle.privacy.fields import check_count, check_epsilon
from tulle.select.auctions import Auctions, FloatArray, IntArray, SizeGroup, check_raw_scores
from tulle.select.mechanisms.floors import MOST_EPSILON
from tulle.select.mechanisms.mechanism import draw_rows
from tulle.select.mechanisms.shortlists import finalist_groups

_MOST_FLOAT_EPSILON = 700.0
"""Largest epsilon whose exponential is a float."""
# Floats add up to a limit only but for rounding; such floors are moved inside by this share.
_MARGIN = 2.0**-40
_MOST_ROUNDING = 1e-9
"""Relative error of a sum of floors that is taken for rounding."""
_LARGEST_FLOAT_BELOW_ALL = 2.0**64 - 2.0**11
"""Largest float64 below 2^64, which is too many words for one."""
# Words stand for probabilities times 2^64. All of it does not fit a word, so the last one is left
# out; products of two words are taken by halves of 32 bits.
_MOST = np.uint64(WORD_VALUES - 1)
_HALF = np.uint64(32)
_LOW = np.uint64(2**32 - 1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Floors:
    """Least probabilities of one auction's candidates, as words. Public information.

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
        """Floors from probabilities, rounded to whole words.

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
      floors: Floors of the candidates, in a public order.
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


@dataclasses.dataclass(frozen=True, kw_only=True)
class FloorVectorMechanism:
    """Settings of a choice above given floors. Every field is public information."""

    epsilon: float
    """Largest log-likelihood ratio of a choice between any two states of a device."""
    floor_probs: Callable[[Auctions], FloatArray]
    """[candidates], the least probability of each, from public data alone; in each auction they add
    up to at most 1 and at least e^-epsilon. A floor of 0 means never chosen."""
    floors_name: str
    """Origin of the floors, in a few words."""

    num_slots = 1
    shortlist = None

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)

    @property
    def name(self) -> str:
        """The mechanism in a few words with its settings."""
        return f"greedy fill, {self.floors_name}, epsilon {self.epsilon:g}"

    def event(self, num_finalists: int) -> Event:
        """What one decision costs: exactly one finalist nothing, at least so many from 2 on."""
        check_count("num_finalists", num_finalists)
        return Composed() if num_finalists == 1 else EpsilonDelta(epsilon=self.epsilon)

    def selection_probs(self, auctions: Auctions, raw_scores: FloatArray) -> FloatArray:
        """[candidates], the probability of each in the sampler.

        Privacy:
          Not noised: as sensitive as the scores. Never release it, nor one entry of it.
        """
        probs = np.empty(auctions.num_candidates)
        for group, words in self._filled(auctions, raw_scores):
            probs[group.places] = words / WORD_VALUES
        return probs

    def choose(self, auctions: Auctions, raw_scores: FloatArray, *, rng: NoiseSource) -> IntArray:
        """[auctions], the place of the chosen candidate. One word decides each auction.

        Args:
          auctions: The public side.
          raw_scores: [candidates], what each is worth by private data.
          rng: Source of the words. Sensitive: never log or save its state.

        Privacy:
          Unit: one decision of one device, replace. Local: each auction is drawn on its own.
          Event: EpsilonDelta(epsilon). Relies on: candidates and floors that follow from public
          data; every candidate scored; one draw a decision.
        """
        chosen = np.empty(len(auctions), np.int64)
        drawn = rng.words(len(auctions))
        for group, words in self._filled(auctions, raw_scores):
            columns = draw_rows(words, drawn[group.auctions])
            chosen[group.auctions] = group.places[np.arange(len(columns)), columns]
        return chosen

    def _filled(
        self, auctions: Auctions, raw_scores: FloatArray
    ) -> Iterator[tuple[SizeGroup, Words]]:
        """Auctions of one size, candidates in server order, with their words."""
        scores = check_raw_scores(auctions, raw_scores)
        floors = np.asarray(self.floor_probs(auctions), np.float64)
        if floors.shape != scores.shape:
            raise ConfigError(
                f"floor_probs has shape {floors.shape}, the auctions have "
                f"{auctions.num_candidates} candidates; give one floor for each."
            )
        for group in finalist_groups(auctions, auctions.sizes):
            words = floor_words(floors[group.places], self.epsilon)
            yield group, fill_rows(words, scores[group.places], epsilon=self.epsilon)


def fill_rows(floors: Words, raw_scores: FloatArray, *, epsilon: float) -> Words:
    """[rows, candidates], words that lead to each, the best scores at their caps.

    Args:
      floors: [rows, candidates], words that lead to each at least. Public.
      raw_scores: [rows, candidates], finite.
      epsilon: Largest log-likelihood ratio of a choice.

    Privacy:
      Not noised: as sensitive as the scores. As `fill`, and with the same words.
    """
    left = _words_to_fill(floors, epsilon)
    order = np.argsort(-raw_scores, axis=1, kind="stable")
    words = np.take_along_axis(floors, order, axis=1)
    room = cap_words(words, epsilon) - words
    for column in range(words.shape[1]):
        given = np.minimum(left, room[:, column])
        words[:, column] += given
        left -= given
    # What the caps leave over depends on the floors alone; one word where 2^64 is not kept.
    if np.any(left > (words.max(axis=1) == _MOST)):
        raise infeasible_floors(epsilon, _least_total(floors))
    filled = np.empty_like(words)
    np.put_along_axis(filled, order, words, axis=1)
    return filled


def floor_words(chances: ArrayLike, epsilon: float) -> Words:
    """Probabilities, one auction a row, as whole numbers of words."""
    checked = np.asarray(chances, np.float64)
    if not np.all((checked >= 0) & (checked <= 1 + _MOST_ROUNDING)):
        raise ConfigError("floors must be probabilities in [0, 1].")
    totals = checked.sum(axis=-1, keepdims=True)
    inside = np.clip(totals, math.exp(-epsilon) * (1 + _MARGIN), 1 - _MARGIN)
    is_near = np.abs(inside - totals) <= _MOST_ROUNDING * totals
    scale = np.divide(inside, totals, out=np.ones_like(totals), where=is_near & (totals > 0))
    words = checked * scale * float(WORD_VALUES)
    rounded: Words = np.minimum(words, _LARGEST_FLOAT_BELOW_ALL).astype(np.uint64)
    return rounded


def cap_words(floors: Words, epsilon: float) -> Words:
    """Most words above each floor: floor * cap_factor / 2^64, rounded down, cut at 2^64 - 1."""
    whole, rest = divmod(cap_factor(epsilon), WORD_VALUES)
    fraction = _high_half(np.uint64(rest), floors)
    whole_words = np.uint64(min(whole, WORD_VALUES - 1))
    is_all = floors > (_MOST - fraction) // whole_words
    return np.where(is_all, _MOST, whole_words * floors + fraction)


@functools.lru_cache(maxsize=1024)
def cap_factor(epsilon: float) -> int:
    """A whole number just below 2^64 e^epsilon, and at least 2^64."""
    lower, _ = exponential_bounds(min(epsilon, MOST_EPSILON))
    return max(math.floor(lower * WORD_VALUES), WORD_VALUES)


def infeasible_floors(epsilon: float, total: float) -> ConfigError:
    """Reason why no mechanism has floors of this sum."""
    return ConfigError(
        f"floors add up to {total:.12g}; with epsilon={epsilon} they must add up to at most 1 and, "
        f"as no probability may exceed e^epsilon times its floor, to at least "
        f"e^-epsilon = {math.exp(-epsilon):.6g}. Scale them."
    )


def _high_half(factor: np.uint64, words: Words) -> Words:
    """The product of two words over 2^64, rounded down, by halves of 32 bits."""
    factor_high, factor_low = factor >> _HALF, factor & _LOW
    words_high, words_low = words >> _HALF, words & _LOW
    middle = factor_high * words_low + (factor_low * words_low >> _HALF)
    other_middle = factor_low * words_high + (middle & _LOW)
    product: Words = factor_high * words_high + (middle >> _HALF) + (other_middle >> _HALF)
    return product


def _words_to_fill(floors: Words, epsilon: float) -> Words:
    """[rows], 2^64 less all floors."""
    left = np.full(len(floors), _MOST)
    for column in range(floors.shape[1]):
        if np.any(floors[:, column] > left):
            raise infeasible_floors(epsilon, float((floors / WORD_VALUES).sum(axis=1).max()))
        left -= floors[:, column]
    if np.any(left == _MOST):
        raise infeasible_floors(epsilon, 0.0)
    return left + np.uint64(1)


def _least_total(floors: Words) -> float:
    return float((floors / WORD_VALUES).sum(axis=1).min())
