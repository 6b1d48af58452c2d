"""`tulle train` and `tulle plan`: one run from data to card, and what it would promise."""

import contextlib
import dataclasses
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from tulle.cli.options import taking_options
from tulle.cli.terminal import (
    plan_line,
    print_plan,
    print_result,
    showing_progress,
    showing_training,
    stopping_cleanly,
)
from tulle.cli.train_options import PlanOptions, SettingOptions, TrainOptions
from tulle.errors import ConfigError, RunStateError, TulleError

if TYPE_CHECKING:
    from tulle.train.methods.method import Method
    from tulle.train.methods.train_plan import TrainPlan
    from tulle.train.steps.processes.processes import Processes
    from tulle.train.training_data import DataChoice

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
    "\n\nExample: tulle train tuesday.csv --from runs/monday --epsilon 1 --ledger ledger.db "
    "--at 2026-03-03 --output runs/tuesday"
    "\n\nExample: torchrun --nproc-per-node 2 -m tulle.cli train prepared --method dp-sgd "
    "--epsilon 3"
)
PLAN_EPILOG = (
    "Example: tulle plan own.csv --label bought --public campaign --sensitive age --epsilon 3"
    "\n\nExample: tulle plan own.csv --schema schema.toml --unit example --epsilon 3"
    "\n\nExample: tulle plan synth:search --rows 20000 --method mosaic --epsilon 3"
    "\n\nExample: tulle plan prepared --config run.toml --output plan.json"
)
_DATA_KEYS = (
    *("source", "schema", "layout", "allow_public", "rows", "synth_seed", "test", "test_fraction"),
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
            from_model=options.from_model,
            keep_evidence=options.keep_evidence,
            output=options.output,
            watch_data=report,
        )
    print_plan(made, seed=options.seed, output=options.output, as_json=options.as_json)


@taking_options
def train(options: TrainOptions, settings: Mapping[str, Any]) -> None:
    """Train a model under a guarantee; leave model, records and card in a folder.

    The plan comes first; the ledger is charged before a label is randomized, a step is taken
    or a cell is summed. SIGTERM and SIGINT stop the run after a whole step. The same command
    with --resume continues it, also after a kill: mosaic then goes on with the sums it released,
    and is not charged again.
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
                from_model=options.from_model,
                keep_evidence=options.keep_evidence,
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


def read_settings(options: SettingOptions, given: "Mapping[str, Any]") -> dict[str, Any]:
    """Keywords of the verbs of `tulle.train`: the settings file, and the options over it.

    Args:
      options: Options of the command.
      given: Options that are settings of a method.
    """
    from tulle.privacy.fields import read_toml
    from tulle.privacy.options import word_of
    from tulle.train.methods.catalogue import configured_method, with_unit
    from tulle.train.settings.units import unit_level
    from tulle.train.verbs import check_unit

    file = {} if options.config is None else read_toml(options.config)
    rest = {name: value for name, value in file.items() if name not in ("data", "target")}
    data = data_keywords(options, file)
    check_unit(options.unit, _continued(data_choice(data), options))
    if options.unit is not None:
        # A column that says whose each row is stands for its users.
        level = unit_level(options.unit)
        given = {**given, "unit": word_of(type(level))}
    method = configured_method(rest, word=options.method, given=given)
    if options.unit is not None and method.is_private:
        method = with_unit(method, level)
    # A file may serve several methods, also one without a guarantee.
    target = _table(file, "target", ("epsilon", "delta")) if method.is_private else {}
    return data | {
        "method": method,
        "epsilon": target.get("epsilon") if options.epsilon is None else options.epsilon,
        "delta": target.get("delta") if options.delta is None else options.delta,
    }


def _continued(choice: "DataChoice", options: SettingOptions) -> "DataChoice":
    """The data, with the schema of the model that a run continues from where it has one."""
    folder = getattr(options, "from_model", None)
    if folder is None:
        return choice
    from tulle.train.continuing import read_start

    return dataclasses.replace(choice, encoder=read_start(folder, None).encoder)


def data_keywords(options: SettingOptions, file: "Mapping[str, Any]") -> dict[str, Any]:
    """The keywords of `tulle.train.plan` and `fit` that say which rows.

    Args:
      options: Options of the command.
      file: Tables of the settings file.
    """
    table = _table(file, "data", _DATA_KEYS)
    if options.source and options.data is not None:
        raise ConfigError(
            f"--data {options.data} and {options.source[0]} both name the data; leave out --data."
        )
    sources = options.source or ([options.data] if options.data is not None else None)
    source = table.get("source") if sources is None else sources
    if source is None:
        raise ConfigError(
            "the data are missing: name files of a log, the folder of a prepared dataset, or e.g. "
            "synth:search."
        )
    if options.test is not None and options.test_fraction is not None:
        raise ConfigError("--test and --test-fraction exclude each other; give one.")
    test = options.test_fraction if options.test is None else options.test
    if test is None:
        test = table.get("test", table.get("test_fraction"))
    words = {name: getattr(options, name) for name in ("schema", "layout", "rows", "synth_seed")}
    words["schema"] = _inline_schema(options) or options.schema
    return {
        "data": source[0] if isinstance(source, list) and len(source) == 1 else source,
        **{name: table.get(name) if word is None else word for name, word in words.items()},
        "allow_public": options.allow_public or table.get("allow_public", ()),
        "test": test,
        "cache": options.cache,
    }


def _inline_schema(options: SettingOptions) -> dict[str, Any] | None:
    """The schema that --label, --public and --sensitive make; None without them."""
    from tulle.train.settings.units import UserLevel, unit_level, unit_owner

    named = ("label", "public", "sensitive", "time", "kind", "known_values")
    given = [name.replace("_", "-") for name in named if getattr(options, name)]
    if not given:
        return None
    if options.schema is not None:
        raise ConfigError(f"--schema and --{given[0]} exclude each other; give one.")
    if options.label is None:
        raise ConfigError(f"--{given[0]} is given without --label; name the column of the label.")
    kinds = _by_column("--kind", options.kind, "COLUMN=KIND, e.g. --kind age=integer")
    known = _by_column(
        "--known-values",
        options.known_values,
        "COLUMN=FILE, e.g. --known-values audience=audiences.csv",
    )
    schema: dict[str, Any] = {
        "label": options.label,
        "public": options.public or [],
        "sensitive": options.sensitive or [],
        "kinds": kinds,
        "known_values": known,
    }
    if options.time is not None:
        schema["time"] = options.time
    # A word for one row names no column; anything else is the column that says whose each row
    # is, and `check_unit` refuses what is none.
    if options.unit is not None and isinstance(unit_level(options.unit), UserLevel):
        schema["unit"] = unit_owner(options.unit)
    return schema


def _by_column(option: str, texts: "Sequence[str] | None", form: str) -> dict[str, str]:
    """What COLUMN=… says of each column.

    Args:
      option: The option that the texts are of.
      texts: What was given, as often as it was.
      form: How it must look.
    """
    found = {}
    for text in texts or ():
        column, is_there, what = text.partition("=")
        if not is_there:
            raise ConfigError(f"{option} {text} must be {form}.")
        found[column] = what
    return found


def data_choice(given: "Mapping[str, Any]") -> "DataChoice":
    """The rows that keywords of a verb name."""
    from tulle.train.training_data import DataChoice

    names = {"schema", "layout", "allow_public", "test", "rows", "synth_seed", "cache"}
    return DataChoice(source=given["data"], **{name: given[name] for name in names})


def _table(file: "Mapping[str, Any]", name: str, keys: tuple[str, ...]) -> "Mapping[str, Any]":
    from tulle.privacy.fields import check_fields

    return check_fields(f"[{name}]", file.get(name, {}), (), keys)


def _settings_of(options: TrainOptions, settings: Mapping[str, Any]) -> dict[str, Any]:
    if options.plan is None:
        return read_settings(options, settings)
    named = ("config", "method", "epsilon", "delta", "unit", "keep_evidence")
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

        line = "what was released before the stop is used, and not paid again"
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
