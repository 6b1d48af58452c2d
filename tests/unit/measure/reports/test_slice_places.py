import polars as pl
import pytest

from tulle.errors import ConfigError
from tulle.measure.reports.slice_places import distinct_slices, places_in, slice_names

ROWS = pl.DataFrame({"campaign": ["b", None, "a", "b"], "day": [2, 1, 1, 1], "other": [1, 2, 3, 4]})


def test_slices_are_the_combinations_that_occur_in_their_order() -> None:
    slices = distinct_slices(ROWS, ("campaign", "day"))
    assert slice_names(slices).to_list() == ["(missing) / 1", "a / 1", "b / 1", "b / 2"]
    assert places_in(ROWS, slices).tolist() == [3, 0, 1, 2]


def test_names_of_one_column_are_its_values() -> None:
    slices = distinct_slices(ROWS, ("day",))
    assert slice_names(slices).to_list() == ["1", "2"]
    assert places_in(ROWS, slices).tolist() == [1, 0, 0, 0]


@pytest.mark.parametrize("by", [("campaign", "campaign"), ("campaign", "geo")])
def test_columns_that_make_no_slices_are_named(by: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match=f"'{by[1]}' must be a column that was read, named once"):
        distinct_slices(ROWS, by)
