"""What goes together in a selection, and what is refused before any data."""

import re
from typing import Any

import pytest

from tulle.errors import ConfigError
from tulle.privacy.units import Unit
from tulle.select.billing.prices import PricingRule
from tulle.select.decision_accounting import Shuffle
from tulle.select.mechanisms.floors import FloorMechanism
from tulle.select.mechanisms.mechanism import Greedy, NonPersonalised
from tulle.select.mechanisms.noisy_max import NoisyMax, ScaledScores
from tulle.select.mechanisms.noisy_max_probs import NoiseKind
from tulle.select.mechanisms.slots import SlotMechanism
from tulle.select.selection_config import Candidates, Pricing
from unit.select.decisions.auction_tables import by_user, selection

POSTED = Pricing(rule="posted")


def test_the_accounting_has_all_settings_that_cost() -> None:
    shuffled = by_user(4, least_finalists=3, min_cell_size=100, pricing=POSTED, delta=1e-6)
    accounting = shuffled.accounting
    assert accounting.mechanism is shuffled.mechanism
    assert accounting.least_finalists == 3
    assert accounting.max_decisions_per_user == 4
    assert accounting.shuffle == Shuffle(min_cell_size=100)
    assert selection().accounting.max_decisions_per_user == 1


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"mechanism": Greedy()}, "is for comparisons"),
        ({"candidates": Candidates.DEVICE}, "gives the device away at any epsilon"),
        ({"candidates": Candidates.DEVICE}, "add 'no ad' as a candidate"),
        ({"min_cell_size": 100, "delta": 1e-6}, "exact amounts are a fingerprint"),
        ({"min_cell_size": 100, "pricing": POSTED}, "up to a delta > 0; set e.g."),
        (
            {
                "min_cell_size": 100,
                "pricing": POSTED,
                "delta": 1e-6,
                "mechanism": SlotMechanism(epsilon=1.0, num_slots=2),
            },
            "several slots are not shuffled",
        ),
        ({"unit": Unit.parse("user per 7 days")}, "a budget that renews"),
        ({"unit": Unit.example()}, "is not for selection"),
        ({"unit": Unit.user()}, "needs max_decisions_per_user, e.g. 20"),
        ({"max_decisions_per_user": 3}, "is for unit='user'"),
        ({"unit": Unit.user(), "max_decisions_per_user": 0}, "max_decisions_per_user=0"),
        ({"least_finalists": 1}, "least_finalists=1"),
        ({"delta": 1.0}, "delta=1.0 must be in [0, 1)"),
        ({"delta": -0.1}, "delta=-0.1 must be in [0, 1)"),
        ({"delta": float("nan")}, "delta=nan"),
        ({"name": ""}, "name"),
    ],
)
def test_what_does_not_go_together_is_refused_with_the_way_out(
    settings: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ConfigError, match=re.escape(problem)):
        selection(**settings)


def test_a_shuffle_takes_no_mechanism_whose_bound_is_not_proven() -> None:
    noisy = NoisyMax(epsilon=1.0, noise=NoiseKind.GUMBEL, score_bound=ScaledScores())
    several = FloorMechanism(epsilon=1.0, num_boosted=2)
    for mechanism in (noisy, several):
        config = selection(mechanism=mechanism, min_cell_size=100, pricing=POSTED, delta=1e-6)
        with pytest.raises(ConfigError, match="can't be shuffled"):
            _ = config.accounting


def test_posted_prices_are_means_of_second_prices_alone() -> None:
    assert Pricing(rule="posted").name == "posted"
    assert Pricing(rule=PricingRule.FIRST_PRICE).name == "first-price"
    assert Pricing(rule="posted").price_rule is PricingRule.SECOND_PRICE
    with pytest.raises(ConfigError, match="must be a PricingRule, or 'posted'"):
        Pricing(rule="posed")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="reserve=-1"):
        Pricing(reserve=-1.0)


def test_only_prices_of_clicks_need_clicks() -> None:
    paid_by_click = {
        rule: selection(pricing=Pricing(rule=rule)).pricing.is_paid_by_click for rule in PricingRule
    }
    assert {rule.value for rule, is_paid in paid_by_click.items() if is_paid} == {
        "second-price-per-click",
        "first-price-per-click",
    }
    assert not selection(pricing=POSTED).pricing.is_paid_by_click


def test_a_selection_without_personalisation_is_one_too() -> None:
    assert selection(mechanism=NonPersonalised()).accounting.decision_guarantee(0.0).epsilon == 0
