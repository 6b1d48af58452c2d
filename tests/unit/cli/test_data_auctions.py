import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from tulle.cli import main
from tulle.data.prediction_file import write_predictions
from tulle.data.synth.write_logs import write_taobao_tables
from tulle.select.files.auction_files import read_auctions

NUM_ROWS = 2_000
PREDICTIONS = "--server-predictions server.parquet --device-predictions device.parquet"
TAOBAO = f"raw_sample.csv --format taobao --ad-table ad_feature.csv {PREDICTIONS}"


def run(text: str) -> int:
    return main.run_with(["data", "auctions", *text.split()])


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_taobao_tables(tmp_path, num_rows=NUM_ROWS, seed=5)
    raw = pl.read_csv(tmp_path / "raw_sample.csv")
    # Times and users coarse enough that ads meet, as they do in the public log.
    raw = raw.with_columns(time_stamp=pl.col("time_stamp") // 100_000, user=pl.col("user") % 40)
    raw.write_csv(tmp_path / "raw_sample.csv")
    rng = np.random.default_rng(1)
    for name in ("server", "device"):
        path = tmp_path / f"{name}.parquet"
        write_predictions(path, np.arange(NUM_ROWS), rng.random(NUM_ROWS))
    return tmp_path


def test_the_files_of_taobao_become_auctions(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(f"{TAOBAO} --out auctions.parquet --bid-factor 0.001 --json --quiet") == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    facts = json.loads(shown.out)
    (block,) = read_auctions(folder / "auctions.parquet", with_device=True)
    assert facts["output"] == "auctions.parquet"
    assert facts["auctions"] == len(block) > 100
    assert facts["candidates"] == len(block.ads)
    assert facts["mean_candidates"] == pytest.approx(len(block.ads) / len(block))
    assert facts["least_bid"] == block.bids.min()
    assert np.diff(block.offsets).min() == 2
    assert facts["rows"] == NUM_ROWS
    raw = pl.read_csv(folder / "raw_sample.csv")
    price = dict(pl.read_csv(folder / "ad_feature.csv").select("adgroup_id", "price").rows())
    groups = raw.group_by("user", "time_stamp").agg(pl.col("adgroup_id").n_unique().alias("size"))
    assert facts["auctions"] == groups.filter(pl.col("size") >= 2).height
    assert facts["auctions_too_small"] == groups.filter(pl.col("size") == 1).height
    assert block.bids.tolist() == [price[ad] * 0.001 for ad in block.ads.tolist()]
    assert facts["clicks"] == pl.read_parquet("auctions.parquet")["click"].sum()


def test_columns_of_any_log_can_be_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(f"{TAOBAO} --output one.parquet --quiet --json") == 0
    raw = pl.read_csv(folder / "raw_sample.csv")
    ads = pl.read_csv(folder / "ad_feature.csv").select("adgroup_id", "price")
    raw = raw.join(ads, on="adgroup_id", how="left", maintain_order="left")
    probs = [pl.read_parquet(folder / f"{name}.parquet") for name in ("server", "device")]
    raw = raw.with_columns(s=probs[0]["probability"], d=probs[1]["probability"])
    names = {"user": "who", "time_stamp": "when", "adgroup_id": "what", "price": "cost"}
    raw.rename(names).write_parquet(folder / "log.parquet")
    assert (
        run(
            "log.parquet --output two.parquet --user who --time when --ad what --price cost "
            "--click clk --server-column s --device-column d --quiet --json"
        )
        == 0
    )
    one, two = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert one | {"output": ""} == two | {"output": ""}
    assert pl.read_parquet("one.parquet").equals(pl.read_parquet("two.parquet"))


def test_facts_are_shown_and_the_file_is_called_raw(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(f"{TAOBAO} --output auctions.jsonl --min-candidates 3") == 0
    shown = capsys.readouterr()
    lines = dict(line.split("  ", 1) for line in shown.out.splitlines())
    assert lines["output"].strip() == "auctions.jsonl"
    assert {"auctions", "mean candidates", "least bid", "rows merged"} <= lines.keys()
    assert float(lines["least server score"]) > 0
    assert "private data" in shown.err
    (block,) = read_auctions(folder / "auctions.jsonl", with_device=False)
    assert np.diff(block.offsets).min() == 3


@pytest.mark.parametrize(
    ("options", "code", "problem"),
    [
        ("raw_sample.csv --output a.parquet", 2, "give either --server-predictions"),
        (f"{TAOBAO} --output a.parquet --device-column clk", 2, "either --device-predictions"),
        (f"{TAOBAO} --output a.parquet --format taobo", 2, "did you mean 'taobao'?"),
        (f"{TAOBAO} --output a.txt", 2, "a.txt does not say how to write rows"),
        (f"{TAOBAO} --output server.parquet", 4, "server.parquet exists already"),
        (f"{TAOBAO} --output a.parquet --bid-factor 0", 2, "--bid-factor 0.0 must be"),
        (f"{TAOBAO} --output a.parquet --user usr", 4, "no column 'usr' (did you mean 'user'?)"),
        (
            f"raw_sample.csv --output a.parquet {PREDICTIONS}",
            4,
            "timestamp (did you mean 'time_stamp'?)",
        ),
        (f"{TAOBAO} --output a.parquet --min-candidates 99", 4, "no auction is left"),
    ],
)
@pytest.mark.usefixtures("folder")
def test_mistakes_are_explained(
    capsys: pytest.CaptureFixture[str], options: str, code: int, problem: str
) -> None:
    assert run(f"{options} --quiet") == code
    shown = capsys.readouterr()
    assert problem in shown.err
    assert shown.out == ""
    assert not Path("a.parquet").exists()
