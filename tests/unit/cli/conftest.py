"""Every refusal in the tests of commands is held to the words of the command line."""

from collections.abc import Iterator

import pytest

from command_line_messages import refusing_in_plain_words


@pytest.fixture(autouse=True)
def _plain_refusals(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with refusing_in_plain_words(monkeypatch):
        yield
