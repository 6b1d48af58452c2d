"""`tulle measure clips`: values for a settings file, from public rows."""

import json
import tomllib
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from tulle.cli.main import run_with
from tulle.measure.ad_log import LogColumns
from tulle.measure.query_table import QueryTable
from tulle.privacy.codec import settings_from


@pytest.fixture
def history(tmp_path: Path) -> Path:
    rng = np.random.default_rng(3)
    frame = pl.DataFrame(
        {
            "campaign": rng.integers(0, 10, 2000),
            "price": rng.lognormal(3, 1, 2000),
            "items": 1 + rng.poisson(1, 2000),
            "note": ["text"] * 2000,
        }
    )
    path = tmp_path / "public.csv"
    frame.write_csv(path)
    return path


def arguments(path: Path, *more: str) -> list[str]:
    return ["measure", "clips", str(path), "--value", "price", "--value", "items", *more]


def test_what_is_printed_can_be_pasted(history: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_with(arguments(history, "--slice", "campaign", "--epsilon", "1")) == 0
    table = tomllib.loads(capsys.readouterr().out) | {
        "name": "values",
        "measure": "average",
        "max_per_slice": 1,
        "max_slices_per_unit": 1,
    }
    read: QueryTable = settings_from(QueryTable, table, what="query")
    query = read.query(columns=LogColumns(), folder=history.parent)
    assert [amount.column for amount in query.values] == ["price", "items"]
    assert sum(amount.share for amount in query.values) <= 1
    # Prices are about 20 and items about 2: clips are of that order, and cut little.
    assert 20 < query.values[0].clip < 500
    assert 1 < query.values[1].clip < 20


def test_json_has_the_same_and_more_budget_means_larger_clips(
    history: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    clips = []
    for epsilon in ("0.1", "10"):
        command = arguments(history, "--slice", "campaign", "--epsilon", epsilon, "--json")
        assert run_with(command) == 0
        found = json.loads(capsys.readouterr().out)
        clips.append(found["values"][0]["clip"])
        assert found["expected_rmsre"] > 0
    assert clips[0] < clips[1]


@pytest.mark.parametrize(
    ("more", "code", "message"),
    [
        (("--value", "prize"), 4, "did you mean 'price'"),
        (("--value", "note"), 4, "holds no number"),
        (("--slice", "campain"), 4, "did you mean 'campaign'"),
        (("--max-per-unit", "0"), 2, "must be > 0"),
    ],
)
def test_mistakes_are_named(
    history: Path, more: tuple[str, ...], code: int, message: str, capsys
) -> None:
    assert run_with(arguments(history, "--epsilon", "1", *more)) == code
    assert message in capsys.readouterr().err


def test_a_missing_file_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_with(arguments(tmp_path / "gone.csv", "--epsilon", "1")) == 4
    assert "gone.csv does not exist" in capsys.readouterr().err
