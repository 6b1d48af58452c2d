import os
from pathlib import Path

import pytest

from tulle.data.formats.public import LAYOUTS
from tulle.data.schema import Kind, Schema
from tulle.data.schema_file import read_schema, write_schema
from tulle.errors import ConfigError, DataError

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
