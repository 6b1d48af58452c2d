"""What every baseline owes as a rule of selection."""

import numpy as np
import pytest

from tulle.mechanisms.entropy import SeededNoise, release_rng
from tulle.select.auctions import Auctions, FloatArray
from tulle.select.mechanisms.mechanism import Greedy, NonPersonalised, SelectionMechanism
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
