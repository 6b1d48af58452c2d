"""Settings as options of a command: one flat name for a field somewhere in nested settings.

A settings class names its options in a class variable: `options = {"bands": "noise.num_bands"}`
says that the option --bands is the field `num_bands` of whatever is in the field `noise`. Classes
that hold it in a field take its options over. Type and default are those of the field, and its help
is the text below it in the source.

A field that holds one of several classes takes the word of one of them (`--noise banded`), with the
value of its one setting behind a colon where it has one that must be given (`--split ratio:0.25`).
A field that may hold a class or nothing is a flag. One that holds a list takes its parts with
commas between them.
"""

import copy
import dataclasses
import enum
import functools
import types
import typing
from collections.abc import Mapping
from typing import Any

from tulle.errors import ConfigError
from tulle.privacy.codec import (
    alternatives,
    field_docs,
    field_hints,
    is_enum,
    is_settings,
    kind_of,
    plain_data,
)
from tulle.privacy.fields import did_you_mean

Path = tuple[str, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Option:
    """One option of a settings class. What only help shows is looked up when it is asked for."""

    name: str
    """Name in Python; on the command line its words are joined by hyphens."""
    settings: Any
    """The settings class that the path begins at."""
    path: Path
    value_type: type
    """bool for a flag, int, float or str."""
    choices: tuple[str, ...]
    """Words that it takes; empty if it takes any value of its type."""
    is_list: bool = False
    """True if it takes texts with commas between them."""

    @property
    def help(self) -> str:
        """The text under the field."""
        return field_docs(_owners(self.settings, self.path)[0]).get(self.path[-1], "")

    @property
    def default(self) -> object:
        """Value of the field where nothing is said, in the words of the option, or None."""
        members = alternatives(field_hints(_owners(self.settings, self.path)[0])[self.path[-1]])
        if any(is_settings(member) for member in members) and not self.choices:
            return None  # a flag, which puts settings where there were none
        default = _default_at(self.settings, self.path)
        if dataclasses.is_dataclass(default) and kind_of(type(default)) is not None:
            return word_of(type(default))
        return word_of(default) if isinstance(default, enum.Enum) else default


@functools.cache
def options_of(cls: Any) -> Mapping[str, Option]:
    """All options of a settings class, by name, in the order of their fields."""
    found = {name: _option(cls, name, path) for name, path in _places(cls).items()}
    return types.MappingProxyType(found)  # shared by all who ask


def with_options(cls: Any, data: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Puts options into settings as plain data.

    Args:
      cls: The settings class.
      data: Settings so far; what is left out has its default.
      given: Values by the names of options.

    Returns:
      New plain data, for `codec.settings_from`.

    Raises:
      ConfigError: An option is unknown, is for another kind than the one that is chosen, or has
        a word that the field does not know.
    """
    places = _places(cls)
    result = copy.deepcopy(dict(data))
    for name in given:
        if name not in places:
            raise ConfigError(
                f"{name} is no option here{did_you_mean(name, places)}; leave it out."
            )
    # In the order of fields: the word for a kind comes before the settings of that kind.
    for name, path in places.items():
        if name in given:
            _put(cls, result, name, path, given)
    return result


def word_of(choice: Any) -> str:
    """The word for a settings class or a member of an enum on the command line."""
    word = getattr(choice, "word", None)
    if isinstance(word, str):
        return word
    name = choice.value if isinstance(choice, enum.Enum) else kind_of(choice)
    return str(name).replace(" ", "-")


def _places(cls: Any) -> dict[str, Path]:
    """Path of each option of a class, also of those of classes in its fields."""
    own: Mapping[str, str] = getattr(cls, "options", {})
    places = {name: tuple(path.split(".")) for name, path in own.items()}
    for field, hint in field_hints(cls).items():
        for member in alternatives(hint):
            if is_settings(member):
                for name, path in _places(member).items():
                    places.setdefault(name, (field, *path))
    return places


def _owners(cls: Any, path: Path) -> list[Any]:
    """The classes that have the last field of a path: several where a field holds one of them."""
    owners = [cls]
    for field in path[:-1]:
        owners = [
            member
            for owner in owners
            if field in field_hints(owner)
            for member in alternatives(field_hints(owner)[field])
            if is_settings(member)
        ]
    return [owner for owner in owners if path[-1] in field_hints(owner)]


def _option(cls: Any, name: str, path: Path) -> Option:
    members = alternatives(field_hints(_owners(cls, path)[0])[path[-1]])
    choices = tuple(word_of(choice) for choice in _choices(members))
    is_flag = any(is_settings(member) for member in members) and not choices
    plain = next((member for member in members if member in (bool, int, float, str)), str)
    return Option(
        name=name,
        settings=cls,
        path=path,
        value_type=bool if is_flag else str if choices else plain,
        choices=choices,
        is_list=any(typing.get_origin(member) is tuple for member in members),
    )


def _choices(members: tuple[Any, ...]) -> list[Any]:
    """The classes or members of an enum that a field is one of."""
    found: list[Any] = []
    for member in members:
        if is_enum(member):
            found += list(member)
        elif is_settings(member) and kind_of(member) is not None:
            found.append(member)
    return found


def _default_at(cls: Any, path: Path) -> Any:
    """The value of a field of nested settings where nothing is said."""
    value = _default(cls, path[0])
    for field in path[1:]:
        if not hasattr(value, field):  # of a kind that is not the default
            return _default(_owners(cls, path)[0], path[-1])
        value = getattr(value, field)
    return value


def _default(cls: Any, field: str) -> Any:
    """The value of a field where nothing is said; None if it must be given."""
    found = next(item for item in dataclasses.fields(cls) if item.name == field)
    if found.default is not dataclasses.MISSING:
        return found.default
    if found.default_factory is not dataclasses.MISSING:
        return found.default_factory()
    return None


def _put(cls: Any, data: dict[str, Any], name: str, path: Path, given: Mapping[str, Any]) -> None:
    owner, table = cls, data
    for depth in range(len(path) - 1):
        owner, table = _step_into(cls, owner, table, path, depth, name)
    field, value = path[-1], given[name]
    members = alternatives(field_hints(owner)[field])
    choices = _choices(members)
    if not choices and any(is_settings(member) for member in members):
        table.setdefault(field, {})  # a flag: the class with its defaults
    elif not choices:
        is_list = any(typing.get_origin(member) is tuple for member in members)
        table[field] = _listed(value) if is_list and isinstance(value, str) else value
    elif isinstance(choices[0], enum.Enum):
        table[field] = _chosen(name, value, choices).value
    else:
        default = _default(owner, field)
        if field not in table and default is not None:
            table[field] = plain_data(default)  # its own word keeps its settings
        _put_kind(cls, table, path, _chosen(name, value.partition(":")[0], choices), given, name)


def _listed(text: str) -> list[str]:
    """The parts of a list that is written with commas between them."""
    return [part.strip() for part in text.split(",")]


def _step_into(
    cls: Any, owner: Any, table: dict[str, Any], path: Path, depth: int, name: str
) -> tuple[Any, dict[str, Any]]:
    """The class and the table of the next field of a path, which has the rest of it."""
    field = path[depth]
    members = [part for part in alternatives(field_hints(owner)[field]) if is_settings(part)]
    default = _default(owner, field)
    if field not in table:
        table[field] = {} if default is None or len(members) == 1 else plain_data(default)
    inner = table[field]
    if not isinstance(inner, dict):
        raise ConfigError(f"{'.'.join(path[: depth + 1])}={inner!r} must be a table.")
    if len(members) == 1:
        return members[0], inner
    able = [part for part in members if path[depth + 1] in field_hints(part)]
    now = next((part for part in members if kind_of(part) == inner.get("kind")), None)
    if now not in able:
        words = " or ".join(word_of(part) for part in able)
        parent = _name_of(cls, path[: depth + 1])
        instead = "" if now is None else f", not for {word_of(now)}"
        raise ConfigError(
            f"{option_name(name)} is for {option_name(parent)} {words}{instead}; give that too, or "
            "leave it out."
        )
    return now, inner


def _put_kind(
    cls: Any,
    table: dict[str, Any],
    path: Path,
    chosen: Any,
    given: Mapping[str, Any],
    name: str,
) -> None:
    field, (word, _, text) = path[-1], given[name].partition(":")
    current = table.get(field, {})
    if isinstance(current, dict) and current.get("kind") == kind_of(chosen) and not text:
        return
    needed = [item for item in field_hints(chosen) if _is_required(chosen, item)]
    fresh: dict[str, Any] = {"kind": kind_of(chosen)}
    if text:
        fresh[_only(name, word, needed or list(field_hints(chosen)))] = _number(name, word, text)
        needed = []
    for missing in needed:
        option = _name_of(cls, (*path, missing))
        if given.get(option) is None:
            raise ConfigError(
                f"{option_name(name)} {word} needs {option_name(option)}: that of another does not "
                "suit it."
                if option
                else f"{option_name(name)} {word} needs a value; write {word}:VALUE."
            )
    table[field] = fresh


def _is_required(cls: Any, field: str) -> bool:
    found = next(item for item in dataclasses.fields(cls) if item.name == field)
    missing = dataclasses.MISSING
    return found.default is missing and found.default_factory is missing


def _only(name: str, word: str, fields: list[str]) -> str:
    if len(fields) != 1:
        raise ConfigError(f"{option_name(name)} {word} takes no value after a colon; leave it out.")
    return fields[0]


def _number(name: str, word: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ConfigError(
            f"{option_name(name)} {word}:{text} needs a number behind the colon, e.g. {word}:0.25."
        ) from None


def _chosen(name: str, value: str, choices: list[Any]) -> Any:
    words = [word_of(choice) for choice in choices]
    # The words of settings files are understood too.
    for choice, word in zip(choices, words, strict=True):
        of_files = choice.value if isinstance(choice, enum.Enum) else kind_of(choice)
        if value in (word, of_files):
            return choice
    raise ConfigError(
        f"{option_name(name)} {value} is unknown{did_you_mean(value, words)}; use one of "
        f"{', '.join(words)}."
    )


def _name_of(cls: Any, path: Path) -> str:
    """The name of the option of a field; empty if it has none."""
    return next((name for name, place in _places(cls).items() if place == path), "")


def option_name(name: str) -> str:
    """The words of an option on the command line."""
    return f"--{name.replace('_', '-')}"
