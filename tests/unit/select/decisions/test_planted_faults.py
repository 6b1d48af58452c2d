"""Decisions that are made wrongly are caught by what the other tests of this folder look at."""

import itertools
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from tulle.select import decision_accounting
from tulle.select.decision_accounting import enough_finalists
from tulle.select.decisions import draws, requests
from tulle.select.decisions.draws import draw_places
from tulle.select.decisions.requests import AuctionBlock
from tulle.select.files import auction_files
from tulle.select.mechanisms.floors import FloorMechanism
from tulle.select.mechanisms.shortlists import TopCandidates
from tulle.select.selection_config import Consent, Pricing
from unit.select.decisions.auction_tables import (
    auction_table,
    by_user,
    decide_seeded,
    selection,
    server_winners,
    write_table,
)


def choices_of(config: Any, table: pl.DataFrame, folder: Path) -> dict[int, int]:
    path = write_table(table, folder / "auctions.parquet")
    for written in folder.glob("choices.*"):
        written.unlink()
    decide_seeded(config, path, folder / "choices.parquet")
    return dict(pl.read_parquet(folder / "choices.parquet").rows())


def changed_without_consent(table: pl.DataFrame) -> pl.DataFrame:
    return table.with_columns(p_device=pl.when("consent").then("p_device").otherwise(0.5))


def is_independent_of_refused_data(folder: Path) -> bool:
    table = auction_table(200, seed=3, has_refusals=True)
    config = selection(consent=Consent.COLUMN)
    return choices_of(config, table, folder) == choices_of(
        config, changed_without_consent(table), folder
    )


def read_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Predictions of people who did not agree are read like all others."""
    monkeypatch.setattr(auction_files, "_without_refused", lambda rows, roles: rows)  # noqa: ARG005


def test_personalising_without_consent_is_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert is_independent_of_refused_data(tmp_path)

    def everybody(block: AuctionBlock, mechanism: Any, is_personalised: Any, **options: Any) -> Any:
        return draw_places(block, mechanism, np.ones_like(is_personalised), **options)

    # Whoever reads a file does not hand out refused predictions, and whoever draws does not
    # use them: it takes both faults.
    read_refused(monkeypatch)
    assert is_independent_of_refused_data(tmp_path)
    monkeypatch.setattr(draws, "draw_places", everybody)
    assert not is_independent_of_refused_data(tmp_path)


def test_winners_by_private_scores_are_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def by_device(block: AuctionBlock, mechanism: Any, is_personalised: Any, **options: Any) -> Any:
        places = draw_places(block, mechanism, is_personalised, **options)
        scores = block.raw_scores()
        offsets = block.auctions.offsets
        for row in np.flatnonzero(~is_personalised):
            first, last = offsets[row], offsets[row + 1]
            places[row, 0] = first + int(scores[first:last].argmax())
        return places

    read_refused(monkeypatch)
    monkeypatch.setattr(draws, "draw_places", by_device)
    assert not is_independent_of_refused_data(tmp_path)


def most_moved_of_a_user(folder: Path) -> int:
    """Choices of one user that differ from the server's, at most."""
    table = auction_table(300, seed=8, sizes=(4, 6), num_users=10)
    chosen = choices_of(by_user(2), table, folder)
    winners = server_winners(table)
    users = dict(table.select("auction_id", "user_id").rows())
    moved = Counter(users[auction] for auction in chosen if chosen[auction] != winners[auction])
    return max(moved.values())


def test_a_limit_that_is_not_kept_is_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert most_moved_of_a_user(tmp_path) <= 2

    numbers = itertools.count()

    def somebody_else_each_time(block: AuctionBlock) -> Any:
        return np.array([next(numbers) for _ in block.kept])

    monkeypatch.setattr(requests, "_users", somebody_else_each_time)
    assert most_moved_of_a_user(tmp_path) > 2


def moved_in_small_cells(folder: Path) -> int:
    """Impressions that the server's winners lose although no cell has enough who agreed."""
    table = auction_table(200, seed=4, num_ads=3, num_users=100)
    table = table.with_columns(consent=pl.col("auction_id") % 10 == 0)
    config = selection(
        mechanism=FloorMechanism(epsilon=1.0, shortlist=TopCandidates(num_finalists=2)),
        min_cell_size=30,
        pricing=Pricing(rule="posted"),
        delta=1e-6,
        consent=Consent.COLUMN,
    )
    path = write_table(table, folder / "auctions.parquet")
    for written in folder.glob("counts.*"):
        written.unlink()
    decide_seeded(config, path, folder / "counts.parquet")
    counts = pl.read_parquet(folder / "counts.parquet").group_by("ad").agg(pl.sum("impressions"))
    winners = Counter(server_winners(table).values())
    return sum(abs(num - winners[ad]) for ad, num in counts.rows())


def test_cells_that_are_filled_with_people_who_refused_are_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert moved_in_small_cells(tmp_path) == 0

    def counting_all(cells: Any, min_cell_size: int, *, counts_as_report: Any) -> Any:
        return counts_as_report & (cells.counts >= min_cell_size)[cells.numbers]

    monkeypatch.setattr(decision_accounting, "personalised", counting_all)
    assert moved_in_small_cells(tmp_path) > 0


def test_too_few_finalists_that_are_personalised_are_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = auction_table(200, seed=8, sizes=(2, 4))
    config = selection(least_finalists=5)
    assert choices_of(config, table, tmp_path) == server_winners(table)

    def any_number(sizes: Any, least_finalists: int) -> Any:
        del least_finalists
        return enough_finalists(sizes, 2)

    monkeypatch.setattr(decision_accounting, "enough_finalists", any_number)
    assert choices_of(config, table, tmp_path) != server_winners(table)
