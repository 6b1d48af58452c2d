"""From a log in Taobao's format to verdicts: models are trained, and talk through files alone."""

import json
import pathlib

import polars as pl
import pytest

from tulle.cli.main import run_with

pytestmark = pytest.mark.long("trains two models to make a market of; each part is in make test")

ROWS = 8000
CANDIDATES = 4


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    code = run_with([str(argument) for argument in arguments])
    output = capsys.readouterr()
    assert code == 0, output.err
    return output.out


def test_predictions_of_two_models_become_auctions_and_a_market(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run(capsys, "data", "synth", "taobao-tables", "--rows", ROWS, "--seed", 1, "--output", "tb")
    samples = pl.read_csv("tb/raw_sample.csv")
    page = pl.int_range(pl.len()) // CANDIDATES
    samples = samples.with_columns(
        pl.col("user").first().over(page), pl.col("time_stamp").first().over(page)
    )
    samples.write_csv("tb/raw_sample.csv")
    tables = [f"tb/{name}.csv" for name in ("raw_sample", "ad_feature", "user_profile")]
    run(capsys, "data", "prepare", *tables, "--layout", "taobao-tables", "--output", "all")
    train = ("train", "--data", "all", "--quiet", "--seed", 1)
    # One model sees users, the other public columns and noisy labels alone.
    device = "--method nonprivate --output runs/device --epochs 4 --learning-rate 0.05"
    run(capsys, *train, *device.split(), "--predictions", "device.parquet")
    server = (
        "--method rr --unit example --output runs/server --epsilon 8 --delta 0 --label-epochs 4"
    )
    run(capsys, *train, *server.split(), "--predictions", "server.parquet")
    made = (
        "data auctions tb/raw_sample.csv --format taobao --ad-table tb/ad_feature.csv --out "
        "auctions.parquet --bid-factor 0.001 --server-predictions server.parquet "
        "--device-predictions device.parquet --json"
    )
    facts = json.loads(run(capsys, *made.split()))
    auctions = pl.read_parquet("auctions.parquet")
    assert facts["auctions"] == auctions["auction_id"].n_unique() > 100
    predicted = pl.read_parquet("device.parquet")
    rows = samples.with_row_index("row").join(
        predicted.with_columns(pl.col("row").cast(pl.UInt32)), on="row"
    )
    merged = auctions.join(
        rows, left_on=["user_id", "timestamp", "ad"], right_on=["user", "time_stamp", "adgroup_id"]
    ).unique(["auction_id", "ad"], keep="first")
    assert len(merged) == len(auctions)
    prices = pl.read_csv("tb/ad_feature.csv")
    bids = auctions.join(prices, left_on="ad", right_on="adgroup_id")
    assert (bids["bid"] - bids["price"] * 0.001).abs().max() < 1e-12
    found = json.loads(run(capsys, "select", "simulate", "auctions.parquet", "--quiet", "--json"))
    assert found["num_auctions"] == (facts["auctions"] + 1) // 2
    assert found["gain"] > 0
    assert {claim["verdict"] for claim in found["claims"]} <= {
        "holds",
        "does not hold",
        "not comparable",
    }
