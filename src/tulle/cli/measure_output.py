"""Released tables in a terminal: what they say, how sure it is, what they cost."""

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from tulle.measure.queries.answer_table import AnswerTable
    from tulle.measure.queries.releasing import MeasureResult
    from tulle.report.card import Card

_MOST_ROWS = 20


def print_measurement(
    result: "MeasureResult", card: "Card", files: list[Path], *, as_json: bool
) -> None:
    """Prints all tables, the first rows of long ones, and where the rest is."""
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
            "answers": {table.name: _plain_rows(table) for table in result.record.tables},
        }
        typer.echo(json.dumps(facts, allow_nan=False))
        return
    for table in result.record.tables:
        _print_table(table)
    typer.echo(card.verdict)
    for path in (result.path, *files, result.path.with_name("card.md")):
        typer.echo(f"  {path}")
    if result.is_stored:
        typer.echo("nothing was spent: the stored measurement was returned.", err=True)


def _print_table(table: "AnswerTable") -> None:
    rows = table.frame.head(_MOST_ROWS).to_dicts()
    slices = [name for name in table.frame.columns if name not in _NUMBERS]
    typer.echo(f"{table.name} ({table.confidence:.0%} intervals)")
    lines = [[*(_shown_slice(row[name]) for name in slices), *_shown_numbers(row)] for row in rows]
    heads = [*slices, "number", "value", "from", "to"]
    widths = [max(len(line[place]) for line in [heads, *lines]) for place in range(len(heads))]
    num_texts = len(slices) + 1
    for line in [heads, *lines]:
        cells = [
            cell.ljust(width) if place < num_texts else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        typer.echo(f"  {'  '.join(cells)}".rstrip())
    if table.frame.height > _MOST_ROWS:
        typer.echo(f"  … {table.frame.height - _MOST_ROWS:,} more rows in the files")
    typer.echo("")


_NUMBERS = {"number", "value", "low", "high", "noise_stddev", "level", "nonnegative"}


def _shown_slice(value: str | None) -> str:
    return "(all)" if value is None else value


def _shown_numbers(row: dict[str, Any]) -> list[str]:
    return [row["number"], *(_shown(row[name]) for name in ("value", "low", "high"))]


def _shown(value: float) -> str:
    if not math.isfinite(value):
        return "-"
    return f"{value:,.1f}" if abs(value) >= 10 else f"{value:.4g}"


def _plain_rows(table: "AnswerTable") -> list[dict[str, Any]]:
    return [
        {
            name: None if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in row.items()
        }
        for row in table.frame.iter_rows(named=True)
    ]
