"""From a log of impressions to a bill, by commands alone."""

import json
import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from tulle.accounting.ledger import Ledger
from tulle.cli.main import run_with
from unit.cli.select_files import facts_of, write_settings
from unit.select.decisions.auction_tables import auction_table, make_ledger, write_table
from waiting import HANG_S


def write_log(path: Path) -> None:
    """Impressions of a few users, several at the same time."""
    rng = np.random.default_rng(1)
    num_rows = 3000
    moments = rng.integers(0, 400, num_rows)
    ads = rng.integers(0, 30, num_rows)
    prices = np.round(rng.lognormal(0, 0.6, 30), 2)
    server = rng.uniform(0.02, 0.2, num_rows)
    pl.DataFrame(
        {
            "user": moments % 50,
            "second": moments,
            "item": ads,
            "price": prices[ads],
            "click": rng.integers(0, 2, num_rows),
            "server": server,
            "device": np.clip(server * rng.lognormal(0, 0.6, num_rows), 0.001, 0.9),
        }
    ).write_parquet(path)


def run(text: str, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert run_with(text.split()) == 0, capsys.readouterr().err
    return facts_of(capsys)


def test_a_log_becomes_auctions_choices_a_bill_and_an_evaluation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_log(tmp_path / "log.parquet")
    run(
        "data auctions log.parquet --out auctions.parquet --user user --time second --ad item "
        "--price price --click click --server-column server --device-column device --quiet --json",
        capsys,
    )
    auctions = pl.read_parquet("auctions.parquet")
    planned = run(
        "select plan auctions.parquet --epsilon 2 --private-stddev 0.6 --reserve 0.01 --consent "
        "everyone --unit user --max-decisions-per-user 2 --out selection.toml --json",
        capsys,
    )
    make = "budget create ledger.db --name ads --unit user --adjacency replace --epsilon 6"
    run(f"{make} --delta 0 --json", capsys)
    ledger = "--ledger ledger.db"
    decide = f"select decide selection.toml auctions.parquet --quiet --json {ledger}"
    decided = run(f"{decide} --out choices.parquet", capsys)
    assert decided["verdict"].startswith("Private release: epsilon=4, delta=0")
    assert decided["guarantee"] == planned["user_guarantee"]
    choices = pl.read_parquet("choices.parquet")
    shown = choices.join(auctions, on=["auction_id", "ad"], how="inner")
    assert shown.height == choices.height == decided["auctions"]

    bill = run("select bill selection.toml auctions.parquet choices.parquet --json", capsys)
    assert bill["impressions"] == choices.height
    assert sum(Fraction(line["amount"]) for line in bill["lines"]) == Fraction(bill["total"])
    counts = dict(choices.group_by("ad").len().rows())
    assert {line["ad"]: line["impressions"] for line in bill["lines"]} == counts

    choices[::7].select("auction_id").write_csv("clicks.csv")
    evaluated = run(
        "select evaluate selection.toml auctions.parquet choices.parquet --clicks clicks.csv "
        f"--target selection.toml --epsilon 2 --out value.json --json {ledger}",
        capsys,
    )
    assert evaluated["num_decisions"] == decided["personalised"]
    # Decisions and evaluation are on one budget, and it is spent.
    spends = Ledger.open(tmp_path / "ledger.db").spends("ads")
    assert len(spends) == 2
    assert run_with(f"{decide} --out second.parquet --again".split()) == 3
    assert "second.parquet" not in {path.name for path in tmp_path.iterdir()}
    # The market that the file is can be simulated as it is.
    capsys.readouterr()
    simulated = run("select simulate auctions.parquet --quiet --json", capsys)
    assert simulated["num_auctions"] > 100


def test_two_processes_at_once_make_one_draw_for_one_payment(tmp_path: Path) -> None:
    write_table(auction_table(2000, seed=1), tmp_path / "auctions.parquet")
    write_settings(tmp_path / "selection.toml")
    ledger = make_ledger(tmp_path)
    processes = [
        subprocess.Popen(
            [
                *(sys.executable, "-m", "tulle.cli", "select", "decide", "selection.toml"),
                *("auctions.parquet", "--out", f"{name}.parquet", "--ledger", "ledger.db"),
                *("--quiet", "--json"),
            ],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for name in "ab"
    ]
    outputs = [process.communicate(timeout=HANG_S) for process in processes]
    done = [place for place, process in enumerate(processes) if process.returncode == 0]
    assert done, outputs
    for place, (_, problem) in enumerate(outputs):
        if place not in done:
            assert "another process makes a selection" in problem
    tables = {(tmp_path / f"{'ab'[place]}.parquet").read_bytes() for place in done}
    assert len(tables) == 1
    assert len(ledger.spends("all")) == 1
    facts = json.loads(outputs[done[0]][0])
    assert facts["verdict"].startswith("Private release")
