"""A plan of a selection claims what its accounting gives, and says what the server sees."""

import math
from typing import Any

import pytest
from scipy import optimize

from tulle.accounting.accountant import privacy_curve
from tulle.errors import TulleError
from tulle.privacy import events
from tulle.privacy.plan import Plan, Status
from tulle.privacy.units import Adjacency, Scope, Unit
from tulle.runs.charging import ReleaseTerms
from tulle.select import selection_plan
from tulle.select.billing.prices import PricingRule
from tulle.select.files.auction_files import AuctionColumns
from tulle.select.mechanisms.floors import FloorMechanism
from tulle.select.mechanisms.mechanism import NonPersonalised
from tulle.select.selection_config import Consent, Pricing, SelectionConfig
from tulle.select.selection_plan import make_selection_plan
from unit.select.decisions.auction_tables import COLUMNS, by_user, selection

SHUFFLED: dict[str, Any] = {
    "min_cell_size": 10_000,
    "pricing": Pricing(rule="posted"),
    "delta": 1e-6,
    "least_finalists": 4,
}


def plan_of(config: SelectionConfig) -> Plan:
    return make_selection_plan(config, COLUMNS)


def composed_epsilon(epsilon: float, num_values: int, count: int, delta: float) -> float:
    """Of several randomized responses, from the exact law of their losses."""
    total = num_values - 1 + math.exp(epsilon)
    chances = (math.exp(epsilon) / total, 1 / total, (num_values - 2) / total)
    law: dict[int, float] = {}
    for ups in range(count + 1):
        for downs in range(count + 1 - ups):
            rest = count - ups - downs
            ways = math.comb(count, ups) * math.comb(count - ups, downs)
            prob = ways * chances[0] ** ups * chances[1] ** downs * chances[2] ** rest
            law[ups - downs] = law.get(ups - downs, 0.0) + prob

    def excess(candidate: float) -> float:
        parts = (p * -math.expm1(candidate - k * epsilon) for k, p in law.items())
        return sum(part for part in parts if part > 0) - delta

    return float(optimize.brentq(excess, 0, count * epsilon))


@pytest.mark.parametrize(("num_finalists", "delta"), [(2, 0.0), (2, 1e-3), (5, 0.05)])
def test_one_decision_costs_what_randomized_response_does(num_finalists: int, delta: float) -> None:
    plan = plan_of(selection(least_finalists=num_finalists, delta=delta))
    total = num_finalists - 1 + math.e
    assert plan.guarantee.epsilon == pytest.approx(math.log(math.e - delta * total), abs=1e-9)
    assert plan.guarantee.delta == delta
    assert plan.guarantee.unit == Unit.impression()
    assert plan.guarantee.adjacency is Adjacency.REPLACE
    assert plan.guarantee.scope is Scope.SENSITIVE_COLUMNS


@pytest.mark.parametrize("count", [1, 7, 50])
def test_decisions_of_a_user_compose_exactly(count: int) -> None:
    config = by_user(count, least_finalists=15, delta=1e-6)
    plan = plan_of(config)
    exact = composed_epsilon(1.0, 15, count, 1e-6)
    assert exact - 1e-6 <= plan.guarantee.epsilon <= exact + 2e-3
    assert plan.guarantee.unit == Unit.user()
    assert plan.event == events.Repeated(
        event=events.RandomizedResponse(epsilon=1.0, num_values=15), count=count
    )
    # The next larger and smaller numbers of decisions are told apart.
    assert abs(composed_epsilon(1.0, 15, count + 1, 1e-6) - plan.guarantee.epsilon) > 0.1


def test_a_user_plan_says_what_one_decision_costs_too() -> None:
    (decision,) = plan_of(by_user(9, delta=1e-9)).variants
    assert decision.guarantee.unit == Unit.impression()
    assert decision.guarantee.epsilon == pytest.approx(1.0, abs=1e-6)
    assert plan_of(selection()).variants == ()


def test_shuffled_decisions_cost_what_the_blanket_bound_says() -> None:
    # Randomized response over 4 ads, 10,000 reports, delta 1e-6 (computed by hand of the formula
    # of Balle et al. 2019 with another program).
    plan = plan_of(selection(**SHUFFLED))
    assert plan.guarantee.epsilon == pytest.approx(0.0343, abs=5e-5)
    assert isinstance(plan.event, events.Shuffled)
    assert plan.event.num_reports == 10_000
    assert plan.settings["smallest cell"] == 10_000
    assert "counts of each cell of equal finalists leave" in plan.mechanism
    by_cells = [a for a in plan.assumptions if "same finalists" in a.statement]
    assert [a.status for a in by_cells] == [Status.ENFORCED]


def test_shuffled_decisions_of_a_user_cost_more_than_one_and_less_than_the_sum() -> None:
    one = plan_of(selection(**SHUFFLED)).guarantee.epsilon
    ten = plan_of(by_user(10, **SHUFFLED)).guarantee.epsilon
    assert 1.5 * one < ten < 10 * one


@pytest.mark.parametrize("config", [selection(), by_user(3, delta=1e-6)], ids=["one", "user"])
def test_a_claim_that_its_event_does_not_give_is_not_made(
    config: SelectionConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    class HalfCurve:
        def __init__(self, event: events.Event, adjacency: Adjacency) -> None:
            self._curve = privacy_curve(event, adjacency)

        def epsilon(self, delta: float) -> float:
            return self._curve.epsilon(delta) / 2

    plan_of(config)
    monkeypatch.setattr(selection_plan, "privacy_curve", HalfCurve)
    with pytest.raises(TulleError, match="epsilon"):
        plan_of(config)


def test_without_personalisation_nothing_is_spent() -> None:
    for config in (
        selection(mechanism=NonPersonalised()),
        by_user(5, mechanism=NonPersonalised()),
    ):
        assert plan_of(config).guarantee.epsilon == 0


def test_predictions_of_devices_are_sensitive_and_users_are_the_unit() -> None:
    columns = AuctionColumns(device_prob="private", user="who", bid="offer")
    roles = make_selection_plan(by_user(2), columns).columns
    assert roles.sensitive == ("private",)
    assert roles.public == ("auction_id", "ad", "offer", "p_server")
    assert roles.unit == "who"
    assert make_selection_plan(selection(), columns).columns.unit is None


def test_the_limit_of_a_user_is_a_bound() -> None:
    (bound,) = plan_of(by_user(12)).bounds
    assert (bound.what, bound.limit) == ("personalised decisions per user", 12)


def test_consent_pricing_and_draws_are_said() -> None:
    said = {consent: plan_of(selection(consent=consent)).settings["consent"] for consent in Consent}
    assert said[Consent.COLUMN] == "by column; without it the server's winner"
    assert "as the operator says" in str(said[Consent.EVERYONE])
    plan = make_selection_plan(
        selection(pricing=Pricing(rule=PricingRule.FIRST_PRICE, reserve=0.25)),
        COLUMNS,
        ReleaseTerms(has_ledger=True, noise_source="dice"),
    )
    assert plan.settings["pricing"] == "first-price"
    assert plan.settings["reserve"] == 0.25
    assert plan.settings["draws from"] == "dice"
    assert plan.settings["charged to a ledger"] is True
    assert any("second time" in a.statement for a in plan.assumptions)


def rows_of_data(config: SelectionConfig) -> dict[str, str]:
    settings = plan_of(config).settings
    return {
        name.removeprefix("server sees "): str(value)
        for name, value in settings.items()
        if name.startswith("server sees ")
    }


def test_data_of_type_one_and_type_two_are_told_apart() -> None:
    rows = rows_of_data(selection())
    assert rows["the chosen ad of every request"].startswith("Type I data; epsilon")
    assert rows["clicks and what follows, if reported"].startswith("Type II data; none")
    per_click = Pricing(rule=PricingRule.SECOND_PRICE_PER_CLICK)
    needs_clicks = rows_of_data(selection(pricing=per_click))
    assert needs_clicks != rows
    shuffled = rows_of_data(selection(**SHUFFLED))
    assert "the chosen ad of every request" not in shuffled


@pytest.mark.parametrize(
    "change",
    [
        {"mechanism": FloorMechanism(epsilon=2.0)},
        {"least_finalists": 3},
        {"pricing": Pricing(reserve=0.5)},
        {"pricing": Pricing(rule="posted")},
        {"consent": Consent.COLUMN},
        {"name": "other"},
    ],
)
def test_another_selection_has_another_fingerprint(change: dict[str, Any]) -> None:
    config = selection()
    other = selection(**change)
    assert plan_of(config).fingerprint() == plan_of(selection()).fingerprint()
    assert plan_of(config).fingerprint() != plan_of(other).fingerprint()


def test_a_plan_is_read_back_from_plain_data() -> None:
    plan = plan_of(by_user(4, delta=1e-6))
    assert Plan.from_dict(plan.to_dict()) == plan


def seen_by_the_server(config: SelectionConfig) -> dict[str, str]:
    return {
        name.removeprefix("server sees "): str(value)
        for name, value in plan_of(config).settings.items()
        if name.startswith("server sees ")
    }


@pytest.mark.parametrize("rule", PricingRule)
def test_only_what_follows_from_the_choice_is_protected(rule: PricingRule) -> None:
    for config in (selection(pricing=Pricing(rule=rule)), selection(**SHUFFLED)):
        seen = seen_by_the_server(config)
        assert seen["parameters of the click models"].startswith("Type I and Type II data; not by")
        assert seen["the amount to pay"].startswith("Type I data; follows from the choice")
        assert seen["whether the user agreed to personalised ads"].startswith("none: ")
        (choice,) = (how for what, how in seen.items() if "chosen" in what)
        assert choice.startswith("Type I data; epsilon of the mechanism")
        (clicks,) = (how for what, how in seen.items() if what.startswith("clicks"))
        assert clicks.startswith("Type II data; none by the selection")
        assert len(seen) == 5


def test_paid_clicks_are_said_to_be_seen() -> None:
    for rule, is_needed in (
        (PricingRule.SECOND_PRICE, False),
        (PricingRule.SECOND_PRICE_PER_CLICK, True),
    ):
        seen = seen_by_the_server(selection(pricing=Pricing(rule=rule)))
        (how,) = (how for what, how in seen.items() if what.startswith("clicks"))
        assert ("every paid click is known" in how) == is_needed


def test_a_shuffler_leaves_counts_of_cells() -> None:
    assert any("how often" in what for what in seen_by_the_server(selection(**SHUFFLED)))
    assert any("every request" in what for what in seen_by_the_server(selection()))
