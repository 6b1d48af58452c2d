"""The record beside choices is read back as it was, or refused."""

import dataclasses
import json
import re
from typing import Any

import pytest

from tulle.errors import ConfigError
from tulle.select.decisions.chosen_ads import SelectionRecord
from tulle.select.selection_plan import make_selection_plan
from tulle.select.settings import settings_text
from unit.select.decisions.auction_tables import COLUMNS, selection

RECORD = SelectionRecord(
    plan=make_selection_plan(selection(), COLUMNS),
    settings=settings_text(selection()),
    num_requests=7,
    num_without_ad=2,
    num_personalised=0,
    columns={"ad": "shown"},
    table="choices.parquet",
    table_sha256="ab" * 32,
    randomness="operating-system entropy",
    is_secure=True,
)


@pytest.mark.parametrize("is_secure", [True, False])
def test_it_is_read_back_as_it_was(is_secure: bool) -> None:
    record = dataclasses.replace(RECORD, is_secure=is_secure)
    assert SelectionRecord.from_json(record.to_json()) == record


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"format": "tulle selection 0"}, "format='tulle selection 0' is not"),
        ({"num_requests": -1}, "num_requests=-1"),
        ({"num_personalised": 1.5}, "num_personalised=1.5"),
        ({"table_sha256": 3}, "table_sha256"),
        ({"more": 1}, "more"),
    ],
)
def test_another_one_is_refused(change: dict[str, Any], problem: str) -> None:
    text = json.dumps(json.loads(RECORD.to_json()) | change)
    with pytest.raises(ConfigError, match=re.escape(problem)):
        SelectionRecord.from_json(text)


def test_only_true_is_secure() -> None:
    text = json.dumps(json.loads(RECORD.to_json()) | {"is_secure": "yes"})
    assert not SelectionRecord.from_json(text).is_secure


def test_a_record_of_the_first_version_is_read_without_types() -> None:
    data = json.loads(RECORD.to_json()) | {"format": "tulle selection 1"}
    del data["types"]
    assert SelectionRecord.from_json(json.dumps(data)) == dataclasses.replace(RECORD, types={})
