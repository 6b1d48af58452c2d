"""Fields of what is kept as JSON: all known, none missing, each of its type.

A misspelt key that is dropped silently can weaken a guarantee, so a reader
refuses it and names the closest key it knows.
"""

import difflib
import enum
import json
import math
from collections.abc import Collection, Iterable
from typing import Any, NoReturn, TypeVar

from tulle.errors import ConfigError

_Choice = TypeVar("_Choice", bound=enum.Enum)
MOST_COUNTED = 2**63 - 1
"""Largest whole number of 64 bits with a sign; larger ones leave the range of arrays and floats."""


def check_fields(
    what: str, data: object, required: Collection[str], optional: Collection[str] = ()
) -> dict[str, Any]:
    """The object itself, if it has every required key and no unknown one."""
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
        raise ConfigError(f"{name}={value!r} has half a character in it; write it as UTF-8.")
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
    """A whole number from `least` on; True and False are none."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ConfigError(f"{name}={value!r} must be a whole number >= {least}.")
    return value


def check_size(name: str, value: object, *, least: int = 1) -> int:
    """A count of something that exists, or of times: no more than 64 bits can tell."""
    size = check_count(name, value, least=least)
    if size > MOST_COUNTED:
        raise ConfigError(
            f"{name} must be <= {MOST_COUNTED} and has {size.bit_length()} bits; nothing that is "
            "counted here is so many."
        )
    return size


def check_list(name: str, value: object) -> list[Any]:
    """A list as JSON gives it."""
    if not isinstance(value, list):
        raise ConfigError(f"{name} must be a list, not {type(value).__name__}.")
    return value


def check_choice(name: str, value: object, choices: type[_Choice]) -> _Choice:
    """The member of an enum with this value."""
    for choice in choices:
        if choice.value == value:
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


def _refuse_constant(name: str) -> NoReturn:
    raise ConfigError(f"{name} is not JSON; write null for what has no limit.")


def _without_repeated_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    data = dict(pairs)
    if len(data) < len(pairs):
        keys = [key for key, _ in pairs]
        repeated = next(key for key in keys if keys.count(key) > 1)
        raise ConfigError(f"key {repeated!r} is there more than once; keep one.")
    return data
