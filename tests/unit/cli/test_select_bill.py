"""`tulle select bill`: exact amounts as text, JSON and CSV."""

import csv
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import polars as pl
import pytest

from unit.cli.select_files import facts_of, fill_folder, select, write_settings
from unit.select.decisions.auction_tables import write_table

BILL = "bill selection.toml auctions.parquet choices.parquet"


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pl.DataFrame:
    """Auctions with choices; what devices predicted is garbage by now."""
    made = fill_folder(tmp_path, monkeypatch)
    assert select("decide selection.toml auctions.parquet --out choices.parquet --quiet") == 0
    write_table(made.with_columns(p_device=pl.lit("?")), Path("auctions.parquet"))
    return made


def second_prices(table: pl.DataFrame) -> dict[int, tuple[int, Fraction]]:
    """Impressions and exact amounts of each ad, reserve 0.02, row by row."""
    chosen = dict(pl.read_parquet("choices.parquet").rows())
    lines: dict[int, tuple[int, Fraction]] = {}
    for part in table.partition_by("auction_id", maintain_order=True):
        rows = [
            (bid * prob, Fraction(str(bid)) * Fraction(str(prob)), ad)
            for ad, bid, prob in part.select("ad", "bid", "p_server").rows()
            if bid * prob >= 0.02
        ]
        rows.sort(key=lambda row: -row[0])
        ads = [ad for _, _, ad in rows]
        if not ads:
            continue
        rank = ads.index(chosen[part["auction_id"][0]])
        price = rows[rank + 1][1] if rank + 1 < len(rows) else Fraction("0.02")
        num, amount = lines.get(ads[rank], (0, Fraction(0)))
        lines[ads[rank]] = (num + 1, amount + price)
    return lines


def test_json_and_csv_are_exact(table: pl.DataFrame, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert select(f"{BILL} --json --out bill.csv") == 0
    facts = facts_of(capsys)
    expected = second_prices(table)
    assert facts["pricing"] == "second-price"
    assert facts["paid_event"] == "impression"
    assert facts["impressions"] == sum(num for num, _ in expected.values())
    assert Fraction(facts["total"]) == sum(amount for _, amount in expected.values())
    found = {line["ad"]: (line["impressions"], Fraction(line["amount"])) for line in facts["lines"]}
    assert found == expected
    assert all(line["clicks"] is None for line in facts["lines"])
    with Path("bill.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {
        int(row["ad"]): (int(row["impressions"]), Fraction(row["amount"])) for row in rows
    } == expected
    assert all(row["clicks"] == "" for row in rows)
    assert all(Decimal(row["amount"]).as_tuple().exponent == -6 for row in rows)


def test_text_shows_the_total_and_the_largest_lines(
    table: pl.DataFrame, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert select(f"{BILL} --top 2") == 0
    lines = capsys.readouterr().out.splitlines()
    expected = second_prices(table)
    total = sum(amount for _, amount in expected.values())
    assert f"total           {float(total):.6f}" in lines
    best = max(expected, key=lambda ad: expected[ad][1])
    num, amount = expected[best]
    assert lines[4] == f"  ad {best}: {num} impressions, {float(amount):.6f}"
    assert len(lines) == 6


def test_clicks_are_billed_by_click(
    table: pl.DataFrame, capsys: pytest.CaptureFixture[str]
) -> None:
    write_settings(Path("selection.toml"), rule="first-price-per-click")
    write_table(table, Path("auctions.parquet"))
    for written in Path().glob("choices.*"):
        written.unlink()
    assert select("decide selection.toml auctions.parquet --out choices.parquet --quiet") == 0
    chosen = pl.read_parquet("choices.parquet")
    clicks = chosen[::3]
    clicks.select("auction_id").write_csv("clicks.csv")
    capsys.readouterr()
    assert select(f"{BILL} --clicks clicks.csv --json") == 0
    facts = facts_of(capsys)
    bids = clicks.join(table, on=["auction_id", "ad"], maintain_order="left")
    amount = sum(Fraction(str(bid)) for bid in bids["bid"])
    assert Fraction(facts["total"]) == amount
    assert sum(line["clicks"] for line in facts["lines"]) == clicks.height
    assert facts["impressions"] == chosen.height


@pytest.mark.parametrize(
    ("command", "code", "problem"),
    [
        (f"{BILL} --out bill.txt", 2, "must end in .csv"),
        (f"{BILL} --out there.csv", 4, "there.csv exists already"),
        (f"{BILL} --clicks clicks.csv", 2, "leave out clicks"),
        ("bill selection.toml auctions.parquet none.parquet", 4, "none.parquet"),
        ("bill none.toml auctions.parquet choices.parquet", 4, "none.toml does not exist"),
        (f"{BILL} --server-column sever", 4, "'sever'"),
    ],
)
@pytest.mark.usefixtures("table")
def test_mistakes_are_explained(
    capsys: pytest.CaptureFixture[str], command: str, code: int, problem: str
) -> None:
    Path("there.csv").write_text("mine")
    Path("clicks.csv").write_text("auction_id\n")
    capsys.readouterr()
    assert select(command) == code
    shown = capsys.readouterr()
    assert problem in shown.err
    assert shown.out == ""
    assert Path("there.csv").read_text() == "mine"
