"""`tulle measure`: campaign numbers with a guarantee for users."""

import dataclasses
import functools
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tulle.cli.measure_options import (
    ENGINE,
    MeasureRelease,
    MeasureSchema,
    SettingsFile,
    TableRelease,
    column_kinds,
    print_measurement,
    releasing,
)
from tulle.cli.measure_plan import (
    ATTRIBUTE_EPILOG,
    CLIPS_EPILOG,
    PLAN_EPILOG,
    attribute,
    clips,
    plan,
    present_plan_name,
)
from tulle.cli.measure_simulate import W3C_CONFORMANCE_EPILOG, simulate_app, w3c_conformance
from tulle.cli.options import DATA, OUTPUT, PRIVACY, PanelledCommand, option, taking_options
from tulle.errors import ConfigError

if TYPE_CHECKING:
    pass

_RUN_EPILOG = (
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
        Path | None, option(OUTPUT, "Folder for measurement.json, the tables and the card.")
    ] = None
    emit_sql: Annotated[
        str | None,
        option(
            ENGINE,
            "Print what the engine would run, for bigquery, snowflake, trino, spark or "
            "duckdb, and stop. Nothing is read.",
            metavar="DIALECT",
        ),
    ] = None
    times_are_seconds: Annotated[
        bool,
        option(
            ENGINE,
            "For --emit-sql: times are seconds since 1970, not timestamps.",
            "--times-are-seconds",
        ),
    ] = False
    totals: Annotated[
        Path | None,
        option(ENGINE, "Folder with the results of the emitted script; the log is not read then."),
    ] = None
    json_schema: MeasureSchema = False


@taking_options
def run(options: MeasureRunOptions) -> None:
    """Measure campaigns with noise: counts, values, rates, hierarchies, reach.

    The log is checked and added up first; then the ledger is charged; then noise is drawn,
    once. The same command with the same ledger gives back the stored numbers and spends
    nothing.
    """
    from tulle import measure
    from tulle.measure.queries.lookback_crossing import lookback_crossing

    file = measure.read_config(options.config)
    if options.emit_sql is not None:
        script = measure.emit_sql(
            file, options.emit_sql, times_are_seconds=options.times_are_seconds
        )
        typer.echo(script)
        return
    if options.output is None:
        raise ConfigError("--output is needed: the folder for the results, e.g. --output results.")
    crossing = lookback_crossing(file.config)
    if crossing is not None and not options.quiet:
        typer.echo(str(crossing), err=True)
    with releasing(options, has_engine=options.totals is None) as (engine, say):
        result = measure.release(
            file,
            output=options.output,
            form=options.form,
            **options.charge(),
            seed=options.seed,
            engine=engine,
            totals=options.totals,
            watch=say,
        )
    listed = {query.name for query in file.config.queries if query.keys is not None}
    print_measurement(result, listed=listed, form=options.form, as_json=options.as_json)


_COUNT_EPILOG = (
    "Example: tulle measure count log.csv --unit impression --epsilon 1 --output counts"
    "\n\nExample: tulle measure count log.parquet --unit user --user user_id --epsilon 1 "
    "--slice campaign --keys campaigns.csv --max-per-slice 2 --max-slices-per-unit 3 "
    "--output counts"
)
_REACH_EPILOG = (
    "Example: tulle measure reach impressions.parquet --epsilon 1 --output reach"
    "\n\nExample: tulle measure reach impressions.parquet --epsilon 1 --slice publisher --keys "
    "publishers.csv --max-slices-per-unit 3 --output reach --ledger ledger.db"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class CountOptions(TableRelease):
    """Options of a count of rows."""

    unit: Annotated[
        str, option(PRIVACY, 'Who is protected: impression or row, or e.g. "user per week".')
    ]
    keys: Annotated[
        str | None,
        option(
            DATA,
            'File with the slices that are wanted, or "private" to find them privately.',
            metavar="FILE",
        ),
    ] = None
    user: Annotated[
        str | None, option(DATA, "Column that says whose a row is.", metavar="COLUMN")
    ] = None
    time: Annotated[
        str | None, option(DATA, "Column with the time of a row.", metavar="COLUMN")
    ] = None
    max_per_slice: Annotated[
        float | None, option(PRIVACY, "Most rows of a unit that one slice counts.")
    ] = None
    max_per_unit: Annotated[float | None, option(PRIVACY, "Most rows of a unit in all slices.")] = (
        None
    )
    noise: Annotated[str, option(PRIVACY, "Law of the noise: laplace or gaussian.")] = "laplace"
    confidence: Annotated[
        float, option(PRIVACY, "Probability with which an interval holds its number.")
    ] = 0.95


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReachOptions(TableRelease):
    """Options of a measurement of reach."""

    keys: Annotated[
        Path | None,
        option(DATA, "File with the slices that are wanted [default: found privately]."),
    ] = None
    user: Annotated[
        str, option(DATA, "Column that says who saw an impression.", metavar="COLUMN")
    ] = "user"
    time: Annotated[
        str, option(DATA, "Column with the time of an impression.", metavar="COLUMN")
    ] = "timestamp"
    unit: Annotated[
        str, option(PRIVACY, 'Who is protected: "user", or with --slice day e.g. "user per day".')
    ] = "user"
    max_frequency: Annotated[
        int, option(PRIVACY, "Highest frequency that is told apart.", least=1)
    ] = 10
    kind_column: Annotated[
        str | None,
        option(DATA, "Column with the kind of an impression, for --kind.", metavar="COLUMN"),
    ] = None
    kind: Annotated[
        list[str] | None, option(DATA, "Kind of impressions that count; repeat it.")
    ] = None


@taking_options
def count(options: CountOptions) -> None:
    """Count rows with noise, in all or by slices, within bounds on what one unit adds.

    The ledger is charged once; the same command gives back the stored numbers.
    """
    from tulle import measure

    with releasing(options) as (engine, say):
        result = measure.count(
            options.tables,
            epsilon=options.epsilon,
            unit=options.unit,
            by=options.slices or (),
            keys=options.keys,
            user=options.user,
            time=options.time,
            kinds=column_kinds(options.column_kind),
            max_per_slice=options.max_per_slice,
            max_slices_per_unit=options.max_slices_per_unit,
            max_per_unit=options.max_per_unit,
            delta=options.delta,
            noise=options.noise,
            confidence=options.confidence,
            output=options.output,
            form=options.form,
            **options.charge(),
            seed=options.seed,
            engine=engine,
            watch=say,
        )
    listed = [] if options.keys in (None, "private") else ["count"]
    print_measurement(result, listed=listed, form=options.form, as_json=options.as_json)


@taking_options
def reach(options: ReachOptions) -> None:
    """Measure reach, k+ reach and frequency, deduplicated over all files and publishers.

    One noisy histogram a slice gives all of them. The ledger is charged once; the same command
    gives back the stored numbers.
    """
    from tulle import measure

    if options.kind and options.kind_column is None:
        raise ConfigError("--kind needs --kind-column, the column with the kind of an impression.")
    with releasing(options) as (engine, say):
        result = measure.count_reach(
            options.tables,
            epsilon=options.epsilon,
            unit=options.unit,
            by=options.slices or (),
            keys=options.keys,
            user=options.user,
            time=options.time,
            kind_column=options.kind_column,
            only_kinds=options.kind or (),
            kinds=column_kinds(options.column_kind),
            max_slices_per_unit=options.max_slices_per_unit,
            max_frequency=options.max_frequency,
            delta=options.delta,
            output=options.output,
            form=options.form,
            **options.charge(),
            seed=options.seed,
            engine=engine,
            watch=say,
        )
    listed = [] if options.keys is None else ["reach"]
    print_measurement(result, listed=listed, form=options.form, as_json=options.as_json)


measure_app = typer.Typer(
    name="measure",
    help="Measure campaigns: attribution, slices, hierarchies, reach, browser APIs.",
    epilog="Start with: tulle measure plan campaigns.toml\n\n"
    "A synthetic log to try it on: tulle data synth impressions --rows 5000 --output log",
    no_args_is_help=True,
)
_add = functools.partial(measure_app.command, cls=PanelledCommand)
_add("run", epilog=_RUN_EPILOG)(run)
_add("plan", epilog=PLAN_EPILOG, context_settings={"token_normalize_func": present_plan_name})(plan)
_add("count", epilog=_COUNT_EPILOG)(count)
_add("reach", epilog=_REACH_EPILOG)(reach)
_add("attribute", epilog=ATTRIBUTE_EPILOG)(attribute)
_add("clips", epilog=CLIPS_EPILOG)(clips)
_add("w3c-conformance", epilog=W3C_CONFORMANCE_EPILOG)(w3c_conformance)
measure_app.add_typer(simulate_app)
