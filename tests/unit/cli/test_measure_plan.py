"""`tulle measure plan`: errors to expect, before anything is read or spent."""

import json
from pathlib import Path
from typing import Any

import pytest

from tulle.cli.main import run_with
from unit.measure.queries.small_measurements import (
    PRIVATE_QUERIES,
    QUERIES,
    settings,
    write_log,
    write_settings,
)


def facts(folder: Path, capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, Any]:
    path = str(folder / "campaigns.toml")
    assert run_with(["measure", "plan", path, "--json", *options]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_no_row_of_the_log_is_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_settings(tmp_path, settings(*QUERIES, *PRIVATE_QUERIES))  # there are no tables
    found = facts(tmp_path, capsys)
    assert {row["query"] for row in found["queries"]} == {*QUERIES, *PRIVATE_QUERIES}
    assert all(row["noise_stddev"] > 0 for row in found["queries"])
    assert found["plan"]["guarantee"]["epsilon"] == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["campaigns.toml"]


def test_noise_falls_with_epsilon_and_is_that_of_the_release(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_log(tmp_path)
    stated = {}
    for epsilon in (1.0, 2.0):
        write_settings(tmp_path, settings("value", epsilon=epsilon))
        stated[epsilon] = facts(tmp_path, capsys)["queries"][0]["noise_stddev"]
    assert stated[1.0] == pytest.approx(2 * stated[2.0])
    path = str(tmp_path / "campaigns.toml")
    assert run_with(["measure", "run", path, "--out", str(tmp_path / "out"), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["answers"]["value"]
    assert {row["noise_stddev"] for row in rows} == {stated[2.0]}


def test_earlier_numbers_give_relative_errors(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_settings(tmp_path, settings("conversions", "levels", "total"))
    (tmp_path / "past.csv").write_text("geo,campaign,count\nn,a,1000\ns,a,500\ns,b,1\n")
    found = facts(tmp_path, capsys, "--past", str(tmp_path / "past.csv"))
    first, tree, geos, leaves, total = found["queries"]
    assert [row["level"] for row in (tree, geos, leaves)] == ["total", "geo", "geo+campaign"]
    assert {row["geo"]: row["expected"] for row in geos["slices"]} == {"n": 1000, "s": 501}
    expected = {row["campaign"]: row["expected"] for row in first["slices"]}
    assert expected == {"a": 1500, "b": 1, "c": 0}
    # Scale 6 / (1/3), so the relative error of campaign a is that over 1500.
    row = next(row for row in first["slices"] if row["campaign"] == "a")
    assert row["relative_error"] == pytest.approx(18 * 2**0.5 / 1500, rel=1e-2)
    small = next(row for row in first["slices"] if row["campaign"] == "b")
    assert small["relative_error"] == pytest.approx(18 * 2**0.5 / 5, rel=1e-2)
    assert total["slices"][0]["expected"] == 1501
    assert [r["expected"] for r in tree["slices"] if r["geo"] is None] == [1501]
    smaller = facts(tmp_path, capsys, "--past", str(tmp_path / "past.csv"), "--tau", "100")
    assert smaller["queries"][0]["rmsre"] < first["rmsre"]


def test_an_earlier_measurement_gives_them_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_log(tmp_path)
    path = write_settings(tmp_path, settings(*QUERIES, epsilon=50))
    assert run_with(["measure", "run", str(path), "--out", str(tmp_path / "out"), "--quiet"]) == 0
    capsys.readouterr()
    plot = tmp_path / "errors.svg"
    past = ["--past", str(tmp_path / "out" / "measurement.json")]
    found = facts(tmp_path, capsys, *past, "--plot", str(plot))
    with_counts = {row["query"] for row in found["queries"] if row["slices"] is not None}
    assert with_counts == set(QUERIES)
    assert plot.read_text().lstrip().startswith("<svg ")
    assert run_with(["measure", "plan", str(path), *past]) == 0
    assert "root mean square relative error" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (["--plot", "x.svg"], 2, "--past"),
        (["--plot", "x.png", "--past", "gone.csv"], 2, "must end in .svg"),
        (["--past", "gone.csv"], 4, "gone.csv"),
        (["--past", "gone.json"], 4, "gone.json"),
        (["--past", "{folder}/words.csv"], 4, "count"),
        (["--past", "{folder}/other.csv"], 4, "slice columns of no query"),
        (["--top", "0"], 2, "top"),
    ],
    ids=str,
)
def test_errors_are_one_line(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    options: list[str],
    code: int,
    said: str,
) -> None:
    path = write_settings(tmp_path, settings("conversions"))
    (tmp_path / "words.csv").write_text("campaign,count\na,many\n")
    (tmp_path / "other.csv").write_text("weather,count\nrain,4\n")
    given = [option.replace("{folder}", str(tmp_path)) for option in options]
    assert run_with(["measure", "plan", str(path), *given]) == code
    assert said in capsys.readouterr().err


def test_levels_and_private_slices_are_told_in_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_settings(tmp_path, settings("levels", "running", "found levels"))
    assert run_with(["measure", "plan", str(path)]) == 0
    printed = capsys.readouterr().out
    assert "levels: conversions in total +- " in printed
    assert "levels: conversions by geo+campaign +- " in printed
    assert "running: running conversions +- " in printed
    assert printed.count("found levels: a slice needs about ") == 1
    assert "as measured" in printed
    found = facts(tmp_path, capsys)["private_slices"]["found levels"]
    assert f"{found['likely_from_units']:,} units to be found (surely from" in printed
    assert f"{found['sure_from_units']:,})" in printed


def test_listed_slices_are_not_called_all(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_settings(tmp_path, settings("levels"))
    (tmp_path / "past.csv").write_text("geo,campaign,count\nn,a,1000\n")
    assert run_with(["measure", "plan", str(path), "--past", str(tmp_path / "past.csv")]) == 0
    printed = capsys.readouterr().out
    assert "(listed) > (listed): 1,000 +- " in printed
    assert "(all)" not in printed


def test_a_record_of_other_queries_is_said_to_be_of_no_use(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_log(tmp_path)
    path = write_settings(tmp_path, settings("total"))
    assert run_with(["measure", "run", str(path), "--out", str(tmp_path / "out"), "--quiet"]) == 0
    write_settings(tmp_path, settings("conversions"))
    capsys.readouterr()
    past = str(tmp_path / "out" / "measurement.json")
    assert run_with(["measure", "plan", str(path), "--past", past]) == 0
    assert "measurement.json has none of the queries" in capsys.readouterr().err


def test_learnt_weights_are_planned_with_their_epsilon(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    channels = 'lookback = "3 days"\nchannel = "kind"\nchannels = ["click", "view"]\nshare = 0.25'
    text = settings("conversions", rule="data-driven", epsilon=2)
    path = write_settings(tmp_path, text.replace('lookback = "3 days"', channels))
    assert run_with(["measure", "plan", str(path)]) == 0
    assert "weights of channels: epsilon 0.5 of 2;" in capsys.readouterr().out
