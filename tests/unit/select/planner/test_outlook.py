import functools
import json
import math
from collections.abc import Callable

import numpy as np
import pytest

from tulle.errors import ConfigError
from tulle.lab.markets.synthetic_market import DISPLAY, REFERENCE_MARKETS, SEARCH, SyntheticMarket
from tulle.mechanisms.entropy import NoiseSource
from tulle.privacy.events import Composed, Event
from tulle.select.auctions import Auctions, DeviceClicks, FloatArray, IntArray
from tulle.select.billing.prices import (
    AdPrices,
    MarketMetrics,
    PaidEvent,
    PricingRule,
    price_candidates,
)
from tulle.select.mechanisms.floors import FloorMechanism
from tulle.select.mechanisms.mechanism import Greedy, NonPersonalised, SelectionMechanism
from tulle.select.mechanisms.noisy_max import ClippedScores, NoisyMax, ScaledScores
from tulle.select.mechanisms.noisy_max_probs import NoiseKind
from tulle.select.mechanisms.prior_choice import PriorChoice
from tulle.select.mechanisms.shortlists import AllCandidates, Cutoff, TopCandidates
from tulle.select.planner.candidate_outcomes import (
    CandidateOutcomes,
    boosted_outcomes,
    favourite_probs,
    noisy_max_outcomes,
    prior_choice_outcomes,
)
from tulle.select.planner.click_prior import LogitNormalPrior
from tulle.select.planner.outlook import (
    ModelOfDevices,
    Objective,
    OptionGrid,
    SampleOfDevices,
    SelectionOutlook,
    plan_selection,
)
from tulle.select.planner.shortlist_outcomes import AdaptiveTop
from unit.select.mechanisms.bid_box import BidBox
from unit.select.planner.small_markets import (
    drawn_click_probs,
    exact_top,
    ragged_auctions,
    repeated_auction,
)

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
    data = json.loads(json.dumps(sampled_outlook(auctions, grid).to_dict(), allow_nan=False))
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


STDDEV = 0.7
PRIOR = LogitNormalPrior(private_stddev=STDDEV)
BIDS = [1.0, 2.0, 0.7, 1.5, 3.0]
PROBS = [0.06, 0.025, 0.07, 0.02, 0.008]


def some_prices(auctions: Auctions, paid_event: PaidEvent) -> AdPrices:
    amounts = np.random.default_rng(1).random(auctions.num_candidates)
    return AdPrices(amounts=amounts, paid_event=paid_event)


def exact_response(
    auctions: Auctions, prices: AdPrices, mechanism: FloorMechanism
) -> MarketMetrics:
    """By integrals over private parts, one auction and candidate at a time."""
    logits = PRIOR.public_logits(auctions.server_click_probs)
    sizes = mechanism.shortlist.sizes(auctions)
    clicks, impressions = np.zeros((2, auctions.num_candidates))
    for auction in range(len(auctions)):
        places = np.arange(*auctions.offsets[auction : auction + 2])
        order = np.argsort(-auctions.server_scores[places], kind="stable")
        first = places[order][: sizes[auction]]
        num_boosted = min(mechanism.num_boosted, len(first) - 1)
        odds = math.exp(mechanism.epsilon)
        floor = 1 / (len(first) - num_boosted + num_boosted * odds)
        if num_boosted == 0:
            tops = np.ones(1), auctions.server_click_probs[first]
            floor = 1 / odds
        else:
            tops = exact_top(auctions.bids[first], logits[first], STDDEV, num_boosted)
        impressions[first] = floor * (1 + (odds - 1) * tops[0])
        clicks[first] = floor * (auctions.server_click_probs[first] + (odds - 1) * tops[1])
    return CandidateOutcomes(impressions=impressions, clicks=clicks).metrics(auctions, prices)


def assert_close(found: MarketMetrics, exact: MarketMetrics, rel: float) -> None:
    for name, value in exact.to_dict().items():
        assert found.to_dict()[name] == pytest.approx(value, rel=rel), name


@pytest.mark.parametrize("paid_event", PaidEvent)
@pytest.mark.parametrize("shortlist", [AllCandidates(), TopCandidates(num_finalists=3)])
@pytest.mark.parametrize("num_boosted", [1, 2])
def test_responses_agree_with_integrals_over_private_parts(
    paid_event: PaidEvent, shortlist: AllCandidates | TopCandidates, num_boosted: int
) -> None:
    auctions = ragged_auctions(5, seed=21, sizes=(1, 5), private_stddev=STDDEV)
    prices = some_prices(auctions, paid_event)
    mechanism = FloorMechanism(epsilon=1.5, shortlist=shortlist, num_boosted=num_boosted)
    model = ModelOfDevices(auctions=auctions, prices=prices, prior=PRIOR)
    exact = exact_response(auctions, prices, mechanism)
    assert_close(model.metrics(mechanism), exact, 2e-4)
    wrong = model.metrics(FloorMechanism(epsilon=1.6, shortlist=shortlist))
    assert wrong.welfare != pytest.approx(exact.welfare, rel=2e-4)


@pytest.mark.parametrize("paid_event", PaidEvent)
def test_greedy_and_the_server_are_the_ends(paid_event: PaidEvent) -> None:
    auctions = ragged_auctions(40, seed=22, private_stddev=STDDEV)
    prices = some_prices(auctions, paid_event)
    model = ModelOfDevices(auctions=auctions, prices=prices, prior=PRIOR)
    greedy, server = model.metrics(Greedy()), model.metrics(NonPersonalised())
    assert_close(model.metrics(FloorMechanism(epsilon=60.0)), greedy, 1e-12)
    assert server.welfare < greedy.welfare
    best = np.maximum.reduceat(auctions.server_scores, auctions.offsets[:-1])
    assert server.welfare == pytest.approx(best.mean(), rel=1e-12)


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 3.0, 7.1])
def test_a_cutoff_of_zero_is_not_personalised_to_the_last_bit(epsilon: float) -> None:
    auctions = ragged_auctions(300, seed=23, private_stddev=STDDEV)
    prices = some_prices(auctions, PaidEvent.CLICK)
    device = DeviceClicks(click_probs=drawn_click_probs(auctions, STDDEV, seed=1))
    for expectations in (
        ModelOfDevices(auctions=auctions, prices=prices, prior=PRIOR),
        SampleOfDevices(auctions=auctions, prices=prices, device=device),
    ):
        mechanism = FloorMechanism(epsilon=epsilon, shortlist=Cutoff(gamma=0.0))
        assert expectations.metrics(mechanism) == expectations.metrics(NonPersonalised())


Outcomes = Callable[..., CandidateOutcomes]

MODELLED: list[tuple[SelectionMechanism, Outcomes]] = [
    (FloorMechanism(epsilon=2.0, num_boosted=2), boosted_outcomes),
    (
        PriorChoice(epsilon=1.0, winner_probs=functools.partial(favourite_probs, prior=PRIOR)),
        prior_choice_outcomes,
    ),
    *(
        (NoisyMax(epsilon=4.0, noise=noise, score_bound=bound), noisy_max_outcomes)
        for noise in NoiseKind
        for bound in (ClippedScores(width=0.01), ClippedScores(width=0.05), BidBox())
    ),
]


@pytest.mark.parametrize(
    ("mechanism", "outcomes"), MODELLED, ids=lambda case: getattr(case, "name", "model")
)
def test_impressions_and_clicks_agree_with_drawn_devices(
    mechanism: SelectionMechanism, outcomes: Outcomes
) -> None:
    num_devices = 60_000
    many, one = (repeated_auction(BIDS, PROBS, times) for times in (num_devices, 1))
    found = outcomes(one, mechanism, PRIOR)
    probs = drawn_click_probs(many, STDDEV, seed=31)
    chosen = mechanism.selection_probs(many, many.bids * probs)
    for values, exact in ((chosen, found.impressions), (chosen * probs, found.clicks)):
        drawn = values.reshape(num_devices, -1)
        # 6.7 standard errors: 1e-9 shared by 10 numbers, with room for their skew.
        allowed = 6.7 * drawn.std(axis=0) / math.sqrt(num_devices) + 1e-3 * exact + 1e-6
        assert np.all(np.abs(drawn.mean(axis=0) - exact) < allowed)
        for wrong in (0.95, 1.05):
            assert np.any(np.abs(drawn.mean(axis=0) - exact * wrong) > allowed)


def test_impressions_of_every_model_add_up() -> None:
    auctions = ragged_auctions(60, seed=24, sizes=(1, 7), private_stddev=STDDEV)
    for mechanism, outcomes in MODELLED:
        found = outcomes(auctions, mechanism, PRIOR)
        sums = np.add.reduceat(found.impressions, auctions.offsets[:-1])
        np.testing.assert_allclose(sums, 1.0, rtol=1e-9)
        assert np.all(found.clicks <= auctions.server_click_probs * (1 + 1e-9))


def test_ads_without_a_chance_or_a_bid_break_no_model() -> None:
    auctions = repeated_auction([1.0, 0.0, 4.0, 1.0], [0.1, 0.5, 0.0, 0.05], 2)
    model = ModelOfDevices(
        auctions=auctions, prices=some_prices(auctions, PaidEvent.CLICK), prior=PRIOR
    )
    best = model.metrics(Greedy()).welfare
    for mechanism, _ in MODELLED:
        assert 0 < model.metrics(mechanism).welfare < best


def test_scaled_scores_need_a_sample() -> None:
    auctions = ragged_auctions(20, seed=25)
    prices = some_prices(auctions, PaidEvent.IMPRESSION)
    mechanism = NoisyMax(epsilon=1.0, noise=NoiseKind.GUMBEL, score_bound=ScaledScores())
    with pytest.raises(ConfigError, match="Give a sample of devices"):
        ModelOfDevices(auctions=auctions, prices=prices, prior=PRIOR).metrics(mechanism)
    device = DeviceClicks(click_probs=drawn_click_probs(auctions, STDDEV, seed=1))
    sample = SampleOfDevices(auctions=auctions, prices=prices, device=device)
    assert sample.metrics(mechanism).welfare < sample.metrics(Greedy()).welfare


class SomethingElse:
    epsilon = 1.0
    name = "something else"

    def event(self, num_finalists: int) -> Event:  # noqa: ARG002
        return Composed()

    def selection_probs(self, auctions: Auctions, raw_scores: FloatArray) -> FloatArray:
        raise NotImplementedError

    def choose(self, auctions: Auctions, raw_scores: FloatArray, *, rng: NoiseSource) -> IntArray:
        raise NotImplementedError


def test_an_unknown_mechanism_needs_a_sample() -> None:
    auctions = ragged_auctions(2, seed=25)
    prices = some_prices(auctions, PaidEvent.IMPRESSION)
    model = ModelOfDevices(auctions=auctions, prices=prices, prior=PRIOR)
    with pytest.raises(ConfigError, match="'something else' has no known expectation"):
        model.metrics(SomethingElse())


def test_prices_of_other_candidates_are_refused() -> None:
    auctions = ragged_auctions(3, seed=26)
    prices = AdPrices(amounts=np.ones(1), paid_event=PaidEvent.CLICK)
    with pytest.raises(ConfigError, match="same candidates"):
        ModelOfDevices(auctions=auctions, prices=prices, prior=PRIOR).metrics(Greedy())
