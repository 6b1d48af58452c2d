"""Every verb of select reads every form of a table alike."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from contract.table_inputs import FLAGS, ONE_SOURCE, TIMES, in_form
from tulle import select
from tulle.errors import DataError
from tulle.lab.markets import simulate

SELECTION = select.selection(epsilon=3.0, num_finalists=3)


def auctions(seed: int = 3) -> pl.DataFrame:
    """Auctions of 2 to 5 ads whose names need quotes, with consent of some."""
    draw = np.random.default_rng(seed)
    sizes = draw.integers(2, 6, 40)
    numbers = np.repeat(np.arange(40), sizes)
    ads = np.concatenate([draw.permutation(6)[:size] for size in sizes])
    names = np.array(["a", "ä b", 'say "x"', "x,y", "007", "7"])
    return pl.DataFrame(
        {
            "auction_id": numbers,
            "ad": names[ads],
            "bid": draw.uniform(1, 2, len(ads)),
            "p_server": draw.uniform(0.1, 0.3, len(ads)),
            "p_device": draw.uniform(0.1, 0.3, len(ads)),
            "user_id": numbers % 7,
            "consent": numbers % 3 > 0,
        }
    )


def decided(data: Any) -> dict[str, Any]:
    choices = select.decide(SELECTION, data, seed=5).to_polars()
    return choices.select(pl.all().cast(pl.String)).to_dict(as_series=False)


@functools.cache
def chosen() -> pl.DataFrame:
    """What was chosen in these auctions."""
    return select.decide(SELECTION, auctions(), seed=5).to_polars()


READERS: dict[str, Callable[[Any], Any]] = {
    "plan": lambda data: select.plan(data, epsilon=2, private_stddev=0.6).to_dict()["options"],
    "plan from devices": lambda data: select.plan(data, epsilon=2, from_devices=True).to_dict()[
        "options"
    ],
    "decide": decided,
    "bill": lambda data: select.bill(SELECTION, data, chosen()).to_dict()["lines"],
    "evaluate": lambda data: (
        select.evaluate(
            SELECTION,
            data,
            chosen(),
            clicks=pl.DataFrame({"auction_id": [3, 8]}),
            target=SELECTION,
            epsilon=1,
            seed=5,
        ).numbers
    ),
    "simulate": lambda data: simulate(data, num_auctions=40).found.pricing,
}


@functools.cache
def read_plainly(verb: str) -> Any:
    """What a verb makes of the plain polars table."""
    return READERS[verb](auctions())


SIMULATED_FORMS = ("csv", "parquet", "pandas", "duckdb")
SIMULATED = [
    pytest.param(
        "simulate",
        form,
        marks=()
        if form in SIMULATED_FORMS
        else pytest.mark.long(
            "a simulation of a fifth of a second reads what plan reads; make test has it for some "
            "forms, and plan for all"
        ),
    )
    for form in ONE_SOURCE
]


@pytest.mark.parametrize(
    ("verb", "form"),
    [(verb, form) for verb in READERS if verb != "simulate" for form in ONE_SOURCE] + SIMULATED,
)
def test_auctions(verb: str, form: str, tmp_path: Path) -> None:
    with in_form(form, auctions(), tmp_path) as data:
        found = READERS[verb](data)
        del data  # a relation of DuckDB must not outlive its connection
    assert found == read_plainly(verb)
    assert found


@pytest.mark.parametrize("form", ONE_SOURCE)
def test_choices_and_clicks(form: str, tmp_path: Path) -> None:
    frame = auctions()
    per_click = select.selection(epsilon=3.0, num_finalists=3, pricing="first-price-per-click")
    choices = select.decide(per_click, frame, seed=5).to_polars()
    clicks = choices.head(9)
    for name in ("choices", "clicks"):
        (tmp_path / name).mkdir()
    with (
        in_form(form, choices, tmp_path / "choices") as chosen,
        in_form(form, clicks, tmp_path / "clicks") as clicked,
    ):
        found = select.bill(per_click, frame, chosen, clicks=clicked).to_dict()
        del chosen, clicked
    assert found == select.bill(per_click, frame, choices, clicks=clicks).to_dict()
    assert sum(line["clicks"] for line in found["lines"]) == 9


def log() -> pl.DataFrame:
    """A log of shown ads, with predictions in its columns."""
    draw = np.random.default_rng(8)
    return pl.DataFrame(
        {
            "user_id": [f"u{number}" for number in draw.integers(0, 6, 90)],
            "timestamp": draw.integers(1_768_348_800, 1_768_348_805, 90),
            "ad_id": draw.choice(["a", "ä b", 'say "x"'], 90),
            "price": draw.integers(1, 100, 90) / 4,
            "seen": draw.random(90),
            "known": draw.random(90),
        }
    )


def made_of(data: Any, output: Path, **words: Any) -> pl.DataFrame:
    columns = {"server_prob": "seen", "device_prob": "known"}
    select.auctions_from_log(data, output, columns=columns, **words)
    return pl.read_parquet(output)


@pytest.mark.parametrize("form", ONE_SOURCE)
def test_a_log_of_shown_ads(form: str, tmp_path: Path) -> None:
    with in_form(form, log(), tmp_path) as data:
        found = made_of(data, tmp_path / "found.parquet")
        del data
    plain = made_of(log(), tmp_path / "plain.parquet")
    assert found.equals(plain)
    assert plain.height > 20


@pytest.mark.parametrize("form", ONE_SOURCE)
def test_a_table_of_ads_and_predictions(form: str, tmp_path: Path) -> None:
    rows = log()
    ads = pl.DataFrame({"ad_id": ["a", "ä b", 'say "x"'], "price": [1.5, 2.0, 4.0]})
    with in_form(form, ads, tmp_path) as given:
        found = made_of(rows.drop("price"), tmp_path / "found.parquet", ad_table=given)
        del given
    plain = made_of(rows.drop("price"), tmp_path / "plain.parquet", ad_table=ads)
    assert found.equals(plain)


@pytest.mark.parametrize("form", ["polars", "parquet", "csv", "json lines"])
@pytest.mark.parametrize("flags", FLAGS)
def test_consent_of_every_form(flags: str, form: str, tmp_path: Path) -> None:
    frame = auctions()
    said = FLAGS[flags].head(2)
    agreed = pl.Series("consent", [said[0] if is_true else said[1] for is_true in frame["consent"]])
    with in_form(form, frame.with_columns(agreed), tmp_path) as data:
        assert decided(data) == read_plainly("decide")
        missing = frame.with_columns(agreed.scatter(3, None))
    with pytest.raises(DataError, match=r"column 'consent' is missing .* row 4"):
        decided(missing)


@pytest.mark.parametrize("form", ["polars", "parquet", "csv", "json lines"])
@pytest.mark.parametrize("times", TIMES)
def test_times_of_every_form(times: str, form: str, tmp_path: Path) -> None:
    rows = log().head(4).with_columns(user_id=pl.lit("u"), ad_id=pl.Series(["a", "b", "a", "b"]))
    moments = TIMES[times]
    seconds = pl.concat([moments, moments]).sort()
    frame = rows.with_columns(timestamp=seconds)
    if form == "json lines" and seconds.dtype.is_temporal():
        frame = frame.with_columns(seconds.cast(pl.String).alias("timestamp"))  # JSON has no times
    with in_form(form, frame, tmp_path) as data:
        found = made_of(data, tmp_path / "found.parquet")
    assert found["auction_id"].to_list() == [0, 0, 1, 1]
    assert found["timestamp"].unique(maintain_order=True).to_list() == [
        1_768_383_000,
        1_768_521_599,
    ]
