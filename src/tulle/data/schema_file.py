"""Schemas on disk: read from TOML or JSON, written as JSON.

A key that is dropped silently can leave a column unprotected, so reading is
strict: unknown keys, unknown kinds and a column with two roles are errors.
"""

import json
import os
from pathlib import Path
from typing import Any

from tulle.atomic_files import stage_text, sync_folder
from tulle.data.schema import Schema
from tulle.errors import ConfigError, DataError
from tulle.privacy.fields import parse_json
from tulle.privacy.toml_files import parse_toml

_SUFFIXES = (".toml", ".json")


def read_schema(path: Path) -> Schema:
    """Reads a schema from a .toml or .json file, strictly.

    Raises:
      DataError: The file cannot be read as text.
      ConfigError: Its content is not a schema; the message says where and why.
    """
    suffix = path.suffix.lower()
    if suffix not in _SUFFIXES:
        raise ConfigError(f"schema file {path.name} must end in {' or '.join(_SUFFIXES)}; rename.")
    text = _read_text(path)
    try:
        return Schema.from_dict(
            _parse_toml(text) if suffix == ".toml" else parse_json("schema", text)
        )
    except ConfigError as error:
        raise ConfigError(f"{path.name}: {error}") from error


def write_schema(path: Path, schema: Schema) -> None:
    """Writes a schema as JSON. The file is there as a whole or not at all."""
    if path.suffix.lower() != ".json":
        raise ConfigError(f"schema file {path.name} is written as JSON; name it {path.stem}.json.")
    text = json.dumps(schema.to_dict(), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    try:
        staged = stage_text(path, text)
    except OSError as error:
        raise DataError(
            f"{path.name} cannot be written ({error.strerror}); check that its folder exists."
        ) from error
    try:
        os.replace(staged, path)
    except OSError as error:
        staged.unlink(missing_ok=True)
        raise DataError(f"{path.name} cannot be replaced ({error.strerror}).") from error
    sync_folder(path.parent)


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise DataError(f"schema file {path.name} does not exist; check the path.") from None
    except OSError as error:
        raise DataError(f"schema file {path.name} cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise DataError(
            f"schema file {path.name} is not UTF-8 at byte {error.start}; save it as UTF-8."
        ) from error


def _parse_toml(text: str) -> dict[str, Any]:
    data = parse_toml("schema", text)
    if "label" not in data:
        raise ConfigError(
            "schema needs the key 'label'; add it. TOML has no null: "
            "write a schema without a label as JSON, with label null."
        )
    return data
