"""The examples of every command's help, and a folder with the files that they name."""

import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
from typer.main import get_command

from tulle.cli.main import app, run_with

SCHEMA = """
label = "Sale"
public = ["product_id", "partner_id"]
sensitive = ["product_title"]
unit = "user_id"
time = "click_timestamp"
"""
CAMPAIGNS = """
[log]
impressions = "log/impressions.csv"
conversions = "log/conversions.csv"
[columns]
kind = "interaction"
value = "value"
[attribution]
rule = "last-touch"
lookback = "7 days"
[privacy]
unit = "user"
epsilon = 2.0
[[query]]
name = "by region"
measure = "conversions"
slices = ["geo"]
keys = { geo = ["region-1", "region-2"] }
max_per_slice = 2
max_slices_per_unit = 1
"""
DATA_COMMANDS = """
data synth display --rows 300 --output train.txt
data synth search --rows 600 --output clicks.parquet
data synth impressions --rows 200 --output log
data synth taobao-tables --rows 400 --output taobao
data synth auctions --rows 60 --output made-up.parquet
data prepare clicks.parquet --layout search --output prepared
    --hash-bins-public 300 --hash-bins-sensitive 300
plan prepared --method rr --epsilon 3 --output plan.json
train prepared --method rr --epsilon 3 --output runs/monday --predictions predictions.parquet
train prepared --method rr --epsilon 1 --output runs/tuesday
measure run campaigns.toml --output last-week
"""


def leaf_commands() -> Iterator[tuple[str, Any]]:
    """Every command that does something, by its whole name."""

    def walk(command: Any, name: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
        inner = getattr(command, "commands", None)
        if inner is None:
            yield " ".join(name), command
            return
        for part, child in inner.items():
            yield from walk(child, (*name, part))

    return walk(get_command(app), ())


def examples_of(command: Any) -> list[list[str]]:
    """The words of each example, without what its line says about it in brackets."""
    lines = [" ".join(line.split()) for line in (command.epilog or "").splitlines()]
    examples = [line.removeprefix("Example: ") for line in lines if line.startswith("Example: ")]
    return [shlex.split(re.sub(r" \([^()]*\)$", "", example)) for example in examples]


def fill_folder(folder: Path) -> None:
    """Writes every file that an example names; the process must be in the folder."""
    (folder / "schema.toml").write_text(SCHEMA)
    (folder / "criteo_search_parquet.toml").write_text(SCHEMA)
    (folder / "campaigns.toml").write_text(CAMPAIGNS)
    for line in DATA_COMMANDS.replace("\n   ", "").strip().splitlines():
        quiet = ["--quiet"] if line.split()[0] in {"data", "train"} else []
        assert run_with([*shlex.split(line), *quiet]) == 0, line
    (folder / "run.toml").write_text('method = "mosaic"\n[target]\nepsilon = 3.0\n')
    (folder / "counts.json").write_text('{"kind": "Gaussian", "noise_multiplier": 9.0}')
    _write_sales(folder)
    _write_market(folder)
    _write_taobao(folder)
    _write_reach(folder)


def _write_sales(folder: Path) -> None:
    clicks = pl.read_parquet(folder / "clicks.parquet")
    clicks.write_csv(folder / "impressions.csv")
    clicks.write_parquet(folder / "test.parquet")
    row = pl.int_range(pl.len())
    clicks.with_columns(
        bought=pl.col("Sale"), campaign=pl.format("c{}", row.mod(4)), age=20 + row.mod(50)
    ).write_csv(folder / "own.csv")
    shutil.copy(folder / "own.csv", folder / "new.csv")
    train = "train own.csv --label bought --public campaign --sensitive age --epsilon 50 --quiet"
    assert run_with([*train.split(), "--output", "model"]) == 0
    amount = pl.int_range(pl.len()).mod(401).alias("Sale")
    clicks.with_columns(amount).write_csv(folder / "sales.csv")
    price = {"price": [3.0, 8.0, 5.0], "items": [1, 2, 1], "campaign": ["a", "b", "a"]}
    pl.DataFrame(price).write_parquet(folder / "public-conversions.parquet")


def _write_market(folder: Path) -> None:
    made_up = pl.read_parquet(folder / "made-up.parquet")
    auctions = made_up.with_columns(pl.lit(True).alias("consent"))
    for name in ("auctions", "panel"):
        auctions.write_parquet(folder / f"{name}.parquet")
    auctions.write_ndjson(folder / "auctions.jsonl")
    plan = ["select", "plan", "auctions.parquet", "--epsilon", "3", "--private-stddev", "0.6"]
    for name, pricing in (("other", "second-price"), ("per-click", "second-price-per-click")):
        assert run_with([*plan, "--pricing", pricing, "--output", f"{name}.toml"]) == 0
    shown = auctions.select("auction_id").unique(maintain_order=True).head(3)
    shown.write_csv(folder / "clicks.csv")


def _write_taobao(folder: Path) -> None:
    for name in ("raw_sample.csv", "ad_feature.csv"):
        shutil.copy(folder / "taobao" / name, folder / name)
    raw = pl.read_csv(folder / "raw_sample.csv")
    chances = pl.DataFrame({"row": range(len(raw)), "probability": [0.1] * len(raw)})
    for name in ("server", "device"):
        chances.write_parquet(folder / f"{name}.parquet")
    row = pl.int_range(pl.len())
    log = raw.select(
        user_id=pl.lit(7),
        timestamp=row // 4,
        ad_id="adgroup_id",
        price=pl.lit(2.0),
        campaign=pl.format("c{}", row.mod(4)),
    )
    log.write_parquet(folder / "log.parquet")
    log.write_csv(folder / "log.csv")
    log.select("campaign").unique().write_csv(folder / "campaigns.csv")


def _write_reach(folder: Path) -> None:
    impressions = pl.read_csv(folder / "log" / "impressions.csv")
    for name in ("impressions", "i"):
        impressions.write_parquet(folder / f"{name}.parquet")
    pl.read_csv(folder / "log" / "conversions.csv").write_parquet(folder / "c.parquet")
    impressions.select("publisher").unique().head(3).write_csv(folder / "publishers.csv")
