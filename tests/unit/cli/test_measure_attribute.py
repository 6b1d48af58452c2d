"""`tulle measure attribute`: exact credit, which says of itself that it is not private."""

import json
from pathlib import Path

import polars as pl
import pytest

from tulle.cli.main import run_with
from unit.measure.queries.small_measurements import (
    DAY,
    settings,
    small_log,
    write_log,
    write_settings,
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_log(tmp_path)
    write_settings(tmp_path, settings("conversions"))
    return tmp_path


def run(folder: Path, *options: str) -> int:
    return run_with(["measure", "attribute", str(folder / "campaigns.toml"), *options])


def num_attributed() -> int:
    """Conversions with an impression of their user in the three days before."""
    impressions, conversions = small_log()
    pairs = conversions.with_row_index("sale").join(impressions, on="user", suffix="_seen")
    age = pl.col("timestamp") - pl.col("timestamp_seen")
    return pairs.filter(age >= 0, age <= 3 * DAY)["sale"].n_unique()


def test_totals_of_all_rules_are_the_conversions_with_an_impression(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rules = ["last-touch", "first-touch", "linear", "position", "time-decay", "last-n"]
    given = [part for rule in rules for part in ("--rule", rule)]
    code = run(folder, "--by", "campaign", "--json", *given)
    printed = capsys.readouterr()
    assert code == 0, printed.err
    found = json.loads(printed.out)
    assert found["is_private"] is False
    assert "NOT A PRIVATE RELEASE" in printed.err
    totals = pl.DataFrame(found["totals"]).drop("campaign")
    assert totals.width == len(rules)
    for name in totals.columns:
        assert totals[name].sum() == pytest.approx(num_attributed(), rel=1e-6), name


def test_rows_of_credit_are_written(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(folder, "--out", str(folder / "credits.parquet"), "--quiet") == 0
    printed = capsys.readouterr()
    assert "NOT A PRIVATE RELEASE" in printed.err
    assert str(folder / "credits.parquet") in printed.out
    assert "known by user, conversion_time, impression_time; no conversion_id" in printed.out
    rows = pl.read_parquet(folder / "credits.parquet")
    assert rows.height == num_attributed()  # last touch: one impression for each


def test_ids_identify_rows_if_the_log_has_them(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    impressions, conversions = small_log()
    write_log(folder, (impressions.with_row_index("shown"), conversions.with_row_index("sale")))
    ids = '[columns]\nimpression_id = "shown"\nconversion_id = "sale"'
    write_settings(folder, settings("conversions").replace("[columns]", ids))
    assert run(folder, "--out", str(folder / "credits.parquet"), "--quiet") == 0
    said = capsys.readouterr().out.strip()
    assert said.endswith(": a row is known by user, conversion_id, impression_id")
    rows = pl.read_parquet(folder / "credits.parquet")
    assert not rows.select("user", "conversion_id", "impression_id").is_duplicated().any()


def test_totals_are_printed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(folder, "--by", "campaign", "--by", "geo") == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1 + 8
    assert lines[0].startswith("campaign  geo")
    assert len({len(line) for line in lines}) == 1  # the last column ends in one place


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        ([], 2, "--output FILE"),
        (["--by", "campaing"], 4, "did you mean 'campaign'"),
        (["--by", "campaign", "--rule", "lats-touch"], 2, "did you mean 'last-touch'"),
        (["--by", "campaign", "--rule", "channel-weights"], 2, "settings file"),
        (["--out", "{folder}/campaigns.toml"], 2, "exists"),
        (["--out", "{folder}/credits.csv"], 2, "must end in .parquet"),
        (["--out", "{folder}/nowhere/credits.parquet"], 2, "nowhere"),
        (["--by", "geo", "--by", "geo"], 2, "twice"),
    ],
    ids=str,
)
def test_errors_are_one_line(
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    options: list[str],
    code: int,
    said: str,
) -> None:
    given = [option.replace("{folder}", str(folder)) for option in options]
    assert run(folder, *given) == code
    assert said in capsys.readouterr().err


def test_settings_without_attribution_are_refused(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_settings(folder, settings("impressions"))
    assert run(folder, "--by", "campaign") == 2
    assert "[attribution]" in capsys.readouterr().err


def test_learnt_weights_are_for_a_release(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = settings("conversions", rule="data-driven").replace(
        'lookback = "3 days"', 'lookback = "3 days"\nchannel = "kind"\nchannels = ["click", "view"]'
    )
    write_settings(folder, text)
    assert run(folder, "--by", "campaign") == 2
    assert "--rule" in capsys.readouterr().err
    assert run(folder, "--by", "campaign", "--rule", "linear") == 0
