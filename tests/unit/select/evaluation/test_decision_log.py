"""A log is of its auctions, and chances stay on the device."""

import dataclasses
from typing import Any

import numpy as np
import pytest

from tulle.errors import ConfigError, DataError
from tulle.select.evaluation.decision_log import DecisionLog, exported_columns
from tulle.select.floors.floor_mechanism import FloorMechanism
from unit.select.evaluation.logged_decisions import logged, same_auctions

AUCTIONS = same_auctions(4, np.array([0.2, 0.5, 0.4]))
LOG = logged(AUCTIONS, AUCTIONS.server_click_probs, FloorMechanism(epsilon=1.0), seed=1)


@pytest.mark.parametrize("column", ["propensity", "selection_prob", "raw_scores", "weight"])
def test_a_choice_does_not_leave_with_its_chance(column: str) -> None:
    with pytest.raises(ConfigError, match=f"column '{column}' must not leave a device: with the"):
        exported_columns(AUCTIONS, LOG, ["ad", column])


def test_the_chance_of_a_choice_tells_the_favourite() -> None:
    """What the refusal is for: one look at both undoes randomized response."""
    mechanism = FloorMechanism(epsilon=1.0)
    chances = mechanism.selection_probs(AUCTIONS, LOG.raw_scores)[LOG.choices]
    best = LOG.raw_scores.reshape(4, 3).argmax(axis=1)
    assert ((chances > 1 / 3) == (AUCTIONS.ads[LOG.choices] == best)).all()


def test_ads_clicks_and_users_may_be_exported() -> None:
    columns = exported_columns(AUCTIONS, LOG, ["user", "ad", "clicked"])
    assert columns["user"].tolist() == [0, 1, 2, 3]
    assert columns["ad"].tolist() == AUCTIONS.ads[LOG.choices].tolist()
    assert columns["clicked"].dtype == np.bool_


def test_sensitive_columns_are_not_printed() -> None:
    for field in dataclasses.fields(DecisionLog):
        assert field.repr == (not field.name.startswith("raw_")), field.name


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"choices": LOG.choices[::-1]}, "a candidate of its own auction"),
        ({"raw_scores": LOG.raw_scores[1:]}, "raw_scores must have one entry"),
        ({"raw_model_clicks": np.ones(2)}, "raw_model_clicks must have one entry"),
    ],
)
def test_a_log_of_other_auctions_is_refused(wrong: dict[str, Any], message: str) -> None:
    log = dataclasses.replace(LOG, **wrong)
    with pytest.raises(DataError, match=message):
        log.check(AUCTIONS)
    with pytest.raises(DataError, match="one decision for each auction"):
        LOG.check(same_auctions(5, np.array([0.2, 0.5])))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"raw_clicks": LOG.raw_clicks[1:]}, "raw_clicks must have one entry for each decision"),
        ({"raw_clicks": np.ones(4)}, "raw_clicks must be True or False, not float64"),
        ({"is_personalised": np.ones(4)}, "is_personalised must be True or False"),
        ({"raw_model_clicks": np.full(12, 1.5)}, "raw_model_clicks must be chances"),
    ],
)
def test_a_malformed_log_is_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        dataclasses.replace(LOG, **wrong)
