"""Docstrings of this project taken apart: prose first, then sections such as Args and Privacy."""

import dataclasses
import re
import textwrap
from collections.abc import Iterator

LISTED = ("Args", "Raises")
TITLES = (*LISTED, "Returns", "Yields", "Privacy")
_TITLE = re.compile(rf"^({'|'.join(TITLES)}):$")
_ITEM = re.compile(r"^([*\w.]+(?:, [*\w.]+)*): ?(.*)$")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Section:
    """One titled part of a docstring."""

    title: str
    text: str
    items: tuple[tuple[str, str], ...] = ()
    """Names and what is said about them, where the section is a list."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Docstring:
    """What a docstring says."""

    prose: str
    sections: tuple[Section, ...]

    def section(self, title: str) -> Section | None:
        """The section of this title, if there is one."""
        return next((section for section in self.sections if section.title == title), None)


def parse_docstring(text: str | None) -> Docstring:
    """Prose and sections of a docstring whose indentation was removed."""
    prose, *parts = _parts((text or "").strip().splitlines())
    return Docstring(
        prose="\n".join(prose).strip(),
        sections=tuple(_section(title.removesuffix(":"), lines) for title, *lines in parts),
    )


def _parts(lines: list[str]) -> list[list[str]]:
    parts: list[list[str]] = [[]]
    for line in lines:
        if _TITLE.match(line):
            parts.append([])
        parts[-1].append(line)
    return parts


def _section(title: str, lines: list[str]) -> Section:
    text = textwrap.dedent("\n".join(lines)).strip()
    items = tuple(_items(text)) if title in LISTED else ()
    return Section(title=title, text=text, items=items)


def _items(text: str) -> Iterator[tuple[str, str]]:
    for block in re.split(r"\n(?=\S)", text):
        first, _, rest = block.partition("\n")
        found = _ITEM.match(first)
        if found is None:
            yield "", " ".join(block.split())
        else:
            yield found[1], " ".join(f"{found[2]} {rest}".split())
