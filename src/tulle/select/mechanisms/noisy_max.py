"""The candidate with the largest score plus noise (Laro et al. 2024, algorithm 1).

A noisy maximum is private only if every score stays in a public interval whatever the device
holds. Scores are bounded last, so the intervals hold by construction.

Nothing is drawn with float noise: the exact probabilities of all candidates are whole numbers of
64-bit words, and one word chooses. Their ratios stay within e^epsilon with rounding included.
"""

import dataclasses
import enum
import math
from collections.abc import Iterator
from typing import Protocol

import numpy as np

from tulle.errors import ConfigError
from tulle.mechanisms.entropy import NoiseSource
from tulle.privacy.events import Composed, Event, RandomizedResponse
from tulle.select.auctions import (
    Auctions,
    BoolArray,
    FloatArray,
    IntArray,
    SizeGroup,
    check_raw_scores,
)
from tulle.select.mechanisms.mechanism import (
    MOST_CANDIDATES,
    MOST_LOG_DISTANCE,
    ROUNDING_EPSILON,
    WordGroup,
    draw_places,
    probs_of,
    words_of,
)
from tulle.select.mechanisms.noise_rates import LEAST_WIDTH, box_rates, equal_box_spread
from tulle.select.mechanisms.noisy_max_probs import NoiseKind, noisy_max_probs
from tulle.select.mechanisms.shortlists import AllCandidates, FinalistAuctions, Shortlist

_LEAST_EPSILON = 1e-4
"""Least epsilon: below it probabilities differ by less than their rounding to whole words."""
_ROUNDING = 1e-12
"""Relative excess of a rate over its limit that rounding alone may make."""
_ALL_CANDIDATES = AllCandidates()


class ScoreBound(Protocol):
    """A public rule that puts every score into a public interval."""

    @property
    def name(self) -> str:
        """The bound in a few words with its settings."""

    @property
    def is_equal_box(self) -> bool:
        """True if all candidates of all auctions share one interval."""

    def box(self, finalists: Auctions) -> tuple[FloatArray, FloatArray]:
        """Least and largest score, [candidates] each."""

    def bounded(self, finalists: Auctions, raw_scores: FloatArray) -> FloatArray:
        """[candidates], within the box. As sensitive as the scores.

        Privacy:
          Releases nothing: bounded scores are as sensitive as the scores.
        """


class Calibration(enum.Enum):
    """How the rate of the noise follows from epsilon."""

    STANDARD = "standard"
    """Epsilon over twice the largest width: right for every law of the noise."""
    TIGHT = "tight"
    """The largest rate whose exact epsilon is small enough: less noise for few candidates."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class NoisyMax:
    """Settings of a noisy maximum. Every field is public information.

    A finalist that is worse than another whatever the device holds, and so much that its
    probability may fall below 2^-40, is left out: public data decide it. Its probability was at
    most 2^-40 n e^epsilon, or 8 times that with Laplace noise.
    """

    epsilon: float
    """Largest log-likelihood ratio of a choice between any two states of a device."""
    noise: NoiseKind
    """Law of the noise."""
    score_bound: ScoreBound
    """How scores are put into public intervals."""
    calibration: Calibration = Calibration.STANDARD
    """How the rate of the noise follows from epsilon."""
    shortlist: Shortlist = _ALL_CANDIDATES
    """Who can be chosen at all; decided by public data."""
    monotonic: bool = False
    """Whether all scores move the same way. Never here; True is refused."""

    num_slots = 1

    def __post_init__(self) -> None:
        if not _LEAST_EPSILON <= self.epsilon < math.inf:
            raise ConfigError(
                f"epsilon={self.epsilon} must be finite and >= {_LEAST_EPSILON}: probabilities of "
                "noisy scores are whole numbers of words, which follow no smaller difference. "
                "FloorMechanism can."
            )
        if self.monotonic is not False:
            raise ConfigError(
                f"monotonic={self.monotonic!r} must be False: a device's data may be replaced by "
                "any others, which raise some scores and lower others, so half the noise would "
                "spend up to twice epsilon. For less noise use calibration=Calibration.TIGHT."
            )

    @property
    def name(self) -> str:
        """The mechanism in a few words with its settings."""
        tight = "tight rate" if self.calibration is Calibration.TIGHT else ""
        noise = f"noisy max, {self.noise.value} noise"
        parts = (
            noise,
            self.score_bound.name,
            tight,
            self.shortlist.name,
            f"epsilon {self.epsilon:g}",
        )
        return ", ".join(part for part in parts if part)

    def event(self, num_finalists: int) -> Event:
        """What one decision costs; one finalist costs nothing.

        Every rule with log ratios within epsilon tells no more than binary randomized response.
        No smaller bound by concentration is claimed: with exponential noise the log ratios of
        one pair of devices may range over more than epsilon.
        """
        if num_finalists <= 1:
            return Composed(())
        return RandomizedResponse(epsilon=self.epsilon, num_values=2)

    def selection_probs(self, auctions: Auctions, raw_scores: FloatArray) -> FloatArray:
        """[candidates], the probability of each: that of the draw itself, as the nearest float.

        Privacy:
          Releases nothing: as sensitive as the scores.
        """
        return probs_of(self._words(auctions, raw_scores), auctions.num_candidates)

    def choose(self, auctions: Auctions, raw_scores: FloatArray, *, rng: NoiseSource) -> IntArray:
        """[auctions], the place of the chosen candidate in the arrays of all candidates.

        Args:
          auctions: The public side.
          raw_scores: [candidates], finite. They never leave the device.
          rng: Source of the noise. Sensitive: never log or save its state.

        Privacy:
          Unit: one decision of a device, replace. Sensitivity: the width of the score's public
          interval. Event: event(finalists). Relies on: the choice is all that is released, and
          candidates, bids and server scores do not depend on private data.
        """
        return draw_places(self._words(auctions, raw_scores), len(auctions), rng=rng)

    def finalists(self, auctions: Auctions) -> FinalistAuctions:
        """Who can be chosen, by public data: the shortlist without those out of reach."""
        shortlisted = FinalistAuctions.of_shortlist(auctions, self.shortlist)
        return shortlisted.kept(self._is_in_reach(shortlisted.auctions))

    def rates(self, finalists: Auctions) -> FloatArray:
        """[auctions], one over the scale of the noise, for auctions of the finalists alone."""
        most = int(finalists.sizes.max(initial=1))
        if most > MOST_CANDIDATES:
            raise ConfigError(
                f"an auction has {most} finalists, a noisy maximum takes {MOST_CANDIDATES} at "
                "most; use shortlist=TopCandidates(num_finalists=...)."
            )
        limits = _most_rates(finalists, self.score_bound)
        rates = _standard_rates(finalists, self.score_bound, self._epsilon_of_probs)
        if np.any(rates > limits * (1 + _ROUNDING)):
            raise ConfigError(
                f"epsilon={self.epsilon} is too large for {most} finalists: a probability may fall "
                "below 2^-40, and ratios of so few words are not kept. Use a smaller epsilon or "
                "a shorter list, e.g. shortlist=TopCandidates(num_finalists=10)."
            )
        if self.calibration is Calibration.TIGHT:
            rates = np.maximum(rates, self._tight_rates(finalists, limits))
        return rates

    @property
    def _epsilon_of_probs(self) -> float:
        return self.epsilon - ROUNDING_EPSILON

    def _tight_rates(self, finalists: Auctions, limits: FloatArray) -> FloatArray:
        epsilon = self._epsilon_of_probs
        rates = np.zeros(len(finalists))
        lows, highs = self.score_bound.box(finalists)
        if self.score_bound.is_equal_box:
            for size in np.unique(finalists.sizes[finalists.sizes > 1]).tolist():
                spread = equal_box_spread(self.noise, size, epsilon)
                rates[finalists.sizes == size] = spread / (highs[0] - lows[0])
            return np.minimum(rates, limits)
        for group in finalists.size_groups():
            rates[group.auctions] = box_rates(
                self.noise,
                lows[group.places],
                highs[group.places],
                epsilon,
                limits[group.auctions],
            )
        return rates

    def _is_in_reach(self, finalists: Auctions) -> BoolArray:
        """[candidates], False for those left out because 64 bits cannot hold their probability."""
        lows, highs = self.score_bound.box(finalists)
        starts, sizes = finalists.offsets[:-1], finalists.sizes
        rates = _standard_rates(finalists, self.score_bound, self._epsilon_of_probs)
        tops = np.repeat(np.maximum.reduceat(highs, starts), sizes)
        is_worse = highs < np.repeat(np.maximum.reduceat(lows, starts), sizes)
        log_distances = np.repeat(rates, sizes) * (tops - lows) + np.log(np.repeat(sizes, sizes))
        return np.asarray(~is_worse | (log_distances <= MOST_LOG_DISTANCE))

    def _words(self, auctions: Auctions, raw_scores: FloatArray) -> Iterator[WordGroup]:
        """Auctions and words of their finalists; none where there is one finalist alone."""
        scores = check_raw_scores(auctions, raw_scores)
        finalists = self.finalists(auctions)
        rates = self.rates(finalists.auctions)
        bounded = self.score_bound.bounded(finalists.auctions, scores[finalists.places])
        for group in finalists.auctions.size_groups():
            places = finalists.places[group.places]
            words = None
            if places.shape[1] > 1:
                group_rates = rates[group.auctions]
                words = words_of(noisy_max_probs(bounded[group.places], group_rates, self.noise))
            yield SizeGroup(auctions=group.auctions, places=places), words


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScaledScores:
    """Each auction from 0, its least score, to 1, its best (Laro et al. 2024, equation 3).

    Least and best score are private, yet the scaled scores are in [0, 1] for every device, so
    one candidate's change by at most 1: the sensitivity is that of the scaled scores. It relies
    on the choice being all that leaves the device: a raw or noisy score, the runner-up or the
    range would tell more. It holds for local privacy alone.
    """

    name = "scaled scores"
    is_equal_box = True

    def box(self, finalists: Auctions) -> tuple[FloatArray, FloatArray]:
        """Interval from 0 to 1 for every candidate."""
        return np.zeros(finalists.num_candidates), np.ones(finalists.num_candidates)

    def bounded(self, finalists: Auctions, raw_scores: FloatArray) -> FloatArray:
        """[candidates], in [0, 1]; all 0 where all scores of an auction are equal.

        Privacy:
          Releases nothing. Unit: device, replace. Sensitivity: 1 for each score.
        """
        starts, sizes = finalists.offsets[:-1], finalists.sizes
        halves = raw_scores / 2  # the distance of two finite numbers may not be finite
        least = np.minimum.reduceat(halves, starts)
        spans = np.maximum.reduceat(halves, starts) - least
        above = halves - np.repeat(least, sizes)
        repeated = np.repeat(spans, sizes)
        scaled: FloatArray = np.zeros_like(above)
        np.divide(above, repeated, out=scaled, where=repeated > 0)
        return scaled


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClippedScores:
    """Scores within half a width of the server's (Laro et al. 2024, equation 4).

    A width of 0 would choose by public data, a very large one at random: between them it is to
    be tuned for each epsilon, never on the data of the devices that are protected.
    """

    width: float
    """Full length of the interval, Delta: a score moves by at most half of it either way."""

    is_equal_box = False

    def __post_init__(self) -> None:
        if not 0 < self.width < math.inf:
            raise ConfigError(
                f"width={self.width} must be > 0 and finite, in the currency of the bids; to "
                "choose by server scores alone use NonPersonalised()."
            )

    @property
    def name(self) -> str:
        """The bound with its width."""
        return f"scores clipped to a width of {self.width:g}"

    def box(self, finalists: Auctions) -> tuple[FloatArray, FloatArray]:
        """Half the width below and above the server score."""
        centres = finalists.server_scores
        return centres - self.width / 2, centres + self.width / 2

    def bounded(self, finalists: Auctions, raw_scores: FloatArray) -> FloatArray:
        """[candidates], clipped.

        Privacy:
          Releases nothing. Unit: device, replace. Sensitivity: the width, for each score.
        """
        return np.clip(raw_scores, *self.box(finalists))


def typical_score(auctions: Auctions) -> float:
    """Mean of the best server scores: public, and the unit in which widths are compared."""
    best = np.maximum.reduceat(auctions.server_scores, auctions.offsets[:-1])
    typical = float(best.mean())
    if not typical > 0:
        raise ConfigError("all server scores are 0; give bids and predictions that are not.")
    return typical


def _standard_rates(finalists: Auctions, bound: ScoreBound, epsilon: float) -> FloatArray:
    """[auctions], epsilon over twice the largest width; 0 where no score can really change."""
    lows, highs = bound.box(finalists)
    # Widths as they are after rounding: half a small width added to a large score is no half.
    widths = np.maximum.reduceat(highs - lows, finalists.offsets[:-1])
    rates = np.zeros_like(widths)
    np.divide(epsilon, 2 * widths, out=rates, where=widths > LEAST_WIDTH)
    return rates


def _most_rates(finalists: Auctions, bound: ScoreBound) -> FloatArray:
    """[auctions], up to which every probability is surely at least 2^-40.

    Rivals that are better by at most g leave a probability of e^(-rate g) / n or more.
    """
    lows, highs = bound.box(finalists)
    starts = finalists.offsets[:-1]
    spans = np.maximum.reduceat(highs, starts) - np.minimum.reduceat(lows, starts)
    room = MOST_LOG_DISTANCE - np.log(finalists.sizes)
    most = np.full(len(finalists), np.inf)
    np.divide(room, spans, out=most, where=(spans > LEAST_WIDTH) & (finalists.sizes > 1))
    return most
