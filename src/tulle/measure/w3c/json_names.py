"""Settings and options in the spelling of the specification: camelCase keys, none unknown."""

import dataclasses
from typing import Any, TypeVar

from tulle.privacy.fields import check_fields

COMMENT = "$comment"

_Kind = TypeVar("_Kind")


def camel_case(name: str) -> str:
    """`histogram_index` as `histogramIndex`."""
    first, *others = name.split("_")
    return first + "".join(other.capitalize() for other in others)


def fields_from_json(kind: type[_Kind], what: str, data: object) -> _Kind:
    """A settings class from a JSON object; lists become tuples and comments are dropped."""
    names: dict[str, str] = {}
    required = []
    for field in dataclasses.fields(kind):  # type: ignore[arg-type]
        names[camel_case(field.name)] = field.name
        if field.default is field.default_factory is dataclasses.MISSING:
            required.append(camel_case(field.name))
    optional = [name for name in names if name not in required]
    checked = check_fields(what, data, required, [*optional, COMMENT])
    values: dict[str, Any] = {
        names[key]: tuple(value) if isinstance(value, list) else value
        for key, value in checked.items()
        if key != COMMENT
    }
    return kind(**values)
