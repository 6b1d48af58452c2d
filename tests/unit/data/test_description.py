import dataclasses
import json
from pathlib import Path

import pytest

from tulle.data.description import Description, describe_log, describe_prepared
from tulle.data.preparation import prepare_log
from tulle.data.tables.layout import BadLines
from tulle.errors import DataError
from unit.data.small_log import lines, small_log, small_plan, write_log


@pytest.fixture
def csv(tmp_path: Path) -> Path:
    return write_log(tmp_path / "small.csv", lines(210))


def by_name(description: Description) -> dict[str, tuple[str, float, float | None]]:
    return {
        c.name: (
            c.role,
            c.num_distinct.value,
            None if c.missing_share is None else c.missing_share.value,
        )
        for c in description.columns
    }


def test_the_figures_are_those_of_the_log(csv: Path) -> None:
    found = describe_log(small_log(csv))
    assert found.num_rows.value == 210
    assert found.label_rate is not None
    assert found.label_rate.value == 70 / 210
    assert found.num_bad_lines.value == 0
    assert by_name(found) == {
        "click": ("label", 2, 0),
        "site": ("public", 7, 0),
        "price": ("public", 210, 0),
        "age": ("sensitive", 72, 0.2),
        "city": ("sensitive", 11, 0),
        "user": ("unit", 70, 0),
        "at": ("time", 210, 0),
    }
    assert {name: figure.value for name, figure in found.rows_per_unit.items()} == {
        "median": 3,
        "90%": 3,
        "99%": 3,
        "most": 3,
    }


@pytest.mark.parametrize("words", ["true false", "Yes No", "TRUE FALSE", "1.0 0.0"])
def test_labels_that_are_words_have_the_rate_that_prepare_stores(
    tmp_path: Path, words: str
) -> None:
    one, zero = words.split()
    rows = [(one if row[0] == "1" else zero) + row[1:] for row in lines(210)]
    log = small_log(write_log(tmp_path / "words.csv", rows))
    found = describe_log(log)
    assert found.label_rate is not None
    assert found.label_rate.value == 70 / 210
    stored = describe_prepared(prepare_log(log, small_plan(), tmp_path / "out").dataset)
    assert stored.label_rate == found.label_rate


@pytest.mark.parametrize("label", ["maybe", "nan", "inf", "1 0"])
def test_a_label_that_stands_for_no_number_is_refused_and_not_shown(
    tmp_path: Path, label: str
) -> None:
    rows = lines(100)
    rows[57] = label + rows[57][1:]
    log = small_log(write_log(tmp_path / "small.csv", rows))
    with pytest.raises(DataError, match=r"'click' of role label .* small\.csv, row 58;") as caught:
        describe_log(log)
    assert f" {label} " not in str(caught.value)


def test_a_missing_label_is_counted_as_missing(tmp_path: Path) -> None:
    rows = [row[1:] if number < 30 else row for number, row in enumerate(lines(210))]
    found = describe_log(small_log(write_log(tmp_path / "small.csv", rows)))
    assert found.label_rate is not None
    assert found.label_rate.value == 60 / 180
    assert by_name(found)["click"] == ("label", 2, 30 / 210)


def test_a_copy_of_a_file_is_not_counted(csv: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.csv"
    copy.write_bytes(csv.read_bytes())
    with pytest.raises(DataError, match=r"copy\.csv is a copy of small\.csv"):
        describe_log(small_log(csv, copy))


def test_what_depends_on_sensitive_data_is_marked(csv: Path) -> None:
    found = describe_log(small_log(csv))
    assert found.label_rate is not None
    assert found.label_rate.must_not_be_released
    assert found.num_bad_lines.must_not_be_released
    assert not found.num_rows.must_not_be_released
    assert all(figure.must_not_be_released for figure in found.rows_per_unit.values())
    marked = {c.name for c in found.columns if c.num_distinct.must_not_be_released}
    assert marked == {"click", "age", "city", "user"}
    shares = {c.name for c in found.columns if c.missing_share and c.missing_share.value >= 0}
    assert shares == {c.name for c in found.columns}
    for column in found.columns:
        assert column.missing_share is not None
        assert column.missing_share.must_not_be_released == (column.name in marked)


def test_quantiles_of_rows_per_unit_see_the_tail(tmp_path: Path) -> None:
    rows = lines(600)
    rows[:60] = [f"{row.partition(',user')[0]},heavy,0,note" for row in rows[:60]]
    found = describe_log(small_log(write_log(tmp_path / "small.csv", rows)))
    assert {name: f.value for name, f in found.rows_per_unit.items()} == {
        "median": 3,
        "90%": 3,
        "99%": 3,
        "most": 60,
    }


def test_a_prepared_dataset_is_described_by_its_ids(csv: Path, tmp_path: Path) -> None:
    dataset = prepare_log(small_log(csv), small_plan(), tmp_path / "out").dataset
    found, raw = describe_prepared(dataset), describe_log(small_log(csv))
    assert found.num_rows == raw.num_rows
    assert found.label_rate == raw.label_rate
    assert found.rows_per_unit == raw.rows_per_unit
    roles = {c.name: c.role for c in found.columns}
    assert roles == {c.name: c.role for c in raw.columns}
    distinct = {c.name: c.num_distinct for c in found.columns}
    assert distinct["user"].value == 70
    assert distinct["city"].value == 11
    assert distinct["city"].must_not_be_released
    assert not distinct["site"].must_not_be_released
    assert all(c.missing_share is None for c in found.columns)


def test_bad_lines_are_counted_if_asked_for(tmp_path: Path) -> None:
    csv = write_log(tmp_path / "small.csv", [*lines(5), "bad"])
    with pytest.raises(DataError, match="line 7"):
        describe_log(small_log(csv))
    log = dataclasses.replace(small_log(csv), bad_lines=BadLines.SKIP)
    found = describe_log(log)
    assert (found.num_rows.value, found.num_bad_lines.value) == (5, 1)


def test_nothing_is_releasable_where_bad_lines_may_be_missing(tmp_path: Path) -> None:
    # Whether a line is bad can follow from a sensitive value in it.
    for name, rows in (("good", lines(5)), ("bad", [*lines(5), "bad"])):
        csv = write_log(tmp_path / f"{name}.csv", rows)
        log = dataclasses.replace(small_log(csv), bad_lines=BadLines.SKIP)
        dataset = prepare_log(log, small_plan(), tmp_path / name).dataset
        for found in (describe_log(log), describe_prepared(dataset)):
            assert found.num_bad_lines.value == (name == "bad")
            assert found.num_rows.must_not_be_released
            assert all(c.num_distinct.must_not_be_released for c in found.columns)


def test_a_log_without_rows_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no row"):
        describe_log(small_log(write_log(tmp_path / "small.csv", [])))


def test_a_description_is_plain_data(csv: Path) -> None:
    data = json.loads(json.dumps(describe_log(small_log(csv)).to_dict(), allow_nan=False))
    assert data["label_rate"] == {
        "value": 70 / 210,
        "must_not_be_released": True,
        "relative_error": 0.0,
    }


def test_progress_is_told(csv: Path) -> None:
    seen: list[int] = []
    describe_log(small_log(csv, rows_per_block=100), progress=seen.append)
    assert seen == [100, 200, 210]
