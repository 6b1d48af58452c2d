"""Small files of auctions, and selections and ledgers for them."""

import dataclasses
import functools
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from tulle.accounting.budget import Budget
from tulle.accounting.ledger import Ledger
from tulle.mechanisms.entropy import SeededNoise
from tulle.privacy.plan import Plan
from tulle.privacy.units import Adjacency, Unit
from tulle.runs.charging import ReleaseCharge
from tulle.runs.record import Result
from tulle.runs.release_once import ReleaseOptions
from tulle.select.decisions import requests
from tulle.select.decisions.chosen_ads import SelectionRecord
from tulle.select.decisions.draws import decide
from tulle.select.files.auction_files import AuctionColumns, read_auctions
from tulle.select.mechanisms.floors import FloorMechanism
from tulle.select.selection_config import Consent, SelectionConfig, SelectionPrivacy

COLUMNS = AuctionColumns()


def auction_table(
    num_auctions: int,
    *,
    seed: int,
    sizes: tuple[int, int] = (1, 6),
    num_ads: int = 9,
    num_users: int = 10,
    has_refusals: bool = False,
) -> pl.DataFrame:
    """Auctions of mixed sizes with decimal bids and predictions; all agreed, or two thirds."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(sizes[0], min(sizes[1], num_ads) + 1, num_auctions)
    auctions = np.repeat(np.arange(num_auctions), lengths)
    users = rng.integers(0, num_users, num_auctions)
    server_probs = rng.integers(1, 30, len(auctions)) / 100
    device_probs = server_probs * rng.lognormal(0, 0.8, len(auctions))
    return pl.DataFrame(
        {
            "auction_id": 1000 + auctions,
            "user_id": users[auctions],
            "consent": ((rng.random(num_auctions) < 2 / 3) | (not has_refusals))[auctions],
            "ad": np.concatenate([rng.choice(num_ads, n, replace=False) for n in lengths]) + 70,
            "bid": rng.integers(1, 40, len(auctions)) / 10,
            "p_server": server_probs,
            "p_device": device_probs.clip(0.001, 0.95).round(5),
        }
    )


def copies_of(auction: pl.DataFrame, num_copies: int) -> pl.DataFrame:
    """The same auction many times, each under a number of its own."""
    size = auction.height
    table = pl.concat([auction] * num_copies)
    return table.with_columns(auction_id=pl.Series(np.repeat(np.arange(num_copies), size)))


def with_text_ids(table: pl.DataFrame) -> pl.DataFrame:
    """The same auctions with names in place of numbers."""
    return table.with_columns(
        auction_id=pl.format("q{}", "auction_id"),
        ad=pl.format("shop {}", "ad"),
        user_id=pl.format("u{}", "user_id"),
    )


def write_table(table: pl.DataFrame, path: Path) -> Path:
    """In the form that the name says."""
    if path.suffix == ".parquet":
        table.write_parquet(path)
    elif path.suffix == ".csv":
        table.write_csv(path)
    else:
        table.write_ndjson(path)
    return path


def read_table(path: Path) -> pl.DataFrame:
    """What a command wrote."""
    if path.suffix == ".parquet":
        return pl.read_parquet(path)
    return pl.read_csv(path) if path.suffix == ".csv" else pl.read_ndjson(path)


def selection(**settings: Any) -> SelectionConfig:
    """Randomized response for each decision of people who agreed, if not said otherwise."""
    given: dict[str, Any] = {"name": "test", "mechanism": FloorMechanism(epsilon=1.0)}
    given |= {"unit": Unit.impression(), "consent": Consent.EVERYONE} | settings
    names = {field.name for field in dataclasses.fields(SelectionPrivacy)} & set(given)
    privacy = SelectionPrivacy(**{name: given.pop(name) for name in names})
    return SelectionConfig(privacy=privacy, **given)


def by_user(max_decisions: int, **settings: Any) -> SelectionConfig:
    """The same for all decisions of a user."""
    return selection(unit=Unit.user(), max_decisions_per_user=max_decisions, **settings)


def decide_seeded(
    config: SelectionConfig,
    auctions: Path,
    out: Path,
    *,
    seed: int = 5,
    charge: ReleaseCharge | None = None,
    again: bool = False,
) -> Result[SelectionRecord, Plan]:
    """Repeatable decisions."""
    return decide(
        config,
        auctions,
        out,
        columns=COLUMNS,
        rng=SeededNoise(seed),
        options=ReleaseOptions(charge=charge, again=again),
    )


def make_ledger(folder: Path, **settings: Any) -> Ledger:
    """A ledger with one budget "all"."""
    given: dict[str, Any] = {
        "name": "all",
        "unit": Unit.impression(),
        "adjacency": Adjacency.REPLACE,
        "epsilon": 1.0,
        "delta": 0.0,
    }
    ledger = Ledger.create(folder / "ledger.db")
    ledger.create_budget(Budget(**given | settings))
    return ledger


def read_in_small_blocks(monkeypatch: pytest.MonkeyPatch, candidates: int = 7) -> None:
    """Makes files come in blocks of about so many candidates."""
    small = functools.partial(read_auctions, candidates_per_block=candidates)
    monkeypatch.setattr(requests, "read_auctions", small)


def server_winners(table: pl.DataFrame, reserve: float = 0.0) -> dict[Any, Any]:
    """The ad with the largest server score of each auction, the first of equal ones."""
    winners: dict[Any, tuple[float, Any]] = {}
    for auction, ad, bid, prob in table.select("auction_id", "ad", "bid", "p_server").rows():
        score = bid * prob
        if score >= reserve and (auction not in winners or score > winners[auction][0]):
            winners[auction] = (score, ad)
    return {auction: ad for auction, (_, ad) in winners.items()}
