"""Options that the commands of `tulle measure` share, and how a release is run for them."""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tulle.cli.clean_stop import stopping_cleanly
from tulle.cli.ledger_options import LedgerOptions
from tulle.cli.measure_progress import showing_steps
from tulle.errors import ConfigError

if TYPE_CHECKING:
    from tulle.measure.engines.engine import Engine

DATA, PRIVACY, ENGINE, OUTPUT = "Data", "Privacy", "Engine", "Output"
"""Headings that options stand under in the help."""

SettingsFile = Annotated[
    Path,
    typer.Argument(metavar="CONFIG.toml", help="Settings of the measurement; see docs/measure.md."),
]
AsJson = Annotated[
    bool, typer.Option("--json", help="Print one JSON object.", rich_help_panel=OUTPUT)
]
Quiet = Annotated[
    bool, typer.Option("--quiet", help="Show no progress on stderr.", rich_help_panel=OUTPUT)
]
ColumnKinds = Annotated[
    list[str] | None,
    typer.Option(
        "--column-kind",
        metavar="COLUMN=KIND",
        help="What a column holds where its values do not say it: timestamp (seconds) or integer "
        "(days) for a time, boolean for a slice; repeat it.",
        rich_help_panel=DATA,
    ),
]


@dataclasses.dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """Options of the engine that adds a log up."""

    engine: Annotated[
        str,
        typer.Option(
            help='Engine that adds up: duckdb, "local[2]" or the URL of a Spark master.',
            rich_help_panel=ENGINE,
        ),
    ] = "duckdb"
    memory_limit: Annotated[
        str | None,
        typer.Option(
            help="Memory of DuckDB, e.g. 4GB; above it DuckDB spills to disk.",
            rich_help_panel=ENGINE,
        ),
    ] = None
    spill_folder: Annotated[
        Path | None,
        typer.Option(
            help="Folder that DuckDB spills to. Raw rows lie in it meanwhile.",
            rich_help_panel=ENGINE,
        ),
    ] = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class MeasureRelease(LedgerOptions, EngineOptions):
    """Options of every command that measures with noise."""

    form: Annotated[
        str,
        typer.Option(
            "--format", help="Form of the tables: parquet or csv.", rich_help_panel=OUTPUT
        ),
    ] = "parquet"
    seed: Annotated[
        int | None,
        typer.Option(
            help="Seed that makes the noise repeatable. Then the release is not private.",
            min=0,
            rich_help_panel=PRIVACY,
        ),
    ] = None
    as_json: AsJson = False
    quiet: Quiet = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class TableRelease(MeasureRelease):
    """Options of every command that counts one table with noise."""

    tables: Annotated[
        list[Path],
        typer.Argument(
            metavar="TABLE...", help="Files with the rows: CSV, TSV, JSON lines, Parquet or Arrow."
        ),
    ]
    epsilon: Annotated[
        float,
        typer.Option(help="Epsilon that the release may cost one unit.", rich_help_panel=PRIVACY),
    ]
    output: Annotated[
        Path,
        typer.Option(
            help="Folder for measurement.json, the tables and the card.", rich_help_panel=OUTPUT
        ),
    ]
    slices: Annotated[
        list[str] | None,
        typer.Option(
            "--slice",
            metavar="COLUMN",
            help="Column whose values make slices, or day; repeat it.",
            rich_help_panel=DATA,
        ),
    ] = None
    delta: Annotated[
        float,
        typer.Option(
            help="Delta of the guarantee, for Gaussian noise and for slices found privately.",
            rich_help_panel=PRIVACY,
        ),
    ] = 0.0
    max_slices_per_unit: Annotated[
        int | None,
        typer.Option(min=1, help="Most slices that count of each unit.", rich_help_panel=PRIVACY),
    ] = None
    column_kind: ColumnKinds = None


@contextlib.contextmanager
def releasing(
    options: MeasureRelease, *, has_engine: bool = True
) -> "Iterator[tuple[Engine | str, Callable[[str], None]]]":
    """Opens the engine, shows progress, and ends in order if the command is stopped.

    Args:
      options: The options of the command.
      has_engine: False if nothing is added up here.
    """
    from tulle.measure import open_engine

    with (
        stopping_cleanly("stopped as asked, nothing is out; run the same command again."),
        showing_steps(quiet=options.quiet) as say,
    ):
        if not has_engine:
            yield options.engine, say
            return
        with open_engine(
            options.engine, memory_limit=options.memory_limit, spill_folder=options.spill_folder
        ) as engine:
            yield engine, say


def column_kinds(given: Sequence[str] | None) -> dict[str, str]:
    """Reads --column-kind COLUMN=KIND.

    Raises:
      ConfigError: One has no "=", or a column is named twice.
    """
    kinds: dict[str, str] = {}
    for text in given or ():
        column, separator, kind = text.rpartition("=")
        if not separator or not column:
            raise ConfigError(f"--column-kind {text} must be COLUMN=KIND, e.g. day=integer.")
        if column in kinds:
            raise ConfigError(f"--column-kind names {column!r} twice; name it once.")
        kinds[column] = kind
    return kinds
