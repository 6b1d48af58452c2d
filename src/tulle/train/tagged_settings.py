"""Settings as plain data with a "kind", for settings files and run folders.

A setting with a default may be left out. An unknown key is an error that names
the closest known one.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, Protocol, TypeVar

from tulle.errors import ConfigError
from tulle.privacy.fields import check_fields, did_you_mean


class TaggedSettings(Protocol):
    """A frozen dataclass of plain values that knows the word for its class."""

    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]
    kind: ClassVar[str]


_Settings = TypeVar("_Settings", bound=TaggedSettings)


def tagged_dict(settings: TaggedSettings) -> dict[str, object]:
    """All settings under their names, and the kind. Equal settings give equal data."""
    fields = dataclasses.fields(settings)
    return {"kind": settings.kind} | {f.name: _plain(getattr(settings, f.name), f) for f in fields}


def settings_of_kind(cls: type[_Settings], data: object) -> _Settings:
    """Reads what `tagged_dict` wrote for this class."""
    fields = dataclasses.fields(cls)
    required = [f.name for f in fields if f.default is dataclasses.MISSING]
    optional = [f.name for f in fields if f.name not in required]
    given = check_fields(f"settings {cls.kind!r}", data, ["kind", *required], optional)
    if given["kind"] != cls.kind:
        raise ConfigError(f"kind={given['kind']!r} must be {cls.kind!r} for {cls.__name__}.")
    return cls(**{name: value for name, value in given.items() if name != "kind"})


def class_of_kind(
    what: str, data: object, classes: Mapping[str, type[_Settings]]
) -> type[_Settings]:
    """The class that the data is for, by its key "kind"."""
    if not isinstance(data, dict) or "kind" not in data:
        raise ConfigError(
            f"{what} must be an object with the key 'kind', e.g. {_example(classes)}."
        )
    kind = data["kind"]
    cls = classes.get(kind) if isinstance(kind, str) else None
    if cls is None:
        raise ConfigError(
            f"{what} kind={kind!r} is unknown{did_you_mean(kind, classes)}; "
            f"use one of {', '.join(classes)}."
        )
    return cls


def _plain(value: object, field: "dataclasses.Field[Any]") -> object:
    # 1 is written as 1.0 where a float is meant, and -0.0 as 0.0.
    if field.type is float and isinstance(value, (int, float)):
        return float(value) + 0.0
    return value


def _example(classes: Mapping[str, object]) -> str:
    return f"kind = {next(iter(classes))!r}"
