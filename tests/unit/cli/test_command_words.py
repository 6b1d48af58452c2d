"""Messages of the library in the words of the command line."""

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import tulle
from command_line_messages import python_words
from tulle.cli.command_words import _WORDS, in_command_words, with_options

ALL = ("--epsilon", "--max-rows-per-user", "--skip-bad-lines", "--emit-sql")


def messages() -> Iterator[str]:
    """Every text of the library, with a number or a quoted word where a value goes."""
    for path in Path(tulle.__file__).parent.rglob("*.py"):
        if path.name == "command_words.py":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value
            elif isinstance(node, ast.JoinedStr):
                for value in ("1", "'x'"):
                    parts = [getattr(part, "value", "") for part in node.values]
                    yield "".join(part if isinstance(part, str) else value for part in parts)


@functools.cache
def all_messages() -> str:
    return "\n".join(messages())


COMPOSED = {
    "LogFeature",
    "HourFeature",
    "DayOfWeekFeature",
    "noise kind=",
    "unit kind=",
    r"(server|device)_predictions or \1_prob, a column of the log",
    r"a noise \(--response-epsilon or --local-epsilon\)",
}
"""Words that messages put together, and one that another replacement leaves."""


@pytest.mark.parametrize("words", _WORDS, ids=lambda words: words.python)
def test_every_word_of_python_is_one_that_the_library_says(words) -> None:
    assert words.python in COMPOSED or re.search(words.python, all_messages()), words.python


def test_a_way_out_is_one_that_the_command_has() -> None:
    message = "Correct it, or have such lines counted and skipped with bad_lines=BadLines.SKIP."
    assert in_command_words(message, ALL) == (
        "Correct it, or have such lines counted and skipped with --skip-bad-lines."
    )
    assert in_command_words(message, ()) == "Correct it, or drop such lines first."


@pytest.mark.parametrize(
    ("message", "given", "said"),
    [
        ("epsilon=0.0 must be > 0.", [], "--epsilon 0.0 must be > 0."),
        ("max_rows_per_user=-1 is too few.", [], "--max-rows-per-user -1 is too few."),
        ("dialect='x' is unknown.", [], "--emit-sql 'x' is unknown."),
        ("shape=3 must be 4.", [], "shape=3 must be 4."),
        ("it needs max_rows_per_user.", [], "it needs --max-rows-per-user."),
        ("see max_rows_per_user.csv", [], "see max_rows_per_user.csv"),
        ("column 'max_rows_per_user'", [], "column 'max_rows_per_user'"),
        ("begun with target.epsilon=3, not 2.", [], "begun with target.epsilon=3, not 2."),
        ("epsilon=0.0 must be > 0.", ["--config", "a.toml"], "epsilon=0.0 must be > 0."),
        ("epsilon=0.0 is 0.", ["a.toml", "--epsilon", "0"], "--epsilon 0.0 is 0."),
        ("epsilon=0.0 is 0.", ["a.toml", "--epsilon=0"], "--epsilon 0.0 is 0."),
    ],
)
def test_a_setting_is_said_as_the_option_that_it_came_from(
    message: str, given: list[str], said: str
) -> None:
    assert with_options(message, ALL, given) == said


@pytest.mark.parametrize(
    ("message", "found"),
    [
        ("use NonPrivateConfig.", ["NonPrivateConfig"]),
        ("make one with Ledger.create().", ["Ledger.create("]),
        ("drop them with drop_rows_without_unit().", ["drop_rows_without_unit()"]),
        ("bad_lines=SKIP", ["bad_lines="]),
        ("see tulle.privacy", ["tulle.privacy"]),
        ("use RowChoice.FIRST", ["RowChoice", "RowChoice.FIRST"]),
        ("skip them with --skip-bad-lines", ["--skip-bad-lines"]),
        ("--epsilon 0 must be > 0; DuckDB said so, see `tulle data prepare --schema FILE`", []),
    ],
)
def test_words_of_python_are_seen(message: str, found: list[str]) -> None:
    assert sorted(set(python_words(message, ["labels", "release"]))) == sorted(found)
