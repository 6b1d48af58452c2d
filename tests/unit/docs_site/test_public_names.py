"""The reader of the source finds public names, their signatures and what docstrings say."""

import sys

import pytest
from public_names import Module, parse_docstring, read_library, read_module

from unit.docs_site.read_source import LIBRARY, ROOT

COUNTS = '''"""Counts."""

import dataclasses
from tulle.privacy.units import Unit

__all__ = ["Config", "Unit"]
MOST = 3
"""Most of them."""
_HIDDEN = 4


@dataclasses.dataclass(frozen=True)
class Config:
    """Settings."""

    scale: float = 1.0
    """Scale of the noise."""

    @property
    def variance(self) -> float:
        """Its square."""
        return self.scale**2

    def _secret(self) -> None: ...


def release(raw: int, /, config: "Config", *rest: int, rng: object, is_fast: bool = False) -> int:
    """Draws."""
    return raw


def _helper() -> None: ...
'''

TEXT = """Adds noise.

It is exact.

Args:
  raw_counts: Exact counts,
    one a slice.
  low, high: The range.

Privacy:
  Unit: user, replace.
  Event: one Gaussian.

Raises:
  DataError: A count is missing.
"""


@pytest.fixture(scope="module")
def counts() -> Module:
    return read_module("tulle.mechanisms.counts", COUNTS)


def test_only_public_names_are_read(counts: Module) -> None:
    assert [member.name for member in counts.members] == ["MOST", "Config", "release"]
    config = counts.member("Config")
    assert config is not None
    assert [member.name for member in config.members] == ["scale", "variance"]
    assert counts.exports == (("Config", ""), ("Unit", "tulle.privacy.units"))


def test_text_below_a_value_is_its_docstring(counts: Module) -> None:
    most, config, _ = counts.members
    assert most.docstring.prose == "Most of them."
    assert config.members[0].signature == "scale: float = 1.0"
    assert config.members[0].docstring.prose == "Scale of the noise."


def test_signatures_are_those_of_the_source(counts: Module) -> None:
    _, config, release = counts.members
    assert config.signature == "@dataclasses.dataclass(frozen=True)\nclass Config"
    assert config.members[1].signature == "variance: float"
    assert release.signature.split("\n    ") == [
        "def release(",
        "raw: int,",
        "/,",
        "config: 'Config',",
        "*rest: int,",
        "rng: object,",
        "is_fast: bool = False,\n) -> int",
    ]


def test_prose_ends_where_sections_begin_and_lists_are_read_by_name() -> None:
    parsed = parse_docstring(TEXT)
    assert parsed.prose == "Adds noise.\n\nIt is exact."
    assert parsed.first_paragraph == "Adds noise."
    arguments, privacy, errors = parsed.sections
    assert [section.title for section in parsed.sections] == ["Args", "Privacy", "Raises"]
    assert arguments.items == (
        ("raw_counts", "Exact counts, one a slice."),
        ("low, high", "The range."),
    )
    assert errors.items == (("DataError", "A count is missing."),)
    # A colon in a privacy note does not make a list.
    assert parsed.section("Privacy") is privacy
    assert privacy.items == ()
    assert privacy.text == "Unit: user, replace.\nEvent: one Gaussian."
    assert parse_docstring(None).prose == ""
    assert parse_docstring(None).section("Privacy") is None


def test_reading_the_library_reads_every_module_and_imports_none() -> None:
    assert {"tulle", "tulle.train", "tulle.privacy.units", "tulle.errors"} <= LIBRARY.keys()
    assert len(LIBRARY) > 200
    before = set(sys.modules)
    assert read_library(ROOT / "src" / "tulle" / "lab").keys() >= {"lab", "lab.markets.verbs"}
    assert {name for name in set(sys.modules) - before if name.startswith("tulle.")} == set()
