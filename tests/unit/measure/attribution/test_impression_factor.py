"""The stated factor against every way to add one impression to a few."""

import itertools

import pytest

from tulle.measure.attribution.attribution import Attribution
from tulle.measure.attribution.impression_factor import impression_factor
from tulle.measure.attribution.reference import Touch, credits_of_conversion
from tulle.measure.attribution.rules import (
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

MOST_TOUCHES = 6
LOOKBACK = 100
SHARES = [0.0, 0.05, 0.2, 1 / 3, 0.4, 0.5, 0.7, 1.0]
POSITION_RULES: list[Rule] = [
    PositionBased(first=first, last=last)
    for first, last in itertools.product(SHARES, SHARES)
    if 0 < first + last <= 1
]
LAST_N_RULES: list[Rule] = [
    LastN(weights=weights)
    for weights in [(1,), (1, 1), (2, 1, 1), (1, 2), (1, 5, 1), (3, 1, 4, 1), (1, 9, 1, 9)]
]
OTHER_RULES: list[Rule] = [LastTouch(), FirstTouch(), PriorityTouch(), Linear()]
LIMITS = [None, 1, 2, 3, 4, 5]


def largest_change(
    rule: Rule, kinds_of_touch: list[Touch], *, max_touches: int | None, counts_unattributed: bool
) -> float:
    """Over all sets of up to six impressions, and all places of one more."""
    attribution = Attribution(rule=rule, lookback_seconds=LOOKBACK, max_touches=max_touches)
    largest = 0.0
    most = MOST_TOUCHES if len(kinds_of_touch) == 1 else 3
    for num_after in range(1, most + 1):
        for touches in itertools.product(kinds_of_touch, repeat=num_after):
            if any(a.age_seconds < b.age_seconds for a, b in itertools.pairwise(touches)):
                continue
            after = credits_of_conversion(attribution, touches)
            for new in range(num_after):
                rest = [*touches[:new], *touches[new + 1 :]]
                before = credits_of_conversion(attribution, rest)
                before.insert(new, 0.0)
                move = sum(abs(a - b) for a, b in zip(after, before, strict=True))
                unattributed = counts_unattributed * (num_after == 1)
                largest = max(largest, move + unattributed)
    return largest


@pytest.mark.parametrize("max_touches", LIMITS)
@pytest.mark.parametrize("counts_unattributed", [False, True])
def test_factors_of_rules_of_positions_are_reached_and_never_passed(
    max_touches: int | None, counts_unattributed: bool
) -> None:
    one_kind = [Touch(age_seconds=1)]
    by_kind = [Touch(age_seconds=1, kind="click"), Touch(age_seconds=1, kind="view")]
    for rule in [*POSITION_RULES, *LAST_N_RULES, *OTHER_RULES]:
        touches = by_kind if isinstance(rule, PriorityTouch) else one_kind
        stated = impression_factor(
            rule, counts_unattributed=counts_unattributed, max_touches=max_touches
        )
        found = largest_change(
            rule, touches, max_touches=max_touches, counts_unattributed=counts_unattributed
        )
        assert stated == pytest.approx(found, abs=1e-12), rule


@pytest.mark.parametrize("max_touches", [None, 1, 2, 3])
@pytest.mark.parametrize("half_life_seconds", [5, 50, 100, 5000])
def test_the_factor_of_time_decay_is_that_of_the_youngest_beside_the_oldest(
    max_touches: int | None, half_life_seconds: float
) -> None:
    rule = TimeDecay(half_life_seconds=half_life_seconds)
    ages = [Touch(age_seconds=age) for age in (LOOKBACK, 60, 30, 0)]
    found = largest_change(rule, ages, max_touches=max_touches, counts_unattributed=False)
    stated = impression_factor(
        rule, counts_unattributed=False, max_touches=max_touches, lookback_seconds=LOOKBACK
    )
    assert stated == pytest.approx(found, abs=1e-12)
    assert stated <= impression_factor(rule, counts_unattributed=False, max_touches=None) == 2


@pytest.mark.parametrize("max_touches", [None, 1, 2, 3])
@pytest.mark.parametrize("weights", [(1.0, 1.0), (3.0, 1.0), (0.01, 5.0)])
def test_the_factor_of_channels_is_that_of_the_heaviest_beside_the_lightest(
    max_touches: int | None, weights: tuple[float, float]
) -> None:
    rule = ChannelWeights(
        column="publisher", weights={"news": weights[0], "video": weights[1]}, other_weight=1.0
    )
    channels = [Touch(age_seconds=1, channel=name) for name in ("news", "video", "radio")]
    found = largest_change(rule, channels, max_touches=max_touches, counts_unattributed=False)
    stated = impression_factor(rule, counts_unattributed=False, max_touches=max_touches)
    assert stated == pytest.approx(found, abs=1e-12)


@pytest.mark.parametrize(
    ("rule", "published"),
    [
        (LastTouch(), 2),
        (FirstTouch(), 2),
        (PriorityTouch(), 2),
        (TimeDecay(), 2),
        (Linear(), 1),
        (PositionBased(), 1),
        (LastN(weights=(2, 1, 1)), 4 / 3),
        (LastN(weights=(1, 1)), 1),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_factors_are_those_of_the_table(rule: Rule, published: float) -> None:
    stated = impression_factor(rule, counts_unattributed=False, max_touches=None)
    assert stated == pytest.approx(published)
    assert impression_factor(rule, counts_unattributed=True, max_touches=None) == 2
