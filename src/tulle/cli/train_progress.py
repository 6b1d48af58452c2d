"""Progress of training on stderr: a bar on a terminal, a plain line now and then elsewhere."""

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from rich.progress import TaskID

    from tulle.train.progress import Progress

_SECONDS_BETWEEN_LINES = 5.0


@contextlib.contextmanager
def showing_training(*, quiet: bool) -> Iterator["Callable[[Progress], None] | None"]:
    """A function to report to, for as long as the run lasts; None if nobody looks."""
    if quiet or sys.stderr is None:  # None: the process was started with stderr closed.
        yield None
    elif sys.stderr.isatty():
        with _bars() as report:
            yield report
    else:
        yield _PlainLines()


class _PlainLines:
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
            typer.echo(f"{progress.phase}: {done}, {_facts(progress)}", err=True)


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
                facts=_facts(progress),
            )

        yield report


def _facts(progress: "Progress") -> str:
    from tulle.privacy.rounding import BINARY_NOISE, round_up
    from tulle.train.private_training import PHASE as PRIVATE

    facts = [f"{progress.examples_per_second:,.0f} examples/s"]
    if progress.loss is not None:
        noisy = "noisy " if progress.phase == PRIVATE else ""  # It may even be below 0.
        facts.append(f"{noisy}loss {progress.loss:.4f}")
    if progress.epsilon is None:
        facts.append("no privacy")
    else:
        facts.append(f"epsilon {round_up(progress.epsilon, 3, slack=BINARY_NOISE):.3g}")
    return ", ".join(facts)
