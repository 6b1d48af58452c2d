"""Every verb of labels reads every form of a table alike."""

from pathlib import Path
from typing import Any

import polars as pl
import pytest

import tulle
from contract.table_inputs import DOUBTFUL_TIMES, FLAGS, FORMS, TIMES, in_form
from tulle.data.schema import Schema
from tulle.errors import DataError
from unit.labels.label_files import SCHEMA, write_clicks

GIVEN: dict[str, Any] = {"epsilon": 1, "seed": 4}
UNITS: dict[str, Any] = {"unit": "user per 7 days", "mechanism": "joint-rr"}


@pytest.fixture(scope="module")
def clicks(tmp_path_factory: pytest.TempPathFactory) -> pl.DataFrame:
    return write_clicks(tmp_path_factory.mktemp("clicks") / "clicks.parquet", num_rows=300)


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_a_table_gives_the_same_noisy_labels_and_units(
    clicks: pl.DataFrame, tmp_path: Path, form: str
) -> None:
    expected = tulle.labels.release(clicks, SCHEMA, **GIVEN).to_polars()
    plan = tulle.labels.plan(clicks, SCHEMA, epsilon=1, **UNITS).plan
    with in_form(form, clicks, tmp_path) as data:
        found = tulle.labels.release(data, SCHEMA, **GIVEN).to_polars()
        assert tulle.labels.plan(data, SCHEMA, epsilon=1, **UNITS).plan == plan
    assert found["noisy_label"].equals(expected["noisy_label"])
    assert found.columns == expected.columns


@pytest.mark.parametrize("form", FORMS)
def test_predictions_come_in_every_form(clicks: pl.DataFrame, tmp_path: Path, form: str) -> None:
    if form == "two files":
        pytest.skip("predictions are one table")
    released = tulle.labels.release(clicks, SCHEMA, **GIVEN)
    predictions = pl.DataFrame({"row": range(300), "probability": [0.25, 0.5, 0.75] * 100})
    expected = tulle.labels.evaluate(predictions, released)
    with in_form(form, predictions, tmp_path) as data:
        assert tulle.labels.evaluate(data, released) == expected
        exact = tulle.labels.evaluate_raw(data, clicks, SCHEMA)
    assert exact == tulle.labels.evaluate_raw(predictions, clicks, SCHEMA)


@pytest.mark.parametrize("name", FLAGS)
@pytest.mark.parametrize("form", ["csv", "json lines", "polars", "pandas"])
def test_truth_values_are_labels_in_any_words(tmp_path: Path, name: str, form: str) -> None:
    schema = Schema(label="sale", public=("campaign",))
    words = FLAGS[name].head(2).alias("sale")
    frame = pl.DataFrame({"campaign": ["a", "b"]}).with_columns(words)
    with in_form(form, frame, tmp_path) as data:
        found = tulle.labels.release(data, schema, epsilon=60, seed=1).to_polars()
    assert found["noisy_label"].to_list() == [1, 0]


@pytest.mark.parametrize("name", TIMES)
@pytest.mark.parametrize("form", ["csv", "json lines", "polars"])
def test_times_in_any_words_have_the_same_windows(tmp_path: Path, name: str, form: str) -> None:
    schema = Schema(label="sale", public=(), unit="user", time="at")
    frame = pl.DataFrame({"user": [1, 1], "sale": [0, 1]}).with_columns(TIMES[name].alias("at"))
    if form == "json lines" and not isinstance(frame["at"][0], str | int | float):
        pytest.skip("JSON has no times")
    with in_form(form, frame, tmp_path) as data:
        days = tulle.labels.plan(data, schema, epsilon=1, unit="user per day", mechanism="unit-rr")
        weeks = tulle.labels.plan(data, schema, epsilon=1, unit="user", mechanism="unit-rr")
    assert days.unit_rows is not None
    assert weeks.unit_rows is not None
    assert days.unit_rows.length_counts() == {1: 2}
    assert weeks.unit_rows.length_counts() == {2: 1}


@pytest.mark.parametrize("name", DOUBTFUL_TIMES)
def test_times_that_may_be_days_are_refused(name: str) -> None:
    schema = Schema(label="sale", public=(), unit="user", time="at")
    times = DOUBTFUL_TIMES[name].alias("at")
    frame = pl.DataFrame({"user": [1, 1], "sale": [0, 1]}).with_columns(times)
    with pytest.raises(DataError, match="column 'at'"):
        tulle.labels.plan(frame, schema, epsilon=1, unit="user per day", mechanism="unit-rr")


@pytest.mark.parametrize("form", ["csv", "json lines", "pandas"])
def test_a_wrong_label_is_refused_with_its_row_and_without_its_value(
    clicks: pl.DataFrame, tmp_path: Path, form: str
) -> None:
    labels = clicks["sale"].cast(pl.String).to_list()
    labels[41] = "secret"
    wrong = clicks.with_columns(pl.Series("sale", labels))
    with (
        in_form(form, wrong, tmp_path) as data,
        pytest.raises(DataError, match=r"column 'sale' .* row 42") as caught,
    ):
        tulle.labels.release(data, SCHEMA, epsilon=1)
    assert "secret" not in str(caught.value)


def test_lines_that_are_no_json_objects_are_refused_by_their_number(tmp_path: Path) -> None:
    path = tmp_path / "clicks.jsonl"
    good = '{"campaign": "a", "advertiser": 1, "user": 2, "second": 3, "sale": 0}\n'
    for bad in ("[1]", "{", '{"sale": [1]}', "", "NaN"):
        path.write_text(good + bad + "\n" + good)
        with pytest.raises(DataError, match=r"clicks\.jsonl line 2"):
            tulle.labels.release(path, SCHEMA, epsilon=1)
