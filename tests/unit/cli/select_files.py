"""Files and short commands for tests of `tulle select`."""

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tulle.cli.main import run_with
from unit.select.decisions.auction_tables import auction_table, make_ledger, write_table

SETTINGS = """
[mechanism]
kind = "randomized-response"
epsilon = 1.0
{mechanism}
[privacy]
unit = "impression"
consent = "column"
{privacy}
[pricing]
rule = "{rule}"
reserve = 0.02
"""


def select(text: str) -> int:
    """Runs `tulle select`, in the folder that the process is in."""
    return run_with(["select", *text.split()])


def write_settings(
    path: Path, *, mechanism: str = "", privacy: str = "", rule: str = "second-price"
) -> None:
    """A selection."""
    path.write_text(SETTINGS.format(mechanism=mechanism, privacy=privacy, rule=rule))


def fill_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> pl.DataFrame:
    """Auctions, a selection and a ledger with room for one release, and the process in it."""
    monkeypatch.chdir(folder)
    table = auction_table(120, seed=1, has_refusals=True)
    write_table(table, folder / "auctions.parquet")
    write_settings(folder / "selection.toml")
    make_ledger(folder)
    return table


def facts_of(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """What a command printed as JSON, with every number finite."""

    def refuse(text: str) -> float:
        raise AssertionError(f"{text} is no number in JSON")

    shown = capsys.readouterr()
    found: dict[str, Any] = json.loads(shown.out, parse_constant=refuse)
    return found
