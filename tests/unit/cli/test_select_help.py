"""Every command of `tulle select` explains itself with an example that its options allow."""

import re
import shlex

import pytest
from click.testing import CliRunner
from typer.main import get_command

from tulle.cli.main import run_with
from tulle.cli.select import select_app

COMMANDS = ("plan", "simulate", "decide", "bill", "evaluate")


def test_these_are_all_commands() -> None:
    assert tuple(get_command(select_app).commands) == COMMANDS  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", COMMANDS)
def test_help_has_an_example(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_with(["select", name, "--help"]) == 0
    shown = capsys.readouterr().out
    assert f"Example: tulle select {name} " in " ".join(shown.split())


@pytest.mark.parametrize("name", COMMANDS)
def test_options_of_the_examples_exist(name: str) -> None:
    command = get_command(select_app).commands[name]  # type: ignore[attr-defined]
    examples = re.findall(r"tulle select (\S+) (.*)", command.epilog)
    assert examples
    for given_name, text in examples:
        assert given_name == name
        command.make_parser(command.context_class(command)).parse_args(shlex.split(text))


def test_an_option_that_is_unknown_would_be_seen() -> None:
    result = CliRunner().invoke(get_command(select_app), ["decide", "--seeds", "1"])
    assert result.exit_code == 2
    assert "--seed" in result.output


@pytest.mark.parametrize("name", COMMANDS)
def test_wrong_options_are_explained(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_with(["select", name, "--nonsense"]) == 2
    assert "--nonsense" in capsys.readouterr().err
