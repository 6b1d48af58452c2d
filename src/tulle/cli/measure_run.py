"""`tulle measure run`: answers the queries of a settings file."""

import contextlib
import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

import typer

from tulle.cli.clean_stop import stopping_cleanly
from tulle.cli.ledger_options import LedgerOptions, charge_of
from tulle.cli.measure_output import print_measurement
from tulle.cli.measure_progress import showing_steps
from tulle.cli.option_class import command_taking
from tulle.errors import BudgetExceededError, ConfigError

if TYPE_CHECKING:
    from tulle.accounting.refusal import SpendRefusedError
    from tulle.measure.config.config_file import ConfigFile
    from tulle.measure.engines.engine import Engine
    from tulle.measure.engines.exported_totals import ExportedTotals
    from tulle.measure.queries.measure_config import MeasureConfig

RUN_EPILOG = (
    "Example: tulle measure run campaigns.toml --out results"
    "\n\nExample: tulle measure run campaigns.toml --out results --ledger ledger.db "
    '--engine "local[2]"'
    "\n\nExample: tulle measure run campaigns.toml --emit-sql bigquery"
    "\n\nExample: tulle measure run campaigns.toml --totals exported --out results"
)

SettingsFile = Annotated[
    Path, typer.Argument(metavar="CONFIG.toml", help="What to measure; see the docs, Measure.")
]


@dataclasses.dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """Where a log is added up."""

    engine: Annotated[
        str,
        typer.Option(help='duckdb, "local[2]" or the URL of a Spark master, e.g. spark://host.'),
    ] = "duckdb"
    memory_limit: Annotated[
        str | None, typer.Option(help="Of DuckDB, e.g. 4GB; it spills to disk above.")
    ] = None
    spill_folder: Annotated[
        Path | None, typer.Option(help="Where DuckDB spills. Raw rows lie in it meanwhile.")
    ] = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReleaseOutput(LedgerOptions):
    """Where numbers go and how they are printed."""

    epsilon_setting: ClassVar[str] = "[privacy] epsilon"
    """What users call the budget of the release."""

    form: Annotated[str, typer.Option("--format", help="Of the tables: parquet or csv.")] = (
        "parquet"
    )
    seed: Annotated[
        int | None,
        typer.Option(help="Makes the noise repeatable. Then the release is not private.", min=0),
    ] = None
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress on stderr.")] = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunOptions(ReleaseOutput, EngineOptions):
    """Options of a measurement by file."""

    config: SettingsFile
    out: Annotated[
        Path | None, typer.Option(help="Folder for measurement.json, tables and card.")
    ] = None
    emit_sql: Annotated[
        str | None,
        typer.Option(
            metavar="DIALECT",
            help="Print what the engine would run, for bigquery, snowflake, trino, spark or "
            "duckdb, and stop. Nothing is read.",
        ),
    ] = None
    times_are_seconds: Annotated[
        bool,
        typer.Option(
            "--times-are-seconds",
            help="For --emit-sql: times are seconds since 1970, not timestamps.",
        ),
    ] = False
    totals: Annotated[
        Path | None,
        typer.Option(
            help="Folder with the results of the emitted script; the log is not read then."
        ),
    ] = None


def run(options: RunOptions) -> None:
    """Measure campaigns with noise: counts, values, rates, hierarchies, reach.

    The log is checked and added up first; then the ledger is charged; then noise is drawn,
    once. The same command with the same ledger gives back the stored numbers and spends
    nothing.
    """
    from tulle.measure.config.config_file import read_config

    file = read_config(options.config)
    if options.emit_sql is not None:
        _print_sql(file.config, options.emit_sql, times_are_seconds=options.times_are_seconds)
        return
    if options.out is None:
        raise ConfigError("--out is needed: the folder for the results, e.g. --out results.")
    source: EngineOptions | Path = options if options.totals is None else options.totals
    release(file, options.out, options, source)


def release(
    file: "ConfigFile", out: Path, output: ReleaseOutput, source: EngineOptions | Path
) -> None:
    """Measures on an engine, or from a folder of exported totals, writes and prints."""
    from tulle.measure.config.history import read_history
    from tulle.measure.queries.releasing import MeasureOptions, measure
    from tulle.measure.queries.table_files import FORMS, write_tables
    from tulle.mechanisms.entropy import SeededNoise, release_rng
    from tulle.privacy.fields import did_you_mean
    from tulle.report.card_file import write_card
    from tulle.report.measure_card import measure_card
    from tulle.runs.whole_files import reporting_disk_errors

    charge = charge_of(output, default_purpose="measure")
    if output.form not in FORMS:
        raise ConfigError(
            f"--format {output.form} is unknown{did_you_mean(output.form, FORMS)}; "
            f"use one of {', '.join(FORMS)}."
        )
    by_name = {query.name: query for query in file.config.queries}
    histories = {n: read_history(p, by_name[n]) for n, p in file.history_paths.items()}
    rng = release_rng() if output.seed is None else SeededNoise(output.seed)
    with (
        _folder(out),
        _advising(file.config, output),
        stopping_cleanly("stopped as asked, nothing is out; run the same command again."),
        showing_steps(quiet=output.quiet) as say,
        _opened(source) as opened,
    ):
        result = measure(
            file.config,
            out,
            opened,
            rng=rng,
            options=MeasureOptions(
                charge=charge,
                again=output.again,
                history={name: history.counts for name, history in histories.items()},
                has_public_history=any(history.is_public for history in histories.values()),
                history_source="; ".join(f"{n}: {h.source}" for n, h in histories.items()),
                watch=say,
            ),
        )
    card = measure_card(result.record)
    with reporting_disk_errors(out / "card.json"):
        write_card(out, card)
    files = write_tables(result.record, out, form=output.form)
    listed = {query.name for query in file.config.queries if query.keys is not None}
    print_measurement(result, card, files, listed=listed, as_json=output.as_json)


@contextlib.contextmanager
def _folder(out: Path) -> Iterator[None]:
    """Makes the folder, and takes away what it made if nothing came into it."""
    from tulle.runs.whole_files import reporting_disk_errors

    made = [folder for folder in (out, *out.parents) if not folder.exists()]
    with reporting_disk_errors(out):
        out.mkdir(parents=True, exist_ok=True)
    try:
        yield
    except BaseException:
        with contextlib.suppress(OSError):  # not empty, or in use by now
            for folder in made:
                folder.rmdir()
        raise


@contextlib.contextmanager
def _advising(config: "MeasureConfig", output: ReleaseOutput) -> Iterator[None]:
    """Says with which setting a measurement that a budget refuses would fit."""
    from tulle.accounting.refusal import SpendRefusedError

    try:
        yield
    except SpendRefusedError as error:
        raise BudgetExceededError(f"{error} {_advice(config, error, output)}") from None


def _advice(config: "MeasureConfig", error: "SpendRefusedError", output: ReleaseOutput) -> str:
    from tulle.privacy.rounding import round_down

    name, factor = output.epsilon_setting, error.least_noise_factor
    if factor is None:
        return f"Lower {name}={config.epsilon:g}, ask for fewer slices, or raise the budget."
    # Laplace noise is in inverse proportion to epsilon; other plans are near that.
    epsilon = round_down(config.epsilon / factor, 3)
    about = "" if config.delta == 0 else "about "
    return f"Set {name} to {about}{epsilon:g} or less in place of {config.epsilon:g}."


@contextlib.contextmanager
def _opened(source: EngineOptions | Path) -> "Iterator[Engine | ExportedTotals]":
    from tulle.measure.engines.engine import open_engine
    from tulle.measure.engines.exported_totals import ExportedTotals

    if isinstance(source, Path):
        yield ExportedTotals(source)
        return
    with open_engine(
        source.engine, memory_limit=source.memory_limit, spill_folder=source.spill_folder
    ) as engine:
        yield engine


def _print_sql(config: "MeasureConfig", dialect: str, *, times_are_seconds: bool) -> None:
    from tulle.measure.engines.emitted_sql import emit_sql
    from tulle.measure.queries.measure_plan import make_measure_plan
    from tulle.measure.queries.raw_totals import refuse_learnt_weights

    refuse_learnt_weights(config)
    plan = make_measure_plan(config)
    typer.echo(
        emit_sql(
            config.log,
            config.attribution,
            [*plan.slice_jobs, *plan.frequency_jobs],
            unit=config.unit,
            dialect=dialect,
            times_are_seconds=times_are_seconds,
        )
    )


run_command = command_taking(RunOptions, run)
