"""Released tables in a terminal: what they say, how sure it is, what they cost."""

import json
import math
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import typer

from tulle.errors import ConfigError

if TYPE_CHECKING:
    from tulle.measure.queries.answers import AnswerTable
    from tulle.measure.verbs import MeasureResult

_MOST_ROWS = 20
"""Most rows of a table that are printed; all are in the files."""


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
