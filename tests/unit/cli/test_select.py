"""Every command of `tulle select` explains itself with examples, and `simulate` runs them."""

import json
import re
from pathlib import Path

import polars as pl
import pytest

from tulle.cli.main import run_with
from tulle.cli.select import select_app
from unit.cli.select_files import facts_of, select
from unit.select.decisions.auction_tables import auction_table, write_table

COMMANDS = ("plan", "simulate", "decide", "bill", "evaluate")
EPILOGS = {str(command.name): str(command.epilog) for command in select_app.registered_commands}


def help_of(name: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert run_with(["select", name, "--help"]) == 0
    return capsys.readouterr().out


def unknown_options(example: str, help_text: str) -> set[str]:
    return set(re.findall(r"--[a-z-]+", example)) - set(re.findall(r"--[a-z-]+", help_text))


def test_these_are_all_commands() -> None:
    assert tuple(EPILOGS) == COMMANDS


@pytest.mark.parametrize("name", COMMANDS)
def test_help_has_an_example_with_options_that_exist(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = help_of(name, capsys)
    options = shown.partition("Example:")[0]
    assert f"Example: tulle select {name} " in " ".join(shown.split())
    assert unknown_options(EPILOGS[name], options) == set()


def test_an_example_with_an_unknown_option_would_be_seen(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert unknown_options("--seeds 1 --output x", help_of("decide", capsys)) == {"--seeds"}


@pytest.mark.parametrize("name", COMMANDS)
def test_wrong_options_are_explained(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_with(["select", name, "--nonsense"]) == 2
    assert "--nonsense" in capsys.readouterr().err


def test_the_group_lists_its_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_with(["select", "--help"]) == 0
    shown = capsys.readouterr().out
    assert all(f"  {name} " in shown for name in COMMANDS)


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
