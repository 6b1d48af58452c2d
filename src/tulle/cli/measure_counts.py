"""`tulle measure count` and `tulle measure reach`: rows or people of one table, with noise."""

import dataclasses
from pathlib import Path
from typing import Annotated

import typer

from tulle.cli.measure_options import DATA, PRIVACY, TableRelease, column_kinds, releasing
from tulle.cli.measure_output import print_measurement
from tulle.cli.option_class import command_taking
from tulle.errors import ConfigError

COUNT_EPILOG = (
    "Example: tulle measure count log.csv --unit impression --epsilon 1 --output counts"
    "\n\nExample: tulle measure count log.parquet --unit user --user user_id --epsilon 1 "
    "--slice campaign --keys campaigns.csv --max-per-slice 2 --max-slices-per-unit 3 "
    "--output counts"
)
REACH_EPILOG = (
    "Example: tulle measure reach impressions.parquet --epsilon 1 --output reach"
    "\n\nExample: tulle measure reach impressions.parquet --epsilon 1 --slice publisher --keys "
    "publishers.csv --max-slices-per-unit 3 --output reach --ledger ledger.db"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class CountOptions(TableRelease):
    """Options of a count of rows."""

    unit: Annotated[
        str,
        typer.Option(
            help='Who is protected: impression or row, or e.g. "user per 7 days".',
            rich_help_panel=PRIVACY,
        ),
    ]
    keys: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help='File with the slices that are wanted, or "private" to find them privately.',
            rich_help_panel=DATA,
        ),
    ] = None
    user: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN", help="Column that says whose a row is.", rich_help_panel=DATA
        ),
    ] = None
    time: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="Column with the time of a row.", rich_help_panel=DATA),
    ] = None
    max_per_slice: Annotated[
        float | None,
        typer.Option(help="Most rows of a unit that one slice counts.", rich_help_panel=PRIVACY),
    ] = None
    max_per_unit: Annotated[
        float | None,
        typer.Option(help="Most rows of a unit in all slices.", rich_help_panel=PRIVACY),
    ] = None
    noise: Annotated[
        str, typer.Option(help="Law of the noise: laplace or gaussian.", rich_help_panel=PRIVACY)
    ] = "laplace"
    confidence: Annotated[
        float,
        typer.Option(
            help="Probability with which an interval holds its number.", rich_help_panel=PRIVACY
        ),
    ] = 0.95


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReachOptions(TableRelease):
    """Options of a measurement of reach."""

    keys: Annotated[
        Path | None,
        typer.Option(
            help="File with the slices that are wanted [default: found privately].",
            rich_help_panel=DATA,
        ),
    ] = None
    user: Annotated[
        str,
        typer.Option(
            metavar="COLUMN", help="Column that says who saw an impression.", rich_help_panel=DATA
        ),
    ] = "user"
    time: Annotated[
        str,
        typer.Option(
            metavar="COLUMN", help="Column with the time of an impression.", rich_help_panel=DATA
        ),
    ] = "timestamp"
    unit: Annotated[
        str,
        typer.Option(
            help='Who is protected: "user", or with --slice day e.g. "user per day".',
            rich_help_panel=PRIVACY,
        ),
    ] = "user"
    max_frequency: Annotated[
        int,
        typer.Option(min=1, help="Highest frequency that is told apart.", rich_help_panel=PRIVACY),
    ] = 10
    kind_column: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Column with the kind of an impression, for --kind.",
            rich_help_panel=DATA,
        ),
    ] = None
    kind: Annotated[
        list[str] | None,
        typer.Option(help="Kind of impressions that count; repeat it.", rich_help_panel=DATA),
    ] = None


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
            ledger=options.ledger,
            purpose=options.purpose,
            at=options.at,
            until=options.until,
            again=options.again,
            seed=options.seed,
            engine=engine,
            watch=say,
        )
    listed = [] if options.keys in (None, "private") else ["count"]
    print_measurement(result, listed=listed, form=options.form, as_json=options.as_json)


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
            ledger=options.ledger,
            purpose=options.purpose,
            at=options.at,
            until=options.until,
            again=options.again,
            seed=options.seed,
            engine=engine,
            watch=say,
        )
    listed = [] if options.keys is None else ["reach"]
    print_measurement(result, listed=listed, form=options.form, as_json=options.as_json)


count_command = command_taking(CountOptions, count)
reach_command = command_taking(ReachOptions, reach)
