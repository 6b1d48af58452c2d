"""Tables of a page, and how single values are shown in them."""

import dataclasses
import json
import math
from collections.abc import Sequence
from typing import TypeGuard

_LEAST_PLAIN, _MOST_PLAIN = 1e-4, 1e15
_DIGITS = 5
_MOST_SPREAD = 1e4
"""Largest ratio of sizes in a column whose numbers all have the same number of decimals."""

NOTHING = "–"
"""Text in a column of numbers where there is none."""


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
    """Fewest decimals that show all values with so many digits of the largest; None if sizes differ
    much."""
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
