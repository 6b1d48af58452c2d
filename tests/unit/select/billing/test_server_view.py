"""What the server observes, with Type I and Type II data apart."""

import pytest

from tulle.errors import ConfigError
from tulle.privacy.units import TrustModel
from tulle.select.billing.prices import PricingRule
from tulle.select.billing.server_view import UserData, what_the_server_observes

LOCAL, SHUFFLE = TrustModel.LOCAL, TrustModel.SHUFFLE


@pytest.mark.parametrize("rule", PricingRule)
@pytest.mark.parametrize("trust_model", [LOCAL, SHUFFLE])
def test_only_what_follows_from_the_choice_is_protected(
    rule: PricingRule, trust_model: TrustModel
) -> None:
    seen = what_the_server_observes(rule, trust_model, is_posted=True)
    assert {row.user_data for row in seen if row.is_protected} == {UserData.TYPE_I}
    assert [row.user_data for row in seen] == [
        UserData.BOTH,
        UserData.TYPE_I,
        UserData.TYPE_I,
        UserData.TYPE_II,
        UserData.NONE,
    ]


def test_paid_clicks_are_said_to_be_seen() -> None:
    for rule, is_needed in (
        (PricingRule.SECOND_PRICE, False),
        (PricingRule.SECOND_PRICE_PER_CLICK, True),
    ):
        seen = what_the_server_observes(rule, LOCAL, is_posted=False)
        clicks = next(row for row in seen if row.user_data is UserData.TYPE_II)
        assert not clicks.is_protected
        assert ("every paid click is known" in clicks.protection) == is_needed


def test_a_shuffler_leaves_counts_of_cells() -> None:
    choice = what_the_server_observes(PricingRule.SECOND_PRICE, SHUFFLE, is_posted=True)[1]
    assert "how often" in choice.what
    choice = what_the_server_observes(PricingRule.SECOND_PRICE, LOCAL, is_posted=True)[1]
    assert "every request" in choice.what


def test_shuffling_needs_posted_prices() -> None:
    with pytest.raises(ConfigError, match="posted prices"):
        what_the_server_observes(PricingRule.SECOND_PRICE, SHUFFLE, is_posted=False)


def test_a_central_server_is_refused() -> None:
    with pytest.raises(ConfigError, match="central"):
        what_the_server_observes(PricingRule.SECOND_PRICE, TrustModel.CENTRAL, is_posted=True)
