"""Every row is in exactly one unit, and units follow from public columns alone."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from tulle.errors import ConfigError, DataError
from tulle.labels.units import unit_rows as unit_rows_module
from tulle.labels.units.unit_rows import UnitRows, group_rows, single_rows
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
