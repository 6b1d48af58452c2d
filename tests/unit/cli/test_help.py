"""Every command explains itself, with examples that its own parser takes."""

import contextlib
import inspect
import io
import re
from typing import Any

import pytest
import typer

from end_to_end.help_examples import examples_of, leaf_commands
from tulle.cli import options
from tulle.cli.main import run_with
from tulle.privacy.codec import field_docs

COMMANDS = dict(leaf_commands())
GROUPS = sorted({name.rsplit(" ", 1)[0] for name in COMMANDS if " " in name})


def parse(name: str, words: list[str]) -> Any:
    """Reads an example as the command would, and runs nothing."""
    depth = len(name.split())
    assert words[: depth + 1] == ["tulle", *name.split()]
    return COMMANDS[name].make_context(name, words[depth + 1 :])


def of_tulle(words: list[str]) -> list[str]:
    """`torchrun … -m tulle.cli …` as the plain command."""
    return words if words[0] == "tulle" else ["tulle", *words[words.index("tulle.cli") + 1 :]]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_example_is_one_that_the_command_takes(name: str) -> None:
    examples = [of_tulle(words) for words in examples_of(COMMANDS[name])]
    assert examples, f"tulle {name} shows no example"
    for words in examples:
        with contextlib.suppress(typer.Exit):  # an option such as --json-schema prints and stops
            assert parse(name, words).params


def test_an_example_with_a_wrong_option_would_be_seen() -> None:
    with pytest.raises(Exception, match="--epsilom"):
        parse("train", ["tulle", "train", "--epsilom", "3"])


def params_of(name: str) -> list[Any]:
    command: Any = COMMANDS[name]
    return list(getattr(command, "all_params", command.params))


def is_hidden(param: Any) -> bool:
    return bool(getattr(param, "hidden", False))


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_and_argument_is_explained(name: str) -> None:
    unexplained = [
        p.name for p in params_of(name) if not getattr(p, "help", None) and not is_hidden(p)
    ]
    assert unexplained in ([], ["help"])


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_says_what_the_command_does_and_how(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_with([*name.split(), "--help"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert shown.startswith(f"Usage: tulle {name} ")
    assert f"Example: tulle {name}" in shown


@pytest.mark.parametrize("name", COMMANDS)
def test_a_misspelt_option_is_named_with_what_it_may_mean(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    options = [o for p in params_of(name) for o in p.opts if len(o) > 5 and o[:2] == "--"]
    option = max(options, key=len, default="--help")
    assert run_with([*name.split(), f"{option}x"]) == 2
    message = capsys.readouterr().err
    assert message.startswith(f"error: No such option: {option}x")
    assert option in re.split(r"[ ,)]+", message.partition("Possible options:")[2])
    assert message.endswith(f"See `tulle {name} --help`.\n")


@pytest.mark.parametrize("name", ["", *GROUPS])
def test_a_group_alone_shows_its_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_with(name.split()) == 2
    message = capsys.readouterr().err
    assert message.startswith("Usage: tulle")
    assert "Commands:" in message


@pytest.mark.parametrize("name", COMMANDS)
def test_a_misspelt_command_is_answered_with_the_right_one(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_with(f"{name}e".split()) == 2
    assert f"Did you mean '{name.split()[-1]}'" in capsys.readouterr().err


def test_help_reads_the_source_of_each_settings_class_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Reading it anew for every option made `tulle train --help` take ten seconds.
    field_docs.cache_clear()
    options._method_parameters.cache_clear()
    read: list[type] = []
    getsource = inspect.getsource

    def counted(cls: type) -> str:
        read.append(cls)
        return getsource(cls)

    monkeypatch.setattr(inspect, "getsource", counted)
    with contextlib.redirect_stdout(io.StringIO()):
        assert run_with(["train", "--help"]) == 0
    # A base class is read again for each class that has it; nothing else is.
    assert 10 < len(read) < 100
    read.clear()
    field_docs.cache_clear()
    options._method_parameters.cache_clear()
    COMMANDS["plan"].make_context("plan", ["synth:search", "--epsilon", "3", "--method", "rr"])
    assert read == []  # whoever runs a command waits for no help
