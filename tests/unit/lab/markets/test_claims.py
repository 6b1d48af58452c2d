"""Verdicts follow from the numbers: those of the reference markets, and the other way round."""

import dataclasses
import json

import pytest

from tulle.errors import ConfigError
from tulle.lab.markets.claims import (
    ClaimVerdict,
    Verdict,
    judge_claims,
    mechanism_claims,
    pricing_claims,
)
from tulle.lab.markets.experiments import (
    ExperimentSettings,
    MarketExperiments,
    run_experiments,
)
from tulle.lab.markets.market_sample import MarketSample
from tulle.lab.markets.sweeps import (
    RANDOMIZED_RESPONSE,
    SCALED,
    TUNED_CLIPPED,
    SweepSettings,
)
from tulle.lab.markets.synthetic_market import REFERENCE_MARKETS
from tulle.select.billing.prices import PricingRule
from tulle.select.planner.click_prior import LogitNormalPrior

HOLDS, FAILS, OTHER = Verdict.HOLDS, Verdict.DOES_NOT_HOLD, Verdict.NOT_COMPARABLE
SETTINGS = ExperimentSettings(
    sweep=SweepSettings(epsilons=(0.5, 1.0, 3.0, 5.0), relative_widths=(0.002, 0.01, 0.05, 0.2)),
    shortlist_epsilons=(5.0,),
)


def sample_of(name: str, num_auctions: int, seed: int) -> MarketSample:
    auctions, device = REFERENCE_MARKETS[name].draw(num_auctions, seed=seed)
    return MarketSample(
        auctions=auctions, device=device, pricing=PricingRule.SECOND_PRICE_PER_CLICK
    )


@pytest.fixture(scope="module")
def found() -> dict[str, MarketExperiments]:
    return {
        name: run_experiments(
            name,
            sample_of(name, 1000, 2),
            sample_of(name, 4000, 1),
            settings=SETTINGS,
            prior=LogitNormalPrior(private_stddev=market.private_stddev),
        )
        for name, market in REFERENCE_MARKETS.items()
    }


def verdicts(claims: list[ClaimVerdict], claim: str, condition: str = "") -> list[Verdict]:
    return [c.verdict for c in claims if claim in c.claim and condition in c.condition]


@pytest.mark.parametrize(
    ("claim", "condition", "expected"),
    [
        ("private data leave", "below, an impression", [FAILS, FAILS, FAILS]),
        ("private data leave", "below, a click", [HOLDS, HOLDS, HOLDS]),
        ("rises further", "below, an impression", [FAILS, FAILS, FAILS]),
        ("rises further", "below, a click", [HOLDS, HOLDS, HOLDS]),
        ("lifts every metric", "an impression", [FAILS, FAILS, FAILS]),
        ("lifts every metric", "a click", [FAILS, HOLDS, HOLDS]),
        ("beats scaled", "", [HOLDS, HOLDS, HOLDS]),
        ("beats clipped", "click rate", [OTHER, OTHER, HOLDS]),
        ("beats clipped", "tuned for welfare; welfare", [OTHER, OTHER, HOLDS]),
        ("very low epsilon", "against gamma 1", [HOLDS, HOLDS, OTHER]),
        ("very low epsilon", "against gamma tuned", [FAILS, FAILS, OTHER]),
        ("below no personalisation", "gamma 1", [FAILS, FAILS, FAILS]),
        ("below no personalisation", "tuned", [FAILS, FAILS, FAILS]),
        ("near 0.8", "welfare", [FAILS, HOLDS, HOLDS]),
    ],
)
def test_the_verdicts_on_the_reference_markets(
    claim: str, condition: str, expected: list[Verdict], found: dict[str, MarketExperiments]
) -> None:
    claims = list(judge_claims(list(found.values()), score_rows=(), grid_rows=()))
    assert verdicts(claims, claim, condition) == expected


def test_every_claim_is_judged_once_in_every_market(found: dict[str, MarketExperiments]) -> None:
    claims = judge_claims(list(found.values()), score_rows=(), grid_rows=())
    keys = [(claim.claim, claim.condition, claim.market) for claim in claims]
    assert len(set(keys)) == len(keys) == 3 * 17


def test_a_verdict_turns_with_its_numbers(found: dict[str, MarketExperiments]) -> None:
    market = found["display, 4 candidates"]
    turned = dataclasses.replace(
        market,
        pricing=tuple(
            dataclasses.replace(row, revenue_lift=-row.revenue_lift) for row in market.pricing
        ),
    )
    for condition in ("below, an impression", "below, a click"):
        before = verdicts(pricing_claims(market), "private data leave", condition)
        after = verdicts(pricing_claims(turned), "private data leave", condition)
        assert {*before, *after} == {HOLDS, FAILS}


@pytest.mark.parametrize(
    ("claim", "other"), [("beats scaled", SCALED), ("beats clipped", TUNED_CLIPPED)]
)
def test_mechanisms_that_trade_places_turn_the_verdict(
    claim: str, other: str, found: dict[str, MarketExperiments]
) -> None:
    market = found["display, 4 candidates"]
    places = {RANDOMIZED_RESPONSE: other, other: RANDOMIZED_RESPONSE}
    swapped = dataclasses.replace(
        market,
        epsilon_rows=tuple(
            dataclasses.replace(row, mechanism=places.get(row.mechanism, row.mechanism))
            for row in market.epsilon_rows
        ),
    )
    assert set(verdicts(mechanism_claims(market), claim)) == {HOLDS}
    assert set(verdicts(mechanism_claims(swapped), claim)) == {FAILS}


def test_a_sweep_without_the_claims_epsilons_is_refused(
    found: dict[str, MarketExperiments],
) -> None:
    market = found["display, 4 candidates"]
    low = tuple(row for row in market.epsilon_rows if row.epsilon < 1)
    for claims, epsilon in ((pricing_claims, "epsilon=5"), (mechanism_claims, "epsilon=1")):
        with pytest.raises(ConfigError, match=epsilon):
            claims(dataclasses.replace(market, epsilon_rows=low))


def test_results_are_plain_data(found: dict[str, MarketExperiments]) -> None:
    market = found["search, 15 candidates"]
    data = json.loads(json.dumps(market.to_dict(), allow_nan=False))
    assert len(data["epsilon_rows"]) == len(market.epsilon_rows) == 4 * 2 * 11
    assert len(data["finalist_rows"]) == 15
    assert data["counts"] == {"num_candidates": [15], "shares": [1.0]}
    claim = judge_claims([market], score_rows=(), grid_rows=())[0]
    assert json.loads(json.dumps(claim.to_dict()))["verdict"] == claim.verdict.value
