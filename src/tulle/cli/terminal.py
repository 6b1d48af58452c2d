"""What a command says while it works and when it is done, and how it is stopped.

Progress goes to stderr: a bar or a moving line on a terminal, a plain line now and then elsewhere.
Results go to stdout.
"""

import contextlib
import json
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from types import FrameType
from typing import TYPE_CHECKING

import typer

from tulle.errors import RunInterruptedError

if TYPE_CHECKING:
    from rich.progress import TaskID

    from tulle.train.run_context import Progress

_SECONDS_BETWEEN_LINES = 5.0
_NOTHING_IS_OUT = "stopped as asked, nothing is out; run the same command again."

Report = Callable[[int, int, int], None]
"""Takes rows done, bytes done and bytes in all."""


@contextlib.contextmanager
def showing_progress(what: str, *, quiet: bool) -> Iterator[Report]:
    """A function to report to, for as long as the work lasts."""
    if quiet:
        yield lambda _rows, _bytes_done, _bytes_total: None
    elif sys.stderr.isatty():
        with _bar(what) as report:
            yield report
    else:
        yield _PlainLines(what)


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


@contextlib.contextmanager
def showing_steps(*, quiet: bool) -> Iterator[Callable[[str], None]]:
    """A function that takes the name of each step as it begins."""
    start = time.monotonic()
    if quiet:
        yield lambda _: None
    elif sys.stderr.isatty():
        from rich.console import Console

        with Console(stderr=True).status("starting") as status:
            yield lambda what: status.update(f"{what} ({time.monotonic() - start:.0f} s)")
    else:
        yield lambda what: typer.echo(f"{what} ({time.monotonic() - start:.0f} s)", err=True)


@contextlib.contextmanager
def showing_training(*, quiet: bool) -> Iterator["Callable[[Progress], None] | None"]:
    """A function to report to, for as long as the run lasts; None if nobody looks."""
    if quiet or sys.stderr is None:  # None: the process was started with stderr closed.
        yield None
    elif sys.stderr.isatty():
        with _bars() as report:
            yield report
    else:
        yield _LinesOfPhases()


class _LinesOfPhases:
    """One line when a phase begins and ends, and every few seconds in between."""

    def __init__(self) -> None:
        self._phase, self._last = "", 0.0

    def __call__(self, progress: "Progress") -> None:
        now = time.monotonic()
        is_due = now - self._last >= _SECONDS_BETWEEN_LINES
        if progress.phase == self._phase and progress.step < progress.num_steps and not is_due:
            return
        self._phase, self._last = progress.phase, now
        done = f"step {progress.step:,} of {progress.num_steps:,}"
        # A log that is full must not end a run that was paid for.
        with contextlib.suppress(OSError):
            typer.echo(f"{progress.phase}: {done}, {_progress_facts(progress)}", err=True)


@contextlib.contextmanager
def _bars() -> Iterator["Callable[[Progress], None]"]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as RichProgress

    columns = (
        TextColumn("{task.description:<8}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[facts]}"),
        TimeRemainingColumn(elapsed_when_finished=True),
    )
    with RichProgress(*columns, console=Console(stderr=True)) as bars:
        tasks: dict[str, TaskID] = {}

        def report(progress: "Progress") -> None:
            if progress.phase not in tasks:
                tasks[progress.phase] = bars.add_task(
                    progress.phase, total=progress.num_steps, facts=""
                )
            bars.update(
                tasks[progress.phase],
                completed=progress.step,
                total=progress.num_steps,
                facts=_progress_facts(progress),
            )

        yield report


def _progress_facts(progress: "Progress") -> str:
    from tulle.privacy.guarantee import BINARY_NOISE, round_up

    facts = [f"{progress.examples_per_second:,.0f} examples/s"]
    if progress.loss is not None:
        noisy = "noisy " if progress.phase == "private" else ""  # It may even be below 0.
        facts.append(f"{noisy}loss {progress.loss:.4f}")
    if progress.epsilon is None:
        facts.append("no privacy")
    else:
        facts.append(f"epsilon {round_up(progress.epsilon, 3, slack=BINARY_NOISE):.3g}")
    return ", ".join(facts)


@contextlib.contextmanager
def stopping_cleanly(message: str = _NOTHING_IS_OUT) -> Iterator[None]:
    """Turns SIGTERM into an error with this message while the block runs."""

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise RunInterruptedError(message)

    try:
        old = signal.signal(signal.SIGTERM, stop)
    except ValueError:  # Not in the main thread, where Python allows no handlers.
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, old)


def print_facts(facts: Mapping[str, object], *, as_json: bool, width: int = 16) -> None:
    """Prints one fact a line, or all as JSON.

    Args:
      facts: Values by their names.
      as_json: Whether JSON is printed.
      width: Width of the column of names.
    """
    if as_json:
        typer.echo(json.dumps(facts, allow_nan=False))
        return
    for name, value in facts.items():
        is_count = isinstance(value, int) and not isinstance(value, bool)
        shown = f"{value:,}" if is_count else value
        if isinstance(value, list):
            shown = ", ".join(map(str, value))
        typer.echo(f"{name.replace('_', ' '):<{width}}{shown}")
