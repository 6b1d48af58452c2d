"""Experiments run on auctions of a log: of all sizes, and without a prior."""

import dataclasses
import math
from collections.abc import Callable

import numpy as np
import pytest

from tulle.errors import ConfigError
from tulle.lab.markets.claims import Verdict, judge_claims
from tulle.lab.markets.experiments import (
    BEST_OTHER,
    ExperimentSettings,
    best_other_scores,
    pricing_effect,
    run_experiments,
    single_auctions,
)
from tulle.lab.markets.market_sample import MarketSample
from tulle.lab.markets.overtaking import GridSettings, groups_by_size, mixing_grid
from tulle.lab.markets.sweeps import ADAPTIVE, SweepSettings
from tulle.lab.markets.synthetic_market import DISPLAY, SEARCH
from tulle.select.auctions import Auctions, DeviceClicks
from tulle.select.billing.prices import PricingRule


def ragged_sample(seed: int) -> MarketSample:
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 40, 80)
    total = int(sizes.sum())
    server = rng.random(total) * 0.1
    # Some ads were never clicked, as far as the server knows.
    server[rng.random(total) < 0.05] = 0.0
    return MarketSample(
        auctions=Auctions(
            offsets=np.concatenate([[0], np.cumsum(sizes)]),
            ads=np.concatenate([np.arange(size) for size in sizes]),
            bids=rng.lognormal(size=total),
            server_click_probs=server,
        ),
        device=DeviceClicks(click_probs=np.minimum(server * rng.lognormal(size=total), 1.0)),
        pricing=PricingRule.SECOND_PRICE_PER_CLICK,
    )


def test_a_log_without_a_prior_gets_results_and_verdicts() -> None:
    sample = ragged_sample(1)
    sweep = SweepSettings(epsilons=(1.0, 3.0, 5.0), gammas=(0.0, 0.4, 0.8, 1.0))
    found = run_experiments(
        "a log",
        ragged_sample(2),
        sample,
        settings=ExperimentSettings(sweep=sweep, shortlist_epsilons=(5.0,)),
        prior=None,
    )
    assert ADAPTIVE not in {row.mechanism for row in found.epsilon_rows}
    assert found.counts.num_candidates == tuple(np.unique(sample.auctions.sizes).tolist())
    assert {row.num_finalists for row in found.finalist_rows} == set(range(1, 26))
    assert {row.num_candidates <= 3 for row in found.single_rows} == {True, False}
    grid = mixing_grid(
        groups_by_size(sample),
        GridSettings(alphas=(1.0, 0.5), epsilons=(1.0, 5.0), relative_widths=(0.1, 1.0)),
    )
    claims = judge_claims([found], score_rows=(), grid_rows=grid)
    assert len(claims) == 17 + 2
    # Under the printed rule revenue cannot rise, whatever the auctions are like.
    lifts = [c for c in claims if "lifts every" in c.claim and "an impression" in c.condition]
    assert [claim.verdict for claim in lifts] == [Verdict.DOES_NOT_HOLD]


SampleOf = Callable[..., MarketSample]
PER_IMPRESSION = PricingRule.SECOND_PRICE.value
PER_CLICK = PricingRule.SECOND_PRICE_PER_CLICK.value
SAMPLE = MarketSample(
    auctions=Auctions(
        offsets=np.array([0, 3, 5]),
        ads=np.array([1, 2, 3, 1, 2]),
        bids=np.array([1.0, 2.0, 4.0, 1.0, 3.0]),
        server_click_probs=np.array([0.5, 0.2, 0.05, 0.3, 0.2]),
    ),
    device=DeviceClicks(click_probs=np.array([0.3, 0.1, 0.2, 0.4, 0.1])),
    pricing=PricingRule.SECOND_PRICE,
)
"""Server scores .5 .4 .2 | .3 .6, device scores .3 .2 .8 | .4 .3: the third and the fourth win."""
MEAN_CLICKS = 1.1 / 5


def revenue(rule: str, predictions: str) -> float:
    (row,) = [r for r in pricing_effect(SAMPLE) if (r.rule, r.predictions) == (rule, predictions)]
    return row.revenue


@pytest.mark.parametrize(
    ("rule", "predictions", "expected"),
    [
        # The next device score below the winner's.
        (PER_IMPRESSION, "device", (0.3 + 0.3) / 2),
        (PER_CLICK, "device", (0.3 + 0.3) / 2),
        (BEST_OTHER, "device", (0.3 + 0.3) / 2),
        # Both winners are last for the server, which then asks for nothing.
        (PER_IMPRESSION, "server", 0.0),
        (PER_CLICK, "server", 0.0),
        (BEST_OTHER, "server", (0.5 + 0.6) / 2),
        # By bids alone the third is first, the fourth last.
        (PER_IMPRESSION, "uninformed", 2 * MEAN_CLICKS / 2),
        (PER_CLICK, "uninformed", 2 * 0.2 / 2),
        (BEST_OTHER, "uninformed", (2 + 3) * MEAN_CLICKS / 2),
    ],
)
def test_revenue_is_that_of_prices_by_hand(rule: str, predictions: str, expected: float) -> None:
    assert revenue(rule, predictions) == pytest.approx(expected, rel=1e-12)


def test_revenue_and_surplus_share_the_same_value() -> None:
    value = (0.8 + 0.4) / 2
    for row in pricing_effect(SAMPLE):
        assert row.revenue + row.surplus == pytest.approx(value, rel=1e-12)


@pytest.mark.parametrize("market", [SEARCH, DISPLAY], ids=["search", "display"])
def test_only_prices_a_click_or_the_best_other_raise_revenue(
    market: object, sample_of: SampleOf
) -> None:
    rows = pricing_effect(sample_of(market, 3000))
    found = {(row.rule, row.predictions): row.revenue_lift for row in rows}
    assert found[PER_IMPRESSION, "server"] < -0.1
    assert found[PER_CLICK, "server"] > 0.03
    assert found[BEST_OTHER, "server"] > 0
    assert {lift for (_, who), lift in found.items() if who == "device"} == {0.0}


def test_the_best_other_score_leaves_out_ones_own() -> None:
    assert best_other_scores(SAMPLE.auctions) == pytest.approx([0.4, 0.5, 0.5, 0.6, 0.3])


def test_a_single_candidate_has_no_other() -> None:
    alone = MarketSample(
        auctions=Auctions(
            offsets=np.array([0, 1]),
            ads=np.array([1]),
            bids=np.array([1.0]),
            server_click_probs=np.array([0.5]),
        ),
        device=DeviceClicks(click_probs=np.array([0.4])),
        pricing=PricingRule.SECOND_PRICE,
    )
    assert best_other_scores(alone.auctions).tolist() == [0.0]
    with pytest.raises(ConfigError, match="two candidates"):
        pricing_effect(alone)


FEW = dataclasses.replace(DISPLAY, num_candidates=3, num_eligible=3)


@pytest.mark.parametrize("market", [FEW, DISPLAY], ids=["few", "many"])
def test_there_is_one_auction_of_each_kind(market: object, sample_of: SampleOf) -> None:
    sample = sample_of(market, 300)
    rows = single_auctions(sample, epsilons=[1.0, 3.0], width=0.1)
    assert {row.server_is for row in rows} == {"right", "close", "wrong"}
    assert len(rows) == 3 * 2 * 5
    size = market.num_candidates
    for row in rows:
        places = slice(size * row.auction, size * (row.auction + 1))
        device = sample.raw_scores[places]
        servers = device[sample.auctions.server_scores[places].argmax()]
        worth = servers / device.max()
        kind = "right" if worth == 1 else "close" if worth >= 0.5 else "wrong"
        assert (row.num_candidates, row.server_is) == (size, kind)
        expected = {
            "greedy": device.max(),
            "not personalised": servers,
            "randomized response": (device.sum() + (math.exp(row.epsilon) - 1) * device.max())
            / (size - 1 + math.exp(row.epsilon)),
        }
        if row.mechanism in expected:
            assert row.score == pytest.approx(expected[row.mechanism], rel=1e-12)
        assert device.min() <= row.score <= device.max() * (1 + 1e-12)


def test_auctions_between_few_and_many_are_not_shown(sample_of: SampleOf) -> None:
    between = dataclasses.replace(DISPLAY, num_candidates=6, num_eligible=6)
    assert single_auctions(sample_of(between, 50), epsilons=[1.0], width=0.1) == ()
