"""The `tulle` command: puts the groups together and turns errors into exit codes."""

import sys
from typing import Any

import typer

from tulle import __version__
from tulle.cli.account import account_app
from tulle.cli.account_plan import check_plan
from tulle.cli.audit import audit_app
from tulle.cli.budget import budget_app
from tulle.cli.command_words import in_command_words, with_options
from tulle.cli.data import data_app
from tulle.cli.demo import demo
from tulle.cli.labels import labels_app
from tulle.cli.measure import measure_app
from tulle.cli.plan import PLAN_EPILOG, plan_command
from tulle.cli.report import REPORT_EPILOG, report_command
from tulle.cli.reproduce import REPRODUCE_EPILOG, reproduce_command
from tulle.cli.select import select_app
from tulle.cli.studio import STUDIO_EPILOG, studio
from tulle.cli.train import TRAIN_EPILOG, train_command
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
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
account_app.command(
    "plan", epilog="Example: tulle account plan plan.json --header impressions.csv"
)(check_plan)
app.add_typer(account_app)
app.add_typer(audit_app)
app.add_typer(budget_app)
app.add_typer(data_app)
app.add_typer(labels_app)
app.add_typer(measure_app)
app.add_typer(select_app)
app.command(epilog="Example: tulle demo --output demo-run")(demo)
app.command("plan", epilog=PLAN_EPILOG)(plan_command)
app.command("train", epilog=TRAIN_EPILOG)(train_command)
app.command("report", epilog=REPORT_EPILOG)(report_command)
app.command("reproduce", epilog=REPRODUCE_EPILOG)(reproduce_command)
app.command(epilog=STUDIO_EPILOG)(studio)

_INTERRUPTED = 130
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
    """Runs the command line; every error is one line on stderr."""
    sys.exit(run_with(sys.argv[1:]))


def run_with(arguments: list[str]) -> int:
    """Runs one command and returns its exit code: 0 ok, 1 error, 2 usage, 3 budget, 4 data."""
    try:
        result = app(arguments, prog_name="tulle", standalone_mode=False)
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
        name = "" if error.filename is None else f"{error.filename}: "
        return _fail(f"{name}{error.strerror or error}; what was finished before is whole.", 1)
    # typer catches the key itself in most places and says nothing.
    if result == _INTERRUPTED:
        return _fail("interrupted", _INTERRUPTED)
    return result if isinstance(result, int) else 0


def _said(error: TulleError, arguments: list[str]) -> str:
    """The message of an error in the words of the command that failed."""
    options = _options_of(arguments)
    message = in_command_words(str(error), options)
    has_settings = isinstance(error, ConfigError | DataError)
    return with_options(message, options, arguments) if has_settings else message


def _options_of(arguments: list[str]) -> frozenset[str]:
    if not arguments:
        return frozenset()
    command: Any = typer.main.get_command(app)
    for word in arguments:
        if word not in (subcommands := getattr(command, "commands", {})):
            break
        command = subcommands[word]
    return frozenset(
        name for option in command.params for name in (*option.opts, *option.secondary_opts)
    )


def _with_way_out(message: str, error: typer.TyperException) -> str:
    context = getattr(error, "ctx", None)
    if context is None:
        return message
    end = "" if message.endswith((".", "?")) else "."
    return f"{message}{end} See `{context.command_path} --help`."


def _fail(message: str, code: int) -> int:
    typer.echo(f"error: {message}", err=True)
    return code
