"""Refusals in tests of commands are held to the words of the command line; a folder to run in."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from command_line_messages import refusing_in_plain_words


@pytest.fixture(autouse=True)
def _plain_refusals(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with refusing_in_plain_words(monkeypatch):
        yield


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder that the process is in."""
    monkeypatch.chdir(tmp_path)
    return tmp_path
