"""What every refusal of the command line must be like: in its own words, not in Python's."""

import contextlib
import dataclasses
import re
from collections.abc import Iterator

import pytest

from tulle.cli import main
from tulle.cli.main import whole_command
from tulle.errors import TulleError
from tulle.privacy import events

NAMES = {"DuckDB", "NaN", "PyTorch", "GiB", "MiB"}
"""Words with a capital in the middle that are no names of Python."""
COLUMNS = {"SalesAmountInEuro"}
"""Columns of the data of tests."""
KEYS = {"format", "epsilon", "delta", "noise_multiplier", "scale", "kind", "verdict"}
"""Keys of the files that tulle writes, and figures of a ledger's refusal."""
EVENTS = {kind.__name__ for kind in vars(events).values() if dataclasses.is_dataclass(kind)}

_CLASS = re.compile(r"\b[A-Z][a-z]+[A-Z]\w*")
_CALL = re.compile(r"\b\w+\(\)|\b\w+\.\w+\(|\b[A-Z]\w+\.[A-Z_]+\b|\btulle\.\w+")
_ARGUMENT = re.compile(r"(?<![-\w.\[])(?<!--kind )([a-z][\w-]*)=")
_OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]+")


def python_words(message: str, arguments: list[str]) -> list[str]:
    """What a message says that only who writes Python knows, and options that are not there."""
    command = whole_command()
    for word in arguments:
        command = getattr(command, "commands", {}).get(word, command)
    options = {
        name
        for p in getattr(command, "all_params", command.params)
        for name in (*p.opts, *p.secondary_opts)
    }
    has_file = any(word.endswith((".toml", ".json")) for word in arguments)
    plain = re.sub(r"`[^`]*`", "", message)  # whole commands, which have options of their own
    for word in arguments:  # which may be anything
        plain = re.sub(rf"(?<![\w-]){re.escape(word)}(?![\w-])", "", plain)
    found = [word for word in _CLASS.findall(plain) if word not in NAMES | COLUMNS | EVENTS]
    found += _CALL.findall(plain)
    found += [f"{name}=" for name in _ARGUMENT.findall(plain) if not has_file and name not in KEYS]
    return found + [name for name in _OPTION.findall(plain) if name not in options]


@contextlib.contextmanager
def refusing_in_plain_words(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fails if a command refuses something in words of Python meanwhile."""
    said, wrong = main._said, []

    def checked(error: TulleError, arguments: list[str]) -> str:
        message = said(error, arguments)
        if words := python_words(message, arguments):
            wrong.append(f"{words} in: {message}")
        return message

    monkeypatch.setattr(main, "_said", checked)
    yield
    assert not wrong, "\n".join(wrong)
