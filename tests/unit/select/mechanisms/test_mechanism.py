import itertools
import math

import numpy as np
import pytest

from statistical.randomizer_checks import exact_chances
from tulle.errors import DataError
from tulle.mechanisms.entropy import SeededNoise, release_rng
from tulle.mechanisms.thresholds import WORD_VALUES
from tulle.privacy.events import Composed, NonPrivate
from tulle.select.auctions import Auctions, FloatArray
from tulle.select.mechanisms.mechanism import (
    Greedy,
    NonPersonalised,
    SelectionMechanism,
    draw_rows,
    favourites,
    words_of,
)
from tulle.select.mechanisms.noisy_max import (
    Calibration,
    ClippedScores,
    NoisyMax,
    ScaledScores,
)
from tulle.select.mechanisms.noisy_max_probs import NoiseKind
from tulle.select.mechanisms.prior_choice import PriorChoice
from tulle.select.mechanisms.shortlists import Cutoff, TopCandidates
from unit.select.mechanisms.bid_box import BidBox
from unit.select.mechanisms.tiny_auctions import auctions_of, random_auctions

AUCTIONS = Auctions(
    offsets=np.array([0, 3, 4, 6]),
    ads=np.arange(6),
    bids=np.array([1.0, 2.0, 3.0, 1.0, 2.0, 4.0]),
    server_click_probs=np.array([0.5, 0.4, 0.1, 0.2, 0.4, 0.2]),
)
RAW = np.array([0.2, 0.1, 0.9, 0.3, 0.5, 0.4])


def test_greedy_takes_the_devices_favourite() -> None:
    assert Greedy().choose(AUCTIONS, RAW, rng=SeededNoise(0)).tolist() == [2, 3, 4]
    assert Greedy().selection_probs(AUCTIONS, RAW).tolist() == [0, 0, 1, 1, 1, 0]


def test_favourites_that_tie_go_to_the_better_server_score() -> None:
    tied = np.array([0.5, 0.5, 0.5, 0.3, 0.0, 0.0])
    assert Greedy().choose(AUCTIONS, tied, rng=SeededNoise(0)).tolist() == [1, 3, 4]


def test_not_personalised_takes_the_servers_winner_whatever_a_device_holds() -> None:
    for raw in (RAW, -RAW, np.zeros(6)):
        assert NonPersonalised().choose(AUCTIONS, raw, rng=SeededNoise(0)).tolist() == [1, 3, 4]
        assert NonPersonalised().selection_probs(AUCTIONS, raw).tolist() == [0, 1, 0, 1, 1, 0]


def test_greedy_is_not_private_and_the_servers_winner_costs_nothing() -> None:
    assert Greedy().epsilon == math.inf
    assert Greedy().event(5) == NonPrivate()
    assert NonPersonalised().epsilon == 0
    assert NonPersonalised().event(5) == Composed(())


@pytest.mark.parametrize("mechanism", [Greedy(), NonPersonalised()])
def test_every_candidate_needs_a_score(mechanism: Greedy | NonPersonalised) -> None:
    with pytest.raises(DataError, match="raw_scores"):
        mechanism.selection_probs(AUCTIONS, RAW[:-1])


def favourites_one_by_one(auctions: Auctions, scores: FloatArray) -> list[int]:
    server = auctions.server_scores
    return [
        max(range(first, last), key=lambda place: (scores[place], server[place], -place))
        for first, last in zip(auctions.offsets[:-1], auctions.offsets[1:], strict=True)
    ]


@pytest.mark.parametrize("num_levels", [0, 1, 3])
def test_favourites_are_those_of_a_loop_over_more_than_one_chunk(num_levels: int) -> None:
    sizes = np.random.default_rng(1).integers(1, 9, 40_000).tolist()
    auctions = random_auctions(sizes, seed=2, num_levels=num_levels)
    rng = np.random.default_rng(3)
    scores = rng.integers(-1, 2, sum(sizes)) / 2 if num_levels else rng.normal(size=sum(sizes))
    assert favourites(auctions, scores).tolist() == favourites_one_by_one(auctions, scores)


def test_ties_go_to_the_better_server_score_and_then_to_the_first() -> None:
    auctions = auctions_of([0.1, 0.3, 0.2], [0.5, 0.5], [0.1, 0.9])
    scores = np.array([1.0, 1.0, 1.0, 2.0, 2.0, 3.0, -0.0])
    assert favourites(auctions, scores).tolist() == [1, 3, 5]


def test_plus_and_minus_zero_are_equal() -> None:
    assert favourites(auctions_of([0.1, 0.9]), np.array([0.0, -0.0])).tolist() == [1]


def test_no_auction_has_no_favourite() -> None:
    assert favourites(auctions_of(), np.array([])).tolist() == []


@pytest.mark.parametrize(
    "words",
    [
        [WORD_VALUES // 4, WORD_VALUES // 2, WORD_VALUES // 4],
        [0, WORD_VALUES // 3, 0, WORD_VALUES - WORD_VALUES // 3, 0],
        [WORD_VALUES - 1, 1],
        [1, WORD_VALUES - 2, 1],
        [0, WORD_VALUES, 0],
        [WORD_VALUES],
    ],
)
def test_every_word_leads_to_one_candidate_with_its_exact_chance(words: list[int]) -> None:
    kept = np.array([[min(entry, WORD_VALUES - 1) for entry in words]], np.uint64)
    chances = exact_chances(lambda word: int(draw_rows(kept, np.array([word], dtype=np.uint64))[0]))
    found = [chances.get(column, 0) * WORD_VALUES for column in range(len(words))]
    assert found == words


def test_rows_are_drawn_on_their_own() -> None:
    rng = np.random.default_rng(7)
    words = words_of(rng.dirichlet(np.ones(5), 1_000) * 0.9 + 0.02)
    drawn = rng.integers(0, 2**64, 1_000, dtype=np.uint64)
    # At the ends of shares too, where one word less or more leads to somebody else.
    first = words[:, 0].copy()
    drawn[:200], drawn[200:400] = first[:200], first[200:400] - np.uint64(1)
    expected = []
    for row, word in zip(words.tolist(), drawn.tolist(), strict=True):
        expected.append(sum(word >= end for end in itertools.accumulate(row)))
    chosen = draw_rows(words, drawn)
    assert chosen.tolist() == expected
    assert set(chosen[:200].tolist()) == {1}
    assert set(chosen[200:400].tolist()) == {0}


def even_prior(auctions: Auctions) -> FloatArray:
    return np.repeat(1 / auctions.sizes, auctions.sizes)


MECHANISMS: list[SelectionMechanism] = [
    Greedy(),
    NonPersonalised(),
    PriorChoice(epsilon=2.0, winner_probs=even_prior),
    NoisyMax(epsilon=2.0, noise=NoiseKind.GUMBEL, score_bound=ScaledScores()),
    NoisyMax(epsilon=2.0, noise=NoiseKind.LAPLACE, score_bound=BidBox()),
    NoisyMax(
        epsilon=2.0,
        noise=NoiseKind.EXPONENTIAL,
        score_bound=ClippedScores(width=0.05),
        calibration=Calibration.TIGHT,
        shortlist=Cutoff(gamma=0.9),
    ),
    NoisyMax(
        epsilon=2.0,
        noise=NoiseKind.EXPONENTIAL,
        score_bound=ScaledScores(),
        shortlist=TopCandidates(num_finalists=3),
    ),
]


def some_auctions(num_auctions: int, seed: int) -> tuple[Auctions, FloatArray]:
    generator = np.random.default_rng(seed)
    sizes = generator.integers(1, 12, num_auctions)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    count = int(offsets[-1])
    bids = generator.lognormal(size=count)
    auctions = Auctions(
        offsets=offsets,
        ads=np.arange(count),
        bids=bids,
        server_click_probs=generator.random(count),
    )
    return auctions, bids * generator.random(count)


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=lambda mechanism: mechanism.name)
def test_chances_add_up_to_one_and_choices_have_one(mechanism: SelectionMechanism) -> None:
    auctions, raw = some_auctions(300, seed=1)
    probs = mechanism.selection_probs(auctions, raw)
    np.testing.assert_allclose(np.add.reduceat(probs, auctions.offsets[:-1]), 1, rtol=1e-14)
    for rng in (SeededNoise(3), release_rng()):
        chosen = mechanism.choose(auctions, raw, rng=rng)
        assert np.all((chosen >= auctions.offsets[:-1]) & (chosen < auctions.offsets[1:]))
        assert np.all(probs[chosen] > 0)


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=lambda mechanism: mechanism.name)
def test_an_auction_is_decided_by_its_own_candidates(mechanism: SelectionMechanism) -> None:
    auctions, raw = some_auctions(40, seed=2)
    together = mechanism.selection_probs(auctions, raw)
    for start, end in zip(auctions.offsets[:-1], auctions.offsets[1:], strict=True):
        own = slice(int(start), int(end))
        alone = Auctions(
            offsets=np.array([0, end - start]),
            ads=auctions.ads[own],
            bids=auctions.bids[own],
            server_click_probs=auctions.server_click_probs[own],
        )
        probs = mechanism.selection_probs(alone, raw[own])
        # A tight rate is searched for many auctions at once; its last digits may differ.
        np.testing.assert_allclose(probs, together[own], rtol=1e-6)


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=lambda mechanism: mechanism.name)
def test_the_same_words_make_the_same_choices(mechanism: SelectionMechanism) -> None:
    auctions, raw = some_auctions(100, seed=4)
    first, again = (mechanism.choose(auctions, raw, rng=SeededNoise(9)) for _ in range(2))
    assert first.tolist() == again.tolist()
