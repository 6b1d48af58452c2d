"""One conversion's credit, against fractions worked out by hand."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tulle.errors import DataError
from tulle.measure.attribution.rules import (
    Attribution,
    ChannelWeights,
    FirstTouch,
    LastN,
    LastTouch,
    Linear,
    PositionBased,
    PriorityTouch,
    Rule,
    TimeDecay,
)
from unit.measure.attribution.reference import Touch, credit_by_rule, credits_of_conversion

DAY = 86_400
RULES = [
    LastTouch(),
    FirstTouch(),
    Linear(),
    PositionBased(),
    PositionBased(first=0, last=0.3),
    TimeDecay(half_life_seconds=DAY),
    PriorityTouch(),
    LastN(),
    ChannelWeights(column="publisher", weights={"news": 3.0, "video": 1.0}, other_weight=0.5),
]


def touches_at(*ages: float) -> list[Touch]:
    return [Touch(age_seconds=age) for age in ages]


@pytest.mark.parametrize(
    ("rule", "num_touches", "expected"),
    [
        (LastTouch(), 3, ["0", "0", "1"]),
        (FirstTouch(), 3, ["1", "0", "0"]),
        (Linear(), 3, ["1/3", "1/3", "1/3"]),
        (PositionBased(), 1, ["1"]),
        (PositionBased(), 2, ["1/2", "1/2"]),
        (PositionBased(first=0.6, last=0.2), 2, ["3/4", "1/4"]),
        (PositionBased(), 4, ["2/5", "1/10", "1/10", "2/5"]),
        (PositionBased(first=0.6, last=0.2), 3, ["3/5", "1/5", "1/5"]),
        (PositionBased(first=0.5, last=0.5), 3, ["1/2", "0", "1/2"]),
        (LastN(), 1, ["1"]),
        (LastN(), 2, ["1/3", "2/3"]),
        (LastN(), 3, ["1/4", "1/4", "1/2"]),
        (LastN(), 5, ["0", "0", "1/4", "1/4", "1/2"]),
        (LastN(weights=(1, 5)), 4, ["0", "0", "5/6", "1/6"]),
    ],
)
def test_rules_of_positions_share_as_worked_out_by_hand(
    rule: Rule, num_touches: int, expected: list[str]
) -> None:
    touches = touches_at(*range(num_touches, 0, -1))
    assert credit_by_rule(rule, touches) == pytest.approx([float(Fraction(e)) for e in expected])


def test_credit_halves_with_every_half_life() -> None:
    rule = TimeDecay(half_life_seconds=DAY)
    # Weights 1/8, 1/2, 1.
    expected = [Fraction(1, 13), Fraction(4, 13), Fraction(8, 13)]
    credit = credit_by_rule(rule, touches_at(3 * DAY, DAY, 0))
    assert credit == pytest.approx([float(share) for share in expected])


def test_credit_of_old_impressions_does_not_vanish_for_all_of_them() -> None:
    rule = TimeDecay(half_life_seconds=1)
    assert credit_by_rule(rule, touches_at(400 * DAY + 1, 400 * DAY)) == pytest.approx(
        [1 / 3, 2 / 3]
    )


def test_a_click_comes_before_any_view_and_a_listed_kind_before_others() -> None:
    rule = PriorityTouch()
    touches = [
        Touch(age_seconds=50, kind="click", priority=1),
        Touch(age_seconds=40, kind="click", priority=5),
        Touch(age_seconds=30, kind="click", priority=5),
        Touch(age_seconds=20, kind="view", priority=9),
        Touch(age_seconds=10, kind="hover", priority=99),
        Touch(age_seconds=5, priority=100),
    ]
    for num_left_out, winner in [(0, 2), (3, 0), (4, 1)]:
        credit = credit_by_rule(rule, touches[num_left_out:])
        assert credit == [float(place == winner) for place in range(len(credit))]


def test_channels_share_by_their_weights() -> None:
    rule = RULES[-1]
    touches = [Touch(age_seconds=1, channel=name) for name in ("news", "video", "radio", None)]
    assert credit_by_rule(rule, touches) == pytest.approx([0.6, 0.2, 0.1, 0.1])


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
@given(
    rows=st.lists(
        st.tuples(
            st.integers(0, 400 * DAY),
            st.sampled_from(["click", "view", None]),
            st.sampled_from(["news", "video", "radio"]),
        ),
        max_size=12,
    )
)
def test_credit_is_not_negative_and_adds_up_to_one(
    rule: Rule, rows: list[tuple[int, str, str]]
) -> None:
    touches = [
        Touch(age_seconds=a, kind=k, channel=c)
        for a, k, c in sorted(rows, reverse=True, key=lambda row: row[0])
    ]
    credit = credit_by_rule(rule, touches)
    assert all(share >= 0 for share in credit)
    assert sum(credit) == pytest.approx(1 if rows else 0)
    assert rule.has_whole_credit <= (set(credit) <= {0.0, 1.0})


def test_only_impressions_within_their_lookback_match() -> None:
    attribution = Attribution(
        rule=Linear(), lookback_seconds=100, kind_lookback_seconds={"view": 10}
    )
    ages_and_kinds = [
        (101, "click"),
        (100, "click"),
        (11, "view"),
        (10, "view"),
        (0, None),
        (-1, "click"),
    ]
    touches = [Touch(age_seconds=age, kind=kind) for age, kind in ages_and_kinds]
    assert credits_of_conversion(attribution, touches) == pytest.approx(
        [0, 1 / 3, 0, 1 / 3, 1 / 3, 0]
    )


def test_only_the_last_so_many_impressions_share() -> None:
    attribution = Attribution(rule=FirstTouch(), lookback_seconds=100, max_touches=2)
    assert credits_of_conversion(attribution, touches_at(30, 20, 10, -5)) == [0, 1, 0, 0]


def test_a_conversion_without_impression_has_no_credit_to_share() -> None:
    attribution = Attribution(rule=LastN(), lookback_seconds=100)
    assert credits_of_conversion(attribution, touches_at(200, -1)) == [0, 0]


def test_touches_out_of_order_are_refused() -> None:
    with pytest.raises(DataError, match="the oldest first"):
        credit_by_rule(LastTouch(), touches_at(10, 20))
