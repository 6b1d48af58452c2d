import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "docs_site"))

from public_names import ALONE, PACKAGES, Module, read_library

SOURCE = Path(__file__).parents[3] / "src" / "tulle"

COUNTS = '''"""Counts."""

import dataclasses

MOST = 3
"""Most of them."""
_HIDDEN = 4


@dataclasses.dataclass(frozen=True)
class Config:
    """Settings."""

    scale: float = 1.0
    """Of the noise."""

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


@pytest.fixture
def counts(tmp_path: Path) -> Module:
    for package in PACKAGES:
        (tmp_path / "tulle" / package).mkdir(parents=True)
    for name in ALONE:
        (tmp_path / "tulle" / f"{name}.py").write_text("")
    (tmp_path / "tulle" / "mechanisms" / "counts.py").write_text(COUNTS)
    (module,) = read_library(tmp_path / "tulle")["tulle.mechanisms"]
    return module


def test_only_public_names_are_read(counts: Module) -> None:
    assert counts.name == "tulle.mechanisms.counts"
    assert [member.name for member in counts.members] == ["MOST", "Config", "release"]
    assert [member.name for member in counts.members[1].members] == ["scale", "variance"]


def test_text_below_a_value_is_its_docstring(counts: Module) -> None:
    most, config, _ = counts.members
    assert most.docstring.prose == "Most of them."
    assert config.members[0].signature == "scale: float = 1.0"
    assert config.members[0].docstring.prose == "Of the noise."


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


def test_every_package_is_read_but_those_that_are_commands() -> None:
    packages = {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    assert packages - set(PACKAGES) <= {"cli", "studio"}
    assert set(PACKAGES) <= packages


def test_reading_the_library_imports_nothing_of_it() -> None:
    before = set(sys.modules)
    assert len(read_library(SOURCE)) > len(PACKAGES)
    assert {name for name in set(sys.modules) - before if name.startswith("tulle.")} == set()
