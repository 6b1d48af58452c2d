"""The `tulle` command: puts the groups together and turns errors into exit codes."""

import functools
import os
import sys
import traceback
from pathlib import Path
from typing import Any

import typer

from tulle import __version__
from tulle.cli.account import account_app
from tulle.cli.audit import audit_app
from tulle.cli.budget import budget_app
from tulle.cli.command_words import in_command_words, with_options
from tulle.cli.data import data_app
from tulle.cli.demo import demo
from tulle.cli.explain import EXPLAIN_EPILOG, explain
from tulle.cli.export import EXPORT_EPILOG, export
from tulle.cli.labels import labels_app
from tulle.cli.measure import measure_app
from tulle.cli.options import TrainingCommand, present_name
from tulle.cli.predict import PREDICT_EPILOG, predict
from tulle.cli.report import REPORT_EPILOG, report
from tulle.cli.reproduce import REPRODUCE_EPILOG, reproduce
from tulle.cli.select import select_app
from tulle.cli.studio import STUDIO_EPILOG, studio
from tulle.cli.train import PLAN_EPILOG, TRAIN_EPILOG, plan, train
from tulle.errors import (
    BudgetExceededError,
    ConfigError,
    DataError,
    RunInterruptedError,
    RunStateError,
    TulleError,
    UnsupportedEventError,
)

app = typer.Typer(
    name="tulle",
    help="Advertising under differential privacy.",
    epilog="Start with: tulle demo",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"token_normalize_func": present_name},
)
app.add_typer(account_app)
app.add_typer(audit_app)
app.add_typer(budget_app)
app.add_typer(data_app)
app.add_typer(labels_app)
app.add_typer(measure_app)
app.add_typer(select_app)
app.command(epilog="Example: tulle demo --output demo-run")(demo)
app.command("plan", cls=TrainingCommand, epilog=PLAN_EPILOG)(plan)
app.command("train", cls=TrainingCommand, epilog=TRAIN_EPILOG)(train)
app.command("explain", epilog=EXPLAIN_EPILOG)(explain)
app.command("export", epilog=EXPORT_EPILOG)(export)
app.command("predict", epilog=PREDICT_EPILOG)(predict)
app.command("report", epilog=REPORT_EPILOG)(report)
app.command("reproduce", epilog=REPRODUCE_EPILOG)(reproduce)
app.command(epilog=STUDIO_EPILOG)(studio)

_PACKAGE = Path(__file__).parents[1]
"""Frames below this folder are ours: only their module and line may be shown of a foreign error."""
_TRACEBACK_VARIABLE = "TULLE_TRACEBACK"
_INTERRUPTED = 130
"""What shells report for a program that the interrupt key ended: 128 + SIGINT (2)."""
# Scripts tell by these codes what to do next, so they are part of the stable surface: 2 mend the
# command, 3 ask for budget, 4 mend the data or the run folder.
_EXIT_CODES: tuple[tuple[type[TulleError], int], ...] = (
    (ConfigError, 2),
    (UnsupportedEventError, 2),
    (BudgetExceededError, 3),
    (DataError, 4),
    (RunStateError, 4),
    (RunInterruptedError, _INTERRUPTED),
)


@app.callback(invoke_without_command=True)
def _options(
    version: bool = typer.Option(False, "--version", help="Print the version and stop."),
) -> None:
    if version:
        typer.echo(__version__)
        raise typer.Exit


def run() -> None:
    """Runs the command line; every error is one line on stderr, also one that nobody foresaw."""
    try:
        code = run_with(sys.argv[1:])
    except BrokenPipeError:
        # Whoever read the output has gone; what is still to be flushed goes nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 1
    except Exception as error:
        if os.environ.get(_TRACEBACK_VARIABLE):
            typer.echo(_way_through_the_code(error), err=True)
        code = _fail(_without_values(error), 1)
    sys.exit(code)


def run_with(arguments: list[str]) -> int:
    """Runs one command and returns its exit code: 0 ok, 1 error, 2 usage, 3 budget, 4 data."""
    try:
        result = whole_command()(arguments, prog_name="tulle", standalone_mode=False)
    except TulleError as error:
        code = next((code for kind, code in _EXIT_CODES if isinstance(error, kind)), 1)
        return _fail(_said(error, arguments), code)
    except typer.TyperException as error:
        message = error.format_message()
        if message.startswith("Usage:"):  # Called without arguments: this is the help.
            typer.echo(message, err=True)
            return 2
        return _fail(_with_way_out(message, error), 2)
    except (KeyboardInterrupt, typer.Abort):
        result = _INTERRUPTED
    except BrokenPipeError:
        raise
    except OSError as error:
        if error.strerror is None:  # Not from the operating system: it may say anything.
            raise
        name = "" if error.filename is None else f"{error.filename}: "
        return _fail(f"{name}{error.strerror}; what was finished before is whole.", 1)
    # typer catches the key itself in most places and says nothing.
    if result == _INTERRUPTED:
        return _fail("interrupted", _INTERRUPTED)
    return result if isinstance(result, int) else 0


@functools.cache
def whole_command() -> Any:
    """The tree of all commands, which typer would build anew for each call and each refusal."""
    return typer.main.get_command(app)


def _said(error: TulleError, arguments: list[str]) -> str:
    """The message of an error in the words of the command that failed."""
    options = _options_of(arguments)
    message = in_command_words(str(error), options)
    has_settings = isinstance(error, ConfigError | DataError)
    return with_options(message, options, arguments) if has_settings else message


def _options_of(arguments: list[str]) -> frozenset[str]:
    if not arguments:
        return frozenset()
    command = whole_command()
    for word in arguments:
        if word not in (subcommands := getattr(command, "commands", {})):
            break
        command = subcommands[word]
    return frozenset(
        name
        for option in getattr(command, "all_params", command.params)
        for name in (*option.opts, *option.secondary_opts)
    )


def _with_way_out(message: str, error: typer.TyperException) -> str:
    context = getattr(error, "ctx", None)
    if context is None:
        return message
    end = "" if message.endswith((".", "?")) else "."
    return f"{message}{end} See `{context.command_path} --help`."


def _without_values(error: Exception) -> str:
    """What may be said of an error that is not ours: its message could hold rows of the data."""
    ours = [frame for frame in _frames(error) if Path(frame.filename).is_relative_to(_PACKAGE)]
    place = "a place outside of tulle"
    if ours:
        module = Path(ours[-1].filename).relative_to(_PACKAGE.parent).with_suffix("")
        place = f"{'.'.join(module.parts)}:{ours[-1].lineno}"
    return (
        f"unforeseen {type(error).__name__} at {place} (tulle {__version__}). Its message is not "
        "shown, because it may hold data. This is a bug of tulle: report this line and the "
        "command, without data, to the maintainers; SECURITY.md says how if it touches privacy. "
        f"{_TRACEBACK_VARIABLE}=1 shows the lines of code that led here."
    )


def _way_through_the_code(error: BaseException) -> str:
    """Files, lines and code of an error and of those before it, without any value."""
    before = error.__cause__ or error.__context__
    earlier = [] if before is None else [_way_through_the_code(before), "Then:"]
    lines = "".join(traceback.format_list(_frames(error)))
    return "\n".join([*earlier, f"{lines}{type(error).__name__}"])


def _frames(error: BaseException) -> traceback.StackSummary:
    return traceback.extract_tb(error.__traceback__)


def _fail(message: str, code: int) -> int:
    typer.echo(f"error: {message}", err=True)
    return code
