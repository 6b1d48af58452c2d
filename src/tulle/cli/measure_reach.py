"""`tulle measure reach`: how many people saw ads, and how often."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

import typer

from tulle.cli.measure_run import EngineOptions, ReleaseOutput, release
from tulle.cli.option_class import command_taking
from tulle.errors import ConfigError

if TYPE_CHECKING:
    from tulle.measure.config.config_file import ConfigFile
    from tulle.measure.slice_jobs import SliceColumn

REACH_EPILOG = (
    "Example: tulle measure reach impressions.parquet --epsilon 1 --out reach"
    "\n\nExample: tulle measure reach impressions.parquet --epsilon 1 --slice publisher --keys "
    "publishers.csv --max-slices-per-unit 3 --out reach --ledger ledger.db"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReachOptions(ReleaseOutput, EngineOptions):
    """Options of a measurement of reach."""

    epsilon_setting: ClassVar[str] = "--epsilon"
    impressions: Annotated[
        list[Path], typer.Argument(metavar="TABLE...", help="CSV or Parquet files.")
    ]
    epsilon: Annotated[float, typer.Option(help="What the release may cost one unit.")]
    out: Annotated[Path, typer.Option(help="Folder for measurement.json, tables and card.")]
    user: Annotated[str, typer.Option(metavar="COLUMN", help="Whose impressions.")] = "user"
    time: Annotated[str, typer.Option(metavar="COLUMN", help="When.")] = "timestamp"
    unit: Annotated[
        str,
        typer.Option(help='Who is protected: "user", or with --slice day e.g. "user per day".'),
    ] = "user"
    slices: Annotated[
        list[str] | None,
        typer.Option(
            "--slice", metavar="COLUMN", help="Reach by this column, or by day; repeat it."
        ),
    ] = None
    keys: Annotated[
        Path | None,
        typer.Option(help="CSV or Parquet with the slices that are wanted [default: private]."),
    ] = None
    delta: Annotated[float, typer.Option(help="For finding slices privately, without --keys.")] = (
        0.0
    )
    max_slices_per_unit: Annotated[
        int | None, typer.Option(min=1, help="Slices that count of each unit, with --slice.")
    ] = None
    max_frequency: Annotated[
        int, typer.Option(min=1, help="More impressions count as this many.")
    ] = 10
    kind_column: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Kind of an impression, for --kind.")
    ] = None
    kind: Annotated[
        list[str] | None, typer.Option(help="Only impressions of this kind; repeat it.")
    ] = None


def reach(options: ReachOptions) -> None:
    """Measure reach, k+ reach and frequency, deduplicated over all files and publishers.

    One noisy histogram a slice gives all of them. The ledger is charged once; the same command
    gives back the stored numbers.
    """
    release(_settings(options), options.out, options, options)


def _settings(options: ReachOptions) -> "ConfigFile":
    from tulle.measure.ad_log import AdLog, FileTable, LogColumns
    from tulle.measure.config.config_file import ConfigFile
    from tulle.measure.config.query_table import keys_from_file
    from tulle.measure.queries.measure_config import MeasureConfig
    from tulle.measure.queries.query import Quantity, Query
    from tulle.privacy.units import Unit

    if options.kind and options.kind_column is None:
        raise ConfigError("--kind needs --kind-column, the column with the kind of an impression.")
    names = options.slices or []
    query = Query(
        name="reach",
        quantity=Quantity.REACH,
        slices=tuple(_slice(name, options.time) for name in names),
        keys=None if options.keys is None else keys_from_file("--keys", options.keys, names),
        base_kinds=tuple(options.kind or ()),
        max_frequency=options.max_frequency,
        max_slices_per_unit=options.max_slices_per_unit,
    )
    columns = LogColumns(user=options.user, impression_time=options.time, kind=options.kind_column)
    config = MeasureConfig(
        name="reach",
        log=AdLog(
            impressions=FileTable(paths=tuple(options.impressions)),
            conversions=None,
            columns=columns,
        ),
        attribution=None,
        unit=Unit.parse(options.unit),
        epsilon=options.epsilon,
        delta=options.delta,
        queries=(query,),
    )
    return ConfigFile(config=config, history_paths={})


def _slice(name: str, time_column: str) -> "SliceColumn":
    from tulle.measure.ad_log import Side
    from tulle.measure.slice_jobs import SliceColumn

    is_day = name == "day"
    column = time_column if is_day else name
    return SliceColumn(name=name, side=Side.IMPRESSION, column=column, is_day=is_day)


reach_command = command_taking(ReachOptions, reach)
