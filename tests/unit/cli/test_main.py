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

ACCOUNT_COMMANDS = ("gaussian", "laplace", "rr", "dpsgd", "two-phase", "user", "shuffle", "plan")


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

    monkeypatch.setattr(main, "app", fail)
    assert main.run_with([]) == code
    assert capsys.readouterr().err.startswith("error: ")


def test_interruption_is_not_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(*_args: object, **_kwargs: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(main, "app", interrupt)
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
