"""Claims of Laro et al. 2024 about revenue, against the numbers of a market."""

from collections.abc import Sequence

from tulle.errors import ConfigError
from tulle.select.billing.prices import PricingRule
from tulle.select.market.epsilon_sweep import RANDOMIZED_RESPONSE
from tulle.select.market.experiments import MarketExperiments
from tulle.select.market.pricing_effect import BEST_OTHER
from tulle.select.market.verdicts import ClaimVerdict, verdict_of

RULE_NAMES = {
    PricingRule.SECOND_PRICE.value: "next score below, an impression",
    PricingRule.SECOND_PRICE_PER_CLICK.value: "next score below, a click",
    BEST_OTHER: "best other score, an impression",
}
_HIGH_EPSILON = 5.0


def pricing_claims(found: MarketExperiments) -> list[ClaimVerdict]:
    """Whether revenue rises when private data leave the pricing, and which lifts are left."""
    return [
        *(_revenue_rises(found, rule) for rule in RULE_NAMES),
        *(_trend_continues(found, rule) for rule in RULE_NAMES),
        *(
            _all_metrics_rise(found, rule.value)
            for rule in (PricingRule.SECOND_PRICE, PricingRule.SECOND_PRICE_PER_CLICK)
        ),
    ]


def _revenue_rises(found: MarketExperiments, rule: str) -> ClaimVerdict:
    lift = _revenue_lift(found, rule, "server")
    return ClaimVerdict(
        claim="revenue rises when private data leave the pricing",
        market=found.market,
        condition=f"greedy selection, {RULE_NAMES[rule]}",
        verdict=verdict_of(lift > 0),
        numbers={"revenue_lift": lift},
    )


def _trend_continues(found: MarketExperiments, rule: str) -> ClaimVerdict:
    server = _revenue_lift(found, rule, "server")
    uninformed = _revenue_lift(found, rule, "uninformed")
    return ClaimVerdict(
        claim="revenue rises further with the same click rate for all ads",
        market=found.market,
        condition=f"greedy selection, {RULE_NAMES[rule]}",
        verdict=verdict_of(uninformed > server > 0),
        numbers={"server_lift": server, "uninformed_lift": uninformed},
    )


def _all_metrics_rise(found: MarketExperiments, rule: str) -> ClaimVerdict:
    rows = [
        row
        for row in found.epsilon_rows
        if (row.mechanism, row.epsilon, row.rule) == (RANDOMIZED_RESPONSE, _HIGH_EPSILON, rule)
    ]
    if not rows:
        raise ConfigError(
            f"the sweep needs epsilon={_HIGH_EPSILON:g} under the rule {rule!r} to check its "
            "claims; add both to its settings."
        )
    names = ("click_rate_lift", "surplus_lift", "revenue_lift")
    numbers = {name: rows[0].lifts[name] for name in names}
    return ClaimVerdict(
        claim=f"randomized response at epsilon {_HIGH_EPSILON:g} lifts every metric",
        market=found.market,
        condition=f"gamma 1, {RULE_NAMES[rule]}",
        verdict=verdict_of(_all_positive(list(numbers.values()))),
        numbers=numbers,
    )


def _all_positive(values: Sequence[float | None]) -> bool:
    return all(value is not None and value > 0 for value in values)


def _revenue_lift(found: MarketExperiments, rule: str, predictions: str) -> float:
    (row,) = [r for r in found.pricing if (r.rule, r.predictions) == (rule, predictions)]
    return row.revenue_lift
