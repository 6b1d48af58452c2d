"""A panel of the page: a few settings, and the function of the library that answers them."""

import dataclasses
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tulle.studio.fields import Field

Given = Mapping[str, Any]
"""Settings by name, each of the type of its field."""


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
