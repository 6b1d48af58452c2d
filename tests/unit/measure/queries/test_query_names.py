"""Names and keys of slices that an engine or a result would take for one are refused."""

import polars as pl
import pytest

from tulle.errors import ConfigError
from tulle.measure.ad_log import Side
from tulle.measure.queries import query
from tulle.measure.queries.query import Quantity, Query
from tulle.measure.slice_jobs import Bounds, SliceColumn

BOUNDS = Bounds(max_per_slice=1.0, max_slices_per_unit=1)


def query_by(*names: str, keys: pl.DataFrame | None = None) -> Query:
    slices = tuple(SliceColumn(name=name, side=Side.IMPRESSION, column="site") for name in names)
    return Query(name="q", quantity=Quantity.IMPRESSIONS, slices=slices, bounds=BOUNDS, keys=keys)


@pytest.mark.parametrize("names", [("site", "Site"), ("STRASSE", "straße")])
def test_names_that_differ_in_case_alone_are_refused(names: tuple[str, str]) -> None:
    with pytest.raises(ConfigError, match="case makes no difference"):
        query_by(*names)


@pytest.mark.parametrize("name", ["value", "Value", "METRIC"])
def test_names_of_result_columns_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="name of a result column"):
        query_by(name)


def test_other_names_pass() -> None:
    assert len(query_by("site", "Site 2").slices) == 2


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"site": ["a", "b", "a"]}, "has a key twice"),
        ({"site": ["a", None]}, "text without nulls"),
        ({"site": [1, 2]}, "text without nulls"),
        ({"place": ["a"]}, r"keys have the columns \['place'\]"),
        ({"site": []}, "needs between 1 and 4 keys"),
        ({"site": list("abcde")}, "needs between 1 and 4 keys"),
    ],
)
def test_keys_that_do_not_name_each_slice_once_are_refused(
    keys: dict[str, list[object]], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(query, "MAX_SLICES", 4)
    with pytest.raises(ConfigError, match=message):
        query_by("site", keys=pl.DataFrame(keys))


@pytest.mark.parametrize("number", [1, 4])
def test_as_many_keys_as_there_may_be_pass(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query, "MAX_SLICES", 4)
    query_by("site", keys=pl.DataFrame({"site": list("abcd")[:number]}))
