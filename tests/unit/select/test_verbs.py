"""`tulle.select` from Python: settings in every form, and choices that stay in memory."""

from pathlib import Path
from typing import Any

import polars as pl
import pytest

import tulle
from tulle.data.synth.auctions import AuctionConfig, write_auction_log
from tulle.errors import ConfigError, RunStateError

PLAN: dict[str, Any] = {"epsilon": 3, "private_stddev": 0.6, "consent": "everyone"}


@pytest.fixture(scope="module")
def auctions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("auctions") / "auctions.parquet"
    write_auction_log(AuctionConfig(num_auctions=40), path, seed=1)
    return path


def test_a_selection_is_the_same_in_every_form(auctions: Path, tmp_path: Path) -> None:
    made = tulle.select.plan(auctions, **PLAN, output=tmp_path / "selection.toml")
    assert tulle.select.selection_of(tmp_path / "selection.toml") == made.config
    assert tulle.select.selection_of(str(tmp_path / "selection.toml")) == made.config
    assert tulle.select.selection_of(made) == tulle.select.selection_of(made.config) == made.config
    tables = {"mechanism": {"kind": "non-personalised"}, "privacy": {"unit": "impression"}}
    assert tulle.select.selection_of(tables) == tulle.select.selection(mechanism="non-personalised")


def test_keywords_say_what_a_settings_file_says(tmp_path: Path) -> None:
    path = tmp_path / "selection.toml"
    path.write_text(
        '[mechanism]\nkind = "randomized-response"\nepsilon = 2.0\nnum_finalists = 4\n'
        '[privacy]\nunit = "user"\nmax_decisions_per_user = 5\nconsent = "everyone"\n'
        '[pricing]\nrule = "first-price"\nreserve = 0.01\n'
    )
    made = tulle.select.selection(
        epsilon=2.0,
        num_finalists=4,
        unit="user",
        max_decisions_per_user=5,
        consent="everyone",
        pricing="first-price",
        reserve=0.01,
    )
    assert made == tulle.select.selection_of(path)
    with pytest.raises(ConfigError, match="epsilon"):
        tulle.select.selection(mechanism="randomized-response")


def test_choices_in_memory_are_billed_as_those_in_a_file(auctions: Path, tmp_path: Path) -> None:
    selection = tulle.select.plan(auctions, **PLAN)
    out = tmp_path / "choices.parquet"
    stored = tulle.select.decide(selection, auctions, seed=2, output=out)
    drawn = tulle.select.decide(selection, pl.read_parquet(auctions), seed=2)
    assert drawn.path is None
    assert drawn.to_polars().equals(stored.to_polars())
    bills = [
        tulle.select.bill(selection, auctions, choices)
        for choices in (stored, out, drawn, drawn.to_polars())
    ]
    assert all(made.to_dict() == bills[0].to_dict() for made in bills)
    tulle.select.bill(selection, auctions, drawn, output=tmp_path / "bill.csv")
    assert (tmp_path / "bill.csv").read_text() == bills[0].to_csv()
    with pytest.raises(RunStateError, match="exists already"):
        tulle.select.bill(selection, auctions, drawn, output=tmp_path / "bill.csv")


def test_choices_are_not_billed_by_other_settings(auctions: Path) -> None:
    drawn = tulle.select.decide(tulle.select.plan(auctions, **PLAN), auctions)
    other = tulle.select.selection(epsilon=1.0, num_finalists=2, consent="everyone")
    with pytest.raises(tulle.errors.DataError, match="drawn by other settings"):
        tulle.select.bill(other, auctions, drawn)


def test_decisions_are_secure_by_default_and_a_ledger_needs_a_file(
    auctions: Path, tmp_path: Path
) -> None:
    selection = tulle.select.plan(auctions, **PLAN)
    assert tulle.select.decide(selection, auctions).record.is_secure
    tulle.accounting.ledger.Ledger.create(tmp_path / "ledger.db")
    with pytest.raises(ConfigError, match="output is missing: what a ledger pays for"):
        tulle.select.decide(selection, auctions, ledger=tmp_path / "ledger.db")


def test_several_epsilons_are_compared_and_not_stored(auctions: Path, tmp_path: Path) -> None:
    compared = tulle.select.plan(auctions, **PLAN | {"epsilon": [1, 3]})
    assert compared.outlook is not None
    assert compared.outlook.epsilons == (1, 3)
    assert compared.config.mechanism.epsilon == 3
    assert compared.plan.guarantee.epsilon == pytest.approx(3)
    with pytest.raises(ConfigError, match="holds one selection"):
        tulle.select.plan(auctions, **PLAN | {"epsilon": [1, 3]}, output=tmp_path / "s.toml")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"objective": "wealth"}, "objective='wealth' is unknown"),
        ({"consent": "nobody"}, "consent='nobody' is unknown"),
        ({"unit": "user"}, "max_decisions_per_user"),
        ({"private_stddev": None}, "private_stddev"),
    ],
)
def test_wrong_words_are_refused(auctions: Path, words: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        tulle.select.plan(auctions, **PLAN | words)


RENAMED = {"auction": "request", "ad": "banner", "server_prob": "public", "device_prob": "private"}


@pytest.fixture(scope="module")
def renamed(auctions: Path) -> pl.DataFrame:
    """The same auctions with other names of columns, ids as text, and a column of no use."""
    names = {"auction_id": "request", "ad": "banner", "p_server": "public", "p_device": "private"}
    found = pl.read_parquet(auctions).rename(names)
    return found.with_columns(
        pl.col("request", "banner").cast(pl.String).str.zfill(6), tags=pl.lit(["a", "b"])
    )


def test_a_plan_remembers_the_columns_that_it_was_made_with(renamed: pl.DataFrame) -> None:
    selection = tulle.select.plan(renamed, **PLAN, columns=RENAMED)
    choices = tulle.select.decide(selection, renamed, seed=2)
    assert len(choices.to_polars()) == 40
    again = tulle.select.decide(selection.config, renamed, columns=RENAMED, seed=2)
    assert choices.to_polars().equals(again.to_polars())
    assert tulle.select.bill(selection, renamed, choices).bill.num_impressions == 40
    clicks = choices.to_polars().head(20)
    estimate = tulle.select.evaluate(
        selection, renamed, choices, clicks=clicks, target=selection, epsilon=1, seed=2
    )
    assert estimate.numbers["num_decisions"] == choices.record.num_personalised


@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
@pytest.mark.parametrize("is_text", [True, False])
def test_released_ids_come_back_as_they_were_written(
    auctions: Path, renamed: pl.DataFrame, tmp_path: Path, ending: str, is_text: bool
) -> None:
    table, columns = (renamed, RENAMED) if is_text else (pl.read_parquet(auctions), None)
    selection = tulle.select.plan(table, **PLAN, columns=columns)
    stored = tulle.select.decide(selection, table, seed=2, output=tmp_path / f"out.{ending}")
    drawn = tulle.select.decide(selection, table, seed=2)
    found = stored.to_polars()
    assert found.equals(drawn.to_polars())
    assert found.schema == dict.fromkeys(("auction_id", "ad"), pl.String if is_text else pl.Int64)
    if is_text:
        assert found["auction_id"][0] == "000000"


def test_an_estimate_in_memory_is_a_table_as_one_in_a_file_is(
    auctions: Path, tmp_path: Path
) -> None:
    selection = tulle.select.plan(auctions, **PLAN)
    choices = tulle.select.decide(selection, auctions, seed=2)
    words: dict[str, Any] = {"clicks": choices.to_polars().head(20), "target": selection}
    words |= {"epsilon": 1, "seed": 2}
    in_memory = tulle.select.evaluate(selection, auctions, choices, **words)
    output = tmp_path / "estimate.json"
    stored = tulle.select.evaluate(selection, auctions, choices, **words, output=output)
    found = in_memory.to_polars()
    assert found.equals(stored.to_polars())
    assert len(in_memory.to_pandas()) == 1
    assert [*found.row(0)[1:3]] == list(in_memory.numbers["interval"])
    with pytest.raises(ConfigError, match="leave it out"):
        in_memory.to_polars("estimate")


def test_only_columns_that_are_needed_go_to_disk(
    renamed: pl.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[list[str]] = []
    write = pl.DataFrame.write_parquet

    def noting(table: pl.DataFrame, *args: Any, **words: Any) -> None:
        written.append(table.columns)
        write(table, *args, **words)

    monkeypatch.setattr(pl.DataFrame, "write_parquet", noting)
    selection = tulle.select.plan(renamed, **PLAN, columns=RENAMED)
    assert written == [["request", "banner", "bid", "public"]]
    choices = tulle.select.decide(selection, renamed)
    assert written[1:] == [["request", "banner", "bid", "public", "private"]]
    clicks = choices.to_polars().head(3).with_columns(age=pl.lit(40))
    written.clear()
    tulle.select.evaluate(
        selection, renamed, choices.to_polars(), clicks=clicks, target=selection, epsilon=1
    )
    assert written[1:] == [["auction_id", "ad"], ["auction_id", "ad"]]


def test_a_refusal_under_another_name_is_not_dropped_from_a_table(auctions: Path) -> None:
    table = pl.read_parquet(auctions).with_columns(Consented=pl.lit(False))
    with pytest.raises(tulle.errors.DataError, match="'Consented'; name it"):
        tulle.select.plan(table, **PLAN)


def test_a_plan_and_an_estimate_show_their_pages_in_a_notebook(auctions: Path) -> None:
    selection = tulle.select.plan(auctions, **PLAN)
    assert "Plan of a selection: auctions" in selection._repr_html_()
    choices = tulle.select.decide(selection, auctions, seed=2)
    estimate = tulle.select.evaluate(
        *(selection, auctions, choices),
        clicks=choices.to_polars().head(20),
        target=selection,
        epsilon=1,
    )
    assert "Settings of the evaluated selection" in estimate._repr_html_()
    assert "Decisions" in choices._repr_html_()


def test_a_bill_is_a_table_of_exact_amounts(auctions: Path) -> None:
    selection = tulle.select.plan(auctions, **PLAN)
    made = tulle.select.bill(selection, auctions, tulle.select.decide(selection, auctions, seed=2))
    table = made.to_polars()
    assert table["impressions"].sum() == made.bill.num_impressions
    assert str(sum(table["amount"])) == made.bill.total
    assert made.to_pandas()["ad"].tolist() == list(made.ads)


def test_a_log_of_shown_ads_in_memory_becomes_auctions(tmp_path: Path) -> None:
    log = pl.DataFrame({"user_id": [1, 1, 2, 2], "timestamp": [5] * 4, "ad_id": [1, 2, 1, 3]})
    ads = pl.DataFrame({"ad_id": [1, 2, 3], "price": [1.0, 2.0, 4.0]})
    rows = pl.DataFrame({"row": range(4), "probability": [0.1, 0.2, 0.3, 0.4]})
    words: dict[str, Any] = {"ad_table": ads, "server_predictions": rows}
    output = tmp_path / "auctions.parquet"
    facts = tulle.select.auctions_from_log(log, output, **words, device_predictions=rows)
    assert (facts.auctions, facts.candidates) == (2, 4)
    assert pl.read_parquet(output)["bid"].to_list() == [1.0, 2.0, 1.0, 4.0]
    with pytest.raises(ConfigError, match="format='taobo' is unknown"):
        tulle.select.auctions_from_log(log, tmp_path / "a.csv", layout="taobo")
    with pytest.raises(ConfigError, match="no role 'prize'"):
        tulle.select.auctions_from_log(log, tmp_path / "a.csv", columns={"prize": "price"})
