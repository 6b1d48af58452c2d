"""`tulle studio`: a local page to plan before spending."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from tulle.errors import TulleError

if TYPE_CHECKING:
    from tulle.studio.serving import Studio

STUDIO_EPILOG = (
    "Example: tulle studio --ledger ledger.db --runs runs"
    "\n\nExample: tulle studio --port 8080 --open"
)

_DEFAULT_RUNS = Path("runs")


def studio(
    ledger: Annotated[
        Path | None, typer.Option(help="Show what is spent and left in this ledger.")
    ] = None,
    runs: Annotated[
        Path | None,
        typer.Option(help="Show the finished runs in this folder [default: runs, if it is there]."),
    ] = None,
    port: Annotated[
        int, typer.Option(help="Where to listen [default: a free port].", min=0, show_default=False)
    ] = 0,
    open_browser: Annotated[
        bool, typer.Option("--open/--no-browser", help="Open the page in a browser.")
    ] = False,
) -> None:
    """Serve a local page to plan with sliders before spending. Ctrl-C stops it.

    Noise of a training run, errors of a report, captured gain of a selection, noise of labels:
    live, by the same functions as the commands, with the command to copy. Also what is left in
    a ledger, and finished runs with their reports. Only this computer can reach it, with the token
    in the printed address. It reads: nothing can be spent, written or deleted.
    """
    if runs is None and _DEFAULT_RUNS.is_dir():
        runs = _DEFAULT_RUNS
    opened = _open(ledger, runs, port)
    typer.echo(f"studio: {opened.address}")
    typer.echo("Ctrl-C stops it.", err=True)
    if open_browser:
        import webbrowser

        webbrowser.open(opened.address)
    try:
        opened.serve()
    except KeyboardInterrupt:
        typer.echo("stopped", err=True)
    if opened.is_computing:
        _leave_at_once()


def _leave_at_once() -> NoReturn:
    """Ends the process without waiting for answers that nobody waits for.

    The studio only reads, so nothing is left half done. Python itself would wait for the threads,
    or crash numeric libraries by taking them away.
    """
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(0)


def _open(ledger: Path | None, runs: Path | None, port: int) -> "Studio":
    try:
        from tulle.studio.serving import StudioConfig, open_studio
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in ("starlette", "uvicorn"):
            raise
        raise TulleError(
            f"the studio needs {missing}, which is not installed: pip install 'tulle[studio]'"
        ) from None
    return open_studio(StudioConfig(ledger=ledger, runs=runs, port=port))
