"""Whole numbers of random words: thresholds that keep a likelihood ratio, and uniform draws.

A finite randomizer compares uniform 64-bit words with integers, so each of its
probabilities is a whole number of words over 2^64. These numbers are found with
certified bounds on the exponential, never with a float, and are rounded so
that the truth loses: the realised ratio is at most e^epsilon, and epsilon is
taken as the exact rational number that the float is.

Uniform integers have no bias either: a word modulo n is uniform only if it lies below the largest
multiple of n, so words above it are thrown away and drawn again.
"""

import decimal
import math
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from tulle.errors import ConfigError
from tulle.mechanisms.entropy import NoiseSource, Words

WORD_VALUES = 2**64
"""How many different words a noise source gives."""

_FIRST_NUM_DIGITS = 60
"""Digits of the first bounds on e^epsilon, three times those of a word; doubled where too few."""
_MAX_EXPONENT = 10_000
"""Largest exponent in size, beyond which bounds take seconds and no epsilon makes sense."""


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

    Args:
      epsilon: Log-likelihood ratio of a subset with the truth to one without it.
      num_values: Values that a unit may hold, k.
      subset_size: Values that a report names, d.
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


def sample_below(bound: int, num_samples: int, *, rng: NoiseSource) -> Words:
    """Uniform integers from 0 to bound - 1.

    Args:
      bound: Public; at most 2^64.
      num_samples: How many to draw.
      rng: Source of the words. Sensitive: never log or save its state.
    """
    if not 1 <= bound <= WORD_VALUES:
        raise ConfigError(f"bound={bound} must be from 1 to 2^64; draw several numbers instead.")
    samples = np.empty(num_samples, np.uint64)
    # Words from the last multiple of `bound` on are drawn again, or small numbers were likelier.
    last_accepted = np.uint64(WORD_VALUES - WORD_VALUES % bound - 1)
    num_filled = 0
    while num_filled < num_samples:
        words = rng.words(num_samples - num_filled)
        words = words[words <= last_accepted]
        samples[num_filled : num_filled + words.size] = words
        num_filled += words.size
    return samples if bound == WORD_VALUES else samples % np.uint64(bound)


def sample_subsets(
    num_items: int, subset_size: int, num_samples: int, *, rng: NoiseSource
) -> NDArray[np.bool_]:
    """Uniform subsets of a fixed size, one row of membership marks for each.

    Floyd's method (Bentley, Floyd 1987), one column of draws at a time.

    Args:
      num_items: Items that a subset is taken from.
      subset_size: Items in each subset.
      num_samples: How many subsets to draw.
      rng: Source of the words. Sensitive: never log or save its state.
    """
    if not 0 <= subset_size <= num_items:
        raise ConfigError(f"subset_size={subset_size} must be from 0 to num_items={num_items}.")
    # The complement of a uniform subset is uniform, and takes fewer words.
    if 2 * subset_size > num_items:
        return ~sample_subsets(num_items, num_items - subset_size, num_samples, rng=rng)
    is_member = np.zeros((num_samples, num_items), np.bool_)
    rows = np.arange(num_samples)
    for newest in range(num_items - subset_size, num_items):
        drawn = sample_below(newest + 1, num_samples, rng=rng).astype(np.int64)
        is_member[rows, np.where(is_member[rows, drawn], newest, drawn)] = True
    return is_member


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
        # While the bounds disagree, taking the larger would be private too but not the least noise,
        # and two machines with other bounds would draw from other laws.
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
