"""Options that the commands of `tulle measure` share, how a release is run, how it is printed."""

import contextlib
import dataclasses
import json
import math
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tulle.cli.options import (
    DATA,
    OUTPUT,
    PRIVACY,
    LedgerOptions,
    Quiet,
    json_schema_option,
    option,
)
from tulle.cli.terminal import showing_steps, stopping_cleanly
from tulle.errors import ConfigError

if TYPE_CHECKING:
    from tulle.measure.engines.engine import Engine
    from tulle.measure.queries.answers import AnswerTable
    from tulle.measure.verbs import MeasureResult

ENGINE = "Engine"
_MOST_ROWS = 20
"""Most rows of a table that are printed; all are in the files."""

SettingsFile = Annotated[
    Path,
    typer.Argument(metavar="CONFIG.toml", help="Settings of the measurement; see docs/measure.md."),
]
AsJson = Annotated[bool, option(OUTPUT, "Print one JSON object.", "--json")]
MeasureSchema = Annotated[
    bool,
    json_schema_option("tulle.measure.config_file:MeasureFile", "Settings of tulle measure"),
]
ColumnKinds = Annotated[
    list[str] | None,
    option(
        DATA,
        "What a column holds where its values do not say it: timestamp (seconds) or integer "
        "(days) for a time, boolean for a slice; repeat it.",
        "--column-kind",
        metavar="COLUMN=KIND",
    ),
]


@dataclasses.dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """Options of the engine that adds a log up."""

    engine: Annotated[
        str, option(ENGINE, 'Engine of the sums: duckdb, "local[2]" or the URL of a Spark master.')
    ] = "duckdb"
    memory_limit: Annotated[
        str | None, option(ENGINE, "Memory of DuckDB, e.g. 4GB; above it DuckDB spills to disk.")
    ] = None
    spill_folder: Annotated[
        Path | None, option(ENGINE, "Folder that DuckDB spills to. Raw rows lie in it meanwhile.")
    ] = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class MeasureRelease(LedgerOptions, EngineOptions):
    """Options of every command that measures with noise."""

    form: Annotated[str, option(OUTPUT, "Format of the tables: parquet or csv.", "--format")] = (
        "parquet"
    )
    seed: Annotated[
        int | None,
        option(
            PRIVACY,
            "Seed that makes the noise repeatable. Then the release is not private.",
            least=0,
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
    epsilon: Annotated[float, option(PRIVACY, "Epsilon that the release may cost one unit.")]
    output: Annotated[Path, option(OUTPUT, "Folder for measurement.json, the tables and the card.")]
    slices: Annotated[
        list[str] | None,
        option(
            DATA, "Column whose values make slices, or day; repeat it.", "--slice", metavar="COLUMN"
        ),
    ] = None
    delta: Annotated[
        float,
        option(
            PRIVACY, "Delta of the guarantee, for Gaussian noise and for slices found privately."
        ),
    ] = 0.0
    max_slices_per_unit: Annotated[
        int | None, option(PRIVACY, "Most slices that count of each unit.", least=1)
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
        stopping_cleanly(),
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


def print_measurement(
    result: "MeasureResult", *, listed: Collection[str], form: str, as_json: bool
) -> None:
    """Prints all tables, the first rows of long ones, and where the rest is.

    Args:
      result: What was released.
      listed: Tables whose slices were given: their sums are those of the given slices.
      form: The form of the files with the tables.
      as_json: Whether to print JSON.
    """
    from tulle.measure.queries.measure_record import table_paths

    if result.path is None:
        raise ConfigError("the measurement was not written; name its folder with --output.")
    card = result.card
    files = table_paths(result.record, result.path.parent, form=form)
    if as_json:
        facts = {
            "measurement": str(result.path),
            "tables": [str(path) for path in files],
            "card": str(result.path.with_name("card.json")),
            "epsilon": result.record.plan.guarantee.epsilon,
            "delta": result.record.plan.guarantee.delta,
            "unit": str(result.record.plan.guarantee.unit),
            "stored_before": result.is_stored,
            "verdict": card.verdict,
            "answers": {table.name: list(table.plain_rows()) for table in result.record.tables},
        }
        typer.echo(json.dumps(facts, allow_nan=False))
        return
    for table in result.record.tables:
        _print_table(table, sum_name(is_listed=table.name in listed))
    typer.echo(card.verdict)
    for path in (result.path, *files, result.path.with_name("card.md")):
        typer.echo(f"  {path}")
    if result.is_stored:
        typer.echo("nothing was spent: the stored measurement was returned.", err=True)


def sum_name(*, is_listed: bool) -> str:
    """What a slice that sums over a column is called: the sum is of the slices there are."""
    return "(listed)" if is_listed else "(found)"


def aligned_lines(lines: list[list[str]], *, num_texts: int) -> list[str]:
    """Cells below one another: the first `num_texts` to the left, numbers to the right."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if place < num_texts else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]


def _print_table(table: "AnswerTable", sum_of_slices: str) -> None:
    rows = table.frame.head(_MOST_ROWS).to_dicts()
    slices = table.slice_columns
    typer.echo(f"{table.name} ({table.confidence:.0%} intervals)")
    if not rows:
        typer.echo("  no slice had enough units to be found\n")
        return
    decimals = _decimals(rows)
    lines = [[*slices, "metric", "value", "low", "high"]]
    for row in rows:
        texts = [sum_of_slices if row[name] is None else row[name] for name in slices]
        numbers = [_shown(row[name], decimals[row["metric"]]) for name in ("value", "low", "high")]
        lines.append([*texts, row["metric"], *numbers])
    for line in aligned_lines(lines, num_texts=len(slices) + 1):
        typer.echo(f"  {line}")
    if table.frame.height > _MOST_ROWS:
        typer.echo(f"  … {table.frame.height - _MOST_ROWS:,} more rows in the files")
    typer.echo("")


def _decimals(rows: list[dict[str, Any]]) -> dict[str, int]:
    """Decimals by metric: two digits of its least noise. More would say nothing."""
    least: dict[str, float] = {}
    for row in rows:
        stddev = row["noise_stddev"]
        if math.isfinite(stddev) and stddev > 0:
            least[row["metric"]] = min(stddev, least.get(row["metric"], math.inf))
    return {
        row["metric"]: min(6, max(0, 1 - math.floor(math.log10(least.get(row["metric"], 1.0)))))
        for row in rows
    }


def _shown(value: float, decimals: int) -> str:
    if not math.isfinite(value):
        return "-"
    return f"{round(value, decimals) + 0.0:,.{decimals}f}"  # no minus before a zero
