import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

from tulle import __version__
from tulle.cli import main
from tulle.errors import (
    BudgetExceededError,
    ConfigError,
    DataError,
    RunStateError,
    TulleError,
    UnsupportedEventError,
)
from waiting import HANG_S

ACCOUNT_COMMANDS = ("gaussian", "laplace", "rr", "dpsgd", "hybrid", "user", "shuffle", "plan")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (TulleError, 1),
        (ConfigError, 2),
        (UnsupportedEventError, 2),
        (BudgetExceededError, 3),
        (DataError, 4),
        (RunStateError, 4),
    ],
)
def test_each_error_has_its_exit_code(
    error: type[TulleError],
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(*_args: object, **_kwargs: object) -> None:
        if error is BudgetExceededError:
            raise error.__new__(error)
        raise error("what, and the way out")

    monkeypatch.setattr(main, "whole_command", fail)
    assert main.run_with([]) == code
    assert capsys.readouterr().err.startswith("error: ")


def test_interruption_is_not_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(*_args: object, **_kwargs: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(main, "whole_command", interrupt)
    assert main.run_with([]) == 130
    assert capsys.readouterr().err == "error: interrupted\n"


def test_an_interrupted_command_says_so(tmp_path: pathlib.Path) -> None:
    output = tmp_path / "log.tsv"
    command = [sys.executable, "-m", "tulle.cli", "data", "synth", "display", "--quiet"]
    process = subprocess.Popen(
        [*command, "--rows", "100000000", "--output", str(output)],
        stderr=subprocess.PIPE,
        text=True,
    )
    while process.poll() is None and not list(tmp_path.iterdir()):  # Until it writes.
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, message = process.communicate(timeout=HANG_S)
    assert process.returncode == 130
    assert message == "error: interrupted\n"
    assert not output.exists()


class UnprintableError(ValueError):
    """A library's error, with a row of the data in it."""


def run_command(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> str:
    """What the process says whose command ends in an error, with exit code 1."""

    def fail(*_args: object, **_kwargs: object) -> None:
        user_id = "secret-local"
        try:
            raise KeyError("secret-cause", user_id)
        except KeyError as cause:
            raise error from cause

    monkeypatch.setattr(main, "whole_command", fail)
    with pytest.raises(SystemExit) as ended:
        main.run()
    assert ended.value.code == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    return captured.err


@pytest.mark.parametrize(
    "error",
    [
        UnprintableError("secret-message"),
        OverflowError("secret-message"),
        OSError("secret-message"),
    ],
)
def test_an_unforeseen_error_is_one_line_without_values(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("TULLE_TRACEBACK", raising=False)
    said = run_command(error, monkeypatch, capsys)
    assert said.startswith(f"error: unforeseen {type(error).__name__} at tulle.cli.main:")
    assert len(said.splitlines()) == 1
    assert "secret" not in said
    for part in (__version__, "report", "SECURITY.md", "TULLE_TRACEBACK=1"):
        assert part in said


def test_the_way_to_an_unforeseen_error_is_shown_when_asked_for_and_without_values(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TULLE_TRACEBACK", "1")
    said = run_command(UnprintableError("secret" + "-message"), monkeypatch, capsys)
    assert "in run_with" in said
    assert "KeyError\nThen:" in said
    assert "UnprintableError\nerror: unforeseen UnprintableError" in said
    code = pathlib.Path(__file__).read_text(encoding="utf-8")
    values = [line for line in said.splitlines() if "secret" in line]
    assert all(line.strip() in code for line in values)  # lines of code, never what they held


def test_an_error_of_a_library_below_names_the_line_of_tulle(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import tulle.accounting.answers

    def fail(*_args: object, **_kwargs: object) -> None:
        raise OverflowError("secret")

    monkeypatch.setattr(tulle.accounting.answers.Accountant, "epsilon", fail)
    arguments = ["tulle", "account", "laplace", "--noise-multiplier", "4"]
    monkeypatch.setattr("sys.argv", arguments)
    with pytest.raises(SystemExit):
        main.run()
    said = capsys.readouterr().err
    assert said.startswith("error: unforeseen OverflowError at tulle.accounting.answers:")
    assert "secret" not in said


def test_a_reader_that_has_gone_is_no_traceback() -> None:
    script = """
from tulle.cli import main

def write(arguments):
    print("half a table")
    raise BrokenPipeError

main.run_with = write
main.run()
"""
    read_end, write_end = os.pipe()
    os.close(read_end)
    done = subprocess.run(
        [sys.executable, "-c", script],
        stdout=write_end,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        timeout=HANG_S,
    )
    os.close(write_end)
    assert (done.returncode, done.stderr) == (1, "")


def test_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run_with(["--version"]) == 0
    assert capsys.readouterr().out.strip() == __version__


def test_no_arguments_show_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run_with([]) == 2
    assert capsys.readouterr().err.startswith("Usage: tulle")


@pytest.mark.parametrize(
    "command",
    ["demo", "account", "budget"]
    + [f"account {c}" for c in ACCOUNT_COMMANDS]
    + [f"budget {c}" for c in ("create", "show", "check", "spend")],
)
def test_help_is_there_and_commands_show_an_example(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run_with([*command.split(), "--help"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("Usage: tulle")
    if command not in {"account", "budget"}:
        assert f"Example: tulle {command}" in " ".join(shown.split())


def test_help_needs_no_heavy_import() -> None:
    script = (
        "import sys; from tulle.cli.main import run_with; run_with(['--help']); "
        "print([m for m in ('numpy', 'scipy', 'dp_accounting', 'torch') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("tulle tra", "train"),
        ("tulle measure r", "run"),
        ("tulle train --batch-s", "--batch-size"),
        ("tulle train --method dp", "dp-sgd"),
        ("tulle train --user-accounting sev", "several-rows"),
        ("tulle labels release --layout att", "attribution"),
        ("tulle labels plan --mechanism joint", "joint-subset"),
    ],
)
def test_a_shell_completes_commands_options_and_their_words(typed: str, offered: str) -> None:
    words = {"COMP_WORDS": typed, "COMP_CWORD": str(len(typed.split()) - 1)}
    done = subprocess.run(
        [sys.executable, "-c", "from tulle.cli.main import run; run()"],
        env=os.environ | words | {"_TULLE_COMPLETE": "complete_bash"},
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=True,
    )
    assert offered in done.stdout.split()
