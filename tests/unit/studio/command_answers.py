"""What the command line says, to compare the studio with."""

import json
import shlex
from typing import Any

import pytest

from tulle.cli.main import run_with


def run_command(command: str, *more: str) -> int:
    """Runs a command as a panel shows it; it must be one of tulle."""
    words = shlex.split(command)
    assert words[0] == "tulle"
    return run_with([*words[1:], *more])


def said_by(command: str, capsys: pytest.CaptureFixture[str], *more: str) -> Any:
    """The JSON that a command prints."""
    capsys.readouterr()
    assert run_command(command, *more, "--json") == 0, capsys.readouterr().err
    return json.loads(capsys.readouterr().out)
