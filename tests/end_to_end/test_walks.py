"""The page of the architecture shows the journeys as they are, traced anew."""

import importlib.util
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "architecture.md"


def test_the_page_shows_what_a_run_of_mosaic_enters() -> None:
    walks = _walks()
    walk = walks.trace_apart(walks.JOURNEYS[0])
    shown = PAGE.read_text(encoding="utf-8")
    table, files = _table_row(shown, walk.name), _files_shown(shown, walk.name)
    assert files == set(walk.files), "write the page again: python benchmarks/walks.py"
    assert table[:2] == [len(walk.files), walks.BEFORE[walk.name]]
    # Options to plain data, plain data to the settings of the method, and those to a file.
    assert len(walk.translations) == 3


def test_every_file_that_the_page_shows_is_there() -> None:
    shown = PAGE.read_text(encoding="utf-8")
    walks = _walks()
    for journey in walks.JOURNEYS:
        files = _files_shown(shown, journey.name)
        assert len(files) > 10
        for file in files:
            assert (ROOT / "src" / "tulle" / file).exists(), file


def _walks():
    spec = importlib.util.spec_from_file_location("walks", ROOT / "benchmarks" / "walks.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _table_row(page: str, name: str) -> list[int]:
    (row,) = re.findall(rf"^\| {re.escape(name)} \|(.*)\|$", page, re.MULTILINE)
    return [int(cell) for cell in row.split("|")]


def _files_shown(page: str, name: str) -> set[str]:
    lines = page.partition(f"**{name}**")[2].partition("**")[0].splitlines()
    found = set()
    for line in lines:
        if match := re.fullmatch(r"- `(\S+)/` (.+)", line):
            folder = "" if match[1] == "tulle" else f"{match[1]}/"
            found |= {f"{folder}{file}.py" for file in match[2].split(", ")}
    return found
