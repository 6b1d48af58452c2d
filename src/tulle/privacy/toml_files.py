"""Settings files: TOML read from a file, and settings written as TOML text.

What the tables mean is the codec's: `settings_from` reads what `read_toml` gives, and `toml_text`
writes what `plain_data` gives. The standard library reads TOML and does not write it.
"""

import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tulle.errors import ConfigError, DataError, reason_of
from tulle.privacy.fields import check_finite

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_LARGEST_INTEGER = 2**63 - 1
"""Whole numbers of TOML have 64 bits; larger ones would not come back."""


def read_toml(path: Path) -> dict[str, Any]:
    """Reads all tables of a settings file.

    Raises:
      ConfigError: The file is not TOML.
      DataError: The file cannot be read.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise DataError(f"{path.name} does not exist; name a settings file.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(
            f"{path.name} cannot be read: {reason_of(error)}; name a settings file."
        ) from None
    return parse_toml(path.name, text)


def parse_toml(what: str, text: str) -> dict[str, Any]:
    """Reads all tables of TOML text.

    Args:
      what: How messages name the text.
      text: The text.

    Raises:
      ConfigError: The text is not TOML.
    """
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ConfigError(f"{what} is not TOML: nested too deeply; correct it.") from None
    except ValueError as error:  # also a whole number of more digits than Python reads
        raise ConfigError(f"{what} is not TOML: {error}; correct it.") from None


def toml_text(settings: Mapping[str, object]) -> str:
    """Writes settings as TOML, which `tomllib` reads back to the same values.

    They are text, numbers, true or false, lists of them, tables and lists of tables.

    Raises:
      ConfigError: A value that TOML cannot say. A setting that is None is left out by
        the caller.
    """
    return "".join(f"{line}\n" for line in _table_lines((), settings)).lstrip("\n")


def _table_lines(path: tuple[str, ...], table: Mapping[str, object]) -> Iterator[str]:
    """The lines below a table's head: single values first, since a head would capture them."""
    tables: list[tuple[str, object]] = []
    for key, value in table.items():
        _check_key(path, key)
        if isinstance(value, Mapping) or _is_list_of_tables(value):
            tables.append((key, value))
        else:
            name = ".".join((*path, key))
            yield f"{_key_text(key)} = {_value_text(name, value)}"
    for key, value in tables:
        inner = (*path, key)
        head = ".".join(_key_text(part) for part in inner)
        if isinstance(value, Mapping):
            yield f"\n[{head}]"
            yield from _table_lines(inner, value)
        elif isinstance(value, Sequence):
            for item in value:
                yield f"\n[[{head}]]"
                yield from _table_lines(inner, item)


def _is_list_of_tables(value: object) -> bool:
    return (
        isinstance(value, (list, tuple))
        and len(value) > 0
        and all(isinstance(item, Mapping) for item in value)
    )


def _value_text(name: str, value: object) -> str:
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(_scalar_text(name, item) for item in value)}]"
    return _scalar_text(name, value)


def _scalar_text(name: str, value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _quoted(name, value)
    if isinstance(value, int):
        if not -_LARGEST_INTEGER - 1 <= value <= _LARGEST_INTEGER:
            raise ConfigError(f"{name} is a whole number of more than 64 bits; write it as text.")
        return str(int(value))
    if isinstance(value, float):
        return repr(check_finite(name, value))
    if value is None:
        raise ConfigError(f"{name}=None cannot be written as TOML; leave the setting out.")
    raise ConfigError(
        f"{name} is a {type(value).__name__}, which is no setting; use text, a number, true, "
        "false, a list of them, a table or a list of tables."
    )


def _check_key(path: tuple[str, ...], key: object) -> None:
    if not isinstance(key, str):
        raise ConfigError(f"key {key!r} in [{'.'.join(path)}] must be text.")


def _key_text(key: str) -> str:
    return key if _BARE_KEY.fullmatch(key) else _quoted("a key", key)


def _quoted(name: str, text: str) -> str:
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise ConfigError(
            f"{name}={text!r} contains an unpaired surrogate (U+D800 to U+DFFF), which cannot be "
            "encoded as UTF-8."
        )
    # A JSON string is a TOML string, but for one control character that TOML wants escaped.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
