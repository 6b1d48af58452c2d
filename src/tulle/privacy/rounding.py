"""Numbers on paper, rounded to the side on which what is said of them stays true."""

import decimal
import math

BINARY_NOISE = 1e-12
"""A slack with which 0.1 + 0.2 is 0.3 and not just above it. Relative."""


def round_up(value: float, num_digits: int, *, slack: float = 0.0) -> float:
    """The least number of so many digits that is >= value * (1 - slack)."""
    return _rounded(value, num_digits, decimal.ROUND_CEILING, -slack)


def round_down(value: float, num_digits: int, *, slack: float = 0.0) -> float:
    """The largest number of so many digits that is <= value * (1 + slack)."""
    return _rounded(value, num_digits, decimal.ROUND_FLOOR, slack)


def _rounded(value: float, num_digits: int, side: str, slack: float) -> float:
    if not math.isfinite(value):
        return value
    exact = decimal.Decimal(repr(float(value))) * (1 + decimal.Decimal(repr(slack)))
    return float(decimal.Context(prec=num_digits, rounding=side).create_decimal(exact))
