"""A panel of the page: its settings, and the function of the library that answers them.

What the page offers and what an answer accepts is said once, by the fields.
"""

import dataclasses
import math
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tulle.errors import ConfigError, TulleError
from tulle.privacy.fields import check_fields

Given = Mapping[str, Any]
"""Settings by name, each of the type of its field."""


class FieldError(ConfigError):
    """A setting of a panel has a value that cannot be used."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(message)
        self.field_name = name


@dataclasses.dataclass(frozen=True, kw_only=True)
class NumberField:
    """A number between two limits, set by a slider or typed."""

    name: str
    label: str
    default: float
    least: float
    most: float
    step: float | None = None
    """Step of the slider. None for a slider that moves by ratios."""
    is_whole: bool = False
    only_if: tuple[str, ...] | None = None
    """Name of a choice, and the values of it that the field belongs to."""

    def parse(self, text: str) -> float:
        """The number that a text says.

        Raises:
          FieldError: It is none, or out of the limits.
        """
        try:
            number: float = int(text) if self.is_whole else float(text)
        except ValueError:
            number = math.nan
        if not self.least <= number <= self.most:
            kind = "a whole number" if self.is_whole else "a number"
            raise FieldError(
                self.name,
                f"{self.name}={text or 'nothing'} must be {kind} from {self.least:g} to "
                f"{self.most:g} here; the command line takes others.",
            )
        return number


def count_field(
    name: str,
    label: str,
    *,
    default: int,
    most: int,
    least: int = 1,
    only_if: tuple[str, ...] | None = None,
) -> NumberField:
    """A whole number that a slider moves by one.

    Args:
      name: Name of the setting.
      label: Words beside the slider.
      default: Number that it starts with.
      most: Largest number that is accepted.
      least: Least number that is accepted.
      only_if: Name of a choice, and the values of it that the field belongs to; None for all.
    """
    return NumberField(
        name=name,
        label=label,
        default=default,
        least=least,
        most=most,
        step=1,
        is_whole=True,
        only_if=only_if,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class ChoiceField:
    """One of a few words."""

    name: str
    label: str
    choices: tuple[str, ...]
    """The first is the default."""

    def parse(self, text: str) -> str:
        """The word itself, if it is a choice."""
        if text not in self.choices:
            raise FieldError(
                self.name, f"{self.name}={text!r} is unknown; use {' or '.join(self.choices)}."
            )
        return text


Field = NumberField | ChoiceField


def read_fields(fields: Sequence[Field], given: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """Every setting as its field reads it.

    Args:
      fields: What is known; all of them must be given, and nothing else.
      given: Name and text of each setting.

    Raises:
      ConfigError: One is missing, unknown, given twice, or cannot be used.
    """
    pairs = tuple(given)
    texts = dict(pairs)
    if len(texts) < len(pairs):
        raise ConfigError("a setting is given twice; give each once.")
    check_fields("the question", texts, [field.name for field in fields])
    return {field.name: field.parse(texts[field.name]) for field in fields}


def defaults(fields: Sequence[Field]) -> dict[str, Any]:
    """What a panel starts with."""
    return {
        field.name: field.choices[0] if isinstance(field, ChoiceField) else field.default
        for field in fields
    }


def named_field(error: TulleError, fields: Sequence[Field]) -> str | None:
    """The field that an error is about, so that it can be shown beside it."""
    if isinstance(error, FieldError):
        return error.field_name
    places: Mapping[str, int] = {
        field.name: found.start()
        for field in fields
        if (found := re.search(rf"\b{field.name}=", str(error)))
    }
    return min(places, key=places.__getitem__) if places else None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Panel:
    """What can be asked, and how it is answered. Reads no data."""

    name: str
    title: str
    purpose: str
    """One sentence for the page."""
    fields: tuple[Field, ...]
    answer: Callable[[Given], Any]
    """Gives a frozen dataclass of plain values."""

    def to_dict(self) -> dict[str, Any]:
        """What the page needs to show its settings."""
        fields = [dataclasses.asdict(field) for field in self.fields]
        return {"name": self.name, "title": self.title, "purpose": self.purpose, "fields": fields}


def command_line(words: tuple[str, ...], options: Mapping[str, float | str]) -> str:
    """A command as it is typed into a shell; numbers as exact as they are."""
    parts = ["tulle", *words]
    for name, value in options.items():
        parts += [name, value if isinstance(value, str) else number_text(value)]
    return shlex.join(parts)


def path_word(path: Path) -> str:
    """A path that no command takes for an option."""
    return f"./{path}" if str(path).startswith("-") else str(path)


def number_text(number: float) -> str:
    """The shortest text that reads as the same number."""
    return repr(number).removesuffix(".0")
