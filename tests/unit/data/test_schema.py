import json

import pytest

from tulle.data.schema import Kind, Schema
from tulle.errors import ConfigError

FULL = {
    "label": "clicked",
    "public": ["campaign", "hour"],
    "sensitive": ["age"],
    "unit": "user_id",
    "time": "at",
    "ignored": ["row"],
    "kinds": {"age": "integer", "hour": "real"},
}


def test_plain_data_comes_back() -> None:
    schema = Schema.from_dict(json.loads(json.dumps(FULL)))
    assert schema.to_dict() == FULL
    assert Schema.from_dict(json.loads(json.dumps(schema.to_dict()))) == schema


def test_used_columns_are_those_with_a_role_except_ignored_ones() -> None:
    schema = Schema.from_dict(json.loads(json.dumps(FULL)))
    assert schema.used == ("clicked", "campaign", "hour", "age", "user_id", "at")
    assert schema.features == ("campaign", "hour", "age")


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        ("clicked", Kind.INTEGER),
        ("campaign", Kind.CATEGORICAL),
        ("hour", Kind.REAL),
        ("age", Kind.INTEGER),
        ("at", Kind.TIMESTAMP),
    ],
)
def test_a_kind_is_what_was_said_or_follows_from_the_role(column: str, kind: Kind) -> None:
    assert Schema.from_dict(json.loads(json.dumps(FULL))).kind(column) is kind


def test_a_label_may_be_of_another_kind() -> None:
    assert Schema(label="value", kinds={"value": Kind.REAL}).kind("value") is Kind.REAL


def test_the_kind_of_an_unknown_column_is_refused_with_a_suggestion() -> None:
    schema = Schema(label="clicked", public=("campaign",))
    with pytest.raises(ConfigError, match=r"'campain' has no role.*did you mean 'campaign'"):
        schema.kind("campain")


def test_a_kind_for_a_column_without_a_role_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"kinds names column 'hours'.*did you mean 'hour'"):
        Schema(label="clicked", public=("hour",), kinds={"hours": Kind.INTEGER})


def test_an_unknown_kind_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"'whole' is unknown; use one of 'categorical'"):
        Schema.from_dict({"label": "y", "kinds": {"y": "whole"}})


def test_a_misspelt_role_is_refused_with_a_suggestion() -> None:
    with pytest.raises(ConfigError, match=r"no setting 'sensitiv' \(did you mean 'sensitive'\?\)"):
        Schema.from_dict({"label": "y", "sensitiv": ["age"]})


def test_a_column_with_two_roles_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"'age' has the roles public and sensitive.*take it out"):
        Schema(label="y", public=("age",), sensitive=("age",))


def test_kinds_cannot_be_changed_later() -> None:
    schema = Schema(label="y", kinds={"y": Kind.REAL})
    with pytest.raises(TypeError):
        schema.kinds["y"] = Kind.INTEGER  # type: ignore[index]
