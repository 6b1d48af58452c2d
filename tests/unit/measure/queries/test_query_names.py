"""Names of slices that an engine or a result would take for one are refused."""

import pytest

from tulle.errors import ConfigError
from tulle.measure.ad_log import Side
from tulle.measure.queries.query import Quantity, Query
from tulle.measure.slice_jobs import Bounds, SliceColumn

BOUNDS = Bounds(max_per_slice=1.0, max_slices_per_unit=1)


def query_by(*names: str) -> Query:
    slices = tuple(SliceColumn(name=name, side=Side.IMPRESSION, column="site") for name in names)
    return Query(name="q", quantity=Quantity.IMPRESSIONS, slices=slices, bounds=BOUNDS)


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
