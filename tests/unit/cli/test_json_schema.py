"""`--json-schema`: settings that are read conform to it, and misspelt ones do not."""

import copy
import datetime
import json
import tomllib
from typing import Any

import pytest

from tulle.cli.main import run_with
from tulle.privacy.codec import plain_data
from tulle.privacy.units import Unit
from tulle.select.mechanisms.floors import FloorMechanism
from tulle.select.selection_config import SelectionConfig, SelectionPrivacy
from tulle.select.settings import settings_text
from tulle.train.methods.catalogue import METHODS, settings_schema
from unit.measure.queries.small_measurements import PRIVATE_QUERIES, QUERIES, settings

_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str, datetime.date),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
    "array": (list,),
    "object": (dict,),
    "null": (type(None),),
}


def conforms(value: Any, schema: dict[str, Any]) -> bool:
    """Checks the words of JSON Schema that are used, as an editor does."""
    if "anyOf" in schema:
        return any(conforms(value, one) for one in schema["anyOf"])
    if "const" in schema:
        return bool(value == schema["const"])
    if "enum" in schema:
        return value in schema["enum"]
    kind = schema.get("type")
    if kind is not None and not isinstance(value, _TYPES[kind]):
        return False
    if isinstance(value, bool) and kind not in (None, "boolean"):
        return False
    if isinstance(value, list) and "prefixItems" in schema:
        fixed = schema["prefixItems"]
        return len(value) == len(fixed) and all(map(conforms, value, fixed))
    if isinstance(value, list):
        return all(conforms(item, schema.get("items", {})) for item in value)
    if not isinstance(value, dict):
        return True
    known, others = schema.get("properties", {}), schema.get("additionalProperties", True)
    for name, inner in value.items():
        allowed = known.get(name, others if isinstance(others, dict) else {})
        if (name not in known and others is False) or not conforms(inner, allowed):
            return False
    return all(name in value for name in schema.get("required", []))


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert run_with([*words, "--json-schema"]) == 0
    schema: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    return schema


MEASUREMENTS = [
    settings(*QUERIES),
    settings(*PRIVATE_QUERIES, privacy='noise = "gaussian"\ndelta = 1e-6'),
    settings("conversions", rule="data-driven").replace(
        'lookback = "3 days"', 'lookback = 3600\nchannel = "kind"\nchannels = ["click", "view"]'
    ),
]


@pytest.mark.parametrize("text", MEASUREMENTS, ids=["plain", "private", "learnt"])
def test_settings_of_measurements_conform(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    schema, tree = printed(capsys, "measure", "plan"), tomllib.loads(text)
    assert conforms(tree, schema)
    for table, name in (("privacy", "epsylon"), ("log", "impression"), ("attribution", "rul")):
        wrong = copy.deepcopy(tree)
        wrong[table][name] = 1
        assert not conforms(wrong, schema), name
    wrong = copy.deepcopy(tree)
    wrong["query"][0]["max_per_slices"] = 2
    assert not conforms(wrong, schema)


def test_settings_of_selections_conform(capsys: pytest.CaptureFixture[str]) -> None:
    schema = printed(capsys, "select", "plan")
    config = SelectionConfig(
        name="one",
        mechanism=FloorMechanism(epsilon=2.0),
        privacy=SelectionPrivacy(unit=Unit.impression()),
    )
    tree = tomllib.loads(settings_text(config))
    assert conforms(tree, schema)
    tree["mechanism"]["gama"] = 0.5
    assert not conforms(tree, schema)


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.kind)
def test_settings_of_training_conform(method: Any) -> None:
    made = method() if method.kind == "nonprivate" else method().calibrate(epsilon=3, delta=1e-6)
    tree = plain_data(made) | {"data": {"source": "synth:search"}}
    assert conforms(tree, settings_schema())
    assert not conforms(tree | {"modle": {}}, settings_schema())
