"""Every verb of measure reads every form of a table alike."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from contract.table_inputs import DOUBTFUL_TIMES, FLAGS, FORMS, ONE_SOURCE, TIMES, in_form
from tulle import measure
from tulle.errors import DataError
from tulle.privacy.units import Unit

_GIVEN: dict[str, Any] = {"epsilon": 20.0, "seed": 5}


def log(seed: int = 3) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Impressions and conversions with texts that need quotes, and gaps."""
    draw = np.random.default_rng(seed)
    impressions = pl.DataFrame(
        {
            "user": [f"u{number}" for number in draw.integers(0, 20, 120)],
            "timestamp": draw.integers(1_768_348_800, 1_768_521_600, 120),
            "campaign": draw.choice(["a", "ä b", 'say "x"'], 120),
            "site": [None if number == 0 else f"s{number}" for number in draw.integers(0, 4, 120)],
        }
    )
    conversions = pl.DataFrame(
        {
            "user": [f"u{number}" for number in draw.integers(0, 20, 40)],
            "timestamp": draw.integers(1_768_435_200, 1_768_608_000, 40),
            "price": draw.integers(1, 100, 40) / 4,
        }
    )
    return impressions, conversions


SETTINGS = """
[log]
impressions = "none.parquet"
conversions = "none.parquet"
[columns]
value = "price"
[attribution]
rule = "linear"
lookback = "2 days"
[privacy]
unit = "user"
epsilon = 2
[[query]]
name = "by site"
measure = "conversions"
slices = ["site"]
keys = { site = ["s1", "s2", "s3", "(null)"] }
max_per_slice = 2
max_slices_per_unit = 2
[[query]]
name = "value"
measure = "value"
clip = 20
slices = ["day"]
keys = { day = { first = 2026-01-14, last = 2026-01-17 } }
max_per_slice = 2
max_slices_per_unit = 2
"""

READERS: dict[str, Callable[[Any], pl.DataFrame]] = {
    "count": lambda data: measure.count(data, unit="row", **_GIVEN).to_polars(),
    "count by slice and day": lambda data: measure.count(
        data,
        unit="user per day",
        user="user",
        time="timestamp",
        by=["campaign", "day"],
        keys="private",
        delta=1e-3,
        max_per_slice=3,
        max_slices_per_unit=2,
        **_GIVEN,
    ).to_polars(),
    "count_reach": lambda data: measure.count_reach(
        data, by=["site"], keys={"site": ["s1", "(null)"]}, max_slices_per_unit=2, **_GIVEN
    ).to_polars(),
}


@functools.cache
def read_plainly(verb: str) -> pl.DataFrame:
    """What a verb makes of the plain polars table."""
    return READERS[verb](log()[0])


@pytest.fixture(scope="module")
def plain_record(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What a measurement of the plain polars tables says."""
    path = tmp_path_factory.mktemp("settings") / "campaigns.toml"
    path.write_text(SETTINGS)
    impressions, conversions = log()
    plain = measure.release(path, seed=5, impressions=impressions, conversions=conversions)
    return plain.record.to_json()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("verb", READERS)
def test_a_log_of_impressions(verb: str, form: str, tmp_path: Path) -> None:
    frame, _ = log()
    with in_form(form, frame, tmp_path) as data:
        found = READERS[verb](data)
        del data  # a relation of DuckDB must not outlive its connection
    assert found.equals(read_plainly(verb))
    assert found.height > 0


@pytest.mark.parametrize("form", FORMS)
def test_both_tables_of_a_measurement(form: str, plain_record: str, tmp_path: Path) -> None:
    (tmp_path / "campaigns.toml").write_text(SETTINGS)
    impressions, conversions = log()
    for name in ("impressions", "conversions"):
        (tmp_path / name).mkdir()
    with (
        in_form(form, impressions, tmp_path / "impressions") as shown,
        in_form(form, conversions, tmp_path / "conversions") as bought,
    ):
        given = {"impressions": shown, "conversions": bought}
        found = measure.release(tmp_path / "campaigns.toml", seed=5, **given)
        del shown, bought, given
    assert found.record.to_json() == plain_record


@pytest.mark.parametrize("form", ONE_SOURCE)
def test_keys_and_earlier_counts(form: str, tmp_path: Path) -> None:
    keys = pl.DataFrame({"campaign": ["a", 'say "x"', "z"], "count": [30, 40, 1]})
    frame, _ = log()
    with in_form(form, keys, tmp_path) as given:
        counted = measure.count(frame, unit="row", by=["campaign"], keys=given, **_GIVEN)
        plan = measure.plan(_levels())
        errors = measure.expected_errors(plan, given)
        shared = measure.plan(_levels("cube-root"), history={"levels": given})
        del given
    plain = measure.count(frame, unit="row", by=["campaign"], keys=keys, **_GIVEN)
    assert counted.to_polars().equals(plain.to_polars())
    assert counted.to_polars()["campaign"].to_list() == ["a", 'say "x"', "z"]
    relative = [one.rmsre for one in measure.expected_errors(plan, keys)]
    assert [one.rmsre for one in errors] == relative
    assert None not in relative
    assert shared.plan == measure.plan(_levels("cube-root"), history={"levels": keys}).plan


def _levels(split: str = "uniform") -> measure.MeasureConfig:
    campaign = measure.SliceColumn(name="campaign", side=measure.Side.IMPRESSION, column="campaign")
    query = measure.Query(
        name="levels",
        quantity=measure.Quantity.IMPRESSIONS,
        slices=(campaign,),
        keys=pl.DataFrame({"campaign": ["a", 'say "x"', "z"]}),
        bounds=measure.Bounds(max_per_slice=2, max_slices_per_unit=2),
        levels=measure.Levels(columns=((), ("campaign",)), split=measure.LevelSplit(split)),
    )
    return measure.MeasureConfig(
        log=measure.AdLog(impressions=measure.FrameTable(frame=log()[0]), conversions=None),
        attribution=None,
        unit=Unit.user(),
        epsilon=1,
        queries=(query,),
    )


@pytest.mark.parametrize("form", ["polars", "parquet", "csv"])
@pytest.mark.parametrize("times", TIMES)
def test_times_of_every_form(times: str, form: str, tmp_path: Path) -> None:
    frame = pl.DataFrame({"seen": TIMES[times]})
    wanted = ["2026-01-14", "2026-01-15"]
    with in_form(form, frame, tmp_path) as data:
        found = measure.count(
            data, epsilon=200, unit="row", time="seen", by=["day"], keys={"day": wanted}
        )
    assert dict(found.to_polars().select("day", "value").rows()) == dict.fromkeys(wanted, 1)


@pytest.mark.parametrize("form", ["polars", "parquet", "csv", "json lines"])
@pytest.mark.parametrize("times", DOUBTFUL_TIMES)
def test_times_that_may_count_days(times: str, form: str, tmp_path: Path) -> None:
    frame = pl.DataFrame({"seen": DOUBTFUL_TIMES[times]})
    given: Any = {"epsilon": 200, "unit": "row", "time": "seen", "by": ["day"]}
    wanted = ["2026-01-14", "2026-01-15"]
    with in_form(form, frame, tmp_path) as data:
        with pytest.raises(DataError, match="may count days as well as seconds"):
            measure.count(data, keys={"day": wanted}, **given)
        if times == "a number among dates":
            return
        found = measure.count(data, keys={"day": wanted}, kinds={"seen": "integer"}, **given)
    assert found.to_polars()["value"].to_list() == [1, 1]


@pytest.mark.parametrize("form", ["polars", "parquet", "csv", "json lines"])
@pytest.mark.parametrize("flags", FLAGS)
def test_truth_values_of_every_form(flags: str, form: str, tmp_path: Path) -> None:
    frame = pl.DataFrame({"opted": FLAGS[flags], "row": [1, 2, 3]})
    with in_form(form, frame, tmp_path) as data:
        found = measure.count(
            data,
            epsilon=200,
            unit="row",
            by=["opted"],
            keys={"opted": ["yes", "no"]},
            kinds={"opted": "boolean"},
        )
    assert dict(found.to_polars().select("opted", "value").rows()) == {"true": 1, "false": 1}
