import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from statistical.randomizer_checks import (
    ScriptedNoise,
    assert_follows,
    assert_rejects,
    exact_chances,
)
from tulle.errors import ConfigError, DataError
from tulle.mechanisms.entropy import SeededNoise
from tulle.privacy.events import Composed, RandomizedResponse
from tulle.select.auctions import Auctions, FloatArray
from tulle.select.mechanisms.floors import FloorMechanism
from tulle.select.mechanisms.noisy_max import (
    Calibration,
    ClippedScores,
    NoisyMax,
    ScaledScores,
    ScoreBound,
)
from tulle.select.mechanisms.noisy_max_probs import NoiseKind, noisy_max_probs
from tulle.select.mechanisms.shortlists import Cutoff, TopCandidates
from unit.select.mechanisms.bid_box import BidBox
from unit.select.mechanisms.realised_channels import (
    FAR,
    assert_realised_private,
    one_auction,
    realised_channel,
    telling_scores,
)

BIDS = [1.0, 2.0, 0.5, 3.0, 1.5, 0.7]
CLICKS = [0.3, 0.2, 0.6, 0.1, 0.15, 0.5]
BOUNDS = [ScaledScores(), ClippedScores(width=0.2), BidBox()]


def ragged_auctions(num_auctions: int, seed: int) -> tuple[Auctions, FloatArray]:
    generator = np.random.default_rng(seed)
    sizes = generator.integers(1, 9, num_auctions)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    count = int(offsets[-1])
    auctions = Auctions(
        offsets=offsets,
        ads=np.arange(count),
        bids=generator.lognormal(size=count),
        server_click_probs=generator.random(count),
    )
    return auctions, auctions.bids * generator.random(count)


@pytest.mark.parametrize("noise", NoiseKind)
@pytest.mark.parametrize("bound", BOUNDS, ids=lambda bound: bound.name)
@pytest.mark.parametrize("calibration", Calibration)
@pytest.mark.parametrize("epsilon", [0.01, 1.0, 6.0])
def test_no_ratio_of_the_integers_exceeds_e_to_the_epsilon(
    noise: NoiseKind, bound: ScoreBound, calibration: Calibration, epsilon: float
) -> None:
    mechanism = NoisyMax(epsilon=epsilon, noise=noise, score_bound=bound, calibration=calibration)
    for size in (2, 3, 6):
        assert_realised_private(mechanism, BIDS[:size], CLICKS[:size], seed=size)


@pytest.mark.parametrize("noise", NoiseKind)
@pytest.mark.parametrize("gap", [20.0, 100.0, 400.0])
def test_small_chances_keep_epsilon_too(noise: NoiseKind, gap: float) -> None:
    # Server scores far apart: probabilities down to the least that is drawn, and some out of reach.
    centres = 1 + gap * np.array([0.0, 0.4, 0.7, 1.0])
    for calibration in Calibration:
        mechanism = NoisyMax(
            epsilon=2.0,
            noise=noise,
            score_bound=ClippedScores(width=10.0),
            calibration=calibration,
        )
        assert_realised_private(mechanism, centres.tolist(), [1.0] * 4, seed=1)


def test_a_width_below_the_rounding_of_server_scores_is_taken_as_it_is_rounded() -> None:
    mechanism = NoisyMax(
        epsilon=1.0, noise=NoiseKind.GUMBEL, score_bound=ClippedScores(width=6.5e-7)
    )
    bids = [1e9, 1e9 + 3e-7, 1e9 - 5e-7]
    auction = one_auction(bids, [1.0] * 3)
    lows, highs = mechanism.score_bound.box(auction)
    assert (highs - lows).max() > 1.05 * 6.5e-7
    assert_realised_private(mechanism, bids, [1.0] * 3, seed=2)


@pytest.mark.parametrize("noise", NoiseKind)
def test_the_draw_has_exactly_the_words_that_were_checked(noise: NoiseKind) -> None:
    mechanism = NoisyMax(epsilon=1.0, noise=noise, score_bound=ScaledScores())
    auction = one_auction(BIDS[:3], CLICKS[:3])
    raw = np.array([0.4, 0.1, 0.3])
    drawn = exact_chances(
        lambda word: int(mechanism.choose(auction, raw, rng=ScriptedNoise([word]))[0])
    )
    (row,) = realised_channel(mechanism, BIDS[:3], CLICKS[:3], raw[None])
    assert [drawn[place] for place in range(3)] == row
    assert sum(row) == 1
    assert mechanism.selection_probs(auction, raw).tolist() == [float(entry) for entry in row]


@pytest.mark.parametrize("noise", NoiseKind)
def test_words_follow_the_chances_of_the_noise(noise: NoiseKind) -> None:
    mechanism = NoisyMax(epsilon=3.0, noise=noise, score_bound=ScaledScores())
    auctions, raw = ragged_auctions(200, seed=3)
    probs = mechanism.selection_probs(auctions, raw)
    for auction, (start, end) in enumerate(
        zip(auctions.offsets[:-1], auctions.offsets[1:], strict=True)
    ):
        scores = raw[start:end]
        span = scores.max() - scores.min()
        scaled = (scores - scores.min()) / span if span else np.zeros_like(scores)
        expected = noisy_max_probs(scaled[None], 1.5, noise)[0]
        np.testing.assert_allclose(probs[start:end], expected, rtol=1e-6, err_msg=str(auction))
    np.testing.assert_allclose(np.add.reduceat(probs, auctions.offsets[:-1]), 1, rtol=1e-15)


@pytest.mark.parametrize("noise", NoiseKind)
def test_draws_follow_the_stated_chances(noise: NoiseKind) -> None:
    num_draws = 300_000
    mechanism = NoisyMax(
        epsilon=4.0, noise=noise, score_bound=ClippedScores(width=0.4), shortlist=Cutoff(gamma=1)
    )
    raw = np.array([0.5, 0.1, 0.4, 0.3])
    auctions = one_auction(BIDS[:4], CLICKS[:4], copies=num_draws)
    chosen = mechanism.choose(auctions, np.tile(raw, num_draws), rng=SeededNoise(5))
    counts = np.bincount(chosen % 4, minlength=4)

    def probs_at(epsilon: float) -> list[float]:
        other = dataclasses.replace(mechanism, epsilon=epsilon)
        return other.selection_probs(one_auction(BIDS[:4], CLICKS[:4]), raw).tolist()

    assert_follows(counts, probs_at(4.0))
    assert_rejects(counts, probs_at(4.2))


@pytest.mark.parametrize("noise", NoiseKind)
@pytest.mark.parametrize("epsilon", [0.5, 2.0, 8.0])
def test_two_scaled_scores_at_the_tight_rate_are_randomized_response(
    noise: NoiseKind, epsilon: float
) -> None:
    auctions = one_auction(BIDS[:2], CLICKS[:2], copies=2)
    raw = np.array([0.2, 0.1, 0.0, 0.4])
    tight = NoisyMax(
        epsilon=epsilon, noise=noise, score_bound=ScaledScores(), calibration=Calibration.TIGHT
    )
    response = FloorMechanism(epsilon=epsilon)
    np.testing.assert_allclose(
        tight.selection_probs(auctions, raw), response.selection_probs(auctions, raw), rtol=3e-6
    )
    standard = dataclasses.replace(tight, calibration=Calibration.STANDARD)
    assert standard.selection_probs(auctions, raw)[0] < tight.selection_probs(auctions, raw)[0]


def test_a_standard_rate_for_two_scaled_scores_spends_half() -> None:
    mechanism = NoisyMax(epsilon=2.0, noise=NoiseKind.GUMBEL, score_bound=ScaledScores())
    scores = telling_scores(one_auction(BIDS[:2], CLICKS[:2]), seed=1)
    channel = realised_channel(mechanism, BIDS[:2], CLICKS[:2], scores)
    ratio = max(max(column) / min(column) for column in zip(*channel, strict=True))
    assert math.log(ratio) == pytest.approx(1.0, abs=1e-5)


@pytest.mark.parametrize("noise", NoiseKind)
def test_equal_scores_are_chosen_evenly(noise: NoiseKind) -> None:
    mechanism = NoisyMax(epsilon=5.0, noise=noise, score_bound=ScaledScores())
    probs = mechanism.selection_probs(one_auction(BIDS, CLICKS), np.full(6, 0.25))
    np.testing.assert_allclose(probs, 1 / 6, rtol=1e-13)


def test_a_tight_rate_is_worth_more() -> None:
    auctions, raw = ragged_auctions(100, seed=8)
    for noise in (NoiseKind.GUMBEL, NoiseKind.EXPONENTIAL):
        for bound in BOUNDS:
            standard = NoisyMax(epsilon=3.0, noise=noise, score_bound=bound)
            tight = dataclasses.replace(standard, calibration=Calibration.TIGHT)
            finalists = standard.finalists(auctions).auctions
            assert np.all(tight.rates(finalists) >= standard.rates(finalists))
            assert tight.selection_probs(auctions, raw) @ raw > (
                standard.selection_probs(auctions, raw) @ raw
            )


def test_only_the_shortlist_is_chosen_and_scaled() -> None:
    auctions = one_auction(BIDS, CLICKS)
    mechanism = NoisyMax(
        epsilon=2.0,
        noise=NoiseKind.GUMBEL,
        score_bound=ScaledScores(),
        shortlist=TopCandidates(num_finalists=2),
    )
    raw = np.array([9.0, 0.2, 9.0, 9.0, 9.0, 0.1])
    probs = mechanism.selection_probs(auctions, raw)
    # Server scores: .3 .4 .3 .3 .225 .35, so candidates 1 and 5 are left, scaled to 1 and 0.
    assert probs[[1, 5]] == pytest.approx([1 / (1 + math.exp(-1)), 1 / (1 + math.e)], rel=1e-6)
    assert probs[[0, 2, 3, 4]].tolist() == [0.0] * 4


def test_one_finalist_is_chosen_for_sure() -> None:
    auctions, raw = ragged_auctions(50, seed=4)
    mechanism = NoisyMax(
        epsilon=1.0,
        noise=NoiseKind.GUMBEL,
        score_bound=BidBox(),
        calibration=Calibration.TIGHT,
        shortlist=TopCandidates(num_finalists=1),
    )
    chosen = mechanism.choose(auctions, raw, rng=SeededNoise(0))
    assert np.all(mechanism.selection_probs(auctions, raw)[chosen] == 1)


def test_auctions_without_bids_are_decided_evenly() -> None:
    auction = one_auction([0.0, 0.0], [0.5, 0.1])
    for calibration in Calibration:
        mechanism = NoisyMax(
            epsilon=1.0, noise=NoiseKind.GUMBEL, score_bound=BidBox(), calibration=calibration
        )
        assert mechanism.selection_probs(auction, np.zeros(2)).tolist() == [0.5, 0.5]


@pytest.mark.parametrize("noise", NoiseKind)
def test_who_is_out_of_reach_had_hardly_a_chance(noise: NoiseKind) -> None:
    centres = np.array([1.0, 20.0, 24.0, 25.0])
    mechanism = NoisyMax(epsilon=2.0, noise=noise, score_bound=ClippedScores(width=1.0))
    auction = one_auction(centres.tolist(), [1.0] * 4)
    # Rate 1: a distance of 24 leaves the first no probability of 2^-40; the others have one.
    wide = one_auction((centres * [-3, 1, 1, 1] + 40).tolist(), [1.0] * 4)
    assert mechanism.finalists(auction).places.tolist() == [0, 1, 2, 3]
    assert mechanism.finalists(wide).places.tolist() == [1, 2, 3]
    favoured = np.array([FAR, -FAR, -FAR, -FAR])
    best_case = np.clip(favoured, *mechanism.score_bound.box(wide))
    chance = noisy_max_probs(best_case[None], 1.0, noise)[0, 0]
    assert chance < 8 * 2.0**-40 * 4 * math.exp(2.0)
    assert mechanism.selection_probs(wide, favoured)[0] == 0


def test_too_large_an_epsilon_is_refused() -> None:
    mechanism = NoisyMax(epsilon=60.0, noise=NoiseKind.GUMBEL, score_bound=ScaledScores())
    with pytest.raises(ConfigError, match=r"epsilon=60.0 is too large for 6 finalists"):
        mechanism.selection_probs(one_auction(BIDS, CLICKS), np.zeros(6))


def test_too_many_finalists_are_refused() -> None:
    mechanism = NoisyMax(epsilon=1.0, noise=NoiseKind.GUMBEL, score_bound=ScaledScores())
    with pytest.raises(ConfigError, match="1001 finalists"):
        mechanism.selection_probs(one_auction([1.0] * 1001, [0.5] * 1001), np.zeros(1001))


@pytest.mark.parametrize("epsilon", [0.0, 1e-6, -1.0, math.inf, math.nan])
def test_an_epsilon_that_cannot_be_kept_is_refused(epsilon: float) -> None:
    with pytest.raises(ConfigError, match="epsilon"):
        NoisyMax(epsilon=epsilon, noise=NoiseKind.GUMBEL, score_bound=ScaledScores())


def test_monotonic_scores_are_refused_with_the_reason() -> None:
    with pytest.raises(ConfigError, match="raise some scores and lower others"):
        NoisyMax(epsilon=1.0, noise=NoiseKind.GUMBEL, score_bound=ScaledScores(), monotonic=True)


def test_missing_and_infinite_scores_are_refused() -> None:
    mechanism = NoisyMax(epsilon=1.0, noise=NoiseKind.GUMBEL, score_bound=ScaledScores())
    auction = one_auction(BIDS[:2], CLICKS[:2])
    for raw in (np.array([1.0]), np.array([1.0, -np.inf]), np.array([np.nan, 1.0])):
        with pytest.raises(DataError, match="raw_scores"):
            mechanism.choose(auction, raw, rng=SeededNoise(0))


def test_a_decision_costs_a_binary_response() -> None:
    mechanism = NoisyMax(epsilon=1.5, noise=NoiseKind.EXPONENTIAL, score_bound=ScaledScores())
    assert mechanism.event(20) == RandomizedResponse(epsilon=1.5, num_values=2)
    assert mechanism.event(1) == Composed(())


@pytest.mark.parametrize("noise", NoiseKind)
def test_a_binary_response_dominates_every_pair_of_devices(noise: NoiseKind) -> None:
    mechanism = NoisyMax(
        epsilon=1.5, noise=noise, score_bound=ScaledScores(), calibration=Calibration.TIGHT
    )
    scores = telling_scores(one_auction(BIDS[:4], CLICKS[:4]), seed=3, num_random=10)
    channel = np.array(realised_channel(mechanism, BIDS[:4], CLICKS[:4], scores), float)
    for level in (0.0, 0.4, 1.0, 1.4):
        deltas = np.maximum(channel[:, None] - math.exp(level) * channel[None], 0).sum(axis=2)
        response = (math.exp(1.5) - math.exp(level)) / (1 + math.exp(1.5))
        assert deltas.max() <= response
        assert deltas.max() > 0.2 * response


def test_names_tell_the_settings() -> None:
    mechanism = NoisyMax(
        epsilon=2.0,
        noise=NoiseKind.EXPONENTIAL,
        score_bound=ClippedScores(width=0.5),
        calibration=Calibration.TIGHT,
        shortlist=TopCandidates(num_finalists=3),
    )
    expected = "noisy max, exponential noise, scores clipped to a width of 0.5, tight rate, top 3"
    assert mechanism.name == f"{expected}, epsilon 2"


def test_words_of_a_row_add_up_to_all_words() -> None:
    mechanism = NoisyMax(epsilon=4.0, noise=NoiseKind.EXPONENTIAL, score_bound=ScaledScores())
    auctions, raw = ragged_auctions(500, seed=6)
    for _, words in mechanism._words(auctions, raw):
        if words is not None:
            assert set(words.astype(object).sum(axis=1)) == {2**64}
            assert words.min() >= 2**24


FINITE = st.floats(allow_nan=False, allow_infinity=False)


def two_auctions() -> Auctions:
    return Auctions(
        offsets=np.array([0, 3, 5]),
        ads=np.arange(5),
        bids=np.array([1.0, 2.0, 4.0, 1.0, 0.0]),
        server_click_probs=np.full(5, 0.5),
    )


def test_scaled_scores_go_from_0_to_1_in_every_auction() -> None:
    scaled = ScaledScores().bounded(two_auctions(), np.array([1.0, 2.0, 5.0, 7.0, 3.0]))
    assert scaled.tolist() == [0.0, 0.25, 1.0, 1.0, 0.0]


def test_equal_scores_are_scaled_to_0() -> None:
    scaled = ScaledScores().bounded(two_auctions(), np.array([2.0, 2.0, 2.0, 1.0, 0.0]))
    assert scaled.tolist() == [0.0, 0.0, 0.0, 1.0, 0.0]


def test_clipping_allows_half_of_the_width_either_way() -> None:
    auction = one_auction([2.0, 2.0, 2.0], [0.5, 0.5, 0.5])
    clipped = ClippedScores(width=0.5).bounded(auction, np.array([9.0, -9.0, 1.1]))
    assert clipped.tolist() == [1.25, 0.75, 1.1]


def test_the_bid_is_a_bound_for_free() -> None:
    auction = one_auction([2.0, 0.0], [0.5, 0.5])
    assert BidBox().bounded(auction, np.array([3.0, -1.0])).tolist() == [2.0, 0.0]
    assert [side.tolist() for side in BidBox().box(auction)] == [[0.0, 0.0], [2.0, 0.0]]


@settings(max_examples=200)
@given(
    bound=st.one_of(
        st.just(ScaledScores()),
        st.just(BidBox()),
        st.floats(1e-12, 1e12).map(lambda width: ClippedScores(width=width)),
    ),
    raw=st.lists(FINITE, min_size=5, max_size=5),
)
def test_a_bounded_score_is_in_its_box_whatever_the_device_holds(
    bound: ScoreBound, raw: list[float]
) -> None:
    auctions = two_auctions()
    lows, highs = bound.box(auctions)
    bounded = bound.bounded(auctions, np.array(raw))
    assert np.all((bounded >= lows) & (bounded <= highs))


@pytest.mark.parametrize("width", [0.0, -1.0, math.inf, math.nan])
def test_a_width_must_be_a_length(width: float) -> None:
    with pytest.raises(ConfigError, match="width"):
        ClippedScores(width=width)
