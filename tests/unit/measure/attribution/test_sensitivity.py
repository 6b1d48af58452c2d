"""The stated sensitivities against every neighbour of many small logs."""

import dataclasses
import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tulle.errors import ConfigError
from tulle.measure.ad_log import LogColumns, Side
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
from tulle.measure.attribution.sensitivity import (
    impression_factor,
    l2_sensitivity_steps,
    sensitivity_steps,
)
from tulle.measure.slice_jobs import FINE_STEPS, Amount, Bounds, SliceJob, Subject
from tulle.privacy.units import Owner, Unit
from tulle.privacy.windows import TimeWindows
from unit.measure.attribution import faulty_capping
from unit.measure.attribution.reference import Touch, credits_of_conversion
from unit.measure.attribution.tiny_logs import (
    CAMPAIGN,
    COLUMNS,
    COUNT,
    COUNT_AND_VALUE,
    COUNTRY,
    WINDOW,
    Log,
    Row,
    TotalsOf,
    changes,
    exact_totals,
    random_log,
    slice_job,
    without_one_unit,
)

RULES: list[Rule] = [
    LastTouch(),
    FirstTouch(),
    Linear(),
    PositionBased(),
    PositionBased(first=0.1, last=0.6),
    TimeDecay(half_life_seconds=10),
    PriorityTouch(),
    LastN(),
    LastN(weights=(1, 4, 1)),
    ChannelWeights(column="publisher", weights={"news": 2.0, "video": 1.0}, other_weight=1.5),
]
OWNER_UNITS = [
    Unit.user(),
    Unit.user_advertiser(),
    Unit(Owner.USER, TimeWindows(WINDOW)),
    Unit(Owner.USER_ADVERTISER, TimeWindows(WINDOW)),
]
BOUNDS = [
    Bounds(max_per_slice=1, max_slices_per_unit=1),
    Bounds(max_per_slice=1.5, max_slices_per_unit=2),
    Bounds(max_per_slice=1.5, max_per_unit=2),
    Bounds(max_per_slice=0.3, max_slices_per_unit=3, max_per_unit=0.7),
]


def assert_no_neighbour_moves_further(
    totals_of: TotalsOf, log: Log, job: SliceJob, unit: Unit, attribution: Attribution
) -> None:
    stated = {"unit": unit, "attribution": attribution, "columns": COLUMNS}
    l1 = sensitivity_steps(job, **stated)  # type: ignore[arg-type]
    l2 = l2_sensitivity_steps(job, **stated)  # type: ignore[arg-type]
    most = largest_change_of_one_total(job, unit, attribution)
    assert most <= l2 <= l1
    totals = totals_of(log, job, unit, attribution)
    for neighbour in without_one_unit(log, unit):
        moved = changes(totals, totals_of(neighbour, job, unit, attribution))
        assert sum(map(abs, moved)) <= l1, "further than stated in L1"
        assert math.hypot(*moved) <= l2
        assert max(map(abs, moved), default=0) <= most


def largest_change_of_one_total(job: SliceJob, unit: Unit, attribution: Attribution) -> int:
    """Of a unit with bounds that of a slice, else a whole credit of each conversion it is in."""
    if job.bounds is not None:
        by_unit = job.bounds.max_steps_per_unit(job.steps)
        return min(job.bounds.max_steps_per_slice(job.steps), by_unit)
    is_in_several = unit == Unit.impression() and job.subject is Subject.CONVERSIONS
    return job.steps * (attribution.max_conversions_per_user if is_in_several else 1)


@settings(max_examples=400)
@given(data=st.data(), seed=st.integers(0, 2**32))
def test_bounds_after_attribution_hold_for_users_under_every_rule(
    data: st.DataObject, seed: int
) -> None:
    job = slice_job(
        steps=data.draw(st.sampled_from([1, 7, 100])),
        bounds=data.draw(st.sampled_from(BOUNDS)),
        amounts=data.draw(st.sampled_from([COUNT, COUNT_AND_VALUE])),
        slices=data.draw(st.sampled_from([(CAMPAIGN,), (CAMPAIGN, COUNTRY), ()])),
        counts_unattributed=data.draw(st.booleans()),
        has_rest=data.draw(st.booleans()),
    )
    attribution = Attribution(
        rule=data.draw(st.sampled_from(RULES)),
        lookback_seconds=20,
        kind_lookback_seconds={"view": 8},
        max_touches=data.draw(st.sampled_from([None, 2])),
    )
    unit = data.draw(st.sampled_from(OWNER_UNITS))
    log = random_log(seed)
    assert_no_neighbour_moves_further(exact_totals, log, job, unit, attribution)


@settings(max_examples=600)
@given(data=st.data(), seed=st.integers(0, 2**32))
def test_one_row_moves_no_more_than_its_rule_lets_it(data: st.DataObject, seed: int) -> None:
    unit = data.draw(st.sampled_from([Unit.impression(), Unit.conversion()]))
    job = slice_job(
        steps=data.draw(st.sampled_from([1, 7, 30, 1000])),
        bounds=None,
        amounts=data.draw(st.sampled_from([COUNT, COUNT_AND_VALUE])),
        slices=data.draw(st.sampled_from([(CAMPAIGN,), (CAMPAIGN, COUNTRY), ()])),
        counts_unattributed=data.draw(st.booleans()),
        has_rest=data.draw(st.booleans()),
    )
    attribution = Attribution(
        rule=data.draw(st.sampled_from(RULES)),
        lookback_seconds=20,
        kind_lookback_seconds={"view": 8},
        max_touches=data.draw(st.sampled_from([None, 1, 2, 3])),
        max_conversions_per_user=data.draw(st.sampled_from([1, 2]))
        if unit.owner is Owner.IMPRESSION
        else None,
    )
    log = random_log(seed, num_users=1)
    assert_no_neighbour_moves_further(exact_totals, log, job, unit, attribution)


@settings(max_examples=100)
@given(seed=st.integers(0, 2**32), bounds=st.sampled_from([None, *BOUNDS]))
def test_counts_of_impressions_move_by_their_bounds(seed: int, bounds: Bounds | None) -> None:
    attribution = Attribution(rule=LastTouch(), lookback_seconds=20)
    row_units = [Unit.impression(), Unit.example()]
    units = row_units if bounds is None else [*OWNER_UNITS, Unit.user_publisher()]
    job = slice_job(steps=1, bounds=bounds, subject=Subject.IMPRESSIONS)
    for unit in units:
        log = random_log(seed)
        assert_no_neighbour_moves_further(exact_totals, log, job, unit, attribution)


FAULTS: list[tuple[TotalsOf, Unit, Bounds | None]] = [
    (faulty_capping.impressions_sampled_before_attribution, Unit.impression(), None),
    (faulty_capping.pairs_sampled_before_attribution, Unit.impression(), None),
    (faulty_capping.conversions_capped_after_matching, Unit.impression(), None),
    (faulty_capping.any_number_of_conversions, Unit.impression(), None),
    (faulty_capping.credit_across_windows, Unit(Owner.USER, TimeWindows(WINDOW)), BOUNDS[0]),
    (
        faulty_capping.conversions_capped_over_all_advertisers,
        Unit.user_advertiser(),
        BOUNDS[0],
    ),
]


def fault_settings(unit: Unit, bounds: Bounds | None) -> tuple[SliceJob, Attribution]:
    is_impression = unit.owner is Owner.IMPRESSION
    attribution = Attribution(
        rule=Linear(),
        lookback_seconds=20,
        max_touches=2 if is_impression else None,
        max_conversions_per_user=1 if is_impression else None,
    )
    return slice_job(steps=100, bounds=bounds, slices=(CAMPAIGN, COUNTRY)), attribution


@pytest.mark.parametrize(
    ("totals_of", "unit", "bounds"), FAULTS, ids=lambda value: getattr(value, "__name__", "")
)
def test_caps_at_the_wrong_place_are_found_out(
    totals_of: TotalsOf, unit: Unit, bounds: Bounds | None
) -> None:
    job, attribution = fault_settings(unit, bounds)
    logs = [random_log(seed, num_users=1) for seed in range(2000)]

    def check_all(totals_of: TotalsOf) -> None:
        for log in logs:
            assert_no_neighbour_moves_further(totals_of, log, job, unit, attribution)

    check_all(exact_totals)
    with pytest.raises(AssertionError, match="L1"):
        check_all(totals_of)


def test_bounding_credit_by_publisher_would_move_two_units() -> None:
    unit = Unit.user_publisher()
    job, attribution = fault_settings(unit, BOUNDS[0])
    furthest = 0
    for seed in range(500):
        log = random_log(seed, num_users=1)
        totals = faulty_capping.credit_bounded_by_publisher(log, job, unit, attribution)
        for neighbour in without_one_unit(log, unit):
            others = faulty_capping.credit_bounded_by_publisher(neighbour, job, unit, attribution)
            furthest = max(furthest, sum(map(abs, changes(totals, others))))
    assert furthest > BOUNDS[0].max_steps_per_unit(job.steps)


def test_one_impression_does_move_every_conversion_twice() -> None:
    job = slice_job(steps=1, bounds=None)
    attribution = Attribution(rule=LastTouch(), lookback_seconds=20, max_conversions_per_user=3)
    impressions = [
        Row(side=Side.IMPRESSION, row_id=i, user="a", time=i, advertiser="shop", campaign="xy"[i])
        for i in range(2)
    ]
    conversions = [
        Row(side=Side.CONVERSION, row_id=10 + i, user="a", time=5, advertiser="shop")
        for i in range(3)
    ]
    log = (*impressions, *conversions)
    totals = exact_totals(log, job, Unit.impression(), attribution)
    others = exact_totals((log[0], *conversions), job, Unit.impression(), attribution)
    stated = sensitivity_steps(
        job, unit=Unit.impression(), attribution=attribution, columns=COLUMNS
    )
    moved = changes(totals, others)
    assert sum(map(abs, moved)) == stated == 6
    l2 = l2_sensitivity_steps(job, unit=Unit.impression(), attribution=attribution, columns=COLUMNS)
    assert math.hypot(*moved) == pytest.approx(l2)


@pytest.mark.parametrize(
    ("bounds", "largest"),
    [
        (Bounds(max_per_slice=2, max_slices_per_unit=3), [2, 2, 2]),
        (Bounds(max_per_slice=2, max_per_unit=5), [2, 2, 1]),
        (Bounds(max_per_slice=2, max_slices_per_unit=3, max_per_unit=3), [2, 1]),
        (Bounds(max_per_slice=4, max_per_unit=3), [3]),
    ],
)
def test_the_l2_bound_is_that_of_the_fullest_slices(bounds: Bounds, largest: list[int]) -> None:
    job = slice_job(steps=10, bounds=bounds)
    attribution = Attribution(rule=LastTouch(), lookback_seconds=20)
    stated = l2_sensitivity_steps(job, unit=Unit.user(), attribution=attribution, columns=COLUMNS)
    assert stated == pytest.approx(10 * math.hypot(*largest), rel=1e-12)


def test_few_touches_keep_the_factor_of_the_rule_and_any_number_does_not() -> None:
    job = slice_job(steps=FINE_STEPS, bounds=None)
    attribution = Attribution(
        rule=Linear(), lookback_seconds=20, max_touches=50, max_conversions_per_user=2
    )
    for settings_of_touches, expected in [
        (attribution, 2 * (FINE_STEPS + 100)),
        (dataclasses.replace(attribution, max_touches=None), 4 * FINE_STEPS),
    ]:
        stated = sensitivity_steps(
            job, unit=Unit.impression(), attribution=settings_of_touches, columns=COLUMNS
        )
        assert stated == expected


PLAIN = Attribution(rule=LastTouch(), lookback_seconds=20)
CAPPED = Attribution(rule=LastTouch(), lookback_seconds=20, max_conversions_per_user=2)


@pytest.mark.parametrize(
    ("unit", "bounds", "attribution", "reason"),
    [
        (Unit.example(), BOUNDS[0], PLAIN, "row of one table"),
        (Unit.user(), BOUNDS[0], None, "needs an attribution"),
        (Unit.user(), None, PLAIN, "has no bounds"),
        (Unit.user_publisher(), BOUNDS[0], PLAIN, "belongs to no publisher"),
        (Unit.user(), BOUNDS[0], CAPPED, "before attribution"),
        (Unit.impression(), None, PLAIN, "max_conversions_per_user"),
        (Unit.impression(), BOUNDS[0], CAPPED, "has bounds"),
        (Unit(Owner.IMPRESSION, TimeWindows(60)), None, CAPPED, "one window anyway"),
        (Unit(Owner.CONVERSION, TimeWindows(60)), None, PLAIN, "one window anyway"),
        (Unit.conversion(), None, CAPPED, "another comes in"),
    ],
)
def test_combinations_without_a_bound_are_refused(
    unit: Unit, bounds: Bounds | None, attribution: Attribution | None, reason: str
) -> None:
    job = slice_job(steps=1, bounds=bounds)
    for stated in (sensitivity_steps, l2_sensitivity_steps):
        with pytest.raises(ConfigError, match=reason):
            stated(job, unit=unit, attribution=attribution, columns=COLUMNS)


def test_units_of_columns_that_the_log_lacks_are_refused() -> None:
    job = slice_job(steps=1, bounds=BOUNDS[0], subject=Subject.IMPRESSIONS)
    for unit, column in [
        (Unit.user_advertiser(), "advertiser"),
        (Unit.user_publisher(), "publisher"),
    ]:
        with pytest.raises(ConfigError, match=f"needs the log's {column} column"):
            sensitivity_steps(job, unit=unit, attribution=None, columns=LogColumns())


def test_impressions_are_not_protected_by_the_unit_conversion() -> None:
    job = slice_job(steps=1, bounds=None, subject=Subject.IMPRESSIONS)
    with pytest.raises(ConfigError, match="does not protect"):
        sensitivity_steps(job, unit=Unit.conversion(), attribution=None, columns=COLUMNS)


def test_amounts_that_are_more_than_one_contribution_are_refused() -> None:
    amounts = (Amount(name="conversions", share=0.7), Amount(name="value", share=0.7))
    job = slice_job(steps=1, bounds=None, amounts=amounts)
    with pytest.raises(ConfigError, match="add up to <= 1"):
        sensitivity_steps(job, unit=Unit.conversion(), attribution=PLAIN, columns=COLUMNS)


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
