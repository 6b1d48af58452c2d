"""The planner's figures are those of a simulation, and so is its order."""

import json
from typing import Any

import numpy as np
import pytest
from scipy import stats

from tulle.errors import ConfigError
from tulle.labels.mechanisms.unit_response import (
    JointResponse,
    PerRowResponse,
    RowShare,
    UnitResponse,
)
from tulle.labels.unit_planner import (
    PlanAssumptions,
    UnitPlan,
    judge_option,
    plan_units,
)
from tulle.labels.unit_rows import group_rows
from tulle.mechanisms.entropy import SeededNoise
from tulle.privacy.units import Unit

NUM_REPEATS = 1600
BASE_RATE = 0.05


def geometric_counts(mean: float, num_units: int) -> dict[int, int]:
    """Units by their number of rows, geometric with this mean."""
    chance = 1 / mean
    counts = {k: round(num_units * chance * (1 - chance) ** (k - 1)) for k in range(1, 60)}
    return {length: count for length, count in counts.items() if count}


S2_COUNTS = geometric_counts(3.44, 50_000)
SMALL_COUNTS = geometric_counts(3.44, 100)


def simulated_variance(
    way: UnitResponse, length_counts: dict[int, int], *, same_feature: bool = False
) -> float:
    """Variance per row of a slope that is estimated with the best weights, many times.

    A unit converts at most once, each row with chance BASE_RATE; the slope is 0.
    """
    generator = np.random.default_rng(11)
    sizes = np.repeat(list(length_counts), list(length_counts.values()))
    lengths = np.tile(sizes, NUM_REPEATS)
    owners = np.repeat(np.arange(lengths.size), lengths)
    first_rows = np.cumsum(lengths) - lengths
    place = np.floor(generator.random(lengths.size) / BASE_RATE).astype(np.int64)
    labels = np.zeros(owners.size, np.uint8)
    labels[(first_rows + place)[place < lengths]] = 1
    features = generator.choice([-1.0, 1.0], owners.size)
    if same_feature:
        features = features[first_rows][owners]
    repeats = np.repeat(np.arange(NUM_REPEATS), sizes.sum())
    rows = group_rows(Unit.user(), owner_ids=owners)
    released = way.release(labels, rows, rng=SeededNoise(5))
    weights = released.channel.weights(BASE_RATE)
    kept = released.rows
    terms = weights * features[kept] * (released.targets - BASE_RATE)
    sums = np.bincount(repeats[kept], terms, minlength=NUM_REPEATS)
    slopes = sums / np.bincount(repeats[kept], weights, minlength=NUM_REPEATS)
    return float(slopes.var() * sizes.sum())


WAYS: list[UnitResponse] = [
    PerRowResponse(epsilon=2.0, max_rows_per_unit=None),
    PerRowResponse(epsilon=2.0, max_rows_per_unit=1),
    PerRowResponse(epsilon=2.0, max_rows_per_unit=3, row_share=RowShare.EQUAL),
    JointResponse(epsilon=2.0),
    JointResponse(epsilon=2.0, max_conversions_per_unit=2),
    JointResponse(epsilon=2.0, max_rows_per_unit=3),
    JointResponse(epsilon=2.0, subset=True),
]


def test_effective_variances_and_their_order_are_those_of_a_simulation() -> None:
    planned = [
        judge_option(way, SMALL_COUNTS, PlanAssumptions(base_rate=BASE_RATE)).effective_variance
        for way in WAYS
    ]
    simulated = [simulated_variance(way, SMALL_COUNTS) for way in WAYS]
    low, high = stats.chi2.ppf([5e-10, 1 - 5e-10], NUM_REPEATS) / NUM_REPEATS
    for plan, truth in zip(planned, simulated, strict=True):
        assert low < truth / plan < high
    for first in range(len(WAYS)):
        for second in range(len(WAYS)):
            if planned[first] > 1.6 * planned[second]:
                assert simulated[first] > simulated[second]


def test_rows_that_share_their_features_gain_from_a_joint_draw() -> None:
    way = JointResponse(epsilon=1.0)
    counts = {6: 60}
    simulated = simulated_variance(way, counts, same_feature=True)
    apart, together = (
        judge_option(way, counts, PlanAssumptions(base_rate=BASE_RATE, feature_correlation=r))
        for r in (0.0, 0.999)
    )
    low, high = stats.chi2.ppf([5e-10, 1 - 5e-10], NUM_REPEATS) / NUM_REPEATS
    # Labels of one unit are correlated as well, by about 1% of the variance here.
    assert low < simulated / together.effective_variance < high
    assert not low < simulated / apart.effective_variance < high


@pytest.mark.parametrize("epsilon", [2.0, 4.0])
@pytest.mark.parametrize("beyond_first_share", [0.0, 0.14])
def test_a_joint_draw_is_chosen_at_middle_epsilon(
    epsilon: float, beyond_first_share: float
) -> None:
    assumptions = PlanAssumptions(beyond_first_share=beyond_first_share)
    plan = plan_units(S2_COUNTS, epsilon=epsilon, assumptions=assumptions)
    assert isinstance(plan.recommended.mechanism, JointResponse)
    assert plan.recommended.mechanism.max_conversions_per_unit == 1
    assert plan.ratio_to_best_per_row > 1.7


def test_one_row_a_user_and_a_joint_draw_are_close_at_small_epsilon() -> None:
    # The reference simulation drops 13% of the conversions and finds both ways equal.
    assumptions = PlanAssumptions(beyond_first_share=0.14)
    joint = judge_option(JointResponse(epsilon=1.0), S2_COUNTS, assumptions)
    one_row = judge_option(PerRowResponse(epsilon=1.0, max_rows_per_unit=1), S2_COUNTS, assumptions)
    assert joint.kept_conversions_share == pytest.approx(0.87, abs=0.005)
    assert 1 / 1.25 < joint.effective_variance / one_row.effective_variance < 1.25


def test_sharing_epsilon_over_many_rows_is_worst_as_in_the_reference_table() -> None:
    many, own, one = (
        judge_option(
            PerRowResponse(epsilon=2.0, max_rows_per_unit=cap, row_share=share),
            S2_COUNTS,
            PlanAssumptions(),
        ).effective_variance
        for cap, share in [(10, RowShare.EQUAL), (None, RowShare.OWN), (1, RowShare.OWN)]
    )
    assert many > own > one


def test_an_option_states_the_variance_and_the_rows_that_it_keeps() -> None:
    option = judge_option(
        PerRowResponse(epsilon=1.0, max_rows_per_unit=1), {1: 2, 4: 2}, PlanAssumptions()
    )
    assert option.kept_rows_share == pytest.approx(0.4)
    assert option.mean_variance == pytest.approx(0.9207, abs=1e-4)
    assert option.effective_variance == pytest.approx((0.9207 + 0.0475) / 0.4, abs=1e-3)


def test_labels_that_cannot_all_fit_the_cap_count_as_dropped() -> None:
    # 100 rows at 5% are 5 conversions; a cap of one keeps a fifth of them at most.
    option = judge_option(JointResponse(epsilon=4.0), {100: 10}, PlanAssumptions())
    assert option.kept_conversions_share == pytest.approx(0.2)
    plan = plan_units({100: 10}, epsilon=4.0)
    assert isinstance(plan.recommended.mechanism, JointResponse)
    assert plan.recommended.mechanism.max_rows_per_unit == 20


def test_a_longer_cap_drops_fewer_of_the_later_conversions() -> None:
    one, two = (
        judge_option(
            JointResponse(epsilon=8.0, max_conversions_per_unit=cap),
            {5: 10},
            PlanAssumptions(beyond_first_share=0.4),
        )
        for cap in (1, 2)
    )
    assert one.kept_conversions_share == pytest.approx(0.6)
    assert two.kept_conversions_share == pytest.approx(1 - 0.4**2)
    assert two.effective_variance < one.effective_variance


def test_impressions_need_no_joint_draw() -> None:
    plan = plan_units({1: 100}, epsilon=1.0)
    assert plan.recommended.mechanism == PerRowResponse(epsilon=1.0, max_rows_per_unit=None)
    assert plan.ratio_to_impression == pytest.approx(1.0)
    assert plan.ratio_to_runner_up is None


def test_options_are_sorted_and_the_ratios_follow_from_them() -> None:
    plan = plan_units(S2_COUNTS, epsilon=1.0)
    variances = [option.effective_variance for option in plan.options]
    assert variances[1:] == sorted(variances[1:])
    assert variances[0] <= 1.001 * min(variances)
    others = [o for o in plan.options if o.mechanism.name != plan.recommended.mechanism.name]
    assert plan.ratio_to_runner_up == others[0].effective_variance / variances[0]
    assert plan.ratio_to_impression == variances[0] / plan.impression_variance > 1
    assert plan.impression_variance == pytest.approx(0.9207 + 0.0475, abs=1e-4)


def test_options_that_units_are_too_large_for_are_named() -> None:
    plan = plan_units({2: 50, 3000: 1}, epsilon=1.0)
    assert len(plan.left_out) == 1
    assert "max_conversions=3" in plan.left_out[0]
    capped = [o for o in plan.options if _has(o.mechanism, conversions=3, rows=10)]
    assert len(capped) == 1


def test_a_plan_is_plain_data() -> None:
    plan: UnitPlan = plan_units({1: 5, 3: 2}, epsilon=1.0)
    described = plan.describe()
    assert json.loads(json.dumps(described)) == described
    assert described["recommended"] == described["options"][0]
    assert described["assumptions"]["base_rate"] == BASE_RATE


@pytest.mark.parametrize(
    "build",
    [
        lambda: plan_units({}, epsilon=1.0),
        lambda: plan_units({0: 3}, epsilon=1.0),
        lambda: plan_units({2: 0}, epsilon=1.0),
        lambda: plan_units({2: 1}, epsilon=0.0),
        lambda: PlanAssumptions(base_rate=0.0),
        lambda: PlanAssumptions(beyond_first_share=1.0),
        lambda: PlanAssumptions(feature_correlation=-0.1),
    ],
)
def test_plans_without_meaning_are_refused(build: Any) -> None:
    with pytest.raises(ConfigError):
        build()


def _has(way: UnitResponse, *, conversions: int, rows: int) -> bool:
    return (
        isinstance(way, JointResponse)
        and way.max_conversions_per_unit == conversions
        and way.max_rows_per_unit == rows
    )
