"""`tulle measure run`: answers the queries of a settings file."""

import dataclasses
from pathlib import Path
from typing import Annotated

import typer

from tulle.cli.json_schema import MeasureSchema
from tulle.cli.measure_options import ENGINE, OUTPUT, MeasureRelease, SettingsFile, releasing
from tulle.cli.measure_output import print_measurement
from tulle.cli.option_class import command_taking
from tulle.errors import ConfigError

RUN_EPILOG = (
    "Example: tulle measure run campaigns.toml --output results"
    "\n\nExample: tulle measure run campaigns.toml --output results --ledger ledger.db "
    '--engine "local[2]"'
    "\n\nExample: tulle measure run campaigns.toml --emit-sql bigquery"
    "\n\nExample: tulle measure run campaigns.toml --totals exported --output results"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class MeasureRunOptions(MeasureRelease):
    """Options of a measurement by file."""

    config: SettingsFile
    output: Annotated[
        Path | None,
        typer.Option(
            help="Folder for measurement.json, the tables and the card.", rich_help_panel=OUTPUT
        ),
    ] = None
    emit_sql: Annotated[
        str | None,
        typer.Option(
            metavar="DIALECT",
            help="Print what the engine would run, for bigquery, snowflake, trino, spark or "
            "duckdb, and stop. Nothing is read.",
            rich_help_panel=ENGINE,
        ),
    ] = None
    times_are_seconds: Annotated[
        bool,
        typer.Option(
            "--times-are-seconds",
            help="For --emit-sql: times are seconds since 1970, not timestamps.",
            rich_help_panel=ENGINE,
        ),
    ] = False
    totals: Annotated[
        Path | None,
        typer.Option(
            help="Folder with the results of the emitted script; the log is not read then.",
            rich_help_panel=ENGINE,
        ),
    ] = None
    json_schema: MeasureSchema = False


def run(options: MeasureRunOptions) -> None:
    """Measure campaigns with noise: counts, values, rates, hierarchies, reach.

    The log is checked and added up first; then the ledger is charged; then noise is drawn,
    once. The same command with the same ledger gives back the stored numbers and spends
    nothing.
    """
    from tulle import measure

    file = measure.read_config(options.config)
    if options.emit_sql is not None:
        script = measure.emit_sql(
            file, options.emit_sql, times_are_seconds=options.times_are_seconds
        )
        typer.echo(script)
        return
    if options.output is None:
        raise ConfigError("--output is needed: the folder for the results, e.g. --output results.")
    with releasing(options, has_engine=options.totals is None) as (engine, say):
        result = measure.release(
            file,
            output=options.output,
            form=options.form,
            ledger=options.ledger,
            purpose=options.purpose,
            at=options.at,
            until=options.until,
            again=options.again,
            seed=options.seed,
            engine=engine,
            totals=options.totals,
            watch=say,
        )
    listed = {query.name for query in file.config.queries if query.keys is not None}
    print_measurement(result, listed=listed, form=options.form, as_json=options.as_json)


run_command = command_taking(MeasureRunOptions, run)
