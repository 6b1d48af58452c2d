import dataclasses
import datetime
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings

from tulle.data.prediction_file import write_predictions
from tulle.data.synth.write_logs import write_taobao_tables
from tulle.errors import ConfigError, DataError, RunStateError
from tulle.select.files.auction_files import read_auctions
from tulle.select.files.auctions_from_log import (
    AuctionLogConfig,
    AuctionLogFacts,
    write_auctions_from_log,
)
from tulle.select.files.log_rows import TAOBAO_COLUMNS, AuctionLogColumns, LogSources
from unit.select.decisions.auction_tables import read_table

LOG = [
    # user, time, ad, price, click: auctions are not consecutive
    ("u", 10, "a", 4.0, 0),
    ("v", 10, "a", 4.0, 1),
    ("u", 11, "c", 1.0, 0),
    ("u", 10, "b", 3.0, 0),
    ("v", 10, "d", 0.5, 0),
    ("u", 10, "a", 4.0, 1),
    ("v", 10, "b", 3.0, 0),
]
SERVER = np.array([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7])
DEVICE = SERVER / 2
CLICKED = AuctionLogConfig(columns=AuctionLogColumns(click="clk"))


def write_log(path: Path, rows: list[Any]) -> Path:
    names = ["user_id", "timestamp", "ad_id", "price", "clk"]
    table = pl.DataFrame(rows, schema=names, orient="row")
    if path.suffix == ".csv":
        table.write_csv(path)
    elif path.suffix == ".parquet":
        table.write_parquet(path)
    else:
        table.write_ndjson(path)
    return path


def sources_of(folder: Path, log: Path, server: Any = SERVER, device: Any = DEVICE) -> LogSources:
    for name, probs in (("server", server), ("device", device)):
        rows = np.flatnonzero(~np.isnan(probs))
        path = folder / f"{name}.parquet"
        write_predictions(path, rows[::-1], probs[rows][::-1], overwrite=True)
    return LogSources(
        log=log,
        server_predictions=folder / "server.parquet",
        device_predictions=folder / "device.parquet",
    )


def build(
    folder: Path, config: AuctionLogConfig = CLICKED, sources: LogSources | None = None
) -> tuple[pl.DataFrame, AuctionLogFacts]:
    output = folder / "auctions.parquet"
    output.unlink(missing_ok=True)
    if sources is None:
        sources = sources_of(folder, write_log(folder / "log.parquet", LOG))
    facts = write_auctions_from_log(sources, output, config)
    return pl.read_parquet(output), facts


def test_ads_of_one_user_at_one_time_are_one_auction(tmp_path: Path) -> None:
    table, facts = build(tmp_path)
    assert table.columns == [
        *("auction_id", "user_id", "timestamp", "ad", "bid", "p_server", "p_device", "click")
    ]
    assert table.rows() == [
        (0, "u", 10, "a", 4.0, 0.1, 0.05, True),
        (0, "u", 10, "b", 3.0, 0.4, 0.2, False),
        (1, "v", 10, "a", 4.0, 0.2, 0.1, True),
        (1, "v", 10, "d", 0.5, 0.5, 0.25, False),
        (1, "v", 10, "b", 3.0, 0.7, 0.35, False),
    ]
    assert facts == AuctionLogFacts(
        auctions=2,
        candidates=5,
        mean_candidates=2.5,
        most_candidates=3,
        least_bid=0.5,
        least_server_score=0.25,
        clicks=2,
        rows=7,
        rows_without_price=0,
        rows_merged=1,
        auctions_without_predictions=0,
        auctions_too_small=1,
    )


def test_single_candidates_are_kept_if_wanted(tmp_path: Path) -> None:
    config = dataclasses.replace(CLICKED, min_candidates=1)
    table, facts = build(tmp_path, config)
    assert table["auction_id"].to_list() == [0, 0, 1, 1, 1, 2]
    assert facts.auctions_too_small == 0


def test_bids_are_prices_times_the_factor_and_the_least_is_told(tmp_path: Path) -> None:
    table, facts = build(tmp_path, AuctionLogConfig(bid_factor=0.001))
    assert table["bid"].to_list() == [price * 0.001 for price in (4.0, 3.0, 4.0, 0.5, 3.0)]
    assert facts.least_bid == 0.5 * 0.001
    assert facts.clicks is None
    assert "click" not in table.columns


@pytest.mark.parametrize("log", ["log.csv", "log.jsonl"])
@pytest.mark.parametrize("output", ["a.parquet", "a.csv", "a.jsonl"])
def test_every_form_of_log_and_output_says_the_same(tmp_path: Path, log: str, output: str) -> None:
    expected, _ = build(tmp_path)
    sources = sources_of(tmp_path, write_log(tmp_path / log, LOG))
    write_auctions_from_log(sources, tmp_path / output, CLICKED)
    (block,) = read_auctions(tmp_path / output, with_device=True)
    assert block.original_ads(block.ads).tolist() == expected["ad"].to_list()
    assert block.bids.tolist() == expected["bid"].to_list()
    assert block.server_click_probs.tolist() == expected["p_server"].to_list()
    assert block.device_click_probs is not None
    assert block.device_click_probs.tolist() == expected["p_device"].to_list()
    written = read_table(tmp_path / output)
    assert written["click"].to_list() == expected["click"].to_list()
    assert written["timestamp"].to_list() == expected["timestamp"].to_list()
    assert block.users is not None
    assert block.users.tolist() == ["u", "v"]
    assert block.consents is None


def by_hand(rows: list[Any], server: Any, device: Any, least: int) -> list[Any]:
    auctions: dict[Any, dict[Any, list[Any]]] = {}
    for place, (user, time, ad, price, click) in enumerate(rows):
        if price is None:
            continue
        candidates = auctions.setdefault((user, time), {})
        if ad in candidates:
            candidates[ad][-1] |= bool(click)
        else:
            candidates[ad] = [user, time, ad, price, server[place], device[place], bool(click)]
    kept = [
        list(candidates.values())
        for candidates in auctions.values()
        if len(candidates) >= least
        and not any(np.isnan(row[4]) or np.isnan(row[5]) for row in candidates.values())
    ]
    return [(number, *row) for number, auction in enumerate(kept) for row in auction]


@settings(
    max_examples=60,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(
    rows=st.lists(
        st.tuples(
            st.integers(0, 3),
            st.integers(0, 2),
            st.integers(0, 4),
            st.one_of(st.none(), st.floats(0, 100), st.floats(0, 100)),
            st.integers(0, 1),
        ),
        min_size=1,
        max_size=30,
    ),
    least=st.integers(1, 3),
    seed=st.integers(0, 2**32 - 1),
)
def test_any_log_is_grouped_as_by_hand(
    tmp_path: Path, rows: list[Any], least: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    server, device = rng.random((2, len(rows)))
    server[rng.random(len(rows)) < 0.1] = np.nan
    server[0] = device[0] = 0.5
    names = {"user_id": pl.Int64, "timestamp": pl.Int64, "ad_id": pl.Int64, "price": pl.Float64}
    table = pl.DataFrame(rows, schema=names | {"clk": pl.Int64}, orient="row")
    table.write_parquet(tmp_path / "log.parquet")
    sources = sources_of(tmp_path, tmp_path / "log.parquet", server, device)
    config = dataclasses.replace(CLICKED, min_candidates=least)
    expected = by_hand(rows, server, device, least)
    if not expected:
        with pytest.raises(DataError, match="no auction is left"):
            build(tmp_path, config, sources)
        return
    found, facts = build(tmp_path, config, sources)
    assert found.rows() == expected
    assert facts.least_bid == min(row[4] for row in expected)
    assert facts.candidates == len(expected)


def test_an_auction_without_all_predictions_is_left_out_whole(tmp_path: Path) -> None:
    server = SERVER.copy()
    server[3] = np.nan
    sources = sources_of(tmp_path, write_log(tmp_path / "log.parquet", LOG), server)
    table, facts = build(tmp_path, CLICKED, sources)
    assert table["user_id"].unique().to_list() == ["v"]
    assert facts.auctions_without_predictions == 1


def test_predictions_may_be_columns_of_the_log(tmp_path: Path) -> None:
    expected, _ = build(tmp_path)
    table = pl.read_parquet(tmp_path / "log.parquet")
    table.with_columns(s=SERVER, d=DEVICE).write_parquet(tmp_path / "wide.parquet")
    columns = AuctionLogColumns(click="clk", server_prob="s", device_prob="d")
    found, _ = build(
        tmp_path, AuctionLogConfig(columns=columns), LogSources(log=tmp_path / "wide.parquet")
    )
    assert found.equals(expected)


def test_each_side_has_one_source_of_predictions(tmp_path: Path) -> None:
    sources = sources_of(tmp_path, write_log(tmp_path / "log.parquet", LOG))
    with pytest.raises(ConfigError, match="give either device_predictions or device_prob"):
        build(tmp_path, CLICKED, dataclasses.replace(sources, device_predictions=None))
    columns = AuctionLogColumns(server_prob="price")
    with pytest.raises(ConfigError, match="give either server_predictions or server_prob"):
        build(tmp_path, AuctionLogConfig(columns=columns), sources)


def test_predictions_of_another_log_are_refused(tmp_path: Path) -> None:
    sources = sources_of(tmp_path, write_log(tmp_path / "log.parquet", LOG[:4]))
    with pytest.raises(DataError, match=r"server\.parquet names rows that the table"):
        build(tmp_path, CLICKED, sources)


def test_prices_come_from_a_table_of_ads(tmp_path: Path) -> None:
    expected, _ = build(tmp_path)
    log = pl.read_parquet(tmp_path / "log.parquet").drop("price")
    log.write_csv(tmp_path / "log.csv")
    prices = "price,brand,ad_id\n3.0,x,b\n4.0,,a\n,y,d\n1.0,z,c\n9.0,z,unseen\n"
    (tmp_path / "ads.csv").write_text(prices)
    sources = dataclasses.replace(
        sources_of(tmp_path, tmp_path / "log.csv"), ad_table=tmp_path / "ads.csv"
    )
    found, facts = build(tmp_path, CLICKED, sources)
    assert found.equals(expected.filter(pl.col("ad") != "d"))
    assert facts.rows_without_price == 1
    assert facts.least_bid == 3.0
    for text, problem in (
        ("price,ad_id\n", "has no rows"),
        ("price,ad_id\n1,a\n2,a\n", "has an ad twice"),
        ("price,ad_id\n-1,a\n", r"'price' is no finite number >= 0 in ads\.csv, row 1"),
        ("cost,ad_id\n1,a\n", "no column 'price'"),
    ):
        (tmp_path / "ads.csv").write_text(text)
        with pytest.raises(DataError, match=problem):
            build(tmp_path, CLICKED, sources)


def test_ids_of_different_types_are_not_joined_by_guessing(tmp_path: Path) -> None:
    log = pl.DataFrame({"user_id": [1, 1], "timestamp": [1, 1], "ad_id": [1, 2]})
    log.write_parquet(tmp_path / "log.parquet")
    (tmp_path / "ads.csv").write_text("ad_id,price\n1,2\n2,3\n")
    sources = dataclasses.replace(
        sources_of(tmp_path, tmp_path / "log.parquet", SERVER[:2], DEVICE[:2]),
        ad_table=tmp_path / "ads.csv",
    )
    with pytest.raises(DataError, match=r"Int64 in the log and String in ads\.csv"):
        build(tmp_path, AuctionLogConfig(), sources)
    columns = AuctionLogColumns(has_numeric_ids=True)
    table, _ = build(tmp_path, AuctionLogConfig(columns=columns), sources)
    assert table["bid"].to_list() == [2, 3]


def test_times_within_a_second_are_different_auctions(tmp_path: Path) -> None:
    start = datetime.datetime(2026, 1, 14, tzinfo=datetime.UTC)
    times = [start + datetime.timedelta(milliseconds=row[1] * 10) for row in LOG]
    log = write_log(tmp_path / "log.parquet", LOG)
    pl.read_parquet(log).with_columns(timestamp=pl.Series(times)).write_parquet(log)
    config = dataclasses.replace(CLICKED, min_candidates=1)
    table, facts = build(tmp_path, config, sources_of(tmp_path, log))
    assert facts.auctions == 3
    assert table["timestamp"].unique().to_list() == [int(start.timestamp())]


@pytest.mark.parametrize(
    ("place", "value", "problem"),
    [
        (0, None, "'user_id' is missing"),
        (1, None, "'timestamp' is missing"),
        (2, None, "'ad_id' is missing"),
        (3, -2.0, "'price' is no finite"),
        (4, 7, "'clk' holds no truth value"),
    ],
)
def test_a_row_that_fits_no_auction_is_named(
    tmp_path: Path, place: int, value: Any, problem: str
) -> None:
    rows = [list(row) for row in LOG]
    rows[4][place] = value
    for name in ("log.parquet", "log.csv"):
        sources = sources_of(tmp_path, write_log(tmp_path / name, rows))
        with pytest.raises(DataError, match=f"column {problem}.* in {name}, row 5; "):
            build(tmp_path, CLICKED, sources)


@pytest.mark.parametrize(
    "settings", [{"bid_factor": 0.0}, {"bid_factor": float("inf")}, {"min_candidates": 0}]
)
def test_settings_are_checked(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(settings))):
        AuctionLogConfig(**settings)


def test_a_bid_beyond_all_numbers_is_refused(tmp_path: Path) -> None:
    rows = [(*row[:3], 1e300, 0) for row in LOG]
    sources = sources_of(tmp_path, write_log(tmp_path / "log.parquet", rows))
    with pytest.raises(DataError, match=r"bid_factor=1e\+20 is beyond all numbers"):
        build(tmp_path, AuctionLogConfig(bid_factor=1e20), sources)


def test_an_output_is_new_and_whole(tmp_path: Path) -> None:
    sources = sources_of(tmp_path, write_log(tmp_path / "log.parquet", LOG))
    (tmp_path / "a.parquet").write_text("precious")
    with pytest.raises(RunStateError, match="exists already"):
        write_auctions_from_log(sources, tmp_path / "a.parquet", CLICKED)
    assert (tmp_path / "a.parquet").read_text() == "precious"
    with pytest.raises(ConfigError, match="folder that does not exist"):
        write_auctions_from_log(sources, tmp_path / "nowhere" / "a.parquet", CLICKED)
    with pytest.raises(ConfigError, match="does not say how to write"):
        write_auctions_from_log(sources, tmp_path / "a.txt", CLICKED)
    write_auctions_from_log(sources, tmp_path / "b.parquet", CLICKED)
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_the_same_log_gives_the_same_file(tmp_path: Path) -> None:
    first, _ = build(tmp_path)
    second, _ = build(tmp_path)
    assert first.equals(second)


def test_a_log_in_the_form_of_taobao_becomes_auctions(tmp_path: Path) -> None:
    write_taobao_tables(tmp_path, num_rows=3_000, seed=2)
    raw = pl.read_csv(tmp_path / "raw_sample.csv")
    ads = pl.read_csv(tmp_path / "ad_feature.csv").select("adgroup_id", "price")
    rng = np.random.default_rng(0)
    server, device = rng.random((2, 3_000))
    # The made-up log has few ads at the same time: make some coincide.
    raw = raw.with_columns(time_stamp=pl.col("time_stamp") // 100_000, user=pl.col("user") % 50)
    raw.write_csv(tmp_path / "raw_sample.csv")
    sources = dataclasses.replace(
        sources_of(tmp_path, tmp_path / "raw_sample.csv", server, device),
        ad_table=tmp_path / "ad_feature.csv",
    )
    table, facts = build(tmp_path, AuctionLogConfig(columns=TAOBAO_COLUMNS), sources)
    price = dict(ads.rows())
    columns = raw.select("user", "time_stamp", "adgroup_id", "clk").rows()
    rows = [(user, time, ad, price[ad], click) for user, time, ad, click in columns]
    assert table.rows() == by_hand(rows, server, device, 2)
    assert facts.auctions > 100


def test_what_a_device_can_not_predict_leaves_out_no_auction(tmp_path: Path) -> None:
    log = write_log(tmp_path / "log.parquet", LOG)
    missing = DEVICE.copy()
    missing[4] = np.nan
    with pytest.raises(DataError, match="none of the device; predict the same rows"):
        build(tmp_path, sources=sources_of(tmp_path, log, device=missing))
    assert not (tmp_path / "auctions.parquet").exists()


def test_consent_is_carried_over(tmp_path: Path) -> None:
    log = tmp_path / "log.parquet"
    users = pl.Series([user for user, *_ in LOG])
    table = pl.read_parquet(write_log(log, LOG)).with_columns(agreed=users == "v")
    table.write_parquet(log)
    columns = AuctionLogColumns(click="clk", consent="agreed")
    made, _ = build(tmp_path, AuctionLogConfig(columns=columns), sources_of(tmp_path, log))
    assert made["consent"].to_list() == [user == "v" for user in made["user_id"]]
