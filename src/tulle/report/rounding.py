"""Numbers of a guarantee on paper: rounded up, so that print never promises more."""

import decimal
import math

from tulle.accounting.plan_check import TOLERANCE


def round_up(value: float, digits: int, *, slack: float = 0.0) -> float:
    """The least number of so many significant digits that is >= value * (1 - slack)."""
    if value == 0 or math.isinf(value):
        return value
    exact = decimal.Decimal(repr(float(value))) * (1 - decimal.Decimal(slack))
    quantum = decimal.Decimal(1).scaleb(exact.adjusted() - digits + 1)
    return float(exact.quantize(quantum, rounding=decimal.ROUND_CEILING))


def print_up(value: float) -> str:
    """Four digits, rounded up; the slack is that of a verified claim."""
    return f"{round_up(value, 4, slack=TOLERANCE):.4g}"
