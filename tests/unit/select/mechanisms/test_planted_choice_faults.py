"""Wrong baselines that the check of realised ratios must catch."""

import math
from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import pytest

from statistical.randomizer_checks import assert_private
from tulle.mechanisms.entropy import Words
from tulle.mechanisms.thresholds import WORD_VALUES
from tulle.select.auctions import Auctions, FloatArray, SizeGroup
from tulle.select.mechanisms.noisy_max import (
    Calibration,
    ClippedScores,
    NoisyMax,
    ScaledScores,
    ScoreBound,
)
from tulle.select.mechanisms.noisy_max_probs import NoiseKind, noisy_max_probs
from tulle.select.mechanisms.prior_choice import PriorChoice
from unit.select.mechanisms.bid_box import BidBox
from unit.select.mechanisms.realised_channels import (
    assert_ratio_is_caught,
    assert_realised_private,
    realised_channel,
)

BIDS, CLICKS = [1.0, 2.0, 0.5, 3.0], [0.3, 0.2, 0.6, 0.1]


class MonotonicRate(NoisyMax):
    """Epsilon over the width, as if all scores moved the same way."""

    def rates(self, finalists: Auctions) -> FloatArray:
        return 2 * super().rates(finalists)


class RateOfHalfTheWidth(NoisyMax):
    """Takes how far a score moves one way for the width."""

    def rates(self, finalists: Auctions) -> FloatArray:
        return np.full(len(finalists), self.epsilon / 2 / 0.1)


class ClippedTwiceAsWide(ClippedScores):
    """Lets a score move by all of the width either way."""

    def bounded(self, finalists: Auctions, raw_scores: FloatArray) -> FloatArray:
        centres = finalists.server_scores
        return np.clip(raw_scores, centres - self.width, centres + self.width)


class OwnWidth(NoisyMax):
    """Chooses width and noise by how far the device's own scores are from the server's."""

    def _words(
        self, auctions: Auctions, raw_scores: FloatArray
    ) -> Iterator[tuple[SizeGroup, Words | None]]:
        size = int(auctions.sizes[0])
        scores = raw_scores.reshape(-1, size)
        distances = np.abs(scores - auctions.server_scores.reshape(-1, size)).max(axis=1)
        rates = self.epsilon / (4 * distances)
        words = _words_of(noisy_max_probs(scores, rates, self.noise))
        for auction, row in enumerate(words):
            places = np.arange(auction * size, (auction + 1) * size)
            yield SizeGroup(auctions=np.array([auction]), places=places[None]), row[None]


class TightForOneLess(NoisyMax):
    """The tight rate of auctions with one candidate less."""

    def rates(self, finalists: Auctions) -> FloatArray:
        smaller = Auctions(
            offsets=np.array([0, finalists.sizes[0] - 1]),
            ads=finalists.ads[: finalists.sizes[0] - 1],
            bids=finalists.bids[: finalists.sizes[0] - 1],
            server_click_probs=finalists.server_click_probs[: finalists.sizes[0] - 1],
        )
        return np.full(len(finalists), super().rates(smaller)[0])


class TruthOrNothing(PriorChoice):
    """Answers an unlikely winner by itself instead of a likely one."""

    def _words(
        self, auctions: Auctions, raw_scores: FloatArray
    ) -> Iterator[tuple[SizeGroup, Words | None]]:
        size = int(auctions.sizes[0])
        winners = raw_scores.reshape(-1, size).argmax(axis=1)
        for group, words in super()._words(auctions, raw_scores):
            for auction, places, row in zip(group.auctions, group.places, words, strict=True):
                place = auction * size + winners[auction]
                is_kept = place in places
                yield (
                    SizeGroup(
                        auctions=np.array([auction]),
                        places=places[None] if is_kept else np.array([[place]]),
                    ),
                    row[None] if is_kept else None,
                )


def _words_of(probs: FloatArray) -> Words:
    words = (probs * float(WORD_VALUES)).astype(np.uint64)
    words[:, 0] -= words.sum(axis=1)
    return words


def gumbel(kind: type[NoisyMax], bound: ScoreBound) -> NoisyMax:
    return kind(epsilon=1.0, noise=NoiseKind.GUMBEL, score_bound=bound)


@pytest.mark.parametrize("noise", NoiseKind)
@pytest.mark.parametrize("bound", [ScaledScores(), ClippedScores(width=0.2), BidBox()])
def test_the_rate_of_monotonic_scores_is_caught(noise: NoiseKind, bound: ScoreBound) -> None:
    faulty = MonotonicRate(epsilon=4.0, noise=noise, score_bound=bound)
    assert_ratio_is_caught(faulty, [2.0] * 4, CLICKS, seed=1)


@pytest.mark.parametrize(
    "faulty",
    [
        gumbel(RateOfHalfTheWidth, ClippedScores(width=0.2)),
        gumbel(NoisyMax, ClippedTwiceAsWide(width=0.2)),
        gumbel(OwnWidth, ScaledScores()),
        TightForOneLess(
            epsilon=1.0,
            noise=NoiseKind.GUMBEL,
            score_bound=ScaledScores(),
            calibration=Calibration.TIGHT,
        ),
        TruthOrNothing(epsilon=1.0, winner_probs=lambda a: np.tile([0.5, 0.45, 0, 0.05], len(a))),
    ],
    ids=lambda faulty: type(faulty).__name__,
)
def test_a_planted_fault_is_caught(faulty: NoisyMax | PriorChoice) -> None:
    assert_ratio_is_caught(faulty, BIDS, CLICKS, seed=1)


def test_thresholds_from_float_sums_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sum of probabilities near 1 is right to 2^-53 only: that is 2,048 words."""

    def words_of_sums(probs: FloatArray) -> Words:
        ends = (np.cumsum(probs, axis=1)[:, :-1] * float(WORD_VALUES)).astype(np.uint64)
        starts = np.concatenate([np.zeros((len(ends), 1), np.uint64), ends], axis=1)
        return np.diff(starts, axis=1, append=np.uint64(0))

    centres = [30.0, 27.0, 15.0, 1.0]
    mechanism = NoisyMax(
        epsilon=1.0,
        noise=NoiseKind.GUMBEL,
        score_bound=ClippedScores(width=0.6),
        calibration=Calibration.TIGHT,
    )
    assert_realised_private(mechanism, centres, [1.0] * 4, seed=1)
    monkeypatch.setattr("tulle.select.mechanisms.noisy_max.words_of", words_of_sums)
    assert_ratio_is_caught(mechanism, centres, [1.0] * 4, seed=1)


def test_words_without_room_for_rounding_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    centres = [2.17, 7.11, 26.38, 30.82, 31.02]
    mechanism = NoisyMax(
        epsilon=1.0,
        noise=NoiseKind.GUMBEL,
        score_bound=ClippedScores(width=0.6),
        calibration=Calibration.TIGHT,
    )
    assert_realised_private(mechanism, centres, [1.0] * 5, seed=1)
    monkeypatch.setattr("tulle.select.mechanisms.noisy_max.ROUNDING_EPSILON", 0.0)
    assert_ratio_is_caught(mechanism, centres, [1.0] * 5, seed=1)


def test_noise_from_float32_uniforms_is_caught() -> None:
    """Of 2^24 uniforms the largest exponential is 16.6: a distance beyond is never overcome."""

    grid = np.arange(1, 2**24 + 1, dtype=np.float64)

    def channel_row(distance: float) -> list[Fraction]:
        wins = int(np.floor(grid * math.exp(-distance)).sum())
        return [1 - Fraction(wins, 2**48), Fraction(wins, 2**48)]

    assert_private([channel_row(2.0), channel_row(2.9)], 1.0)
    with pytest.raises(AssertionError, match="impossible for another"):
        assert_private([channel_row(16.2), channel_row(17.1)], 1.0)
    # The mechanism itself keeps such probabilities.
    mechanism = NoisyMax(
        epsilon=1.0, noise=NoiseKind.EXPONENTIAL, score_bound=ClippedScores(width=0.5)
    )
    assert_realised_private(mechanism, [17.0, 1.0], [1.0, 1.0], seed=1)


def test_a_range_that_leaves_the_device_with_the_choice_is_caught() -> None:
    mechanism = gumbel(NoisyMax, ScaledScores())
    scores = np.array([[0.1, 0.4, 0.2, 0.3], [0.2, 0.8, 0.4, 0.6]])
    small, large = realised_channel(mechanism, BIDS, CLICKS, scores)
    assert small == large
    nothing = [Fraction(0)] * 4
    with pytest.raises(AssertionError, match="impossible for another"):
        assert_private([small + nothing, nothing + large], mechanism.epsilon)


def test_the_faults_differ_from_a_right_mechanism_in_one_thing_only() -> None:
    for bound in (ScaledScores(), ClippedScores(width=0.2), BidBox()):
        for calibration in Calibration:
            right = NoisyMax(
                epsilon=1.0, noise=NoiseKind.GUMBEL, score_bound=bound, calibration=calibration
            )
            assert_realised_private(right, BIDS, CLICKS, seed=1)
    right_prior = PriorChoice(
        epsilon=1.0, winner_probs=lambda a: np.tile([0.5, 0.45, 0, 0.05], len(a))
    )
    assert_realised_private(right_prior, BIDS, CLICKS, seed=1)
