"""Bills of files equal a loop over rows in exact fractions, and read nothing private."""

import dataclasses
import hashlib
import math
from collections import defaultdict
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from tulle.errors import ConfigError, DataError
from tulle.runs.release_files import record_path
from tulle.select.billing.prices import PaidEvent, PricingRule
from tulle.select.decisions import bills
from tulle.select.decisions.bills import FileBill, bill_file
from tulle.select.decisions.requests import read_blocks
from tulle.select.mechanisms.floors import FloorMechanism
from tulle.select.mechanisms.shortlists import TopCandidates
from tulle.select.mechanisms.slots import SlotMechanism
from tulle.select.selection_config import Consent, Pricing, SelectionConfig
from unit.select.decisions.auction_tables import (
    COLUMNS,
    auction_table,
    decide_seeded,
    read_in_small_blocks,
    read_table,
    selection,
    with_text_ids,
    write_table,
)

RESERVE = 0.05
TOP_TWO = FloorMechanism(epsilon=1.0, shortlist=TopCandidates(num_finalists=2))


@dataclasses.dataclass(frozen=True)
class Row:
    """One candidate in exact numbers."""

    ad: Any
    bid: Fraction
    prob: Fraction
    score: float
    """As the server ranks it."""

    @property
    def exact_score(self) -> Fraction:
        return self.bid * self.prob


def ranked_auctions(table: pl.DataFrame, reserve: float) -> Iterator[tuple[Any, list[Row]]]:
    """The eligible candidates of each auction, best first, the first of equal ones first."""
    for part in table.partition_by("auction_id", maintain_order=True):
        rows = [
            Row(ad, Fraction(str(bid)), Fraction(str(prob)), bid * prob)
            for ad, bid, prob in part.select("ad", "bid", "p_server").rows()
        ]
        kept = sorted((row for row in rows if row.score >= reserve), key=lambda row: -row.score)
        if kept:
            yield part["auction_id"][0], kept


def price_of(rows: list[Row], rank: int, rule: PricingRule, reserve: float) -> Fraction:
    row = rows[rank]
    if rule is PricingRule.FIRST_PRICE:
        return row.exact_score
    if rule is PricingRule.FIRST_PRICE_PER_CLICK:
        return row.bid
    is_last = rank == len(rows) - 1
    paid = Fraction(str(reserve)) if is_last else rows[rank + 1].exact_score
    return paid if rule is PricingRule.SECOND_PRICE else paid / row.prob


def micros(amount: Fraction) -> int:
    return math.floor(amount * 1_000_000)


def expected_bill(
    table: pl.DataFrame,
    choices: pl.DataFrame,
    pricing: Pricing,
    clicked: "set[tuple[Any, Any]] | None" = None,
) -> dict[Any, tuple[int, int | None, int]]:
    """Impressions, clicks and millionths of each ad."""
    auctions = dict(ranked_auctions(table, pricing.reserve))
    lines: dict[Any, list[int]] = defaultdict(lambda: [0, 0, 0])
    for auction, ad in choices.select("auction_id", "ad").rows():
        rows = auctions[auction]
        (rank,) = [place for place, row in enumerate(rows) if row.ad == ad]
        price = micros(price_of(rows, rank, pricing.rule, pricing.reserve))
        is_paid = clicked is None or (auction, ad) in clicked
        line = lines[ad]
        line[0] += 1
        line[1] += is_paid
        line[2] += price * is_paid
    return {ad: (n, None if clicked is None else c, m) for ad, (n, c, m) in lines.items()}


def expected_posted(
    table: pl.DataFrame, reserve: float, num_finalists: int
) -> dict[tuple[Any, Any], int]:
    """The mean price of each cell and ad, down to a millionth."""
    found: dict[tuple[Any, Any], list[int]] = defaultdict(list)
    for _, rows in ranked_auctions(table, reserve):
        cell = frozenset(row.ad for row in rows[:num_finalists])
        for rank, row in enumerate(rows[:num_finalists]):
            price = price_of(rows, rank, PricingRule.SECOND_PRICE, reserve)
            found[cell, row.ad].append(micros(price))
    return {pair: sum(prices) // len(prices) for pair, prices in found.items()}


def lines_of(made: FileBill) -> dict[Any, tuple[int, int | None, int]]:
    return {
        ad: (line.impressions, line.clicks, line.amount_micros)
        for ad, line in zip(made.ads, made.bill.lines, strict=True)
    }


def decided(
    folder: Path, config: SelectionConfig, table: pl.DataFrame, name: str = "choices.parquet"
) -> tuple[Path, Path]:
    """The auctions without what devices predict, and choices made of them."""
    path = write_table(table, folder / "auctions.parquet")
    decide_seeded(config, path, folder / name)
    # Prices must not need it: bills are made of a file where it is garbage.
    write_table(table.with_columns(p_device=pl.lit("?"), click=pl.lit("?")), path)
    return path, folder / name


def bill(config: SelectionConfig, auctions: Path, choices: Path, **options: Any) -> FileBill:
    return bill_file(config, auctions, choices, columns=COLUMNS, **options)


@pytest.mark.parametrize("has_text", [False, True])
@pytest.mark.parametrize("reserve", [0.0, RESERVE])
@pytest.mark.parametrize("rule", [PricingRule.SECOND_PRICE, PricingRule.FIRST_PRICE])
def test_impressions_cost_what_a_loop_in_fractions_says(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    rule: PricingRule,
    reserve: float,
    has_text: bool,
) -> None:
    read_in_small_blocks(monkeypatch, 40)
    table = auction_table(150, seed=1)
    table = with_text_ids(table) if has_text else table
    config = selection(pricing=Pricing(rule=rule, reserve=reserve))
    auctions, choices = decided(tmp_path, config, table)
    made = bill(config, auctions, choices)
    expected = expected_bill(table, read_table(choices), config.pricing)
    assert lines_of(made) == expected
    assert made.bill.total_micros == sum(amount for _, _, amount in expected.values()) > 0
    assert made.bill.paid_event is PaidEvent.IMPRESSION


@pytest.mark.parametrize("reserve", [0.0, RESERVE])
@pytest.mark.parametrize(
    "rule", [PricingRule.SECOND_PRICE_PER_CLICK, PricingRule.FIRST_PRICE_PER_CLICK]
)
def test_clicks_cost_what_a_loop_in_fractions_says(
    tmp_path: Path, rule: PricingRule, reserve: float
) -> None:
    table = auction_table(150, seed=2)
    config = selection(pricing=Pricing(rule=rule, reserve=reserve))
    auctions, choices = decided(tmp_path, config, table)
    shown = read_table(choices)
    is_clicked = np.random.default_rng(3).random(shown.height) < 0.4
    clicked = set(shown.filter(is_clicked).rows())
    expected = expected_bill(table, shown, config.pricing, clicked)
    # Text of a CSV stands for the whole numbers of the other files, in every way to list clicks.
    for clicks in (
        shown.filter(is_clicked).select("auction_id"),
        shown.filter(is_clicked),
        shown.with_columns(clicked=pl.Series(is_clicked)),
    ):
        for ending in ("csv", "parquet"):
            path = write_table(clicks, tmp_path / f"clicks.{ending}")
            made = bill(config, auctions, choices, clicks=path)
            assert lines_of(made) == expected
            assert made.bill.paid_event is PaidEvent.CLICK


@pytest.mark.parametrize("rule", list(PricingRule))
def test_slots_are_billed_at_the_price_of_their_rank(tmp_path: Path, rule: PricingRule) -> None:
    table = auction_table(120, seed=3, has_refusals=True)
    config = selection(
        mechanism=SlotMechanism(epsilon=1.0, num_slots=2),
        pricing=Pricing(rule=rule, reserve=RESERVE),
        consent=Consent.COLUMN,
    )
    auctions, choices = decided(tmp_path, config, table)
    shown = read_table(choices)
    if rule.paid_event is PaidEvent.IMPRESSION:
        assert lines_of(bill(config, auctions, choices)) == expected_bill(
            table, shown, config.pricing
        )
        return
    clicks = shown.filter(np.random.default_rng(4).random(shown.height) < 0.4)
    path = write_table(clicks.select("auction_id", "ad"), tmp_path / "clicks.csv")
    clicked = set(clicks.select("auction_id", "ad").rows())
    assert lines_of(bill(config, auctions, choices, clicks=path)) == expected_bill(
        table, shown, config.pricing, clicked
    )
    # Without the ad nobody knows which of two ads was clicked.
    write_table(clicks.select("auction_id").unique(), path)
    with pytest.raises(DataError, match="name the ad of a click"):
        bill(config, auctions, choices, clicks=path)


@pytest.mark.parametrize("has_text", [False, True])
@pytest.mark.parametrize(
    "mechanism",
    [TOP_TWO, SlotMechanism(epsilon=1.0, num_slots=3, shortlist=TopCandidates(num_finalists=2))],
)
def test_posted_prices_are_means_of_cells(tmp_path: Path, has_text: bool, mechanism: Any) -> None:
    table = auction_table(200, seed=4, num_ads=4, has_refusals=True)
    table = with_text_ids(table) if has_text else table
    config = selection(
        mechanism=mechanism,
        pricing=Pricing(rule="posted", reserve=RESERVE),
        consent=Consent.COLUMN,
    )
    auctions, choices = decided(tmp_path, config, table)
    prices = expected_posted(table, RESERVE, 2)
    cells = {
        auction: frozenset(row.ad for row in rows[:2])
        for auction, rows in ranked_auctions(table, RESERVE)
    }
    amounts: dict[Any, int] = defaultdict(int)
    for auction, ad in read_table(choices).select("auction_id", "ad").rows():
        amounts[ad] += prices[cells[auction], ad]
    found = {ad: amount for ad, (_, _, amount) in lines_of(bill(config, auctions, choices)).items()}
    assert found == dict(amounts)


@pytest.mark.parametrize("name", ["counts.parquet", "counts.jsonl", "counts.csv"])
@pytest.mark.parametrize("has_text", [False, True])
def test_shuffled_counts_are_billed_as_count_times_posted_price(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, has_text: bool
) -> None:
    table = auction_table(200, seed=4, num_ads=4)
    table = with_text_ids(table) if has_text else table
    shuffled = shuffled_selection(10)
    read_in_small_blocks(monkeypatch, 100)
    auctions, counts = decided(tmp_path, shuffled, table, name)
    prices = expected_posted(table, RESERVE, 2)
    cells = {name_of_cell(cell): cell for cell, _ in prices}
    expected: dict[Any, list[int]] = defaultdict(lambda: [0, 0])
    for name_found, ad, num in read_table(counts).rows():
        expected[ad][0] += num
        expected[ad][1] += num * prices[cells[name_found], ad]
    made = bill(shuffled, auctions, counts)
    assert lines_of(made) == {ad: (num, None, amount) for ad, (num, amount) in expected.items()}


def name_of_cell(ads: frozenset[Any]) -> str:
    """The hash of the sorted numbers of its ads, or of their names behind their lengths."""
    if all(isinstance(ad, str) for ad in ads):
        names = sorted(ad.encode() for ad in ads)
        data = b"".join(len(name).to_bytes(8, "little") + name for name in names)
    else:
        data = np.array(sorted(ads), "<i8").tobytes()
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def shuffled_selection(min_cell_size: int, **settings: Any) -> SelectionConfig:
    given: dict[str, Any] = {
        "mechanism": TOP_TWO,
        "min_cell_size": min_cell_size,
        "pricing": Pricing(rule="posted", reserve=RESERVE),
        "delta": 1e-6,
    }
    return selection(**given | settings)


def test_a_shuffled_bill_equals_that_of_the_same_choices_in_the_open(tmp_path: Path) -> None:
    table = auction_table(200, seed=4, num_ads=4)
    # With one seed both draw the same, if no cell is too small.
    open_config = selection(mechanism=TOP_TWO, pricing=Pricing(rule="posted", reserve=RESERVE))
    auctions, choices = decided(tmp_path, open_config, table)
    shuffled = shuffled_selection(1)
    folder = tmp_path / "shuffled"
    folder.mkdir()
    _, counts = decided(folder, shuffled, table)
    in_the_open, behind = bill(open_config, auctions, choices), bill(shuffled, auctions, counts)
    assert lines_of(in_the_open) == lines_of(behind)
    assert in_the_open.bill == behind.bill


def test_prices_that_look_at_private_scores_would_be_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = auction_table(20, seed=1)
    config = selection()
    auctions, choices = decided(tmp_path, config, table)
    bill(config, auctions, choices)

    def curious(*arguments: Any, **options: Any) -> Any:
        return read_blocks(*arguments, **options | {"with_device": True})

    monkeypatch.setattr(bills, "read_blocks", curious)
    with pytest.raises(DataError, match="p_device"):
        bill(config, auctions, choices)


def test_two_parts_of_the_choices_add_up_to_the_whole(tmp_path: Path) -> None:
    table = auction_table(150, seed=1)
    config = selection(pricing=Pricing(reserve=RESERVE))
    auctions, choices = decided(tmp_path, config, table)
    whole = bill(config, auctions, choices)
    shown = read_table(choices)
    parts = []
    for place, part in enumerate((shown[::2], shown[1::2])):
        path = write_table(part, tmp_path / f"part{place}.csv")
        parts.append(bill(config, auctions, path))
    assert sum(part.bill.total_micros for part in parts) == whole.bill.total_micros
    assert sum(part.bill.num_impressions for part in parts) == whole.bill.num_impressions
    # Also where the auctions are cut with them.
    cut = []
    for place in range(2):
        ids = pl.col("auction_id") % 2 == place
        own = write_table(table.filter(ids), tmp_path / f"auctions{place}.parquet")
        path = write_table(shown.filter(ids), tmp_path / f"cut{place}.jsonl")
        cut.append(bill(config, own, path).bill.total_micros)
    assert sum(cut) == whole.bill.total_micros


class TestRefusals:
    @pytest.fixture
    def files(self, tmp_path: Path) -> tuple[Path, Path, pl.DataFrame]:
        config = selection(pricing=Pricing(reserve=RESERVE))
        auctions, choices = decided(tmp_path, config, auction_table(50, seed=1))
        return auctions, choices, read_table(choices)

    CONFIG = selection(pricing=Pricing(reserve=RESERVE))

    def test_choices_of_another_file(
        self, tmp_path: Path, files: tuple[Path, Path, pl.DataFrame]
    ) -> None:
        auctions, _, shown = files
        path = write_table(
            shown.with_columns(pl.col("auction_id") + 10_000), tmp_path / "other.parquet"
        )
        with pytest.raises(DataError, match="auctions that are not there"):
            bill(self.CONFIG, auctions, path)

    def test_ads_that_are_no_candidates(
        self, tmp_path: Path, files: tuple[Path, Path, pl.DataFrame]
    ) -> None:
        auctions, _, shown = files
        path = write_table(shown.with_columns(ad=pl.lit(1)), tmp_path / "other.parquet")
        with pytest.raises(DataError, match="no eligible candidate"):
            bill(self.CONFIG, auctions, path)

    def test_choices_of_another_reserve(self, files: tuple[Path, Path, pl.DataFrame]) -> None:
        auctions, choices, _ = files
        other = selection(pricing=Pricing(reserve=0.3))
        with pytest.raises(DataError, match="drawn by other settings"):
            bill(other, auctions, choices)
        # Without the record the auctions themselves tell.
        record_path(choices).unlink()
        with pytest.raises(DataError, match=r"reserve|no eligible candidate"):
            bill(other, auctions, choices)

    def test_a_choice_that_is_there_twice(
        self, tmp_path: Path, files: tuple[Path, Path, pl.DataFrame]
    ) -> None:
        auctions, _, shown = files
        for table in (pl.concat([shown, shown]), pl.concat([shown[:1], shown])):
            path = write_table(table, tmp_path / "twice.parquet")
            with pytest.raises(DataError, match=r"twice\.parquet"):
                bill(self.CONFIG, auctions, path)

    def test_ids_of_another_kind(
        self, tmp_path: Path, files: tuple[Path, Path, pl.DataFrame]
    ) -> None:
        auctions, _, shown = files
        path = write_table(
            shown.with_columns(pl.format("q{}", "auction_id").alias("auction_id")),
            tmp_path / "text.parquet",
        )
        with pytest.raises(DataError, match="whole numbers in one, text in the other"):
            bill(self.CONFIG, auctions, path)

    def test_clicks_without_prices_of_clicks_and_the_other_way_round(
        self, tmp_path: Path, files: tuple[Path, Path, pl.DataFrame]
    ) -> None:
        auctions, choices, shown = files
        clicks = write_table(shown.select("auction_id"), tmp_path / "clicks.csv")
        with pytest.raises(ConfigError, match="leave out clicks"):
            bill(self.CONFIG, auctions, choices, clicks=clicks)
        per_click = selection(
            pricing=Pricing(rule=PricingRule.FIRST_PRICE_PER_CLICK, reserve=RESERVE)
        )
        with pytest.raises(ConfigError, match="--clicks"):
            bill(per_click, auctions, choices)

    def test_clicks_on_what_was_not_shown(
        self, tmp_path: Path, files: tuple[Path, Path, pl.DataFrame]
    ) -> None:
        auctions, choices, _ = files
        record_path(choices).unlink()
        clicks = write_table(pl.DataFrame({"auction_id": [7]}), tmp_path / "clicks.csv")
        per_click = selection(
            pricing=Pricing(rule=PricingRule.FIRST_PRICE_PER_CLICK, reserve=RESERVE)
        )
        with pytest.raises(DataError, match="of no choice"):
            bill(per_click, auctions, choices, clicks=clicks)

    @pytest.mark.parametrize(
        ("change", "problem"),
        [
            ({"impressions": pl.col("impressions") + 1}, "not one impression for each auction"),
            ({"cell": pl.lit("0") + pl.col("cell").str.slice(1)}, "cell or an ad"),
            ({"ad": pl.col("ad") + 1000}, "cell or an ad"),
        ],
    )
    def test_counts_of_another_file(
        self, tmp_path: Path, change: dict[str, pl.Expr], problem: str
    ) -> None:
        config = shuffled_selection(5)
        auctions, counts = decided(tmp_path, config, auction_table(100, seed=4, num_ads=4))
        path = write_table(read_table(counts).with_columns(**change), tmp_path / "x.parquet")
        with pytest.raises(DataError, match=problem):
            bill(config, auctions, path)
