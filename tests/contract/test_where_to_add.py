"""The table "Where to add what" of docs/architecture.md: few files, and no other knows the example.

Whoever adds a thing touches the files that are listed there. The lists hold because an example of
each kind is named in these files and nowhere else in the product.
"""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "tulle"
PAGE = ROOT / "docs" / "architecture.md"
MOST_FILES = 5


def rows_of_the_page(text: str) -> dict[str, tuple[list[str], list[str]]]:
    """For each thing to add, its examples and the files that know them."""
    table = text.partition("## Where to add what")[2]
    rows = re.findall(r"^\| (?!to add|-)([^|]+) \| ([^|]+) \| ([^|]+) \|$", table, re.MULTILINE)
    return {
        what: (re.findall("`([^`]+)`", examples), re.findall("`([^`]+)`", files))
        for what, examples, files in rows
    }


ROWS = rows_of_the_page(PAGE.read_text(encoding="utf-8"))


def files_that_name(example: str) -> set[str]:
    """Files of the product with the word; the lab only uses what is there."""
    word = re.compile(rf"\b{example}\b")
    return {
        path.relative_to(SOURCE).as_posix()
        for path in SOURCE.rglob("*.py")
        if word.search(path.read_text(encoding="utf-8"))
        if not path.relative_to(SOURCE).as_posix().startswith("lab/")
    }


def unlisted(named: set[str], listed: list[str]) -> set[str]:
    return {
        path
        for path in named
        if not any(path == known or path.startswith(known) for known in listed)
    }


def test_the_page_names_what_people_add() -> None:
    assert len(ROWS) == 5


@pytest.mark.parametrize("what", ROWS)
def test_only_the_listed_files_know_the_example(what: str) -> None:
    examples, files = ROWS[what]
    for file in files:
        assert (SOURCE / file).exists(), file
    named = set().union(*(files_that_name(example) for example in examples))
    assert unlisted(named, files) == set()
    for file in files:
        assert any(path.startswith(file) for path in named), f"{file} does not know {examples}"
    assert len(files) <= MOST_FILES


def test_a_file_that_is_not_listed_is_noticed() -> None:
    assert unlisted({"train/a.py", "train/methods/x/b.py"}, ["train/methods/x/"]) == {"train/a.py"}
