import polars as pl
import pytest

from tulle.data.schema import Schema
from tulle.data.units import check_units, drop_rows_without_unit
from tulle.errors import DataError

BY_USER = Schema(label="y", unit="user_id")
BY_ROW = Schema(label="y")


@pytest.mark.parametrize("users", [["a", None, "b"], [1, None, 2], [1.0, float("nan"), 2.0]])
def test_a_row_without_a_unit_is_refused_or_dropped(users: list[object]) -> None:
    table = pl.DataFrame({"user_id": users, "y": [1, 2, 3]}, strict=False)
    with pytest.raises(DataError) as caught:
        check_units(table, BY_USER)
    assert str(caught.value) == (
        "column 'user_id' has nulls; every row needs a unit. "
        "Drop them first with drop_rows_without_unit()."
    )
    kept = drop_rows_without_unit(table, BY_USER)
    check_units(kept, BY_USER)
    assert kept["y"].to_list() == [1, 3]


def test_rows_with_units_stay_as_they_are() -> None:
    table = pl.DataFrame({"user_id": ["a", "b"], "y": [None, 2]})
    check_units(table, BY_USER)
    assert drop_rows_without_unit(table, BY_USER).equals(table)


def test_without_a_unit_column_each_row_is_its_own_unit() -> None:
    table = pl.DataFrame({"user_id": ["a", None]})
    check_units(table, BY_ROW)
    assert drop_rows_without_unit(table, BY_ROW).equals(table)


def test_a_table_without_the_unit_column_is_refused() -> None:
    for function in (check_units, drop_rows_without_unit):
        with pytest.raises(DataError, match="'user_id' of role unit is not in the table"):
            function(pl.DataFrame({"y": [1]}), BY_USER)
