"""The page of a measurement: released numbers, how sure they are, and what they cost.

Everything comes from the record of the measurement, which is public. Numbers stand as they were
released; sizes of slices are released sizes, never raw ones.
"""

import statistics
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tulle.accounting.accountant import pld_epsilon
from tulle.privacy.fields import null_if_infinite
from tulle.report.html.card_sections import card_page
from tulle.report.html.charts import Axis, Bar, BarChart, Curve, CurveChart
from tulle.report.html.page import Block, Figure, Page, Paragraph, Section
from tulle.report.html.tables import Table
from tulle.report.tree_figures import SUM, slice_name, tree_figures
from tulle.runs.card import Card

if TYPE_CHECKING:
    from tulle.measure.queries.answers import AnswerTable
    from tulle.measure.queries.measure_record import MeasureRecord

_ALL = "(all)"
_MOST_ROWS = 200
_MOST_NUMBERS = 6
_LEAST_TOGETHER = 4
"""Numbers of a single slice that share a chart; fewer have one each, as their scales differ."""


def measure_page(record: "MeasureRecord", card: Card) -> Page:
    """The page of a measurement.

    Privacy:
      Shows the record and the card alone; both are public.
    """
    sections = [section for table in record.tables for section in _table_sections(table)]
    return card_page(
        card,
        title=f"Measurement: {record.plan.name}",
        sections=[*sections, *_budget(record)],
        facts=_facts(record),
    )


def _facts(record: "MeasureRecord") -> list[tuple[str, str]]:
    """How much was released, and how sure half of it is."""
    rows = [row for table in record.tables for row in table.plain_rows()]
    facts = [("numbers", f"{len(rows):,}"), ("tables", f"{len(record.tables):,}")]
    errors = [error for row in rows if (error := _relative_error(row)) is not None]
    if errors:
        words = f"{statistics.median(errors):.0%} of the number"
        facts.append(("noise in numbers above 0, median", words))
    return facts


def _relative_error(row: Mapping[str, Any]) -> float | None:
    """Noise over released size; None where one of them is not known or 0."""
    value, stddev = row["value"], row["noise_stddev"]
    return stddev / value if value is not None and value > 0 and stddev else None


def _table_sections(table: "AnswerTable") -> list[Section]:
    rows = list(table.plain_rows())
    title = f"Released: {table.name}"
    if not rows:
        return [Section(title, (Paragraph("No slice had enough units to be found."),))]
    slices = table.slice_columns
    blocks: list[Block] = [
        Paragraph(f"An interval holds the bounded number with probability {table.confidence:.0%}.")
    ]
    numbers = list(dict.fromkeys(row["metric"] for row in rows))
    if len(numbers) == len(rows) >= _LEAST_TOGETHER:
        blocks.append(Figure(_one_slice_chart(table.name, rows)))
    else:
        for number in numbers[:_MOST_NUMBERS]:
            own = [row for row in rows if row["metric"] == number]
            blocks.append(Figure(_value_chart(number, own, slices)))
            blocks += tree_figures(number, own, slices)
        if more := len(numbers[_MOST_NUMBERS:]):
            blocks.append(Paragraph(f"{more} more kinds of numbers are in the table alone."))
    blocks += _error_figures(rows)
    blocks.append(_released_table(rows, slices))
    return [Section(title, tuple(blocks))]


def _value_chart(number: str, rows: Sequence[Mapping[str, Any]], slices: Sequence[str]) -> BarChart:
    bars = tuple(
        Bar(label=_slice_name(row, slices), value=row["value"], low=row["low"], high=row["high"])
        for row in rows
    )
    return BarChart(name=f"{number}, with intervals", value_name=number, bars=bars)


def _one_slice_chart(name: str, rows: Sequence[dict[str, Any]]) -> BarChart:
    """Many numbers of one slice, such as frequencies."""
    bars = tuple(
        Bar(label=row["metric"], value=row["value"], low=row["low"], high=row["high"])
        for row in rows
    )
    return BarChart(name=name, value_name="released numbers", bars=bars)


def _slice_name(row: Mapping[str, Any], slices: Sequence[str]) -> str:
    return slice_name(row, slices) if slices else _ALL


def _error_figures(rows: Sequence[dict[str, Any]]) -> list[Block]:
    """Relative error over released size, one cloud for each kind of number."""
    curves = []
    for number in dict.fromkeys(row["metric"] for row in rows):
        points = [
            (row["value"], error)
            for row in rows
            if row["metric"] == number and (error := _relative_error(row)) is not None
        ]
        xs, ys = tuple(x for x, _ in points), tuple(y for _, y in points)
        curves.append(Curve(label=number, xs=xs, ys=ys, has_line=False))
    if not any(curve.xs for curve in curves):
        return []
    chart = CurveChart(
        name="Relative error by size",
        x_axis=Axis(name="released number", is_log=True),
        y_axis=Axis(name="noise (standard deviation) over the number", is_log=True),
        curves=tuple(curves),
    )
    return [Figure(chart, "Numbers of 0 and below are left out.")]


def _released_table(rows: Sequence[dict[str, Any]], slices: Sequence[str]) -> Table:
    head = (*slices, "metric", "value", "low", "high", "noise_stddev")
    shown = tuple(
        tuple(SUM if name in slices and row[name] is None else row[name] for name in head)
        for row in rows[:_MOST_ROWS]
    )
    names = tuple(name.replace("noise_stddev", "noise (stddev)") for name in head)
    return Table(head=names, rows=shown, num_left_out=len(rows[_MOST_ROWS:]))


def _budget(record: "MeasureRecord") -> tuple[Section, ...]:
    """What each table costs on its own."""
    guarantee = record.plan.guarantee
    if not guarantee.is_private or not record.tables:
        return ()
    bars = tuple(
        Bar(
            label=table.name,
            value=null_if_infinite(pld_epsilon(table.event, guarantee.delta, guarantee.adjacency)),
        )
        for table in record.tables
    )
    chart = BarChart(name="Budget split", value_name="epsilon of the table alone", bars=bars)
    return (Section("Budget", (Figure(chart, f"At delta={guarantee.delta:g}."),)),)
