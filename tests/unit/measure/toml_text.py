"""Settings as trees of Python values, and their text as TOML."""

import copy
import datetime
import json
from collections.abc import Iterator
from typing import Any

Path = tuple[Any, ...]


def toml_text(tree: dict[str, Any]) -> str:
    """TOML with one line for each key at the top."""
    return "".join(f"{_key(name)} = {_value(value)}\n" for name, value in tree.items())


def paths(tree: Any, start: Path = ()) -> Iterator[Path]:
    """Every place of a tree below its top."""
    inner = tree.items() if isinstance(tree, dict) else enumerate(tree)
    for name, value in inner:
        yield (*start, name)
        if isinstance(value, (dict, list)):
            yield from paths(value, (*start, name))


def changed(tree: Any, path: Path, change: Any) -> Any:
    """A copy with `change(container, key)` applied at a place."""
    result = copy.deepcopy(tree)
    inner = result
    for name in path[:-1]:
        inner = inner[name]
    change(inner, path[-1])
    return result


def _key(name: str) -> str:
    return json.dumps(name)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return json.dumps(value)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_key(k)} = {_value(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_value, value)) + "]"
    if isinstance(value, datetime.date):
        return value.isoformat()
    return repr(value)
