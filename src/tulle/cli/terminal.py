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
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import typer

from tulle.errors import RunInterruptedError, TulleError

if TYPE_CHECKING:
    from rich.progress import TaskID

    from tulle.privacy.plan import Plan
    from tulle.train.fitting import FitResult
    from tulle.train.methods.train_plan import TrainPlan
    from tulle.train.run_context import Progress

_SECONDS_BETWEEN_LINES = 5.0
"""Where no bar can be drawn, lines go to a log: often enough to see that work goes on, rare enough
not to fill it."""
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

    facts = [progress.about] if progress.about else []
    facts.append(f"{progress.examples_per_second:,.0f} examples/s")
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


def plan_line(plan: "TrainPlan") -> str:
    """Guarantee, noise, steps and batches of a plan in one line."""
    from tulle.privacy.guarantee import BINARY_NOISE, round_up

    parts = [str(plan.privacy.guarantee)]
    if (epsilon := plan.method.label_epsilon) is not None:
        parts.append(f"labels epsilon={round_up(epsilon, 4, slack=BINARY_NOISE):.4g}")
    if plan.private_phase is not None:
        parts += [
            f"noise multiplier {plan.noise_multiplier:.4g}",
            f"{plan.num_private_steps:,} steps",
            f"batch size {plan.private_phase.batch_size:,}",
        ]
    elif plan.noise_multiplier is not None:
        parts.append(f"noise multiplier {plan.noise_multiplier:.4g}")
    line = f"plan: {', '.join(parts)}"
    remark = plan.method.remark(plan.shape, plan.noise_multiplier)
    return f"{line}\nplan: {remark}" if remark else line


def print_plan(plan: "TrainPlan", *, seed: int | None, output: Path | None, as_json: bool) -> None:
    """Prints a plan as JSON, or as a table of facts.

    Args:
      plan: The plan.
      seed: Seed of the run, whose noise could then be repeated.
      output: File that the plan was written to.
      as_json: Whether JSON is printed.
    """
    from tulle.privacy.units import Adjacency

    made = plan.privacy
    if as_json:
        typer.echo(made.to_json())
        return
    facts = [("plan", made.name), ("guarantee", str(made.guarantee))]
    facts += [("", str(claim.guarantee)) for claim in made.variants]
    facts.append(("what will run", made.mechanism))
    facts += [
        (name.replace("_", " "), f"{value:.6g}" if isinstance(value, float) else str(value))
        for name, value in made.settings.items()
    ]
    if made.guarantee.adjacency is not Adjacency.REPLACE:
        facts.append(("accounting", "as in the papers, for reproduction only: not private"))
    if seed is not None:
        facts.append(("seed", f"{seed}: the noise can be repeated, so nothing is promised"))
    if output is not None:
        facts.append(("saved as", str(output)))
    for name, value in facts:
        typer.echo(f"{name:<22}{value}")


def print_result(result: "FitResult", run: Path, *, as_json: bool) -> None:
    """Prints a finished run as one JSON object, or as a short table.

    Args:
      result: The finished run.
      run: Folder of the run.
      as_json: Whether JSON is printed.
    """
    facts = _run_facts(result, run)
    if as_json:
        lines = [json.dumps(facts, allow_nan=False)]
    else:
        lines = [
            f"{name.replace('_', ' '):<26}{_shown(name, value)}"
            for name, value in facts.items()
            if (value is not None or name == "epsilon")
            and not (name in ("steps", "steps_lost") and value == 0)
        ]
    try:
        typer.echo("\n".join(lines))
    except BrokenPipeError:
        raise
    except OSError as error:
        raise TulleError(
            f"the result cannot be printed: {error.strerror}; the run is whole, see {run}."
        ) from None


def _run_facts(result: "FitResult", run: Path) -> dict[str, object]:
    from tulle.privacy.fields import null_if_infinite

    plan = result.plan
    return {
        "method": plan.privacy.settings["method"],
        "model": result.model.kind,
        "remark": result.remark or None,
        **_quality_facts(result),
        "epsilon": null_if_infinite(plan.privacy.guarantee.epsilon),
        "delta": plan.privacy.guarantee.delta,
        "label_epsilon": plan.method.label_epsilon,
        "noise_multiplier": plan.noise_multiplier,
        "row_weights": plan.privacy.columns.weight,
        "steps": plan.num_private_steps,
        "steps_lost": result.num_steps_lost,
        "seconds": result.seconds,
        **_start_facts(plan.privacy),
        "run": str(run),
        "card": str(run / "card.json"),
        "verdict": result.card.verdict,
    }


def _start_facts(plan: "Plan") -> dict[str, object]:
    """Facts about the model that a run continued from; none if it started from nothing."""
    names = ("starts_from", "keep_evidence")
    return {name: plan.settings[name] for name in names if name in plan.settings}


def _quality_facts(result: "FitResult") -> dict[str, object]:
    """Figures of quality on the test rows: of probabilities, of values, or of classes."""
    metrics, found = result.metrics, result.value_metrics
    if result.model.clip is not None:
        names = (
            *("r_squared", "mean_squared_error", "mean_absolute_error", "calibration"),
            *("calibration_error", "bidding_over_constant"),
        )
        values = {name: None if found is None else getattr(found, name) for name in names}
        return {"clip": result.model.clip} | values
    if result.model.classes is not None:
        of_classes = result.class_metrics
        names = (
            *("accuracy", "most_frequent", "log_loss", "normalised_cross_entropy", "auc"),
            "calibration_error",
        )
        values = {n: None if of_classes is None else getattr(of_classes, n) for n in names}
        return {"classes": list(result.model.classes)} | values
    return {
        "auc": None if metrics is None else metrics.auc,
        "auc_loss": None if metrics is None else metrics.auc_loss,
        "auc_loss_interval": None if metrics is None else list(metrics.auc_loss_interval),
        "relative_auc_loss": result.relative_auc_loss,
        "log_loss": None if metrics is None else metrics.log_loss,
        "calibration": None if metrics is None else metrics.calibration,
        "normalised_cross_entropy": None if metrics is None else metrics.normalised_cross_entropy,
        "relative_log_likelihood": None if metrics is None else metrics.relative_log_likelihood,
        "bidding_over_constant": None if metrics is None else metrics.bidding_over_constant,
    }


def _shown(name: str, value: object) -> str:
    from tulle.privacy.guarantee import BINARY_NOISE, round_up

    if value is None:
        return "none: no privacy"
    if name in ("epsilon", "delta", "label_epsilon") and isinstance(value, float):
        return f"{round_up(value, 4, slack=BINARY_NOISE):.4g}"
    if name == "relative_auc_loss":
        return f"{value:+.2f}%"
    if name == "auc_loss_interval" and isinstance(value, list):
        low, high = value
        return f"low {low:.4f}, high {high:.4f} (95%)"
    if name == "seconds":
        return f"{value:.1f}"
    if name == "mean_squared_error":
        return f"{value:.6g}"
    return f"{value:.4f}" if isinstance(value, float) else f"{value}"
