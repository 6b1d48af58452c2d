"""A measurement's file: what is written is read again, and what is damaged is refused."""

import json
import math
from pathlib import Path

import polars as pl
import pytest

from tulle.errors import ConfigError, DataError
from tulle.measure.queries.answers import MEASURED_COLUMNS, AnswerTable
from tulle.measure.queries.measure_record import MeasureRecord, read_measurement, write_tables
from unit.measure.queries.small_measurements import plan_of, settings

FRAME = pl.DataFrame(
    {
        "campaign": ["a", None, 'quoted "ü"\n', "", "null", "a"],
        "metric": ["conversions"] * 6,
        "value": [1.5, math.nan, -3.0, 0.1 + 0.2, 1e300, 5e-324],
        "low": [0.0, -math.inf, -9.0, 0.0, -math.inf, 0.0],
        "high": [3.0, math.inf, 9.0, 1.0, math.inf, 1.0],
        "noise_stddev": [0.7, math.inf, 1.0, 1.0, math.inf, 1e-9],
        "level": [0, 1, 2, 3, 4, 5],
        "nonnegative": [1.5, 0.0, 0.0, 0.3, 1e300, 0.0],
        "measured_value": [2.5, math.nan, -4.0, 0.25, math.nan, 0.0],
        "measured_stddev": [1.5, math.inf, 2.0, 1.0, math.inf, 1.0],
    }
)


def record_of(folder: Path, *names: str) -> MeasureRecord:
    plan = plan_of(folder, settings("conversions")).plan
    tables = tuple(
        AnswerTable(name=name, frame=FRAME, event=plan.event, confidence=0.9) for name in names
    )
    return MeasureRecord(plan=plan, tables=tables, randomness="dice", is_secure=False)


def test_every_number_comes_back_exactly(tmp_path: Path) -> None:
    record = record_of(tmp_path, "one", "two")
    text = record.to_json()
    assert "NaN" not in text
    assert "Infinity" not in text
    read = MeasureRecord.from_json(text)
    assert read.to_json() == text
    assert read.plan == record.plan
    assert (read.randomness, read.is_secure) == ("dice", False)
    for table in read.tables:
        assert table.frame.schema == FRAME.schema
        assert table.frame.equals(FRAME, null_equal=True)
        assert table.confidence == 0.9
        assert table.event == record.plan.event


def test_a_file_of_the_first_version_is_read_without_what_it_lacks(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, settings("conversions")).plan
    frame = FRAME.drop(MEASURED_COLUMNS)
    table = AnswerTable(name="one", frame=frame, event=plan.event, confidence=0.9)
    text = MeasureRecord(plan=plan, tables=(table,), randomness="dice", is_secure=True).to_json()
    first = text.replace('"tulle measurement 3"', '"tulle measurement 1"')
    assert first != text
    (read,) = MeasureRecord.from_json(first).tables
    assert read.frame.equals(frame, null_equal=True)


def test_a_metric_of_earlier_versions_was_called_a_number(tmp_path: Path) -> None:
    record = record_of(tmp_path, "one")
    text = record.to_json()
    assert '"metric"' in text
    earlier = text.replace("measurement 3", "measurement 2").replace('"metric"', '"number"')
    read = MeasureRecord.from_json(earlier)
    assert read.to_json() == text


def test_a_file_of_a_later_version_is_refused_with_a_way_out(tmp_path: Path) -> None:
    path = tmp_path / "measurement.json"
    text = record_of(tmp_path, "one").to_json().replace("measurement 3", "measurement 4")
    path.write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match="read it with the tulle that wrote it"):
        read_measurement(path)


def test_a_table_without_rows_comes_back(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, settings("conversions")).plan
    empty = AnswerTable(name="none", frame=FRAME.clear(), event=plan.event, confidence=0.9)
    record = MeasureRecord(plan=plan, tables=(empty,), randomness="dice", is_secure=True)
    (table,) = MeasureRecord.from_json(record.to_json()).tables
    assert table.frame.schema == FRAME.schema


def test_a_truncated_file_is_refused_wherever_it_ends(tmp_path: Path) -> None:
    text = record_of(tmp_path, "one").to_json()
    path = tmp_path / "measurement.json"
    for length in [*range(0, len(text) - 2, 97), len(text) - 3]:
        path.write_text(text[:length], encoding="utf-8")
        with pytest.raises(DataError, match="measurement"):
            read_measurement(path)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (["format"], "tulle measurement 9"),
        (["format"], None),
        (["plan"], {}),
        (["plan"], []),
        (["randomness"], "dice"),
        (["randomness", "description"], 5),
        (["tables"], {}),
        (["tables", 0], "one"),
        (["tables", 0, "name"], ""),
        (["tables", 0, "confidence"], "high"),
        (["tables", 0, "event"], {}),
        (["tables", 0, "columns"], "campaign"),
        (["tables", 0, "columns"], []),
        (["tables", 0, "columns", 0], {}),
        (["tables", 0, "columns", 0], "value"),
        (["tables", 0, "columns", 2], "other"),
        (["tables", 0, "values"], 7),
        (["tables", 0, "values", 0], 7),
        (["tables", 0, "values", 0], []),
        (["tables", 0, "values", 0], ["a", "conversions"]),
        (["tables", 0, "values", 0, 2], "many"),
        (["tables", 0, "values", 0, 0], {"a": 1}),
        (["tables", 0, "values", 0, 6], 0.5),
    ],
    ids=str,
)
def test_a_damaged_file_is_refused(tmp_path: Path, place: list[str | int], value: object) -> None:
    data = json.loads(record_of(tmp_path, "one").to_json())
    inner = data
    for name in place[:-1]:
        inner = inner[name]
    inner[place[-1]] = value
    path = tmp_path / "measurement.json"
    path.write_text(json.dumps(data), encoding="utf-8")
    with pytest.raises(DataError, match="cannot be read as a measurement"):
        read_measurement(path)


def test_bytes_that_are_no_text_and_no_file_are_refused(tmp_path: Path) -> None:
    (tmp_path / "measurement.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DataError, match="cannot be read"):
        read_measurement(tmp_path / "measurement.json")
    with pytest.raises(DataError, match=r"nothing\.json does not exist"):
        read_measurement(tmp_path / "nothing.json")


def test_tables_and_numbers_are_found_by_name(tmp_path: Path) -> None:
    record = record_of(tmp_path, "one")
    assert record.table("one").release("conversions", campaign="null").value == 1e300
    with pytest.raises(ConfigError, match="there are 'one'"):
        record.table("two")
    with pytest.raises(ConfigError, match="2 rows"):
        record.table("one").release("conversions", campaign="a")


@pytest.mark.parametrize("form", ["parquet", "csv"])
def test_files_of_tables_have_safe_names_of_their_own(tmp_path: Path, form: str) -> None:
    names = ["By campaign!", "by-campaign", "by campaign", "../../etc", "ü", "", "by campaign 2"]
    record = record_of(tmp_path, *(name or "?" for name in names))
    out = tmp_path / "tables"
    out.mkdir()
    paths = write_tables(record, out, form=form)
    assert len(set(paths)) == len(names)
    assert all(path.parent == out and path.exists() for path in paths)
    assert [path.name for path in paths[:2]] == [f"by-campaign.{form}", f"by-campaign-2.{form}"]
    assert sorted(out.iterdir()) == sorted(paths)
    frame = pl.read_parquet(paths[0]) if form == "parquet" else pl.read_csv(paths[0])
    assert frame.height == FRAME.height
    assert frame["value"][0] == 1.5


def test_an_unknown_format_of_tables_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="parquet, csv"):
        write_tables(record_of(tmp_path, "one"), tmp_path, form="xlsx")
