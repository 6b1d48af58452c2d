"""Public data alone say which decisions are personalised, however a file is cut into blocks."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from tulle.errors import DataError
from tulle.select.decision_accounting import UserReports
from tulle.select.decisions.requests import Requests, read_requests
from tulle.select.mechanisms.floors import FloorMechanism
from tulle.select.mechanisms.mechanism import NonPersonalised
from tulle.select.mechanisms.shortlists import TopCandidates
from tulle.select.selection_config import Consent, Pricing, SelectionConfig
from unit.select.decisions.auction_tables import (
    COLUMNS,
    auction_table,
    by_user,
    read_in_small_blocks,
    selection,
    with_text_ids,
    write_table,
)

RESERVE = 0.05


def shuffled(min_cell_size: int, **settings: Any) -> SelectionConfig:
    given: dict[str, Any] = {
        "mechanism": FloorMechanism(epsilon=1.0, shortlist=TopCandidates(num_finalists=2)),
        "min_cell_size": min_cell_size,
        "pricing": Pricing(rule="posted"),
        "delta": 1e-6,
    }
    return by_user(3, **given | settings)


def read(config: SelectionConfig, table: pl.DataFrame, folder: Path) -> Requests:
    return read_requests(write_table(table, folder / "auctions.parquet"), COLUMNS, config)


def eligible_auctions(table: pl.DataFrame, reserve: float = 0.0) -> list[pl.DataFrame]:
    """The candidates of each auction that reach the reserve, by falling server score."""
    scored = table.with_columns(score=pl.col("bid") * pl.col("p_server"))
    kept = scored.filter(pl.col("score") >= reserve)
    parts = kept.partition_by("auction_id", maintain_order=True)
    return [part.sort("score", descending=True, maintain_order=True) for part in parts]


@pytest.mark.parametrize("block", [4, 10_000])
@pytest.mark.parametrize("has_text", [False, True])
def test_a_user_has_no_more_personalised_decisions_than_stated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int, has_text: bool
) -> None:
    read_in_small_blocks(monkeypatch, block)
    table = auction_table(150, seed=2, has_refusals=True)
    config = by_user(3, least_finalists=3, consent=Consent.COLUMN, pricing=Pricing(reserve=RESERVE))
    requests = read(config, with_text_ids(table) if has_text else table, tmp_path)
    seen: Counter[int] = Counter()
    expected = []
    for part in eligible_auctions(table, RESERVE):
        user, agreed = part["user_id"][0], part["consent"][0]
        is_first = agreed and part.height >= 3 and seen[user] < 3
        seen[user] += is_first
        expected.append(is_first)
    assert requests.is_personalised.tolist() == expected
    assert max(seen.values()) == 3
    assert 0 < sum(expected) < len(expected)
    assert requests.users is not None
    assert len(set(requests.users.tolist())) == 10


def test_a_limit_that_starts_anew_in_each_block_would_be_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = auction_table(200, seed=2)
    config = by_user(3)
    whole = read(config, table, tmp_path).is_personalised
    halves = [
        read(config, part, tmp_path).is_personalised
        for part in (
            table.filter(pl.col("auction_id") < 1100),
            table.filter(pl.col("auction_id") >= 1100),
        )
    ]
    assert np.concatenate(halves).sum() > whole.sum()
    read_in_small_blocks(monkeypatch)
    assert read(config, table, tmp_path).is_personalised.tolist() == whole.tolist()


@pytest.mark.parametrize("block", [50, 10_000])
def test_small_cells_are_not_personalised_and_a_user_is_once_in_a_cell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    read_in_small_blocks(monkeypatch, block)
    table = auction_table(400, seed=4, num_ads=4, num_users=60, has_refusals=True)
    requests = read(shuffled(20, consent=Consent.COLUMN), table, tmp_path)
    cells, users, agreed = [], [], []
    for part in eligible_auctions(table):
        cells.append(frozenset(part["ad"][:2].to_list()))
        users.append(part["user_id"][0])
        agreed.append(part["consent"][0])
    counts: Counter[int] = Counter()
    pairs = set()
    reports = []
    for cell, user, is_agreed in zip(cells, users, agreed, strict=True):
        is_new = (cell, user) not in pairs and counts[user] < 3
        is_report = is_agreed and len(cell) == 2 and is_new
        if is_report:
            counts[user] += 1
            pairs.add((cell, user))
        reports.append(is_report)
    sizes = Counter(cell for cell, is_report in zip(cells, reports, strict=True) if is_report)
    expected = [
        is_report and sizes[cell] >= 20 for cell, is_report in zip(cells, reports, strict=True)
    ]
    assert requests.is_personalised.tolist() == expected
    assert 0 < sum(expected) < sum(reports)
    assert requests.cells is not None
    names = requests.cells.keys[requests.cells.numbers].tolist()
    assert len(set(zip(cells, names, strict=True))) == len(set(cells)) == len(set(names))


def test_several_reports_of_a_user_in_a_cell_are_counted_if_that_was_said(tmp_path: Path) -> None:
    table = auction_table(200, seed=4, num_ads=3, num_users=20)
    reports = UserReports.SEVERAL_PER_CELL
    several = shuffled(2, user_reports=reports)
    assert (
        read(several, table, tmp_path).is_personalised.sum()
        > read(shuffled(2), table, tmp_path).is_personalised.sum()
    )


def test_nobody_is_personalised_by_a_selection_without_personalisation(tmp_path: Path) -> None:
    table = auction_table(50, seed=1)
    requests = read(selection(mechanism=NonPersonalised()), table, tmp_path)
    assert len(requests.is_personalised) == 50
    assert not requests.is_personalised.any()


def test_a_column_of_refusals_is_not_overruled(tmp_path: Path) -> None:
    table = auction_table(50, seed=1, has_refusals=True)
    with pytest.raises(DataError, match='set consent = "column"'):
        read(selection(consent=Consent.EVERYONE), table, tmp_path)
    assert read(selection(), table.drop("consent"), tmp_path).is_personalised.any()


def test_private_columns_are_not_read_to_know_it(tmp_path: Path) -> None:
    table = auction_table(50, seed=1)
    expected = read(selection(), table, tmp_path).is_personalised
    for garbage in (table.with_columns(p_device=pl.lit("?")), table.drop("p_device")):
        assert read(selection(), garbage, tmp_path).is_personalised.tolist() == expected.tolist()


@pytest.mark.parametrize(
    ("config", "column", "ways_out"),
    [
        (selection(consent=Consent.COLUMN), "consent", ("--consent-column", '"everyone"')),
        (by_user(2), "user_id", ("--user-column", '"impression"')),
    ],
)
def test_a_column_that_is_needed_is_missed_with_the_way_out(
    tmp_path: Path, config: SelectionConfig, column: str, ways_out: tuple[str, str]
) -> None:
    with pytest.raises(DataError, match=f"no column '{column}'") as caught:
        read(config, auction_table(5, seed=1).drop(column), tmp_path)
    assert all(way in str(caught.value) for way in ways_out)
