"""`tulle measure reach`: how many people saw ads, from the command line alone."""

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tulle.cli.main import run_with
from unit.measure.queries.small_measurements import new_ledger, small_log


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    impressions, _ = small_log(num_users=200, num_rows=2000)
    # Two publishers, each with its own file: a user of both is one user.
    impressions.head(1000).write_parquet(tmp_path / "first.parquet")
    impressions.tail(1000).write_parquet(tmp_path / "second.parquet")
    return tmp_path


def run(folder: Path, *options: str, out: str = "out") -> int:
    files = [str(folder / name) for name in ("first.parquet", "second.parquet")]
    seconds = ["--column-kind", "timestamp=timestamp"]
    return run_with(["measure", "reach", *files, "--out", str(folder / out), *seconds, *options])


def facts(folder: Path, capsys: pytest.CaptureFixture[str], *options: str) -> list[dict[str, Any]]:
    assert run(folder, *options, "--json") == 0
    rows: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["answers"]["reach"]
    return rows


def test_a_user_of_two_files_is_counted_once(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    impressions, _ = small_log(num_users=200, num_rows=2000)
    rows = facts(folder, capsys, "--epsilon", "300", "--max-frequency", "3")
    found = {row["metric"]: row["value"] for row in rows}
    per_user = impressions.group_by("user").len()["len"]
    assert found["reach"] == pytest.approx(per_user.len(), abs=0.5)
    assert found["3+ reach"] == pytest.approx((per_user >= 3).sum(), abs=0.5)
    files = {path.name for path in (folder / "out").iterdir()}
    assert files == {"measurement.json", "reach.parquet", "card.json", "card.md"}


def test_slices_are_given_or_found_privately(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "keys.csv").write_text("campaign\na\nz\n")
    sliced = ["--epsilon", "20", "--slice", "campaign", "--max-slices-per-unit", "4"]
    rows = facts(folder, capsys, *sliced, "--keys", str(folder / "keys.csv"))
    assert {row["campaign"] for row in rows} == {"a", "z"}
    assert run(folder, *sliced, "--delta", "1e-6", "--json", out="found") == 0
    rows = json.loads(capsys.readouterr().out)["answers"]["reach"]
    assert {row["campaign"] for row in rows} == {"a", "b", "c", "d"}


def test_reach_by_day_may_protect_each_day(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    impressions, _ = small_log(num_users=200, num_rows=2000)
    day = pl.from_epoch("timestamp").dt.date().cast(pl.String).alias("day")
    users = dict(
        impressions.with_columns(day).group_by("day").agg(pl.col("user").n_unique()).iter_rows()
    )
    (folder / "days.csv").write_text("\n".join(["day", *sorted(users)]))
    given = ["--slice", "day", "--keys", str(folder / "days.csv"), "--max-slices-per-unit", "1"]
    rows = facts(folder, capsys, "--epsilon", "300", "--unit", "user per day", *given)
    found = {row["day"]: row["value"] for row in rows if row["metric"] == "reach"}
    assert found == pytest.approx(users, abs=0.5)


def test_only_clicks_count_if_asked_for(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    impressions, _ = small_log(num_users=200, num_rows=2000)
    clicks = impressions.filter(pl.col("kind") == "click")["user"].n_unique()
    rows = facts(folder, capsys, "--epsilon", "300", "--kind", "click", "--kind-column", "kind")
    found = {row["metric"]: row["value"] for row in rows}
    assert found["reach"] == pytest.approx(clicks, abs=0.5)


def test_it_is_charged_once(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ledger = new_ledger(folder / "ledger.db", epsilon=1)
    charged = ["--epsilon", "0.8", "--ledger", str(folder / "ledger.db")]
    first = facts(folder, capsys, *charged)
    assert facts(folder, capsys, *charged) == first
    assert len(ledger.spends("all")) == 1
    assert run(folder, *charged, "--max-frequency", "4", out="other") == 3
    assert "Set --epsilon to 0.2 or less in place of 0.8" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (["--epsilon", "-1"], 2, "epsilon"),
        (["--epsilon", "1", "--slice", "campaign"], 2, "--max-slices-per-unit"),
        (["--epsilon", "1", "--slice", "campaign", "--max-slices-per-unit", "2"], 2, "delta"),
        (["--epsilon", "1", "--delta", "1e-6"], 2, "delta"),
        (["--epsilon", "1", "--user", "person"], 4, "person"),
        (["--epsilon", "1", "--time", "when"], 4, "when"),
        (["--epsilon", "1", "--unit", "impression"], 2, "reach counts users"),
        (["--epsilon", "1", "--unit", "user x advertiser"], 2, "advertiser column"),
        (["--epsilon", "1", "--unit", "user x publisher"], 2, "publisher column"),
        (["--epsilon", "1", "--kind", "click"], 2, "--kind needs --kind-column"),
        (["--epsilon", "1", "--unit", "user per 7 days"], 2, "one window at a time"),
        (["--epsilon", "1", "--slice", "campaign", "--keys", "gone.csv"], 4, "gone.csv"),
        (["--epsilon", "1", "--keys", "gone.csv"], 2, "keys and no slices"),
        ([], 2, "epsilon"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else str(value),
)
def test_errors_are_one_line(
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    options: list[str],
    code: int,
    said: str,
) -> None:
    assert run(folder, *options) == code
    assert said in capsys.readouterr().err
    assert not (folder / "out" / "measurement.json").exists()
