import json

import numpy as np
import pytest

from tulle.errors import ConfigError
from tulle.lab.markets.synthetic_market import DISPLAY, REFERENCE_MARKETS, SEARCH, SyntheticMarket
from tulle.select.auctions import Auctions, DeviceClicks
from tulle.select.billing.prices import PricingRule, price_candidates
from tulle.select.mechanisms.floors import FloorMechanism
from tulle.select.mechanisms.mechanism import Greedy
from tulle.select.mechanisms.noisy_max import ClippedScores, NoisyMax
from tulle.select.mechanisms.noisy_max_probs import NoiseKind
from tulle.select.planner.adaptive_shortlist import AdaptiveTop
from tulle.select.planner.click_prior import LogitNormalPrior
from tulle.select.planner.outlook import Objective, OptionGrid, SelectionOutlook, plan_selection
from unit.select.planner.small_markets import drawn_click_probs, ragged_auctions

EPSILONS = (0.5, 1.0, 2.0, 3.0, 5.0)


def prior_of(market: SyntheticMarket, factor: float = 1.0) -> LogitNormalPrior:
    return LogitNormalPrior(private_stddev=factor * market.private_stddev)


def outlook_of(
    market: SyntheticMarket,
    *,
    num_auctions: int = 400,
    epsilons: tuple[float, ...] = EPSILONS,
    objective: Objective = Objective.WELFARE,
    rule: PricingRule = PricingRule.SECOND_PRICE,
    grid: OptionGrid | None = None,
) -> SelectionOutlook:
    auctions = market.draw_public(num_auctions, seed=1).auctions
    prices = price_candidates(auctions, rule, reserve=0.0)
    return plan_selection(
        auctions,
        prices,
        epsilons=epsilons,
        prior=prior_of(market),
        objective=objective,
        grid=grid,
    )


def adaptive_share(outlook: SelectionOutlook, epsilon: float) -> float:
    (share,) = (
        option.captured_share
        for option in outlook.options
        if option.mechanism.epsilon == epsilon and "adaptive" in option.mechanism.name
    )
    assert share is not None
    return share


def test_a_search_like_market_has_the_known_shares() -> None:
    grid = OptionGrid(gammas=(0.8, 1.0), nums_finalists=())
    outlook = outlook_of(SEARCH, num_auctions=4_000, epsilons=(3.0, 5.0), grid=grid)
    assert outlook.ideal.welfare / outlook.baseline.welfare == pytest.approx(1.122, abs=0.01)
    assert adaptive_share(outlook, 3.0) == pytest.approx(0.61, abs=0.02)
    assert adaptive_share(outlook, 5.0) == pytest.approx(0.873, abs=0.02)
    shares = {(o.mechanism.epsilon, o.gamma): o.captured_share for o in outlook.options}
    assert shares[3.0, 1.0] < -1
    assert shares[3.0, 1.0] == pytest.approx(-1.64, abs=0.1)
    assert shares[3.0, 0.8] == pytest.approx(-1.01, abs=0.1)
    assert outlook.recommended(3.0).mechanism.name == (
        "randomized response, adaptive, private stddev 0.4, epsilon 3"
    )


def test_display_markets_have_the_known_shares() -> None:
    known = {0.5: 0.039, 1.0: 0.126, 2.0: 0.356, 3.0: 0.585, 5.0: 0.878}
    grid = OptionGrid(gammas=(1.0,), nums_finalists=())
    outlook = outlook_of(DISPLAY, num_auctions=2_000, grid=grid)
    for epsilon, share in known.items():
        assert adaptive_share(outlook, epsilon) == pytest.approx(share, abs=0.02)


@pytest.mark.parametrize("market", REFERENCE_MARKETS.values(), ids=REFERENCE_MARKETS)
@pytest.mark.parametrize("objective", Objective)
@pytest.mark.parametrize("rule", [PricingRule.SECOND_PRICE, PricingRule.FIRST_PRICE_PER_CLICK])
def test_what_is_recommended_is_never_below_not_personalising(
    market: SyntheticMarket, objective: Objective, rule: PricingRule
) -> None:
    outlook = outlook_of(market, num_auctions=150, objective=objective, rule=rule)
    for epsilon in EPSILONS:
        best = outlook.recommended(epsilon)
        assert objective.of(best.metrics) >= objective.of(outlook.baseline)
        assert best.mechanism.epsilon <= epsilon
    # By impressions paid in server order nothing can bring more than the server's winner.
    if objective is Objective.REVENUE and rule is PricingRule.SECOND_PRICE:
        assert outlook.recommended(5.0).metrics == outlook.baseline


@pytest.mark.parametrize("market", REFERENCE_MARKETS.values(), ids=REFERENCE_MARKETS)
@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_a_wrong_prior_costs_less_than_personalisation_brings(
    market: SyntheticMarket, factor: float
) -> None:
    public = market.draw_public(300, seed=2)
    prices = price_candidates(public.auctions, PricingRule.SECOND_PRICE, reserve=0.0)
    mistaken = tuple(
        FloorMechanism(
            epsilon=epsilon,
            shortlist=AdaptiveTop(epsilon=epsilon, prior=prior_of(market, factor)),
        )
        for epsilon in EPSILONS
    )
    grid = OptionGrid(gammas=(), nums_finalists=(), mechanisms=mistaken)
    outlook = plan_selection(
        public.auctions, prices, epsilons=EPSILONS, prior=prior_of(market), grid=grid
    )
    for option, epsilon in zip(outlook.options[-5:], EPSILONS, strict=True):
        assert option.captured_share is not None
        assert 0 < option.captured_share < adaptive_share_of_own(outlook, epsilon)


def adaptive_share_of_own(outlook: SelectionOutlook, epsilon: float) -> float:
    """Of the adaptive shortlist with the right prior, which comes before further mechanisms."""
    shares = [
        option.captured_share
        for option in outlook.options
        if option.mechanism.epsilon == epsilon and "adaptive" in option.mechanism.name
    ]
    assert shares[0] is not None
    return shares[0]


def sampled_outlook(auctions: Auctions, grid: OptionGrid) -> SelectionOutlook:
    device = DeviceClicks(click_probs=drawn_click_probs(auctions, 0.6, seed=3))
    prices = price_candidates(auctions, PricingRule.SECOND_PRICE, reserve=0.0)
    return plan_selection(auctions, prices, epsilons=(1.0, 4.0), device=device, grid=grid)


def test_a_sample_of_devices_takes_the_place_of_the_prior() -> None:
    auctions = ragged_auctions(200, seed=31, sizes=(2, 9))
    noisy = NoisyMax(
        epsilon=1.0, noise=NoiseKind.EXPONENTIAL, score_bound=ClippedScores(width=0.02)
    )
    grid = OptionGrid(gammas=(0.5, 1.0), nums_finalists=(2,), mechanisms=(noisy, Greedy()))
    outlook = sampled_outlook(auctions, grid)
    assert outlook.is_from_devices
    assert len(outlook.options) == 2 * (3 + 1) + 2
    assert outlook.options[0].metrics == outlook.baseline
    assert outlook.options[-1].metrics == outlook.ideal
    assert outlook.options[-1].captured_share == 1.0
    assert not any("adaptive" in option.mechanism.name for option in outlook.options)
    # What is not private is compared, and never recommended.
    assert outlook.recommended(4.0).mechanism.epsilon == 4.0


def test_an_outlook_is_plain_data() -> None:
    grid = OptionGrid(gammas=(0.5,), nums_finalists=(3,), mechanisms=(Greedy(),))
    auctions = ragged_auctions(30, seed=32, sizes=(2, 5))
    data = json.loads(sampled_outlook(auctions, grid).to_json())
    assert data["num_auctions"] == 30
    assert data["objective"] == "welfare"
    assert [option["gamma"] for option in data["options"][:3]] == [0.0, 0.5, None]
    assert data["options"][2]["num_finalists"] == 3
    assert data["options"][-1]["epsilon"] is None
    assert [best["for_epsilon"] for best in data["recommended"]] == [1.0, 4.0]
    assert data["options"][0]["welfare"] == data["baseline"]["welfare"]


def test_where_nothing_can_be_gained_there_is_no_share() -> None:
    auctions = ragged_auctions(10, seed=33, sizes=(1, 1))
    prices = price_candidates(auctions, PricingRule.FIRST_PRICE, reserve=0.0)
    prior = LogitNormalPrior(private_stddev=0.5)
    outlook = plan_selection(auctions, prices, epsilons=(1.0,), prior=prior)
    assert all(option.captured_share is None for option in outlook.options)
    assert outlook.recommended(1.0).gamma == 0.0


def test_what_cannot_be_planned_is_refused() -> None:
    auctions = ragged_auctions(3, seed=34)
    prices = price_candidates(auctions, PricingRule.FIRST_PRICE, reserve=0.0)
    prior = LogitNormalPrior(private_stddev=0.5)
    with pytest.raises(ConfigError, match="give prior="):
        plan_selection(auctions, prices, epsilons=(1.0,))
    with pytest.raises(ConfigError, match="epsilons is empty"):
        plan_selection(auctions, prices, epsilons=(), prior=prior)
    with pytest.raises(ConfigError, match=r"epsilon=2\.0 was not compared"):
        plan_selection(auctions, prices, epsilons=(1.0,), prior=prior).recommended(2.0)
    empty = Auctions(
        offsets=np.zeros(1, np.int64),
        ads=np.zeros(0, np.int64),
        bids=np.zeros(0),
        server_click_probs=np.zeros(0),
    )
    with pytest.raises(ConfigError, match="no auctions"):
        plan_selection(empty, prices, epsilons=(1.0,), prior=prior)
