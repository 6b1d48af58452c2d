"""Plain data: fields of JSON and TOML, all known, none missing, each of its type; and TOML text.

A misspelt key that is dropped silently can weaken a guarantee, so a reader
refuses it and names the closest key it knows. `Settings` are such fields that
cannot change and have the same JSON whenever they are equal.

What the tables of a settings file mean is the codec's: `settings_from` reads what `read_toml`
gives, and `toml_text` writes what `plain_data` gives. The standard library reads TOML and does not
write it.
"""

import difflib
import enum
import json
import math
import numbers
import re
import tomllib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn, TypeGuard, TypeVar

from tulle.errors import ConfigError, DataError, reason_of

MOST_COUNTED = 2**63 - 1
"""Largest whole number of 64 bits with a sign; larger ones leave the range of arrays and floats."""


Scalar = str | int | float | bool | None
"""A single value of JSON."""


_Choice = TypeVar("_Choice", bound=enum.Enum)


def check_fields(
    what: str, data: object, required: Collection[str], optional: Collection[str] = ()
) -> dict[str, Any]:
    """Returns the object itself, if it has every required key and no unknown one.

    Args:
      what: How messages name the object, e.g. "plan".
      data: What was read.
      required: Keys that must be there.
      optional: Keys that may be there.
    """
    if not isinstance(data, dict):
        raise ConfigError(
            f"{what} must be a JSON object with the keys {', '.join(required)}, "
            f"not {type(data).__name__}."
        )
    known = [*required, *optional]
    if unknown := [key for key in data if key not in known]:
        raise ConfigError(
            f"{what} has no key {unknown[0]!r}{did_you_mean(unknown[0], known)}; "
            f"its keys are {', '.join(known)}."
        )
    if missing := [key for key in required if key not in data]:
        raise ConfigError(f"{what} needs the key {missing[0]!r}; add it.")
    return data


def check_format(what: str, data: object, *known: str) -> None:
    """Refuses what another version wrote, before its keys are looked at.

    What has no format at all is left to `check_fields`.
    """
    if isinstance(data, dict) and "format" in data and data["format"] not in known:
        raise ConfigError(
            f"{what} format={data['format']!r} is not {' or '.join(map(repr, known))}; "
            "read it with the tulle that wrote it, or make it anew with this one."
        )


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """A suggestion to put behind an unknown name, empty if nothing is close."""
    close = difflib.get_close_matches(str(name), list(known), n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""


def check_text(name: str, value: object) -> str:
    """Text that is not empty and can be written to a file."""
    if not isinstance(value, str) or not value.strip():
        raise ConfigError(f"{name}={value!r} must be text that is not empty.")
    if any("\ud800" <= character <= "\udfff" for character in value):
        raise ConfigError(
            f"{name}={value!r} contains an unpaired surrogate (U+D800 to U+DFFF), "
            "which cannot be encoded as UTF-8."
        )
    return value


def check_finite(name: str, value: object) -> float:
    """A finite number; True and False are none."""
    try:
        if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value):
            return float(value)
    except OverflowError:  # a whole number beyond all floats
        pass
    raise ConfigError(f"{name}={value!r} must be a finite number.")


def check_count(name: str, value: object, *, least: int = 1) -> int:
    """A whole number from `least` on; True and False are none.

    Args:
      name: The setting, for the message.
      value: What was given.
      least: The smallest number that is allowed.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ConfigError(f"{name}={value!r} must be a whole number >= {least}.")
    return value


def check_size(name: str, value: object, *, least: int = 1) -> int:
    """A count of something that exists, or of times: no more than 64 bits can tell.

    Args:
      name: The setting, for the message.
      value: What was given.
      least: The smallest number that is allowed.
    """
    size = check_count(name, value, least=least)
    if size > MOST_COUNTED:
        raise ConfigError(
            f"{name} must be <= {MOST_COUNTED} and has {size.bit_length()} bits; nothing that is "
            "counted here is so many."
        )
    return size


def check_epsilon(value: object, name: str = "epsilon") -> float:
    """The epsilon of a mechanism: a finite number above 0."""
    if not _is_number(value) or not 0 < value < math.inf:
        raise ConfigError(f"{name}={value} must be > 0 and finite, e.g. 1.0.")
    return float(value)


def check_delta(value: object, name: str = "delta") -> float:
    """The delta of a guarantee: a probability below 1, and 0 for a pure epsilon."""
    if not _is_number(value) or not 0 <= value < 1:
        raise ConfigError(f"{name}={value} must be in [0, 1); choose e.g. 1e-7.")
    return float(value)


def check_prob(name: str, value: object, *, example: float = 0.05) -> float:
    """A probability that is neither 0 nor 1.

    Args:
      name: The setting, for the message.
      value: What was given.
      example: A value that many would choose, for the message.
    """
    if not _is_number(value) or not 0 < value < 1:
        raise ConfigError(f"{name}={value} must be in (0, 1), e.g. {example:g}.")
    return float(value)


def check_list(name: str, value: object) -> list[Any]:
    """A list as JSON gives it."""
    if not isinstance(value, list):
        raise ConfigError(f"{name} must be a list, not {type(value).__name__}.")
    return value


def check_choice(name: str, value: object, choices: type[_Choice]) -> _Choice:
    """The member of an enum that has this value, or that is given itself.

    Args:
      name: The setting, for the message.
      value: A member, or the word of one.
      choices: The enum.
    """
    for choice in choices:
        if choice is value or choice.value == value:
            return choice
    known = [str(choice.value) for choice in choices]
    raise ConfigError(
        f"{name}={value!r} is unknown{did_you_mean(value, known)}; "
        f"use one of {', '.join(map(repr, known))}."
    )


def null_if_infinite(value: float) -> float | None:
    """JSON has no infinity: an epsilon without limit is written as null."""
    return None if math.isinf(value) else value


def text_if_infinite(value: float) -> float | str:
    """An epsilon as commands print it in JSON: "Infinity" if there is no limit.

    null would read as nothing spent, and the bare word is not JSON.
    """
    return "Infinity" if math.isinf(value) else value


def infinite_if_null(name: str, value: object) -> float:
    """Reads what `null_if_infinite` wrote."""
    return math.inf if value is None else check_finite(name, value)


def canonical_json(data: object) -> str:
    """One line of JSON, the same for equal data in every version."""
    return json.dumps(data, sort_keys=True, separators=(",", ":"), allow_nan=False)


def parse_json(what: str, text: str) -> Any:
    """Strict JSON: no NaN, no Infinity, no key twice."""
    try:
        return json.loads(
            text, parse_constant=_refuse_constant, object_pairs_hook=_without_repeated_keys
        )
    except json.JSONDecodeError as error:
        raise ConfigError(f"{what} is not JSON: {error.msg} at character {error.pos}.") from None
    except RecursionError:
        raise ConfigError(f"{what} is nested too deeply; no event or plan is.") from None
    except ValueError:  # whole numbers have at most 4300 digits
        raise ConfigError(
            f"{what} has a number too long to read; none needs so many digits."
        ) from None


class Settings(Mapping[str, Scalar]):
    """Names and single values, sorted by name. It cannot change once it is made."""

    __slots__ = ("_pairs",)

    def __init__(self, values: Mapping[str, Scalar] | None = None) -> None:
        if not isinstance(values, Mapping | None):
            raise ConfigError(
                f"settings={values!r} must be names with values, e.g. {{'steps': 9}}."
            )
        pairs = dict(values or {})
        for name, value in pairs.items():
            _check_setting(name, value)
        self._pairs = tuple(sorted(pairs.items()))

    def __getitem__(self, name: str) -> Scalar:
        return dict(self._pairs)[name]

    def __iter__(self) -> Iterator[str]:
        return (name for name, _ in self._pairs)

    def __len__(self) -> int:
        return len(self._pairs)

    def __eq__(self, other: object) -> bool:
        # 1, 1.0 and True are equal numbers and different settings.
        return isinstance(other, Settings) and self._text() == other._text()

    def __hash__(self) -> int:
        return hash(self._text())

    def __repr__(self) -> str:
        return f"Settings({dict(self._pairs)!r})"

    def _text(self) -> str:
        return canonical_json(dict(self._pairs))


def _is_number(value: object) -> TypeGuard[float]:
    # Numbers of numpy count too; True and False do not.
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def _refuse_constant(name: str) -> NoReturn:
    raise ConfigError(f"{name} is not JSON; write null for what has no limit.")


def _without_repeated_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    data = dict(pairs)
    if len(data) < len(pairs):
        keys = [key for key, _ in pairs]
        repeated = next(key for key in keys if keys.count(key) > 1)
        raise ConfigError(f"key {repeated!r} is there more than once; keep one.")
    return data


def _check_setting(name: object, value: object) -> None:
    check_text("name of a setting", name)
    if value is None or isinstance(value, (str, bool)):
        if isinstance(value, str) and value:
            check_text(f"settings[{name!r}]", value)
        return
    if not isinstance(value, (int, float)):
        raise ConfigError(
            f"settings[{name!r}]={value!r} must be one number, text, true, false or none; "
            "write a list as text or as several settings."
        )
    check_finite(f"settings[{name!r}]", value)


_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


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
        if not -MOST_COUNTED - 1 <= value <= MOST_COUNTED:
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
