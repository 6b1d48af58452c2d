"""Integer thresholds that keep a likelihood ratio below e^epsilon, exactly.

A finite randomizer compares uniform 64-bit words with integers, so each of its
chances is a whole number of words over 2^64. These numbers are found with
certified bounds on the exponential, never with a float, and are rounded so
that the truth loses: the realised ratio is at most e^epsilon, and epsilon is
taken as the exact rational number that the float is.
"""

import decimal
import math
from fractions import Fraction

from tulle.errors import ConfigError

WORD_VALUES = 2**64
"""How many different words a noise source gives."""

_FIRST_NUM_DIGITS = 60
_MAX_EXPONENT = 10_000


def exponential_bounds(
    exponent: Fraction | float, *, num_digits: int = _FIRST_NUM_DIGITS
) -> tuple[Fraction, Fraction]:
    """Rational numbers just below and just above e^exponent.

    Relative to e^exponent they are closer than 10^(6 - num_digits).
    """
    exact = Fraction(exponent)
    if abs(exact) > _MAX_EXPONENT:
        raise ConfigError(
            f"exponent={float(exact)} must be within +-{_MAX_EXPONENT}; lower epsilon."
        )
    low = _directed_quotient(exact, num_digits, decimal.ROUND_FLOOR)
    high = _directed_quotient(exact, num_digits, decimal.ROUND_CEILING)
    # Decimal.exp rounds correctly to nearest, so one step outwards is a bound.
    context = _context(num_digits)
    return (
        Fraction(context.next_minus(context.exp(low))),
        Fraction(context.next_plus(context.exp(high))),
    )


def loser_mass(epsilon: Fraction | float, num_values: int) -> int:
    """Words for each wrong value of K-ary randomized response.

    The smallest m with 2^64 - (num_values - 1) m <= m e^epsilon.
    """
    mass = _least_mass(epsilon, losers=1, winners=1, others=num_values - 1)
    _check_truth_wins(epsilon, num_values, WORD_VALUES - num_values * mass)
    return mass


def absent_mass(epsilon: Fraction | float, num_values: int, subset_size: int) -> int:
    """Words for all subsets of subset selection that lack the truth, together.

    The smallest L with (2^64 - L) / C(k-1, d-1) <= e^epsilon L / C(k-1, d).
    """
    num_absent = num_values - subset_size
    mass = _least_mass(epsilon, losers=num_absent, winners=subset_size, others=num_absent)
    gap = (WORD_VALUES - mass) * num_absent - mass * subset_size
    _check_truth_wins(epsilon, num_values, gap)
    return mass


def log_ratio(ratio: Fraction) -> float:
    """The logarithm of an exact ratio, as the nearest float."""
    context = _context(_FIRST_NUM_DIGITS)
    quotient = context.divide(decimal.Decimal(ratio.numerator), decimal.Decimal(ratio.denominator))
    return float(context.ln(quotient))


def _least_mass(epsilon: Fraction | float, *, losers: int, winners: int, others: int) -> int:
    """The smallest integer >= 2^64 losers / (winners e^epsilon + others).

    e^epsilon is irrational for rational epsilon > 0 (Lindemann), so the two
    bounds agree on the integer once they have enough digits.
    """
    if epsilon >= 64 * math.log(2) + math.log(WORD_VALUES):
        return 1  # below one word for every size a table can have
    num_digits = _FIRST_NUM_DIGITS
    while True:
        low, high = exponential_bounds(epsilon, num_digits=num_digits)
        least = math.ceil(Fraction(WORD_VALUES * losers) / (winners * high + others))
        most = math.ceil(Fraction(WORD_VALUES * losers) / (winners * low + others))
        if least == most:
            return most
        num_digits *= 2


def _check_truth_wins(epsilon: Fraction | float, num_values: int, gap: int) -> None:
    if gap <= 0:
        least = 2 * num_values**2 / WORD_VALUES
        raise ConfigError(
            f"epsilon={float(epsilon)} is too small for num_values={num_values}: 64-bit words "
            f"cannot favour the truth by so little. Use epsilon >= {least}."
        )


def _context(num_digits: int) -> decimal.Context:
    return decimal.Context(
        prec=num_digits,
        rounding=decimal.ROUND_HALF_EVEN,
        Emin=decimal.MIN_EMIN,
        Emax=decimal.MAX_EMAX,
        traps=[decimal.InvalidOperation, decimal.DivisionByZero, decimal.Overflow],
    )


def _directed_quotient(value: Fraction, num_digits: int, rounding: str) -> decimal.Decimal:
    context = _context(num_digits)
    context.rounding = rounding
    return context.divide(decimal.Decimal(value.numerator), decimal.Decimal(value.denominator))
