"""A cap keeps few rows of each unit, in order, by a choice that cannot see labels."""

import inspect
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from tulle.data.contribution import keep_first_rows, keep_random_rows
from tulle.errors import ConfigError
from tulle.labels.units import row_caps
from tulle.labels.units.row_caps import RowChoice, cap_rows
from tulle.labels.units.unit_rows import group_rows
from tulle.privacy.units import Unit

KEY = b"a key of 16 byte"
owners_of_logs = npst.arrays(np.int64, st.integers(0, 60), elements=st.integers(-4, 4))


@given(owners=owners_of_logs, cap=st.integers(1, 5), choice=st.sampled_from(RowChoice))
def test_units_keep_as_many_rows_as_they_may_in_their_order(
    owners: Any, cap: int, choice: RowChoice
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
    random = cap_rows(rows, max_rows_per_unit=cap, choice=RowChoice.RANDOM, key=KEY)
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
        cap_rows(rows, max_rows_per_unit=1, choice=RowChoice.RANDOM)


@pytest.mark.parametrize("wrong", [{"max_rows_per_unit": 0}, {"choice": "first"}])
def test_wrong_caps_are_refused(wrong: dict[str, Any]) -> None:
    rows = group_rows(Unit.user(), owner_ids=[1, 1, 2])
    with pytest.raises(ConfigError):
        cap_rows(rows, **{"max_rows_per_unit": 1, **wrong})


def test_a_choice_of_rows_cannot_be_given_labels() -> None:
    names = set(inspect.signature(row_caps.cap_rows).parameters)
    assert names == {"unit_rows", "max_rows_per_unit", "choice", "key"}
    assert {choice.value for choice in RowChoice} == {"first", "random"}
