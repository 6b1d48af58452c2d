"""Every command of `tulle select` explains itself with examples that its options allow."""

import re

import pytest

from tulle.cli.main import run_with
from tulle.cli.select import select_app

COMMANDS = ("plan", "simulate", "decide", "bill", "evaluate")
EPILOGS = {str(command.name): str(command.epilog) for command in select_app.registered_commands}


def help_of(name: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert run_with(["select", name, "--help"]) == 0
    return capsys.readouterr().out


def unknown_options(example: str, help_text: str) -> set[str]:
    return set(re.findall(r"--[a-z-]+", example)) - set(re.findall(r"--[a-z-]+", help_text))


def test_these_are_all_commands() -> None:
    assert tuple(EPILOGS) == COMMANDS


@pytest.mark.parametrize("name", COMMANDS)
def test_help_has_an_example_with_options_that_exist(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = help_of(name, capsys)
    options = shown.partition("Example:")[0]
    assert f"Example: tulle select {name} " in " ".join(shown.split())
    assert unknown_options(EPILOGS[name], options) == set()


def test_an_example_with_an_unknown_option_would_be_seen(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert unknown_options("--seeds 1 --output x", help_of("decide", capsys)) == {"--seeds"}


@pytest.mark.parametrize("name", COMMANDS)
def test_wrong_options_are_explained(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_with(["select", name, "--nonsense"]) == 2
    assert "--nonsense" in capsys.readouterr().err


def test_the_group_lists_its_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_with(["select", "--help"]) == 0
    shown = capsys.readouterr().out
    assert all(f"  {name} " in shown for name in COMMANDS)
