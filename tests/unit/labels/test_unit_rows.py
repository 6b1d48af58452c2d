"""Every row is in exactly one unit, and units follow from public columns alone."""

import inspect
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from tulle.data.contribution import keep_first_rows, keep_random_rows
from tulle.errors import ConfigError, DataError
from tulle.labels import unit_rows as unit_rows_module
from tulle.labels.unit_rows import KeptRows, UnitRows, cap_rows, group_rows, single_rows
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
