"""A uniform real number known only by its leading bits, and bounds computed from it.

A sampler that asks "is U below this threshold?" needs a few bits of U almost
always and arbitrarily many sometimes. Bits are drawn when a question cannot be
answered without them, so every answer is that of ideal real arithmetic.
"""

import decimal
import math
from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction

from tulle.mechanisms.entropy import NoiseSource

_WORD_BITS = 64


class LazyUniform:
    """A uniform real in [0, 1] of which `num_bits` leading bits are drawn.

    It lies between numerator / 2^num_bits and (numerator + 1) / 2^num_bits.
    """

    def __init__(self, numerator: int, num_bits: int, rng: NoiseSource) -> None:
        self.numerator = numerator
        self.num_bits = num_bits
        self._rng = rng

    def refine(self) -> None:
        """Draws the next 64 bits."""
        self.numerator = self.numerator << _WORD_BITS | int(self._rng.words(1)[0])
        self.num_bits += _WORD_BITS

    @property
    def num_digits(self) -> int:
        """Decimal digits at which rounding is far finer than the undrawn bits."""
        return self.num_bits // 3 + 40

    def bounds(self) -> tuple[Decimal, Decimal]:
        """Numbers at most and at least the uniform."""
        down, up = directed_contexts(self.num_digits)
        size = Decimal(1 << self.num_bits)
        low = down.divide(Decimal(self.numerator), size)
        return low, up.divide(Decimal(self.numerator + 1), size)

    def negative_log_bounds(self) -> tuple[Decimal, Decimal] | None:
        """Numbers at most and at least -ln(uniform); None while no bit but zeros is drawn."""
        if self.numerator == 0:
            return None
        low, high = self.bounds()
        down, up = directed_contexts(self.num_digits)
        # Decimal.ln rounds correctly to nearest, so one step outwards is a bound.
        least = Decimal(0) if high >= 1 else up.next_plus(up.ln(high)).copy_negate()
        return least, down.next_minus(down.ln(low)).copy_negate()


def decide_bernoulli_exp(exponent: Fraction, uniform: LazyUniform) -> bool:
    """True with chance exp(-exponent), exactly. Refines the uniform as needed."""
    if exponent == 0:
        return True
    while True:
        low, high = uniform.bounds()
        least, most = _exp_bounds(exponent, uniform.num_digits)
        if high <= least:
            return True
        if low >= most:
            return False
        uniform.refine()


def directed_contexts(num_digits: int) -> tuple[decimal.Context, decimal.Context]:
    """Arithmetic that rounds towards minus and towards plus infinity."""
    down, up = (
        decimal.Context(
            prec=num_digits,
            rounding=rounding,
            Emin=decimal.MIN_EMIN,
            Emax=decimal.MAX_EMAX,
            traps=[decimal.InvalidOperation, decimal.DivisionByZero, decimal.Overflow],
        )
        for rounding in (decimal.ROUND_FLOOR, decimal.ROUND_CEILING)
    )
    return down, up


def cosine_and_sine(uniform: LazyUniform) -> tuple[Fraction, Fraction, Fraction]:
    """cos and sin of the angle 2 pi U, and a bound on the error of both."""
    num_bits = uniform.num_bits + 32
    middle = (2 * uniform.numerator + 1) << (num_bits - uniform.num_bits - 1)
    angle = 2 * _fixed_pi(num_bits) * middle >> num_bits
    cosine = sine = 0
    for power, term in _exponential_terms(angle, num_bits):
        signed = -term if power % 4 >= 2 else term
        cosine, sine = (cosine, sine + signed) if power % 2 else (cosine + signed, sine)
    # Undrawn bits move the angle by at most pi 2^-num_bits. Each floor division errs
    # by one unit, magnified by at most e^(2 pi) = 535, over fewer than 2^10 terms.
    error = (4 << (num_bits - uniform.num_bits)) + (1 << 20)
    one = 1 << num_bits
    return Fraction(cosine, one), Fraction(sine, one), Fraction(error, one)


def sqrt_bounds(low: Fraction, high: Fraction, *, num_bits: int) -> tuple[Fraction, Fraction]:
    """Bounds on the square root of a number between two bounds."""
    least = math.isqrt(math.floor(low * 4**num_bits))
    most = math.isqrt(math.ceil(high * 4**num_bits)) + 1
    return Fraction(least, 1 << num_bits), Fraction(most, 1 << num_bits)


def _exp_bounds(exponent: Fraction, num_digits: int) -> tuple[Decimal, Decimal]:
    down, up = directed_contexts(num_digits)
    top, bottom = Decimal(-exponent.numerator), Decimal(exponent.denominator)
    least = down.exp(down.divide(top, bottom))
    most = up.exp(up.divide(top, bottom))
    # Correctly rounded to nearest, as ln is. Below zero there is no chance.
    return max(Decimal(0), down.next_minus(least)), up.next_plus(most)


def _exponential_terms(angle: int, num_bits: int) -> Iterator[tuple[int, int]]:
    """The terms angle^k / k! in fixed point, until they vanish."""
    power, term = 0, 1 << num_bits
    while term:
        yield power, term
        power += 1
        term = term * angle // (power << num_bits)


def _fixed_pi(num_bits: int) -> int:
    """pi times 2^num_bits, by Machin's formula with guard bits."""
    guard = 16
    one = 1 << (num_bits + guard)
    return (16 * _arctan_of_inverse(5, one) - 4 * _arctan_of_inverse(239, one)) >> guard


def _arctan_of_inverse(inverse: int, one: int) -> int:
    total, power, odd = 0, one // inverse, 1
    while power:
        total += power // odd if odd % 4 == 1 else -(power // odd)
        power //= inverse**2
        odd += 2
    return total
