"""The record beside an estimate is read back as it was, also one of an earlier version."""

import json

import pytest

from tulle.errors import ConfigError
from tulle.runs.charging import ReleaseTerms
from tulle.select.evaluation.estimate import Estimator
from tulle.select.evaluation.evaluation_plan import (
    EvaluationConfig,
    EvaluationRecord,
    make_evaluation_plan,
)
from tulle.select.settings import settings_text
from unit.select.decisions.auction_tables import COLUMNS, selection

CONFIG = EvaluationConfig(
    logging=selection(),
    target=selection(name="target"),
    epsilon=1.0,
    estimator=Estimator.DOUBLY_ROBUST,
)
RECORD = EvaluationRecord(
    plan=make_evaluation_plan(
        CONFIG, COLUMNS, ReleaseTerms(noise_source="entropy", has_ledger=False)
    ),
    target=settings_text(CONFIG.target),
    num_decisions=7,
    columns={"num_users": "Their users."},
    table="evaluation.json",
    table_sha256="ab" * 32,
    randomness="operating-system entropy",
    is_secure=True,
)


def test_it_is_read_back_as_it_was() -> None:
    assert EvaluationRecord.from_json(RECORD.to_json()) == RECORD


@pytest.mark.parametrize("number", [1, 2])
def test_a_record_of_an_earlier_version_is_read(number: int) -> None:
    data = json.loads(RECORD.to_json())
    old = {key: value for key, value in data.items() if key not in ("target", "num_decisions")}
    old |= {"format": f"tulle selection {number}", "settings": RECORD.target}
    old |= {"num_requests": 9, "num_without_ad": 1, "num_personalised": 7}
    assert EvaluationRecord.from_json(json.dumps(old)) == RECORD
    del old["settings"]
    with pytest.raises(ConfigError, match="target"):
        EvaluationRecord.from_json(json.dumps(old))
