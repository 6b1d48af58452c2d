"""The page of a measurement: released numbers, how sure they are, and what they cost.

Everything comes from the record of the measurement, which is public. Numbers stand as they were
released; sizes of slices are released sizes, never raw ones.
"""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tulle.accounting.accountant import pld_epsilon
from tulle.privacy.fields import null_if_infinite
from tulle.report.html.card_sections import card_page
from tulle.report.html.charts import Axis, Bar, BarChart, Curve, CurveChart, Table
from tulle.report.html.page import Block, Figure, Page, Paragraph, Section
from tulle.runs.card import Card

if TYPE_CHECKING:
    from tulle.measure import ExpectedErrors
    from tulle.measure.queries.answers import AnswerTable
    from tulle.measure.queries.measure_record import MeasureRecord

_ALL = "(all)"
# What a page can show and still be read; it says how much is left out, and the files have it all.
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


def expected_error_chart(errors: "Sequence[ExpectedErrors]", *, tau: float) -> CurveChart:
    """Relative error against slice size: one dot for each slice, and a line where tau is.

    Args:
      errors: Expected errors of a plan; queries without known slices are left out.
      tau: Sizes below it are judged as if they were this.
    """
    curves = [
        Curve(
            label=f"{found.query}: {found.label}",
            # A slice of 0 has no place on a logarithmic axis; it is drawn at the left edge.
            xs=tuple(max(1.0, float(size)) for size in found.slices["expected"]),
            ys=tuple(map(float, found.slices["relative_error"])),
            has_line=False,
        )
        for found in errors
        if found.slices is not None
    ]
    heights = [y for curve in curves for y in curve.ys] or [0.1, 1.0]
    limit = Curve(
        label=f"tau = {tau:g}", xs=(tau, tau), ys=(min(heights), max(heights)), is_reference=True
    )
    return CurveChart(
        name="Expected relative error",
        x_axis=Axis(name="expected count of the slice", is_log=True),
        y_axis=Axis(name="expected relative error", is_log=True),
        curves=(*curves, limit),
    )


SUM = "(sum)"
"""Label of the row that totals all slices that are listed or were found."""
_BEFORE, _AFTER = "as measured", "consistent"
_MOST_PARENTS = 15
"""Pairs of bars that fit a chart; the text below says how many there are."""
_ROUNDING = 1e-9
"""Share of a number's size below which what is left over comes from rounding."""

Row = Mapping[str, Any]


def tree_figures(name: str, rows: Sequence[Row], slices: Sequence[str]) -> list[Block]:
    """The figures of one kind of number; none if its rows are of no hierarchy.

    Args:
      name: Name of table and number.
      rows: Rows of the released table, one kind of number.
      slices: The columns that say which slice a row is about.
    """
    if not rows or not {"level", "measured_stddev"} & rows[0].keys():
        return []
    groups = _levels(rows, slices)
    return [*_noise(name, groups), *_totals(name, groups), *_gaps(name, rows, slices)]


def slice_name(row: Row, slices: Sequence[str]) -> str:
    """A slice in words."""
    return ", ".join(str(row[name]) for name in slices if row[name] is not None) or SUM


def _levels(rows: Sequence[Row], slices: Sequence[str]) -> dict[str, list[Row]]:
    """The rows of each level by its name, from the top."""
    if "level" not in rows[0]:
        return {f"by {', '.join(slices)}": list(rows)}
    groups = {}
    for level in sorted({row["level"] for row in rows}):
        own = [row for row in rows if row["level"] == level]
        by = [column for column in slices if any(row[column] is not None for row in own)]
        groups[f"by {', '.join(by)}" if by else SUM] = own
    return groups


def _noise(name: str, groups: Mapping[str, Sequence[Row]]) -> list[Block]:
    bars = []
    for label, rows in groups.items():
        before, after = _spread(rows, "measured_stddev"), _spread(rows, "noise_stddev")
        bars += _around(f"{label}, {_BEFORE}", before, None, is_muted=True)
        bars += _around(f"{label}, {_AFTER}", after, None)
    if not any(bar.is_muted for bar in bars) and len(groups) < 2:
        return []
    return _figure(
        f"{name}: noise by level, before and after",
        "standard deviation of one number",
        bars,
        "Levels tell about each other, so consistent numbers are surer.",
    )


def _totals(name: str, groups: Mapping[str, Sequence[Row]]) -> list[Block]:
    """What each level sums to; consistent ones are sums of the top, with its noise."""
    if len(groups) < 2:
        return []
    top = next(iter(groups.values()))
    top_stddev = _sum_stddev(top, "noise_stddev")
    bars = []
    for label, rows in groups.items():
        bars += _around(
            f"{label}, {_BEFORE}",
            _total(rows, "measured_value"),
            _sum_stddev(rows, "measured_stddev"),
            is_muted=True,
        )
        bars += _around(f"{label}, {_AFTER}", _total(rows, "value"), top_stddev)
    bars += _around("every level, none below 0 (biased)", _total(top, "nonnegative"), None)
    return _figure(
        f"{name}: total of each level, before and after",
        "sum of the level, give or take one standard deviation",
        bars,
        "Consistent levels all sum to the same.",
    )


def _gaps(name: str, rows: Sequence[Row], slices: Sequence[str]) -> list[Block]:
    """How far the parts of a number were from it, one bar for each number with parts."""
    if "level" not in rows[0] or "measured_value" not in rows[0]:
        return []
    bars, left = [], 0.0
    for parent, children in _families(rows, slices):
        family = [parent, *children]
        before = _gap(parent, children, "measured_value")
        after = _gap(parent, children, "value")
        if before is None or after is None:
            continue
        size = max(abs(row["value"]) for row in family)
        left = max(left, abs(after) if abs(after) > _ROUNDING * max(size, 1.0) else 0.0)
        label = f"{slice_name(parent, slices)}, {len(children)} parts"
        bars += _around(label, before, _sum_stddev(family, "measured_stddev"), is_muted=True)
    shown = bars[:_MOST_PARENTS]
    more = f" The first {len(shown)} of {len(bars):,}." if len(bars) > len(shown) else ""
    return _figure(
        f"{name}: sum of the parts less the whole, as measured",
        "gap, give or take one standard deviation",
        shown,
        f"After consistency the largest gap is {left:g}.{more}",
    )


def _families(rows: Sequence[Row], slices: Sequence[str]) -> Iterable[tuple[Row, list[Row]]]:
    """Each number that has parts, with them."""
    by_level: dict[int, list[Row]] = {}
    for row in rows:
        by_level.setdefault(row["level"], []).append(row)
    for level, parents in by_level.items():
        columns = [name for name in slices if any(row[name] is not None for row in parents)]
        parts: dict[tuple[Any, ...], list[Row]] = {}
        for row in by_level.get(level + 1, ()):
            parts.setdefault(tuple(row[name] for name in columns), []).append(row)
        for parent in parents:
            children = parts.get(tuple(parent[name] for name in columns))
            if children:
                yield parent, children


def _gap(parent: Row, children: Sequence[Row], key: str) -> float | None:
    whole, parts = parent[key], _total(children, key)
    return None if whole is None or parts is None else parts - whole


def _around(
    label: str, value: float | None, stddev: float | None, *, is_muted: bool = False
) -> list[Bar]:
    """A bar with its spread; none where nothing is known."""
    if value is None:
        return []
    low, high = (None, None) if stddev is None else (value - stddev, value + stddev)
    return [Bar(label=label, value=value, low=low, high=high, is_muted=is_muted)]


def _total(rows: Sequence[Row], key: str) -> float | None:
    """Sum of a column; None if one of its numbers is not known."""
    values = [row.get(key) for row in rows]
    return None if None in values else math.fsum(v for v in values if v is not None)


def _sum_stddev(rows: Sequence[Row], key: str) -> float | None:
    """Standard deviation of a sum of numbers with independent noise; None if one is not known."""
    values = [row.get(key) for row in rows]
    return None if None in values else math.hypot(*(v for v in values if v is not None))


def _spread(rows: Sequence[Row], key: str) -> float | None:
    """Root of the mean variance, of those that are known."""
    known = [row[key] for row in rows if row.get(key) is not None]
    return math.hypot(*known) / math.sqrt(len(known)) if known else None


def _figure(name: str, value_name: str, bars: Sequence[Bar], caption: str) -> list[Block]:
    if not bars:
        return []
    return [Figure(BarChart(name=name, value_name=value_name, bars=tuple(bars)), caption)]
