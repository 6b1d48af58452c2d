"""The card of a selection says what was promised and whether the draws were private."""

import dataclasses
from pathlib import Path

import pytest

from tulle.errors import TulleError
from tulle.mechanisms.entropy import NoiseSource, SeededNoise, release_rng
from tulle.report.card import Card
from tulle.report.card_markdown import render_card
from tulle.report.select_card import select_card
from tulle.select.deciding.deciding import decide
from tulle.select.deciding.selection_record import SelectionRecord
from tulle.select.selection_config import Consent
from unit.select.deciding.auction_tables import (
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
    card = select_card(record_of(tmp_path, release_rng()))
    assert card.verdict.startswith("Private release: epsilon=1, delta=0")
    assert card.reasons == ()
    assert Card.from_dict(card.to_dict()) == card


def test_a_seed_is_not_a_private_release(tmp_path: Path) -> None:
    card = select_card(record_of(tmp_path, SeededNoise(3)))
    assert card.verdict.startswith("NOT A PRIVATE RELEASE")
    assert "fixed seed 3" in render_card(card.to_dict())


def test_consent_and_both_types_of_data_are_on_the_card(tmp_path: Path) -> None:
    text = render_card(select_card(record_of(tmp_path, release_rng())).to_dict())
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
        select_card(dataclasses.replace(record, plan=plan))


def test_the_card_of_a_user_has_the_limit_and_what_one_decision_costs(tmp_path: Path) -> None:
    path = write_table(auction_table(30, seed=1), tmp_path / "auctions.parquet")
    out = tmp_path / "choices.parquet"
    record = decide(by_user(2), path, out, columns=COLUMNS, rng=release_rng()).record
    card = select_card(record)
    assert card.verdict.startswith("Private release: epsilon=2, delta=0")
    assert "personalised decisions per user" in render_card(card.to_dict())
    assert [figure.claim.guarantee.epsilon for figure in card.accounting.figures] == [2.0, 1.0]
