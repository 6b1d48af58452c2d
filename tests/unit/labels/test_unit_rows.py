"""Every row is in exactly one unit, and units follow from public columns alone."""

import inspect
import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from tulle.data.contribution import keep_first_rows, keep_random_rows
from tulle.errors import ConfigError, DataError
from tulle.labels import unit_rows as unit_rows_module
from tulle.labels.mechanisms.unit_response import PerRowResponse
from tulle.labels.unit_rows import (
    KeptRows,
    UnitRows,
    cap_rows,
    channel_of,
    group_rows,
    mean_covariance,
    row_covariance,
    single_rows,
)
from tulle.mechanisms.joint_response import JointResponseConfig, JointSubsetConfig
from tulle.privacy.units import Unit

DAY = 86_400
USERS = [7, 3, 7, 3, 7, 9]
PARTNERS = [1, 1, 2, 1, 1, 1]
TIMES = [5 * DAY, 0, 1, 2 * DAY, 0, 9 * DAY]


def units_as_lists(rows: UnitRows) -> list[list[int]]:
    grouped = rows.grouped
    return [
        grouped.order[start : start + length].tolist()
        for start, length in zip(grouped.starts, grouped.lengths, strict=True)
    ]


@pytest.mark.parametrize(
    ("unit", "columns", "expected"),
    [
        (Unit.example(), {}, [[0], [1], [2], [3], [4], [5]]),
        (Unit.user(), {}, [[1, 3], [0, 2, 4], [5]]),
        (Unit.user(), {"times": TIMES}, [[1, 3], [4, 2, 0], [5]]),
        (Unit.user(days=1), {"times": TIMES}, [[1], [3], [4, 2], [0], [5]]),
        (Unit.user(days=7), {"times": TIMES}, [[1, 3], [4, 2, 0], [5]]),
        # Day 4 was a Monday.
        (Unit.parse("user per week"), {"times": TIMES}, [[1, 3], [4, 2], [0], [5]]),
        (Unit.parse("user per month"), {"times": TIMES}, [[1, 3], [4, 2, 0], [5]]),
        (Unit.user_advertiser(), {"partner_ids": PARTNERS}, [[1, 3], [0, 4], [2], [5]]),
        (
            Unit.user_publisher(days=3),
            {"partner_ids": PARTNERS, "times": TIMES},
            [[1, 3], [4], [0], [2], [5]],
        ),
    ],
)
def test_units_are_the_rows_that_share_owner_partner_and_window(
    unit: Unit, columns: dict[str, Any], expected: list[list[int]]
) -> None:
    rows = group_rows(unit, owner_ids=USERS, **columns)
    assert units_as_lists(rows) == expected
    assert rows.num_rows == rows.num_table_rows == 6
    assert rows.num_units == len(expected)
    assert rows.unit == unit


@given(owners=npst.arrays(np.int64, st.integers(0, 60), elements=st.integers(-4, 4)))
def test_blocks_hold_every_row_once_and_every_unit_in_one_line(owners: Any) -> None:
    rows = group_rows(Unit.user(), owner_ids=owners)
    blocks = list(rows.blocks_of_equal_length())
    seen = [int(row) for block in blocks for row in block.ravel()]
    assert sorted(seen) == list(range(owners.size))
    for block in blocks:
        assert (owners[block] == owners[block][:, :1]).all()
        assert (np.diff(block, axis=1) > 0).all()
        for line in block:
            assert line.size == np.count_nonzero(owners == owners[line[0]])


def test_large_groups_come_in_several_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unit_rows_module, "_BLOCK_CELLS", 7)
    owners = np.repeat(np.arange(12), 3)
    blocks = list(group_rows(Unit.user(), owner_ids=owners).blocks_of_equal_length())
    assert [block.shape for block in blocks] == [(2, 3)] * 6
    assert sorted(np.concatenate(blocks).ravel().tolist()) == list(range(36))


def test_sizes_of_units_are_counted() -> None:
    assert group_rows(Unit.user(), owner_ids=USERS).length_counts() == {1: 1, 2: 1, 3: 1}
    assert single_rows(Unit.example(), 5).length_counts() == {1: 5}
    assert single_rows(Unit.example(), 0).length_counts() == {}


def test_ids_may_use_all_64_bits() -> None:
    owners = np.array([2**64 - 1, 2**63, 2**64 - 1], np.uint64)
    assert units_as_lists(group_rows(Unit.user(), owner_ids=owners)) == [[1], [0, 2]]


@pytest.mark.parametrize(
    ("unit", "columns", "message"),
    [
        (Unit.user_advertiser(), {}, "advertiser of each row"),
        (Unit.user_publisher(), {}, "publisher of each row"),
        (Unit.user(), {"partner_ids": PARTNERS}, "leave partner_ids out"),
        (Unit.example(), {"partner_ids": PARTNERS}, "leave partner_ids out"),
        (Unit.user(days=1), {}, "needs times"),
    ],
)
def test_missing_and_useless_columns_are_refused(
    unit: Unit, columns: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        group_rows(unit, owner_ids=USERS, **columns)


@pytest.mark.parametrize(
    "columns",
    [
        {"owner_ids": ["a", "b"]},
        {"owner_ids": [1.5, 2.0]},
        {"owner_ids": [[1, 2]]},
        {"owner_ids": [1, 2], "times": [0.0, np.nan]},
        {"owner_ids": [1, 2], "times": [0]},
    ],
)
def test_columns_that_name_no_unit_are_refused(columns: dict[str, Any]) -> None:
    with pytest.raises(DataError):
        group_rows(Unit.user(), **columns)


def test_partners_must_be_given_for_every_row() -> None:
    with pytest.raises(DataError, match="one value for each row"):
        group_rows(Unit.user_advertiser(), owner_ids=[1, 2], partner_ids=[1])


def test_only_impressions_are_single_rows() -> None:
    with pytest.raises(ConfigError, match="group_rows"):
        single_rows(Unit.user(), 3)


KEY = b"a key of 16 byte"
owners_of_logs = npst.arrays(np.int64, st.integers(0, 60), elements=st.integers(-4, 4))


@given(owners=owners_of_logs, cap=st.integers(1, 5), choice=st.sampled_from(KeptRows))
def test_units_keep_as_many_rows_as_they_may_in_their_order(
    owners: Any, cap: int, choice: KeptRows
) -> None:
    rows = group_rows(Unit.user(), owner_ids=owners)
    capped = cap_rows(rows, max_rows_per_unit=cap, choice=choice, key=KEY)
    assert capped.num_units == rows.num_units
    assert capped.grouped.lengths.tolist() == np.minimum(rows.grouped.lengths, cap).tolist()
    assert capped.num_table_rows == owners.size
    for start, length, first in zip(
        capped.grouped.starts, capped.grouped.lengths, rows.grouped.starts, strict=True
    ):
        kept = capped.grouped.order[start : start + length]
        assert (np.diff(kept) > 0).all()
        assert (owners[kept] == owners[rows.grouped.order[first]]).all()


@given(owners=owners_of_logs, cap=st.integers(1, 5))
def test_the_choice_is_that_of_the_contribution_bounds(owners: Any, cap: int) -> None:
    rows = group_rows(Unit.user(), owner_ids=owners)
    first = cap_rows(rows, max_rows_per_unit=cap)
    random = cap_rows(rows, max_rows_per_unit=cap, choice=KeptRows.RANDOM, key=KEY)
    expected_first = keep_first_rows(owners, max_rows_per_unit=cap).rows
    expected_random = keep_random_rows(owners, max_rows_per_unit=cap, key=KEY).rows
    assert np.sort(first.grouped.order).tolist() == expected_first.tolist()
    assert np.sort(random.grouped.order).tolist() == expected_random.tolist()


def test_the_first_rows_are_the_earliest() -> None:
    rows = group_rows(Unit.user(), owner_ids=[1, 1, 1, 2], times=[30, 10, 20, 5])
    assert cap_rows(rows, max_rows_per_unit=2).grouped.order.tolist() == [1, 2, 3]


def test_no_cap_keeps_everything() -> None:
    rows = group_rows(Unit.user(), owner_ids=[1, 1, 2])
    assert cap_rows(rows, max_rows_per_unit=None) is rows


def test_random_rows_need_a_key() -> None:
    rows = group_rows(Unit.user(), owner_ids=[1, 1, 2])
    with pytest.raises(ConfigError, match=r"token_bytes\(16\)"):
        cap_rows(rows, max_rows_per_unit=1, choice=KeptRows.RANDOM)


@pytest.mark.parametrize("wrong", [{"max_rows_per_unit": 0}, {"choice": "first"}])
def test_wrong_caps_are_refused(wrong: dict[str, Any]) -> None:
    rows = group_rows(Unit.user(), owner_ids=[1, 1, 2])
    with pytest.raises(ConfigError):
        cap_rows(rows, **{"max_rows_per_unit": 1, **wrong})


def test_a_choice_of_rows_cannot_be_given_labels() -> None:
    names = set(inspect.signature(cap_rows).parameters)
    assert names == {"unit_rows", "max_rows_per_unit", "choice", "key"}
    assert {choice.value for choice in KeptRows} == {"first", "random"}


Config = JointResponseConfig | JointSubsetConfig

CONFIGS: list[Config] = [
    JointResponseConfig(epsilon=epsilon, num_rows=num_rows, max_conversions=max_conversions)
    for epsilon in (0.1, 1.0, 4.0)
    for num_rows in (1, 2, 3, 5)
    for max_conversions in (1, 2, 3)
] + [
    JointSubsetConfig(epsilon=epsilon, num_rows=num_rows)
    for epsilon in (0.1, 1.0, 4.0)
    for num_rows in (1, 2, 5, 7)
]


@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_moments_are_those_of_brute_force_over_all_reports(config: Config) -> None:
    probs = config.row_probs
    gain = probs.if_held - probs.if_not_held
    targets = [[(bit - probs.if_not_held) / gain for bit in report] for report in config.outputs()]
    states = JointResponseConfig(
        epsilon=1.0, num_rows=config.num_rows, max_conversions=config.max_conversions
    ).outputs()
    for state, law in zip(states, config.realised_channel(), strict=True):

        def mean_of(first: int, second: int, law: list[Fraction] = law) -> Fraction:
            products = (target[first] * target[second] for target in targets)
            return sum((c * p for c, p in zip(law, products, strict=True)), start=Fraction(0))

        for row in range(config.num_rows):
            variance = float(mean_of(row, row) - state[row])
            stated = channel_of(config.row_probs).target_variance(state[row])
            assert float(stated) == pytest.approx(variance, rel=1e-9)
        for first, second in itertools.combinations(range(config.num_rows), 2):
            covariance = mean_of(first, second) - state[first] * state[second]
            assert covariance == row_covariance(config, state[first], state[second])


@pytest.mark.parametrize(
    ("epsilon", "num_rows", "per_row", "joint", "impression"),
    [
        (1, 5, 24.9, 2.28, 0.92),
        (2, 10, 24.9, 0.40, 0.18),
        (3, 10, 11.0, 0.080, 0.055),
        (4, 10, 6.17, 0.022, 0.019),
    ],
)
def test_a_joint_draw_has_the_variance_of_the_reference_table(
    epsilon: float, num_rows: int, per_row: float, joint: float, impression: float
) -> None:
    # A row that does not convert; epsilon / K_i, one draw with C = 1, and each row by itself.
    config = JointResponseConfig(epsilon=epsilon, num_rows=num_rows)
    variance = float(channel_of(config.row_probs).target_variance(0))
    assert variance == pytest.approx(joint, rel=0.03)
    closed_form = (math.exp(epsilon) + num_rows - 1) / (math.exp(epsilon) - 1) ** 2
    assert variance == pytest.approx(closed_form, rel=1e-12)
    shared = PerRowResponse(epsilon=epsilon, max_rows_per_unit=None)
    assert shared.row_channel(num_rows).target_variance(0) == pytest.approx(per_row, rel=0.005)
    assert shared.row_channel(1).target_variance(0) == pytest.approx(impression, rel=0.03)


def test_subset_selection_has_the_variance_of_the_reference() -> None:
    subset = JointSubsetConfig(epsilon=1.0, num_rows=10)
    response = JointResponseConfig(epsilon=1.0, num_rows=10)
    assert float(channel_of(subset.row_probs).target_variance(0)) == pytest.approx(2.87, abs=0.005)
    assert float(channel_of(response.row_probs).target_variance(0)) == pytest.approx(
        3.97, abs=0.005
    )


def test_rows_of_one_unit_repel_each_other_with_one_conversion_at_most() -> None:
    config = JointResponseConfig(epsilon=1.5, num_rows=6)
    expected = -1 / (math.exp(1.5) - 1) ** 2
    assert float(row_covariance(config, 0, 0)) == pytest.approx(expected, rel=1e-12)
    assert row_covariance(config, 0, 1) < 0


def test_the_mean_covariance_weighs_the_labels_of_both_rows() -> None:
    one = JointResponseConfig(epsilon=1.0, num_rows=4)
    expected = 0.8 * row_covariance(one, 0, 0) + 0.2 * row_covariance(one, 0, 1)
    assert mean_covariance(one, 0.1, 1) == pytest.approx(float(expected))
    two = JointResponseConfig(epsilon=1.0, num_rows=4, max_conversions=2)
    pairs = [(0, 0, 0.81), (0, 1, 0.18), (1, 1, 0.01)]
    expected_two = sum(weight * float(row_covariance(two, a, b)) for a, b, weight in pairs)
    assert mean_covariance(two, 0.1, 2) == pytest.approx(expected_two)
    with pytest.raises(ConfigError, match="base_rate"):
        mean_covariance(one, 0.0, 1)


def test_the_channel_of_a_row_has_the_exact_chances() -> None:
    config = JointResponseConfig(epsilon=1.0, num_rows=4, max_conversions=2)
    channel = channel_of(config.row_probs)
    np.testing.assert_allclose(channel.prob_if_negative, float(config.row_probs.if_not_held))
    np.testing.assert_allclose(channel.prob_if_positive, float(config.row_probs.if_held))
