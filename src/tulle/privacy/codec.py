"""One codec for settings: frozen dataclass, plain data, JSON and TOML.

The annotations of a settings class say all that is needed. A field is a number, text, a flag, an
enum (written as its value), a path, a date, another settings class (a table), a tuple (a list), a
mapping from names, or any of these or None. None is not written: a field that may be None has
None as its default. A union of settings classes is told apart by the key `kind`, which every class
of the union names in a class variable; a class may call that key something else by `kind_key`. A
class with a `parse` method, such as a unit, is written as its text. A field that takes an enum or
its word in Python (`Kind | str`) is that enum in a file.

Records that others read, such as plans and cards, have every field in their files: there None is
written as null, and a reader asks for all of them (`every_field`).

Reading is strict. An unknown setting is refused with the closest known one, since a misspelt
setting that is dropped silently can weaken a guarantee; so is a value of another type. What a
value may be beyond its type is checked by the class itself, in `__post_init__`.

msgspec and pydantic were weighed. Both are larger than what is needed here, neither suggests the
closest setting, and both put words of their own in place of the refusals that the classes write.
This layer needs nothing but the standard library, and `tulle --help` waits for no import.
"""

import dataclasses
import datetime
import enum
import functools
import itertools
import pathlib
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any

from tulle.errors import ConfigError
from tulle.privacy.fields import check_choice, check_finite, did_you_mean

_UNIONS = (typing.Union, types.UnionType)


def plain_data(settings: object, *, every_field: bool = False) -> dict[str, Any]:
    """Returns settings as JSON and TOML hold them; equal settings give equal data.

    The kind comes first where the class names one, then every field that is not None.

    Args:
      settings: An instance of a settings class.
      every_field: Whether fields that are None are written too, as null.
    """
    cls: Any = type(settings)
    data: dict[str, Any] = {}
    kind = kind_of(cls)
    if kind is not None:
        data[_kind_key(cls)] = kind
    for name, hint in field_hints(cls).items():
        value = getattr(settings, name)
        if value is not None or every_field:
            data[name] = _written(value, hint)
    return data


def settings_from(cls: Any, data: object, *, what: str, every_field: bool = False) -> Any:
    """Reads what `plain_data` wrote; a setting that is left out has its default.

    Args:
      cls: A settings class, or a union of settings classes that have a kind.
      data: Plain data, as JSON or TOML give it.
      what: How messages name the data, e.g. "[privacy]".
      every_field: Whether a field that is left out is refused even if it has a default.

    Raises:
      ConfigError: A setting is unknown, missing or wrong.
    """
    table = _checked_table(what, data)
    chosen = _class_of_kind(cls, table, what)
    key, hints = _kind_key(chosen), field_hints(chosen)
    given = {name: value for name, value in table.items() if name != key or name in hints}
    _check_names(what, given, chosen, every_field=every_field)
    try:
        read = {name: _read(value, hints[name], name) for name, value in given.items()}
        return chosen(**read)
    except ConfigError as error:
        # The message names the setting and not the table that it stands in.
        message = str(error)
        raise ConfigError(message if what in message else f"{what}: {message}") from None


def json_schema(cls: Any, *, title: str) -> dict[str, Any]:
    """Returns a JSON Schema (draft 2020-12) of the settings, with which editors complete them.

    Args:
      cls: A settings class, or a union of settings classes that have a kind.
      title: The name that an editor shows.
    """
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": title,
        **_schema_of(cls),
    }


def _checked_table(what: str, data: object) -> dict[str, Any]:
    if not isinstance(data, Mapping) or not all(isinstance(name, str) for name in data):
        raise ConfigError(f"{what} must be a table of settings, not {type(data).__name__}.")
    return dict(data)


def _class_of_kind(cls: Any, table: Mapping[str, Any], what: str) -> Any:
    """The class that a table is for: the only one, or that of its kind."""
    classes = _members(cls)
    if kind_of(classes[0]) is None:
        return classes[0]
    kinds = {kind: member for member in classes if (kind := kind_of(member)) is not None}
    key = _kind_key(classes[0])
    if key not in table:
        raise ConfigError(f"{what} needs the setting {key!r}: {' or '.join(kinds)}.")
    kind = table[key]
    if not isinstance(kind, str) or kind not in kinds:
        raise ConfigError(
            f"{what} {key}={kind!r} is unknown{did_you_mean(kind, kinds)}; "
            f"use one of {', '.join(kinds)}."
        )
    return kinds[kind]


def _check_names(what: str, given: Mapping[str, Any], cls: Any, *, every_field: bool) -> None:
    known = list(field_hints(cls))
    if kind_of(cls) is not None:
        what = f"{what} of {_kind_key(cls)} {kind_of(cls)!r}"
    for name in given:
        if name not in known:
            raise _unknown(what, name, known)
    for field in dataclasses.fields(cls):
        has_default = (
            field.default is not dataclasses.MISSING
            or field.default_factory is not dataclasses.MISSING
        )
        if (every_field or not has_default) and field.name not in given:
            raise ConfigError(f"{what} needs the setting {field.name!r}; add it.")


def _unknown(what: str, name: str, known: Sequence[str]) -> ConfigError:
    ways = f"it has {', '.join(known)}" if known else "it has none; leave it out"
    return ConfigError(f"{what} has no setting {name!r}{did_you_mean(name, known)}; {ways}.")


def _written(value: Any, hint: Any) -> Any:
    if isinstance(value, enum.Enum):
        return value.value
    if _is_text_class(type(value)):
        return str(value)
    if dataclasses.is_dataclass(value):
        return plain_data(value)
    if isinstance(value, pathlib.PurePath):
        return value.as_posix()
    if isinstance(value, Mapping):
        inner = _value_hint(hint)
        return {str(name): _written(item, inner) for name, item in value.items()}
    if isinstance(value, tuple | list):
        return [
            _written(item, inner)
            for item, inner in zip(value, _item_hints(hint, len(value)), strict=True)
        ]
    # 1 is written as 1.0 where a float is meant, and -0.0 as 0.0, so that equal settings agree.
    if isinstance(value, int | float) and not isinstance(value, bool) and float in _members(hint):
        return value if int in _members(hint) and isinstance(value, int) else float(value) + 0.0
    return value


def _read(value: Any, hint: Any, name: str) -> Any:
    """The value of a field, by the first member of its union that takes it."""
    if hint is Any:
        return value
    if value is None and type(None) in _members(hint):
        return None
    members = alternatives(hint)
    tables = tuple(member for member in members if is_settings(member))
    if isinstance(value, Mapping) and tables:
        union = functools.reduce(lambda one, two: one | two, tables)
        return settings_from(union, value, what=_table_name(name, value))
    for member in members:
        if _takes(member, value) or (len(members) == 1 and _is_choice(member, value)):
            return _read_one(value, member, name)
    *others, last = dict.fromkeys(_words_of(member) for member in members)
    words = f"{', '.join(others)} or {last}" if others else last
    way_out = did_you_mean(value, [choice for member in members for choice in _choices(member)])
    if isinstance(value, str) and any(typing.get_origin(member) is tuple for member in members):
        way_out = f"; write {name}={[value]!r}"
    raise ConfigError(f"{name}={value!r} must be {words}{way_out}.")


def _table_name(name: str, table: Mapping[str, Any]) -> str:
    """How messages call a table: "[privacy]", or of a list of tables "query 'by campaign'"."""
    field, is_item, _ = name.partition("[")
    if not is_item:
        return f"[{name}]"
    own = table.get("name")
    return f"{field} {own!r}" if isinstance(own, str) else name


def _is_choice(member: Any, value: Any) -> bool:
    """True if the value must be one of an enum, so that the closest one can be suggested."""
    return is_enum(member) and not isinstance(value, Mapping | list)


def _choices(member: Any) -> list[str]:
    """The words that a field takes."""
    if typing.get_origin(member) is typing.Literal:
        return [str(choice) for choice in typing.get_args(member)]
    return [str(choice.value) for choice in member] if is_enum(member) else []


def _takes(member: Any, value: Any) -> bool:
    origin = typing.get_origin(member) or member
    if origin is typing.Literal:
        return value in typing.get_args(member)
    if not isinstance(origin, type):
        return False
    if origin is bool:
        return isinstance(value, bool)
    if origin in (int, float):
        kinds = (int, float) if origin is float else int
        return isinstance(value, kinds) and not isinstance(value, bool)
    if issubclass(origin, enum.Enum):
        return isinstance(value, origin) or any(value == choice.value for choice in origin)
    if issubclass(origin, tuple):
        return isinstance(value, list | tuple)
    if issubclass(origin, pathlib.PurePath) or _is_text_class(origin):
        return isinstance(value, str)
    if issubclass(origin, Mapping):
        return isinstance(value, Mapping)
    return isinstance(value, origin)


def _read_one(value: Any, member: Any, name: str) -> Any:
    origin = typing.get_origin(member) or member
    if origin is float:
        return check_finite(name, value)
    if is_enum(origin):
        return value if isinstance(value, origin) else check_choice(name, value, origin)
    if origin is tuple:
        return tuple(
            _read(item, inner, f"{name}[{place}]")
            for place, (item, inner) in enumerate(
                zip(value, _item_hints(member, len(value), name), strict=True)
            )
        )
    if isinstance(origin, type) and issubclass(origin, Mapping):
        inner = _value_hint(member)
        return {key: _read(item, inner, f"{name}.{key}") for key, item in value.items()}
    if isinstance(origin, type) and issubclass(origin, pathlib.PurePath):
        return pathlib.Path(value)
    return origin.parse(value) if _is_text_class(origin) else value


def _item_hints(hint: Any, length: int, name: str = "the list") -> tuple[Any, ...]:
    """The annotation of each item of a tuple that is `length` long."""
    for member in _members(hint):
        items = typing.get_args(member)
        if (typing.get_origin(member) or member) is not tuple or not items:
            continue
        if items[-1] is Ellipsis:
            return (items[0],) * length
        if len(items) != length:
            raise ConfigError(f"{name} must have {len(items)} items, not {length}.")
        return items
    return (Any,) * length


def _value_hint(hint: Any) -> Any:
    """The annotation of the values of a mapping, which may be one member of a union."""
    for member in _members(hint):
        origin, inner = typing.get_origin(member), typing.get_args(member)
        if isinstance(origin, type) and issubclass(origin, Mapping) and inner:
            return inner[1]
    return Any


def alternatives(hint: Any) -> tuple[Any, ...]:
    """What a field takes in a file: no None, and of an enum that Python may spell only the enum."""
    members = tuple(member for member in _members(hint) if member is not type(None))
    has_enum = any(is_enum(member) for member in members)
    return tuple(member for member in members if not (has_enum and member is str))


def _members(hint: Any) -> tuple[Any, ...]:
    """The alternatives of a union, or the one type."""
    if typing.get_origin(hint) in _UNIONS:
        return tuple(inner for item in typing.get_args(hint) for inner in _members(item))
    return (hint,)


@functools.cache
def field_hints(cls: type) -> dict[str, Any]:
    """The annotation of every field, in the order of the class."""
    found = typing.get_type_hints(cls)
    return {field.name: found[field.name] for field in dataclasses.fields(cls)}


def kind_of(cls: Any) -> str | None:
    """The word that tells a settings class from others of a union; None if it has none."""
    kind = getattr(cls, "kind", None)
    return kind if isinstance(kind, str) and "kind" not in _field_names(cls) else None


def _kind_key(cls: Any) -> str:
    key = getattr(cls, "kind_key", "kind")
    return key if isinstance(key, str) else "kind"


def _field_names(cls: Any) -> tuple[str, ...]:
    is_settings = dataclasses.is_dataclass(cls)
    return tuple(field.name for field in dataclasses.fields(cls)) if is_settings else ()


def is_settings(cls: Any) -> bool:
    """Whether a type is a settings class, which files have as a table."""
    return isinstance(cls, type) and dataclasses.is_dataclass(cls) and not _is_text_class(cls)


def is_enum(cls: Any) -> bool:
    """Whether a type is an enum, which files have as one of its values."""
    return isinstance(cls, type) and issubclass(cls, enum.Enum)


def _is_text_class(cls: Any) -> bool:
    return isinstance(cls, type) and callable(getattr(cls, "parse", None))


def _words_of(member: Any) -> str:
    """What a field takes, in the words of a settings file."""
    origin = typing.get_origin(member) or member
    if origin is typing.Literal:
        return " or ".join(map(repr, typing.get_args(member)))
    if is_enum(origin):
        return f"one of {', '.join(repr(choice.value) for choice in origin)}"
    words = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}
    if origin in words:
        return words[origin]
    if origin is tuple:
        return "a list"
    if origin is datetime.date:
        return "a date"
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return "a table"
    return "a table of settings" if is_settings(origin) else "text"


def _schema_of(hint: Any) -> dict[str, Any]:
    schemas = [_schema_of_one(member) for member in alternatives(hint)]
    if type(None) in _members(hint):
        schemas.append({"type": "null"})
    return schemas[0] if len(schemas) == 1 else {"anyOf": schemas}


def _schema_of_one(member: Any) -> dict[str, Any]:
    origin = typing.get_origin(member) or member
    if is_settings(origin):
        return _table_schema(origin)
    if origin is typing.Literal:
        return {"enum": list(typing.get_args(member))}
    if is_enum(origin):
        return {"enum": [choice.value for choice in origin]}
    if origin is tuple:
        items = typing.get_args(member)
        if not items or items[-1] is Ellipsis:
            return {"type": "array", "items": _schema_of(items[0]) if items else {}}
        fixed = [_schema_of(item) for item in items]
        return {"type": "array", "prefixItems": fixed, "items": False, "minItems": len(fixed)}
    if isinstance(origin, type) and issubclass(origin, Mapping):
        inner = _value_hint(member)
        return {"type": "object", "additionalProperties": inner is Any or _schema_of(inner)}
    names = {bool: "boolean", int: "integer", float: "number", str: "string"}
    if origin in names:
        return {"type": names[origin]}
    if origin is datetime.date:
        return {"type": "string", "format": "date"}
    return {"type": "string"} if isinstance(origin, type) else {}


def _table_schema(cls: Any) -> dict[str, Any]:
    properties: dict[str, Any] = {}
    required = []
    if (kind := kind_of(cls)) is not None:
        properties[_kind_key(cls)] = {"const": kind}
        required.append(_kind_key(cls))
    hints, meanings = field_hints(cls), field_docs(cls)
    for field in dataclasses.fields(cls):
        inner = dict(_schema_of(hints[field.name]))
        if field.name in meanings:
            inner["description"] = meanings[field.name]
        if field.default is not dataclasses.MISSING and field.default is not None:
            inner["default"] = _written(field.default, hints[field.name])
        elif field.default is dataclasses.MISSING and (
            field.default_factory is dataclasses.MISSING
        ):
            required.append(field.name)
        properties[field.name] = inner
    head = (cls.__doc__ or "").strip().splitlines()
    return {
        "type": "object",
        **({"description": head[0]} if head and not head[0].startswith(f"{cls.__name__}(") else {}),
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


@functools.cache
def field_docs(cls: type) -> dict[str, str]:
    """The text under each field of a class, in its source; Python itself drops these texts."""
    # Only schemas need them, so nobody else waits for the imports.
    import ast
    import inspect
    import textwrap

    found: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        if not dataclasses.is_dataclass(base):
            continue
        try:
            tree = ast.parse(textwrap.dedent(inspect.getsource(base)))
        except (OSError, TypeError):  # made at run time, without a source
            continue
        body = getattr(tree.body[0], "body", [])
        for one, after in itertools.pairwise(body):
            is_text = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
            is_field = isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)
            if is_text and is_field and isinstance(after.value.value, str):
                found[one.target.id] = inspect.cleandoc(after.value.value)
    return found
