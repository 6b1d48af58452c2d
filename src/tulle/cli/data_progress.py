"""Progress on stderr: a bar on a terminal, a plain line now and then elsewhere."""

import contextlib
import sys
import time
from collections.abc import Callable, Iterator

import typer

_SECONDS_BETWEEN_LINES = 5.0

Report = Callable[[int, int, int], None]
"""Takes rows done, bytes done and bytes in all."""


@contextlib.contextmanager
def showing_progress(what: str, *, quiet: bool) -> Iterator[Report]:
    """A function to report to, for as long as the work lasts."""
    if quiet:
        yield _ignore
    elif sys.stderr.isatty():
        with _bar(what) as report:
            yield report
    else:
        yield _PlainLines(what)


def _ignore(_rows: int, _bytes_done: int, _bytes_total: int) -> None:
    pass


class _PlainLines:
    def __init__(self, what: str) -> None:
        self._what = what
        self._start = self._last = time.monotonic()

    def __call__(self, rows: int, bytes_done: int, bytes_total: int) -> None:
        now = time.monotonic()
        if now - self._last < _SECONDS_BETWEEN_LINES:
            return
        self._last = now
        share = f"{bytes_done / bytes_total:.0%}, " if bytes_done and bytes_total else ""
        seconds = now - self._start
        typer.echo(f"{self._what}: {share}{rows:,} rows, {seconds:.0f} s", err=True)


@contextlib.contextmanager
def _bar(what: str) -> Iterator[Report]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[rows]:,} rows"),
        TimeRemainingColumn(elapsed_when_finished=True),
    )
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(what, total=None, rows=0)

        def report(rows: int, bytes_done: int, bytes_total: int) -> None:
            total = bytes_total if bytes_done else None
            bar.update(task, completed=bytes_done, total=total, rows=rows)

        yield report
