"""Charts and tables as data: what is drawn, and the same numbers as a table.

Neither knows anything of HTML. Whoever cannot see a chart reads its table.
"""

import dataclasses
import itertools
import json
import math
from collections.abc import Sequence
from typing import TypeGuard

from tulle.errors import DataError

_LEAST_PLAIN, _MOST_PLAIN = 1e-4, 1e15
"""Sizes between which a number is written without an exponent."""
_DIGITS = 5
"""Digits of a number in a table."""
_MOST_SPREAD = 1e4
"""Largest ratio of sizes in a column whose numbers all have the same number of decimals."""
NOTHING = "–"
"""Text in a column of numbers where there is none."""
MOST_BARS = 30
"""Most bars of one chart; more do not fit a phone."""
_MOST_ROWS = 200
"""Most rows of the table below a chart."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Table:
    """Rows of plain values under a head."""

    head: tuple[str, ...]
    rows: tuple[tuple[object, ...], ...]
    num_left_out: int = 0
    """Rows that are not shown here."""


def shown(value: object) -> str:
    """A value as a reader wants it: short, and the same everywhere."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return value
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return short_number(value)
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def shown_column(values: Sequence[object]) -> list[str]:
    """The values of a column; numbers have as many decimals, so that points are below points."""
    numbers = [value for value in values if is_number(value)]
    if len(numbers) + list(values).count(None) < len(values) or not numbers:
        return [shown(value) for value in values]
    if all(isinstance(value, int) for value in numbers):
        return [NOTHING if value is None else shown(value) for value in values]
    decimals = common_decimals(numbers)
    return [number_text(value, decimals) if is_number(value) else NOTHING for value in values]


def common_decimals(values: Sequence[float], *, digits: int = _DIGITS) -> int | None:
    """Fewest decimals that show so many digits of the largest value; None if sizes differ much."""
    sizes = [abs(value) for value in values if math.isfinite(value) and value != 0]
    if not sizes:
        return 0
    least, most = min(sizes), max(sizes)
    if least < _LEAST_PLAIN or most >= _MOST_PLAIN or most > _MOST_SPREAD * least:
        return None
    # Two digits of the smallest, however large the others are.
    needed = max(digits - 1 - math.floor(math.log10(most)), 1 - math.floor(math.log10(least)), 0)
    rounded = [round(value, needed) for value in sizes]
    return next(
        decimals
        for decimals in range(needed + 1)
        if all(round(value, decimals) == value for value in rounded)
    )


def number_text(value: float, decimals: int | None) -> str:
    """A number with so many decimals, and commas between thousands; None: five digits."""
    if decimals is None or not math.isfinite(value):
        return short_number(value)
    return f"{round(value, decimals) + 0.0:,.{decimals}f}"


def short_number(value: float) -> str:
    """Five digits, with commas between thousands."""
    if not math.isfinite(value):
        return "none"
    size = abs(value)
    if value == 0 or not _LEAST_PLAIN <= size < _MOST_PLAIN:
        return f"{value + 0.0:.4g}"
    decimals = max(0, _DIGITS - 1 - math.floor(math.log10(size)))
    text = f"{value:,.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def is_number(value: object) -> TypeGuard[int | float]:
    """Whether a value is a number, which true and false are not."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bar:
    """One value with the range that holds it. None where nothing is known."""

    label: str
    value: float | None
    low: float | None = None
    high: float | None = None
    is_muted: bool = False
    """Whether the bar is drawn paler, as what others are compared with."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class BarChart:
    """Bars below one another; only the first `MOST_BARS` are drawn."""

    name: str
    value_name: str
    bars: tuple[Bar, ...]
    is_percent: bool = False

    def __post_init__(self) -> None:
        if not self.bars:
            raise DataError(f"chart {self.name!r} has no bar; leave it out.")

    def to_table(self) -> Table:
        """The same numbers."""
        has_ranges = any(bar.low is not None or bar.high is not None for bar in self.bars)
        head = ("", self.value_name, "low", "high") if has_ranges else ("", self.value_name)
        rows = [(bar.label, bar.value, bar.low, bar.high)[: len(head)] for bar in self.bars]
        return _cut_table(head, rows)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Axis:
    """What an axis shows."""

    name: str
    is_log: bool = False
    is_percent: bool = False
    low: float | None = None
    """Least value at which the axis begins; values below it are cut off."""
    high: float | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Curve:
    """Points of one kind, joined or not."""

    label: str
    xs: tuple[float, ...]
    ys: tuple[float, ...]
    has_line: bool = True
    ranges: tuple[tuple[float, float], ...] = ()
    """Low and high around each value; empty where none are known."""
    is_reference: bool = False
    """A grey line that others are compared with."""

    def __post_init__(self) -> None:
        for found in (self.ys, self.ranges or self.ys):
            if len(self.xs) != len(found):
                raise DataError(
                    f"{self.label!r} has {len(found)} values for {len(self.xs)} places; give as "
                    "many."
                )


@dataclasses.dataclass(frozen=True, kw_only=True)
class CurveChart:
    """Curves over one axis. Those without points are left out."""

    name: str
    x_axis: Axis
    y_axis: Axis
    curves: tuple[Curve, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "curves", tuple(curve for curve in self.curves if curve.xs))
        if not self.curves:
            raise DataError(f"chart {self.name!r} has no point; leave it out.")

    def to_table(self) -> Table:
        """One row a place where every curve has one plain value there at most, else one a point."""
        has_ranges = any(curve.ranges for curve in self.curves)
        if has_ranges or any(len(set(curve.xs)) < len(curve.xs) for curve in self.curves):
            head = ("", self.x_axis.name, self.y_axis.name, "low", "high")[: 5 if has_ranges else 3]
            rows: list[tuple[object, ...]] = [
                (curve.label, x, y, *ends)[: len(head)]
                for curve in self.curves
                for x, y, ends in zip(
                    curve.xs, curve.ys, curve.ranges or [(None, None)] * len(curve.xs), strict=True
                )
            ]
            return _cut_table(head, rows)
        values = [dict(zip(curve.xs, curve.ys, strict=True)) for curve in self.curves]
        places = sorted({x for curve in self.curves for x in curve.xs})
        rows = [(x, *(found.get(x) for found in values)) for x in places]
        return _cut_table((self.x_axis.name, *(curve.label for curve in self.curves)), rows)


@dataclasses.dataclass(frozen=True, kw_only=True)
class MatrixChart:
    """Probabilities as shades: one row for each input, one column for each output."""

    name: str
    row_name: str
    column_name: str
    row_labels: tuple[str, ...]
    column_labels: tuple[str, ...]
    values: tuple[tuple[float, ...], ...]

    def __post_init__(self) -> None:
        shape = {len(row) for row in self.values}
        if len(self.values) != len(self.row_labels) or shape != {len(self.column_labels)}:
            raise DataError(f"chart {self.name!r} needs one value for each row and column.")

    def to_table(self) -> Table:
        """The same numbers."""
        rows = [
            (label, *values) for label, values in zip(self.row_labels, self.values, strict=True)
        ]
        return _cut_table((f"{self.row_name} \\ {self.column_name}", *self.column_labels), rows)


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepChart:
    """One level for each of several values that lie side by side, with the range that holds it."""

    name: str
    x_name: str
    y_name: str
    bars: tuple[Bar, ...]
    """The values in their order; every one has a value."""
    num_joined: int
    """Number of values from the first on that follow one another, as hours do; steps join them.
    Those behind, such as a missing value, stand apart."""

    def __post_init__(self) -> None:
        if not self.bars:
            raise DataError(f"chart {self.name!r} has no step; leave it out.")

    def to_table(self) -> Table:
        """The same numbers."""
        rows = [(bar.label, bar.value, bar.low, bar.high) for bar in self.bars]
        return _cut_table((self.x_name, self.y_name, "low", "high"), rows)


@dataclasses.dataclass(frozen=True, kw_only=True)
class HeatChart:
    """Numbers around 0 as shades of two colors: one row and one column for each combination."""

    name: str
    row_name: str
    column_name: str
    value_name: str
    row_labels: tuple[str, ...]
    column_labels: tuple[str, ...]
    values: tuple[tuple[float, ...], ...]
    ranges: tuple[tuple[tuple[float, float], ...], ...] = ()
    """Low and high around each value; empty where none are known."""

    def __post_init__(self) -> None:
        shape = {len(row) for row in self.values}
        if len(self.values) != len(self.row_labels) or shape != {len(self.column_labels)}:
            raise DataError(f"chart {self.name!r} needs one value for each row and column.")

    def to_table(self) -> Table:
        """The same numbers, one row a combination."""
        head = (self.row_name, self.column_name, self.value_name, "low", "high")
        rows: list[tuple[object, ...]] = []
        for row, values in enumerate(self.values):
            for column, value in enumerate(values):
                ends = self.ranges[row][column] if self.ranges else ()
                labels = self.row_labels[row], self.column_labels[column]
                rows.append((*labels, value, *ends))
        return _cut_table(head if self.ranges else head[:3], rows)


@dataclasses.dataclass(frozen=True, kw_only=True)
class WaterfallChart:
    """A sum, one part below the other: where it starts, what each part adds, where it ends."""

    name: str
    value_name: str
    start_label: str
    start: float
    parts: tuple[Bar, ...]
    """What is added; the value of each bar is its change of the sum."""
    end_label: str

    @property
    def sums(self) -> tuple[float, ...]:
        """The sum before the first part and after each."""
        changes = (bar.value or 0.0 for bar in self.parts)
        return tuple(itertools.accumulate(changes, initial=self.start))

    def to_table(self) -> Table:
        """The same numbers."""
        rows: list[tuple[object, ...]] = [(self.start_label, None, None, None, self.start)]
        rows += [
            (bar.label, bar.value, bar.low, bar.high, after)
            for bar, after in zip(self.parts, self.sums[1:], strict=True)
        ]
        rows.append((self.end_label, None, None, None, self.sums[-1]))
        return _cut_table(("", "change", "low", "high", self.value_name), rows)


Chart = BarChart | CurveChart | MatrixChart | StepChart | HeatChart | WaterfallChart


def _cut_table(head: Sequence[str], rows: Sequence[tuple[object, ...]]) -> Table:
    return Table(
        head=tuple(head), rows=tuple(rows[:_MOST_ROWS]), num_left_out=len(rows[_MOST_ROWS:])
    )
