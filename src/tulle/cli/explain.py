"""`tulle explain`: what a model of tables looks at, effects of values, and one prediction."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tulle.cli.export import Model
from tulle.cli.options import taking_options
from tulle.cli.terminal import print_facts

if TYPE_CHECKING:
    from tulle.train.explanation import Explanation

EXPLAIN_EPILOG = (
    "Example: tulle explain model --output explanation.html"
    "\n\nExample: tulle explain model --column campaign --values catalogue.csv"
    '\n\nExample: tulle explain model --row \'{"campaign": 7, "device": "phone"}\''
)
_MOST_SHOWN = 20
"""Lines of tables, effects or contributions on a terminal; files and JSON have all of them."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExplainOptions:
    """Options of an explanation."""

    model: Model
    column: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Show the effect of each value of a column; given twice, of each combination.",
        ),
    ] = None
    row: Annotated[
        str | None,
        typer.Option(
            metavar="JSON|FILE",
            help="Take the prediction of one row apart: a JSON object of its columns, or a file "
            "with one row.",
        ),
    ] = None
    values: Annotated[
        Path | None,
        typer.Option(
            metavar="DATA",
            help="A public table whose values give hashed bins their names, such as a catalogue.",
        ),
    ] = None
    output: Annotated[
        Path | None, typer.Option(help="A page (.html) or plain data (.json) of all of it.")
    ] = None
    part: Annotated[
        str | None,
        typer.Option(help="Class, or part of an expected value; the first one unless it is said."),
    ] = None
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False


@taking_options
def explain(options: ExplainOptions) -> None:
    """Show what a model of tables looks at, what each value adds, and one prediction.

    The model is a sum of tables, so that nothing is estimated: tables with their share of the
    noise budget, effects in log odds with 95% posterior intervals, and the sum behind a
    prediction. Only what the model holds is shown, and names of public values that you give.
    """
    from tulle.data.tables.rows import one_row_of
    from tulle.report import write_explanation
    from tulle.train.regressor import load_estimator

    explanation = load_estimator(options.model).explain(values=options.values)
    if options.part is not None:
        explanation = explanation.of(options.part)
    columns = tuple(options.column or ())
    row = None if options.row is None else one_row_of(options.row)
    facts = explanation.to_dict(columns=columns, row=row)
    if options.output is not None:
        written = write_explanation(explanation, options.output, columns=columns, row=row)
        facts["output"] = str(written)
    if options.as_json:
        print_facts(facts, as_json=True)
    else:
        _print_tables(explanation)
        _print_effects(columns, facts.get("effects", ()))
        _print_contributions(facts.get("contributions"))
        if options.output is not None:
            typer.echo(f"written: {options.output}")


def _print_tables(explanation: "Explanation") -> None:
    if not explanation.tables:
        typer.echo(
            "no tables: none showed more than noise would show, so that every row gets the same "
            f"prediction; log odds are {explanation.bias:.4f}"
        )
        return
    part = f"{explanation.part}: " if explanation.part else ""
    number, bias = len(explanation.tables), explanation.bias
    typer.echo(f"{part}{number:,} tables; log odds start at {bias:.4f}")
    lines = [("table", "importance", "share of budget", "cells")]
    for table in explanation.tables[:_MOST_SHOWN]:
        share = "unknown" if table.share is None else f"{100 * table.share:.1f}%"
        lines.append((table.name, f"{table.importance:.4f}", share, f"{table.num_cells:,}"))
    _print_lines(lines, num_more=len(explanation.tables) - _MOST_SHOWN)


def _print_effects(columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> None:
    if not rows:
        return
    typer.echo("\neffects in log odds")
    lines: list[tuple[str, ...]] = [(" × ".join(columns), "effect", "low", "high")]
    for row in rows[:_MOST_SHOWN]:
        numbers = (_number(row[name]) for name in ("effect", "low", "high"))
        lines.append((" × ".join(row[name] for name in columns), *numbers))
    _print_lines(lines, num_more=len(rows) - _MOST_SHOWN)


def _print_contributions(found: Mapping[str, Any] | None) -> None:
    if found is None:
        return
    typer.echo("\ncontributions in log odds")
    lines: list[tuple[str, ...]] = [("", "adds", "low", "high")]
    lines.append(("start", _number(found["bias"]), "", ""))
    parts = sorted(found["contributions"], key=lambda one: -abs(one["effect"]))
    for one in parts[:_MOST_SHOWN]:
        numbers = (_number(one[name]) for name in ("effect", "low", "high"))
        lines.append((f"{one['table']} = {', '.join(one['values'])}", *numbers))
    probability = found["probability"]
    end = "sum" if probability is None else f"sum, probability {probability:.4f}"
    lines.append((end, _number(found["log_odds"]), "", ""))
    _print_lines(lines, num_more=len(parts) - _MOST_SHOWN)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"


def _print_lines(lines: Sequence[tuple[str, ...]], *, num_more: int) -> None:
    """Columns below one another: the first to the left, numbers to the right."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for first, *others in lines:
        numbers = "  ".join(
            text.rjust(width) for text, width in zip(others, widths[1:], strict=True)
        )
        typer.echo(f"{first.ljust(widths[0])}  {numbers}".rstrip())
    if num_more > 0:
        typer.echo(f"and {num_more:,} more; --json and --output have all of them")
