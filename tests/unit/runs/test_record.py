"""The card of a selection says what was promised and whether the draws were private."""

import dataclasses
from pathlib import Path

import polars as pl
import pytest

from golden.card.fixed_card import make_plan
from tulle.errors import ConfigError, DataError, TulleError
from tulle.labels.label_release import ReleaseRecord
from tulle.measure.queries.answers import AnswerTable
from tulle.measure.queries.measure_record import MeasureRecord
from tulle.mechanisms.entropy import NoiseSource, SeededNoise, release_rng
from tulle.privacy.events import Laplace
from tulle.privacy.plan import Plan
from tulle.runs.card import Card
from tulle.runs.card_text import render_card
from tulle.runs.record import Record, Result, TrainingRecord, card_of
from tulle.select.decisions.chosen_ads import SelectionRecord
from tulle.select.decisions.draws import decide
from tulle.select.selection_config import Consent
from unit.select.decisions.auction_tables import (
    COLUMNS,
    auction_table,
    by_user,
    selection,
    write_table,
)


def record_of(folder: Path, rng: NoiseSource) -> SelectionRecord:
    path = write_table(auction_table(30, seed=1, has_refusals=True), folder / "auctions.parquet")
    config = selection(consent=Consent.COLUMN)
    return decide(config, path, folder / "choices.parquet", columns=COLUMNS, rng=rng).record


def test_entropy_of_the_operating_system_makes_a_private_release(tmp_path: Path) -> None:
    card = card_of(record_of(tmp_path, release_rng()))
    assert card.verdict.startswith("Private release: epsilon=1, delta=0")
    assert card.reasons == ()
    assert Card.from_dict(card.to_dict()) == card


def test_a_seed_is_not_a_private_release(tmp_path: Path) -> None:
    card = card_of(record_of(tmp_path, SeededNoise(3)))
    assert card.verdict.startswith("NOT A PRIVATE RELEASE")
    assert "fixed seed 3" in render_card(card.to_dict())


def test_consent_and_both_types_of_data_are_on_the_card(tmp_path: Path) -> None:
    text = render_card(card_of(record_of(tmp_path, release_rng())).to_dict())
    assert "| consent | by column; without it the server's winner |" in text
    assert "| server sees the chosen ad of every request | Type I data;" in text
    assert "| server sees clicks and what follows, if reported | Type II data;" in text
    assert "whether the user agreed to personalised ads" in text
    assert "no score and no propensity" in text


def test_a_record_that_claims_less_than_it_cost_has_no_card(tmp_path: Path) -> None:
    record = record_of(tmp_path, release_rng())
    claim = dataclasses.replace(record.plan.guarantee, epsilon=0.5)
    plan = dataclasses.replace(record.plan, guarantee=claim)
    with pytest.raises(TulleError, match="epsilon"):
        card_of(dataclasses.replace(record, plan=plan))


def test_the_card_of_a_user_has_the_limit_and_what_one_decision_costs(tmp_path: Path) -> None:
    path = write_table(auction_table(30, seed=1), tmp_path / "auctions.parquet")
    out = tmp_path / "choices.parquet"
    record = decide(by_user(2), path, out, columns=COLUMNS, rng=release_rng()).record
    card = card_of(record)
    assert card.verdict.startswith("Private release: epsilon=2, delta=0")
    assert "personalised decisions per user" in render_card(card.to_dict())
    assert [figure.claim.guarantee.epsilon for figure in card.accounting.figures] == [2.0, 1.0]


TABLE = pl.DataFrame({"row": [1, 2], "noisy_label": [0, 1], "channel": ["tv", None]})


def label_record(*, is_secure: bool = True) -> ReleaseRecord:
    return ReleaseRecord(
        plan=make_plan(),
        mechanism={"mechanism": "binary randomized response"},
        columns={"noisy_label": "the report"},
        num_rows=2,
        table="noisy.parquet",
        table_sha256="0" * 64,
        randomness="operating system",
        is_secure=is_secure,
    )


def result_of(
    record: Record, path: Path | None = None, *, is_stored: bool = False
) -> Result[Record, Plan]:
    return Result(plan=record.plan, record=record, path=path, is_stored=is_stored)


def measured(*names: str) -> MeasureRecord:
    frame = pl.DataFrame(
        {"metric": ["reach"], "value": [1.0], "low": [0.0], "high": [2.0], "noise_stddev": [1.0]}
    )
    tables = tuple(
        AnswerTable(name=name, frame=frame, event=Laplace(noise_multiplier=1.0), confidence=0.95)
        for name in names
    )
    return MeasureRecord(plan=make_plan(), tables=tables, randomness="dice", is_secure=True)


def trained() -> TrainingRecord:
    return TrainingRecord(
        plan=make_plan(),
        randomness="operating system",
        is_secure=True,
        method="mosaic",
        epsilon=1.0,
        delta=0.0,
        label_epsilon=None,
        noise_multiplier=2.0,
        steps=0,
        steps_lost=0,
        seconds=1.0,
        metrics=None,
    )


@pytest.mark.parametrize("name", ["noisy.parquet", "noisy.jsonl"])
def test_a_released_table_is_a_frame(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    write = TABLE.write_parquet if name.endswith("parquet") else TABLE.write_ndjson
    write(path)
    result = result_of(label_record(), path)
    assert result.to_polars().equals(TABLE)
    assert result.to_pandas()["row"].tolist() == [1, 2]
    assert list(result.to_pandas().columns) == TABLE.columns


def test_a_table_that_is_gone_or_damaged_is_named(tmp_path: Path) -> None:
    result = result_of(label_record(), tmp_path / "noisy.parquet")
    with pytest.raises(DataError, match=r"noisy\.parquet cannot be read as a table"):
        result.to_polars()
    (tmp_path / "noisy.parquet").write_bytes(b"no table")
    with pytest.raises(DataError, match="restore the file"):
        result.to_polars()
    with pytest.raises(ConfigError, match="was not written"):
        result_of(label_record()).to_polars()
    with pytest.raises(ConfigError, match="no table 'other'"):
        result.to_polars("other")


def test_tables_of_a_measurement_go_by_the_names_of_queries() -> None:
    assert len(result_of(measured("reach")).to_polars()) == 1
    several = result_of(measured("reach", "sales"))
    assert several.to_polars("sales")["value"].to_list() == [1.0]
    with pytest.raises(ConfigError, match="name one of 'reach', 'sales'"):
        several.to_polars()
    with pytest.raises(ConfigError, match="no table 'clicks'"):
        several.to_polars("clicks")


def test_a_model_has_no_table() -> None:
    with pytest.raises(ConfigError, match="has no table"):
        result_of(trained()).to_polars()


def test_the_card_follows_from_the_record() -> None:
    assert result_of(label_record()).card.randomness.is_secure
    seeded = result_of(label_record(is_secure=False))
    assert seeded.card.verdict == "NOT A PRIVATE RELEASE"
    assert seeded.card is seeded.card


def test_a_result_prints_verdict_guarantee_and_path(tmp_path: Path) -> None:
    record = label_record()
    plan = dataclasses.replace(record.plan, assumptions=())
    record = dataclasses.replace(record, plan=plan)
    shown = repr(result_of(record, tmp_path / "noisy.parquet", is_stored=True)).splitlines()
    assert shown[0].startswith("Private release: epsilon=")
    assert str(plan.guarantee) in shown[1]
    assert "noisy.parquet (released before; nothing was spent)" in shown[2]
    assert "not written to a file" in repr(result_of(record))


@pytest.mark.parametrize("record", [label_record(), measured("reach"), trained()])
def test_a_notebook_shows_the_page_in_a_frame(record: Record) -> None:
    result = result_of(record)
    shown = result._repr_html_()
    assert shown.startswith('<iframe sandbox srcdoc="&lt;!DOCTYPE html&gt;')
    assert shown.count("<") == 2
    assert result.card.plan.name in shown
