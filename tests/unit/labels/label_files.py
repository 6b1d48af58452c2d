"""Small tables of clicks, and what the tests of releases make of them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from tulle.accounting.budget import Budget
from tulle.accounting.ledger import Ledger
from tulle.accounting.ledger_rows import SpendStatus
from tulle.data.schema import Schema
from tulle.data.tables.layout import layout_for
from tulle.labels.label_noise import LabelNoise, RowNoise
from tulle.labels.label_release import ReleaseRecord, release_labels
from tulle.labels.label_table import LabelTable
from tulle.labels.mechanisms.class_response import BinaryResponse
from tulle.mechanisms.entropy import release_rng
from tulle.privacy.plan import Plan
from tulle.privacy.units import Adjacency, Unit
from tulle.runs.charging import ReleaseCharge
from tulle.runs.record import Result
from tulle.runs.release_once import ReleaseOptions

ROWS = RowNoise(mechanism=BinaryResponse(epsilon=1.0))
SCHEMA = Schema(
    label="sale",
    public=("campaign", "advertiser"),
    unit="user",
    time="second",
    kinds={"user": "integer", "advertiser": "integer", "second": "timestamp"},
)


def write_clicks(path: Path, *, num_rows: int = 1000, seed: int = 0) -> pl.DataFrame:
    """A table with 100 users, 5 advertisers and a label of 0 or 1."""
    rng = np.random.default_rng(seed)
    table = pl.DataFrame(
        {
            "campaign": [f"c{number}" for number in rng.integers(0, 9, num_rows)],
            "advertiser": rng.integers(0, 5, num_rows),
            "user": rng.integers(0, 100, num_rows),
            "second": np.sort(rng.integers(0, 14 * 86_400, num_rows)),
            "sale": rng.integers(0, 2, num_rows),
        }
    )
    if path.suffix == ".csv":
        table.write_csv(path)
    else:
        table.write_parquet(path)
    return table


def clicks_table(
    path: Path, *, unit: Unit | None = None, partner: str | None = None, schema: Schema = SCHEMA
) -> LabelTable:
    """The written table as a table of labels."""
    return LabelTable(
        paths=(path,),
        layout=layout_for(path, schema),
        unit=unit or Unit.example(),
        partner=partner,
        rows_per_block=300,
    )


def ledger_with(
    path: Path, *, epsilon: float, unit: Unit | None = None, purpose: str | None = None
) -> Ledger:
    """A ledger with one budget under replace."""
    ledger = Ledger.create(path)
    ledger.create_budget(
        Budget(
            name="all",
            unit=unit or Unit.example(),
            adjacency=Adjacency.REPLACE,
            epsilon=epsilon,
            delta=0.0,
            purpose=purpose,
        )
    )
    return ledger


def release(
    clicks: Path, out: Path, ledger: Ledger | None, *, again: bool = False, noise: LabelNoise = ROWS
) -> Result[ReleaseRecord, Plan]:
    charge = None if ledger is None else ReleaseCharge(ledger=ledger, purpose="labels")
    options = ReleaseOptions(charge=charge, again=again)
    return release_labels(clicks_table(clicks), noise, out, rng=release_rng(), options=options)


def raising(error: Exception) -> Callable[..., Any]:
    def fail(*_: object, **__: object) -> None:
        raise error

    return fail


def statuses(ledger: Ledger) -> list[SpendStatus]:
    return [spend.status for spend in ledger.spends("all")]
