"""Tables of a page, and how single values are shown in them."""

import dataclasses
import json
import math
from typing import TypeGuard

_LEAST_PLAIN, _MOST_PLAIN = 1e-4, 1e15


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


def short_number(value: float) -> str:
    """Five digits, with commas between thousands."""
    if not math.isfinite(value):
        return "none"
    size = abs(value)
    if value == 0 or not _LEAST_PLAIN <= size < _MOST_PLAIN:
        return f"{value + 0.0:.4g}"
    decimals = max(0, 4 - math.floor(math.log10(size)))
    text = f"{value:,.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def is_number(value: object) -> TypeGuard[int | float]:
    """Whether a value is a number, which true and false are not."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)
