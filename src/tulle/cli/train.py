"""`tulle train` and `tulle plan`: one run from data to card, and what it would promise."""

import contextlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from tulle.cli.options import taking_options
from tulle.cli.terminal import showing_progress, showing_training, stopping_cleanly
from tulle.cli.train_options import (
    PlanOptions,
    TrainOptions,
    data_choice,
    data_keywords,
    read_settings,
)
from tulle.errors import ConfigError, RunStateError, TulleError

if TYPE_CHECKING:
    from tulle.train.fitting import FitResult
    from tulle.train.methods.method import Method
    from tulle.train.methods.train_plan import TrainPlan
    from tulle.train.steps.processes.processes import Processes

TRAIN_EPILOG = (
    "Example: tulle train own.csv --label bought --public campaign --sensitive age --epsilon 3 "
    "--output model"
    "\n\nExample: tulle train log.parquet --layout search --epsilon 3 --output model"
    "\n\nExample: tulle train synth:search --rows 20000 --method mosaic --epsilon 3"
    "\n\nExample: tulle train prepared --config run.toml --resume"
    "\n\nExample: tulle train prepared --method dp-sgd --epsilon 1 --noise banded --bands 16"
    "\n\nExample: tulle train prepared --method hybrid --epsilon 3 --split ratio:0.25"
    "\n\nExample: tulle train prepared --method dp-sgd --epsilon 1 --ledger ledger.db "
    "--baseline runs/nonprivate-prepared"
    "\n\nExample: torchrun --nproc-per-node 2 -m tulle.cli train prepared --method dp-sgd "
    "--epsilon 3"
)
PLAN_EPILOG = (
    "Example: tulle plan own.csv --label bought --public campaign --sensitive age --epsilon 3"
    "\n\nExample: tulle plan own.csv --schema schema.toml --unit example --epsilon 3"
    "\n\nExample: tulle plan synth:search --rows 20000 --method mosaic --epsilon 3"
    "\n\nExample: tulle plan prepared --config run.toml --output plan.json"
)
RUNS = Path("runs")
"""Folder of runs whose own folder nobody named."""

_STOPPED = (
    "stopped as asked; run the same command to start, or with --resume to go on if the run had "
    "begun."
)
_BEGUN, _FINISHED = "run.json", "card.json"
_SIZE = "WORLD_SIZE"


@taking_options
def plan(options: PlanOptions, settings: Mapping[str, Any]) -> None:
    """Print what a training run would promise and do. Reads no feature and no label.

    Numbers of rows and whose each row is are looked at: they are public under replace.
    """
    from tulle.train import plan as make_plan

    chosen = read_settings(options, settings)
    with showing_progress("reading", quiet=options.quiet) as report:
        made = make_plan(
            **chosen,
            unit=options.unit,
            output=options.output,
            watch_data=report,
        )
    print_plan(made, seed=options.seed, output=options.output, as_json=options.as_json)


@taking_options
def train(options: TrainOptions, settings: Mapping[str, Any]) -> None:
    """Train a model under a guarantee; leave model, records and card in a folder.

    The plan comes first; the ledger is charged before a label is randomized, a step is taken
    or a cell is summed. SIGTERM and SIGINT stop the run at a whole step. The same command with
    --resume goes on, also after a kill; mosaic begins anew then, and is not charged again.
    """
    from tulle.train import fit

    # Idle threads of torch spin by default. On cores that others use too, small steps then take
    # up to thirty times as long, so here they sleep, unless the user says otherwise.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    chosen = _settings_of(options, settings)
    with stopping_cleanly(_STOPPED), _joined(options) as joined:
        if joined is not None and joined.rank > 0:
            _follow_quietly(chosen, joined, options.device)
            return
        path = output_folder(options, _kind_of(options.plan, chosen.get("method")))
        with (
            showing_progress("preparing", quiet=options.quiet) as report,
            showing_training(quiet=options.quiet) as watch,
        ):
            result = fit(
                **chosen,
                unit=options.unit,
                plan=options.plan,
                output=path,
                ledger=options.ledger,
                purpose=options.purpose,
                at=options.at,
                until=options.until,
                seed=options.seed,
                resume=options.resume,
                predictions=options.predictions,
                baseline=_run_of(options.baseline),
                device=options.device,
                processes=options.processes if joined is None else joined,
                checkpoint_every=options.checkpoint_every,
                watch=watch,
                watch_data=report,
                watch_plan=lambda made: _show_plan(made, path, options),
            )
    print_result(result, path, as_json=options.as_json)


def output_folder(options: "TrainOptions | Any", kind: str, *, prefix: str = "") -> Path:
    """The folder of a run: the one that was named, or a new one named after method and data.

    Args:
      options: Options of the command.
      kind: The word of the method.
      prefix: Beginning of the name where nobody gave one.

    Raises:
      RunStateError: A run is there already, or there is none to go on with.
    """
    from tulle.train.training_data import source_name

    resume = getattr(options, "resume", False)
    if options.output is not None:
        if not resume and (options.output / _BEGUN).exists():
            raise RunStateError(
                f"{options.output} holds a run already; go on with it with --resume, or choose "
                "another --output."
            )
        return Path(options.output)
    name = source_name(options.source or options.data)
    base = re.sub(r"[^A-Za-z0-9_.-]+", "-", f"{prefix}{kind}-{name}")
    if resume:
        return _newest_unfinished(base)
    number, path = 1, RUNS / base
    while path.exists():
        number += 1
        path = RUNS / f"{base}-{number}"
    return path


def _newest_unfinished(base: str) -> Path:
    pattern = re.compile(rf"{re.escape(base)}(-[0-9]+)?")
    unfinished = [
        path
        for path in (RUNS.iterdir() if RUNS.is_dir() else ())
        if pattern.fullmatch(path.name)
        and (path / _BEGUN).exists()
        and not (path / _FINISHED).exists()
    ]
    if not unfinished:
        raise RunStateError(
            f"{RUNS} has no unfinished run called {base}; leave out --resume to begin one, or name "
            "its folder with --output."
        )
    return max(unfinished, key=lambda path: (path / _BEGUN).stat().st_mtime_ns)


def _settings_of(options: TrainOptions, settings: Mapping[str, Any]) -> dict[str, Any]:
    if options.plan is None:
        return read_settings(options, settings)
    named = ("config", "method", "epsilon", "delta", "unit")
    given = [name for name in named if getattr(options, name) is not None]
    if given := [*given, *settings]:
        raise ConfigError(
            f"--plan has all settings of the run, and --{given[0].replace('_', '-')} is given too; "
            "leave it out."
        )
    return data_keywords(options, {})


def _run_of(baseline: Path | None) -> Path | None:
    """The folder of a baseline, which may be named without that of all runs."""
    if baseline is None or (baseline / _BEGUN).exists():
        return baseline
    return RUNS / baseline if (RUNS / baseline / _BEGUN).exists() else baseline


def _kind_of(plan: Path | None, method: "Method | None") -> str:
    """The word of the method that is run: that of the plan, where there is one."""
    from tulle.train.verbs import read_plan

    chosen = method if plan is None else read_plan(plan).method
    return "" if chosen is None else chosen.kind


def _show_plan(made: "TrainPlan", path: Path, options: TrainOptions) -> None:
    """Says on stderr what will be run, and how a run without checkpoints goes on."""
    if options.quiet:
        return
    with contextlib.suppress(OSError):
        typer.echo(plan_line(made), err=True)
        if not options.resume or made.method.has_steps_to_resume:
            return
        from tulle.runs.folder import RunFolder
        from tulle.train.training_run import has_begun_model

        line = "nothing was released before the stop, so it begins anew; what was paid counts"
        if has_begun_model(RunFolder.open(path)):
            line = "the model of this run was written already, and is not made again"
        typer.echo(f"resume: {line}", err=True)


@contextlib.contextmanager
def _joined(options: TrainOptions) -> "Iterator[Processes | None]":
    """The processes that torchrun started, of which this is one; None if it started none."""
    size = os.environ.get(_SIZE)
    if size is None or "RANK" not in os.environ:
        yield None
        return
    if not size.isdecimal():
        raise ConfigError(f"{_SIZE}={size!r} in the environment must be a whole number.")
    if options.processes not in (None, int(size)):
        raise ConfigError(
            f"--processes {options.processes} is not the number of processes that torchrun "
            f"started, {size}; leave it out."
        )
    if int(size) == 1:
        yield None
        return
    from tulle.train.steps.processes.torch_processes import join_processes

    with join_processes(options.device) as joined:
        yield joined


def _follow_quietly(chosen: Mapping[str, Any], processes: "Processes", device: str) -> None:
    """Follows the leader. It hears of errors and prints them, so that they come once."""
    from tulle.train.verbs import follow

    try:
        follow(data_choice(chosen), processes, device=device)
    except TulleError:
        raise typer.Exit(1) from None


_SECONDS_BETWEEN_LINES = 5.0


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
    return f"plan: {', '.join(parts)}"


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
    facts = _facts(result, run)
    if as_json:
        lines = [json.dumps(facts, allow_nan=False)]
    else:
        lines = [
            f"{name.replace('_', ' '):<26}{_shown(name, value, result)}"
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


def _facts(result: "FitResult", run: Path) -> dict[str, object]:
    from tulle.privacy.fields import null_if_infinite

    plan, metrics = result.plan, result.metrics
    return {
        "method": plan.privacy.settings["method"],
        "model": result.model.kind,
        "auc": None if metrics is None else metrics.auc,
        "auc_loss": None if metrics is None else metrics.auc_loss,
        "auc_loss_interval": None if metrics is None else list(metrics.auc_loss_interval),
        "relative_auc_loss": result.relative_auc_loss,
        "log_loss": None if metrics is None else metrics.log_loss,
        "calibration": None if metrics is None else metrics.calibration,
        "normalised_cross_entropy": None if metrics is None else metrics.normalised_cross_entropy,
        "relative_log_likelihood": None if metrics is None else metrics.relative_log_likelihood,
        "bidding_over_constant": None if metrics is None else metrics.bidding_over_constant,
        "epsilon": null_if_infinite(plan.privacy.guarantee.epsilon),
        "delta": plan.privacy.guarantee.delta,
        "label_epsilon": plan.method.label_epsilon,
        "noise_multiplier": plan.noise_multiplier,
        "steps": plan.num_private_steps,
        "steps_lost": result.num_steps_lost,
        "seconds": result.seconds,
        "run": str(run),
        "card": str(run / "card.json"),
        "verdict": result.card.verdict,
    }


def _shown(name: str, value: object, result: "FitResult") -> str:
    from tulle.privacy.guarantee import BINARY_NOISE, round_up

    if value is None:
        return "none: no privacy"
    if name in ("epsilon", "delta", "label_epsilon") and isinstance(value, float):
        return f"{round_up(value, 4, slack=BINARY_NOISE):.4g}"
    if name == "relative_auc_loss":
        return f"{value:+.2f}%"
    if name == "auc_loss_interval" and result.metrics is not None:
        low, high = result.metrics.auc_loss_interval
        return f"low {low:.4f}, high {high:.4f} (95%)"
    if name == "seconds":
        return f"{value:.1f}"
    return f"{value:.4f}" if isinstance(value, float) else f"{value}"
