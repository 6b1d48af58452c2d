import json
import os
from pathlib import Path

import pytest

from tulle.data.formats.public import LAYOUTS
from tulle.data.schema import Kind, Schema, read_schema, write_schema
from tulle.errors import ConfigError, DataError

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


TOML = """
label = "clicked"
public = ["campaign"]
sensitive = ["age"]
unit = "user_id"
[kinds]
age = "integer"
"""
SCHEMA = Schema(
    label="clicked",
    public=("campaign",),
    sensitive=("age",),
    unit="user_id",
    kinds={"age": Kind.INTEGER},
)


def test_toml_and_json_give_the_same_schema(tmp_path: Path) -> None:
    (tmp_path / "roles.toml").write_text(TOML)
    write_schema(tmp_path / "roles.json", SCHEMA)
    assert read_schema(tmp_path / "roles.toml") == SCHEMA
    assert read_schema(tmp_path / "roles.json") == SCHEMA


@pytest.mark.parametrize("name", LAYOUTS)
def test_the_schema_of_every_layout_comes_back_from_disk(tmp_path: Path, name: str) -> None:
    write_schema(tmp_path / "schema.json", LAYOUTS[name].schema)
    assert read_schema(tmp_path / "schema.json") == LAYOUTS[name].schema


@pytest.mark.parametrize(
    ("name", "text", "match"),
    [
        ("s.toml", "label = 'y'\nlabel = 'z'\n", r"s\.toml: schema is not TOML: .*line 2"),
        ("s.toml", "label = \n", r"s\.toml: schema is not TOML: .*line 1"),
        ("s.toml", "public = ['a']", "TOML has no null: write a schema without a label as JSON"),
        ("s.toml", "label = 'y'\nsensitve = ['a']", r"did you mean 'sensitive'"),
        ("s.toml", "label = 'y'\n[kinds]\nz = 'real'", "column 'z', which has no role"),
        ("s.toml", "label = 1", "label=1 must be text|role label=1 must be text"),
        ("s.json", '{"label": "y",}', r"s\.json: schema is not JSON: .* at character 1"),
        ("s.json", '{"label": "y", "label": "z"}', "key 'label' is there more than once"),
        ("s.json", '{"label": NaN}', "NaN is not JSON"),
        ("s.json", "[]", "must be a table of settings"),
        ("s.json", "{}", "needs the setting 'label'"),
        ("s.json", '{"label": "y", "public": ["y"]}', "'y' has the roles label and public"),
        ("s.json", '{"label": "y", "public": "a"}', r"write public=\['a'\]"),
        ("s.json", "[" * 100_000, "nested too deeply"),
        ("s.json", f'{{"label": {"9" * 5000}}}', "number too long"),
        ("s.toml", f"label = {'9' * 5000}", "not TOML"),
        ("s.yaml", "label: y", r"must end in \.toml or \.json"),
    ],
)
def test_wrong_content_is_refused_with_file_and_reason(
    tmp_path: Path, name: str, text: str, match: str
) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(ConfigError, match=match):
        read_schema(tmp_path / name)


def test_a_file_that_cannot_be_read_is_a_data_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no\.json does not exist"):
        read_schema(tmp_path / "no.json")
    (tmp_path / "folder.json").mkdir()
    with pytest.raises(DataError, match=r"folder\.json cannot be read"):
        read_schema(tmp_path / "folder.json")
    (tmp_path / "latin.json").write_bytes(b'{"label": "\xe9"}')
    with pytest.raises(DataError, match=r"latin\.json is not UTF-8 at byte 11"):
        read_schema(tmp_path / "latin.json")


def test_a_byte_order_mark_is_fine(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_bytes(b"\xef\xbb\xbf" + TOML.encode())
    assert read_schema(tmp_path / "s.toml") == SCHEMA


def test_a_schema_is_written_as_a_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "schema.json"
    write_schema(path, SCHEMA)
    before = path.read_bytes()

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(DataError, match=r"schema\.json cannot be replaced \(No space"):
        write_schema(path, Schema(label="other"))
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_writing_to_the_wrong_place_says_so(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="check that its folder exists"):
        write_schema(tmp_path / "no" / "schema.json", SCHEMA)
    with pytest.raises(ConfigError, match=r"name it schema\.json"):
        write_schema(tmp_path / "schema.toml", SCHEMA)


def test_bounds_come_back_and_follow_their_columns() -> None:
    schema = Schema.from_dict(FULL | {"bounds": {"age": [18, 99]}})
    assert schema.bounds == {"age": (18.0, 99.0)}
    assert Schema.from_dict(json.loads(json.dumps(schema.to_dict()))) == schema
    assert schema.to_read(["age"]).bounds == schema.bounds
    assert schema.to_read(["hour"]).bounds == {}


def test_bounds_are_read_from_toml(tmp_path: Path) -> None:
    path = tmp_path / "schema.toml"
    path.write_text(
        'label = "y"\nsensitive = ["age"]\n[kinds]\nage = "integer"\n[bounds]\nage = [18, 99]\n',
        encoding="utf-8",
    )
    assert read_schema(path).bounds == {"age": (18.0, 99.0)}


@pytest.mark.parametrize(
    ("bounds", "message"),
    [
        ({"aged": [18, 99]}, "did you mean 'age'"),
        ({"campaign": [0, 1]}, "which is categorical"),
        ({"age": [99, 18]}, "first must be the lower"),
        ({"age": [18]}, "must have 2 items"),
        ({"user_id": [0, 1]}, "no public or sensitive"),
    ],
)
def test_bounds_without_meaning_are_refused(bounds: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Schema.from_dict(FULL | {"bounds": bounds})
