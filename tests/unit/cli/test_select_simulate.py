"""`tulle select simulate`: the published experiments on a market or a file."""

import json
from pathlib import Path

import polars as pl
import pytest

from unit.cli.select_files import facts_of, select
from unit.select.decisions.auction_tables import auction_table, write_table

SMALL = "simulate --market small-display --num-auctions 100 --quiet"


def test_a_synthetic_market_gives_finite_numbers_and_plots(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert select(f"{SMALL} --json --out simulation") == 0
    facts = facts_of(capsys)
    assert facts["simulation"] == "not a private release"
    assert facts["market"] == "display, 4 candidates"
    assert facts["num_auctions"] == 50
    assert facts["claims"]
    assert facts["grid_rows"]
    assert json.loads(Path("simulation/simulation.json").read_text()) == facts
    plots = sorted(path.name for path in Path("simulation").glob("*.svg"))
    assert {"captured.svg", "gamma.svg", "pricing.svg", "grid.svg"} <= set(plots)
    for name in plots:
        assert "<svg" in Path("simulation", name).read_text()[:500]
    # A folder that exists is not touched.
    assert select(f"{SMALL} --out simulation") == 4
    assert "exists already" in capsys.readouterr().err


def test_a_file_of_auctions_is_a_market_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    table = auction_table(150, seed=3).drop("consent").with_columns(click=pl.lit(value=False))
    write_table(table, Path("auctions.parquet"))
    assert select("simulate auctions.parquet --num-auctions 120 --quiet --reserve 0.01") == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    assert shown.out.startswith("auctions: 60 auctions")
    assert "Not a private release" in shown.out
    assert "claims of Laro et al. 2024 in this market:" in shown.out
    assert "nan" not in shown.out
    assert not list(tmp_path.glob("simulation*"))


@pytest.mark.parametrize(
    ("options", "code", "problem"),
    [
        ("", 2, "give a file of auctions, or e.g. --market 'search'"),
        ("auctions.parquet --market search", 2, "not both"),
        ("--market serch", 2, "did you mean 'search'?"),
        ("--market search --private-stddev 1", 2, "is for a file"),
        ("--market search --num-auctions 5", 2, "--num-auctions"),
        ("none.parquet", 4, "none.parquet"),
        ("auctions.parquet --device-column d", 4, "'d'"),
        ("auctions.parquet --reserve 100", 4, "fewer than two auctions"),
        ("auctions.parquet --reserve -1", 2, "--reserve -1"),
    ],
)
def test_mistakes_are_explained(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    options: str,
    code: int,
    problem: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    write_table(auction_table(30, seed=3), Path("auctions.parquet"))
    assert select(f"simulate {options} --quiet --out new") == code
    shown = capsys.readouterr()
    assert problem in shown.err
    assert shown.out == ""
    assert not Path("new").exists()
