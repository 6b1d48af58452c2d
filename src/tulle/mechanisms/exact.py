"""Exact random draws at the speed of float arithmetic.

Each draw is first computed in float64 from the leading bits of a uniform real.
Where the float answer lies further from every decision boundary than the float
error and the undrawn bits can reach, it is the exact answer. The rare other
draws are decided by decimal interval arithmetic that draws more bits as needed.
So the result has exactly the law of ideal real arithmetic, with each float
setting taken as the exact binary fraction that it is.

A uniform real is known by its leading bits alone. A sampler that asks "is U below this threshold?"
needs a few of them almost always and arbitrarily many sometimes; further bits are drawn when a
question cannot be answered without them.
"""

import dataclasses
import decimal
import math
from collections.abc import Callable, Iterator
from decimal import Decimal
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from tulle.errors import ConfigError
from tulle.mechanisms.entropy import NoiseSource, Words

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]
Size = int | tuple[int, ...]
Bounds = tuple[Decimal, Decimal]

MAX_SCALE = 2.0**40
"""Largest noise scale in lattice steps: int64 sums stay safe and most floats decide."""

BLOCK = 1 << 14
"""Draws computed at once, so that the arrays stay in the processor's cache."""
WORD_BITS = 64
"""Bits of a word of a noise source."""
UNIFORM_BITS = 63
"""Leading bits of a uniform real that are drawn at first; the last bit of the word is a sign."""
LEAST_FAST_NUMERATOR = 1 << 46
"""Least numerator of a uniform real for which floats may answer; below it, with probability 2^-17,
the undrawn bits are too coarse for that."""

# With 63 bits and a numerator >= 2^46, -ln(U) in float64 errs by at most
# 2^-46 (undrawn bits) + 2^-53 (conversion) + 4 units in the last place (numpy's log).
# The slacks below are at least twice what follows from that.
FLOOR_SLACK = 2.0**-45
"""Distance from an integer, relative to the scale, below which a float does not decide a floor."""
BERNOULLI_SLACK = 2.0**-36
"""Distance from the boundary below which a float does not decide whether exp(-x) is exceeded."""


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
        self.numerator = self.numerator << WORD_BITS | int(self._rng.words(1)[0])
        self.num_bits += WORD_BITS

    @property
    def num_digits(self) -> int:
        """Decimal digits at which rounding is far finer than the undrawn bits."""
        # A digit is worth log2(10) = 3.3 bits.
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
    """True with probability exp(-exponent), exactly. Refines the uniform as needed."""
    if exponent == 0:
        return True
    while True:
        low, high = uniform.bounds()
        least, most = _exp_bounds(exponent, uniform.num_digits)
        # Intervals that only touch decide too: a uniform real hits one point with probability 0.
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
    """Bounds on the square root of a number between two bounds.

    Args:
      low: Least value of the number.
      high: Largest value of it.
      num_bits: Bits after the point of the result.
    """
    least = math.isqrt(math.floor(low * 4**num_bits))
    # isqrt rounds down, so the upper bound takes one step more.
    most = math.isqrt(math.ceil(high * 4**num_bits)) + 1
    return Fraction(least, 1 << num_bits), Fraction(most, 1 << num_bits)


def _exp_bounds(exponent: Fraction, num_digits: int) -> tuple[Decimal, Decimal]:
    down, up = directed_contexts(num_digits)
    top, bottom = Decimal(-exponent.numerator), Decimal(exponent.denominator)
    least = down.exp(down.divide(top, bottom))
    most = up.exp(up.divide(top, bottom))
    # Correctly rounded to nearest, as ln is. Below zero there is no probability.
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


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExponentialFloor:
    """The law of floor(scale * E + offset), with E standard exponential."""

    scale: float
    offset: float
    """The offset in [0, 1], to float precision relative to `scale`."""
    offset_bounds: Callable[[int], Bounds]
    """Bounds on the exact offset for a number of digits."""

    def decide(self, uniform: LazyUniform) -> int:
        """The floor for E = -ln(uniform), exactly. Refines the uniform as needed."""
        scale = Decimal(self.scale)
        while True:
            logs = uniform.negative_log_bounds()
            if logs is not None:
                down, up = directed_contexts(uniform.num_digits)
                low, high = self.offset_bounds(uniform.num_digits)
                # fma rounds once, so the rounding of the context bounds the whole expression.
                least = math.floor(down.fma(scale, logs[0], low))
                if least == math.floor(up.fma(scale, logs[1], high)):
                    return least
            uniform.refine()


def exponential_floor(scale: float, offset: Decimal) -> ExponentialFloor:
    """The law of floor(scale * E + offset) for an offset that a float holds exactly."""
    return ExponentialFloor(
        scale=scale, offset=float(offset), offset_bounds=lambda _digits: (offset, offset)
    )


def sample_geometric(scale: float, size: Size, *, rng: NoiseSource) -> IntArray:
    """Integers k >= 0 with probabilities proportional to exp(-k / scale).

    Args:
      scale: Steps over which the probability falls by a factor e.
      size: Number of draws, or their shape.
      rng: Source of the noise. Sensitive: never log or save its state.
    """
    check_scale("scale", scale)
    return np.abs(sample_signed_floors(exponential_floor(scale, Decimal(0)), size, rng=rng))


def sample_bernoulli(prob: float | Fraction, size: Size, *, rng: NoiseSource) -> BoolArray:
    """True with probability `prob`, exactly.

    Args:
      prob: A float counts as the binary fraction that it is.
      size: Number of draws, or their shape.
      rng: Source of the noise. Sensitive: never log or save its state.
    """
    if not 0 <= prob <= 1:
        raise ConfigError(f"prob={prob} must be in [0, 1].")
    # A word is the first 64 bits of a uniform; only a tie with those of `prob` needs more.
    words = rng.words(math.prod(as_shape(size)))
    scaled = Fraction(prob) * 2**WORD_BITS
    whole = math.floor(scaled)
    if whole == 2**WORD_BITS:
        return np.ones(as_shape(size), dtype=np.bool_)
    decided: BoolArray = words < np.uint64(whole)
    if scaled != whole:
        ties = np.flatnonzero(words == np.uint64(whole))
        if len(ties):
            # Given the tie, the next bits are uniform and face what is left of `prob`.
            decided[ties] = sample_bernoulli(scaled - whole, len(ties), rng=rng)
    return decided.reshape(as_shape(size))


def sample_bernoulli_exp(exponent: float | Fraction, size: Size, *, rng: NoiseSource) -> BoolArray:
    """True with probability exp(-exponent), exactly.

    Args:
      exponent: Exponent, at least 0.
      size: Number of draws, or their shape.
      rng: Source of the noise. Sensitive: never log or save its state.
    """
    exact = Fraction(exponent) if math.isfinite(exponent) else Fraction(-1)
    if exact < 0:
        raise ConfigError(f"exponent={exponent} must be finite and >= 0.")
    num_draws = math.prod(as_shape(size))
    exponents = np.full(num_draws, float(exponent))
    return decide_bernoulli_exps(exponents, lambda _: exact, rng=rng).reshape(as_shape(size))


def sample_signed_floors(law: ExponentialFloor, size: Size, *, rng: NoiseSource) -> IntArray:
    """Draws of `law`, each with a fair sign.

    Args:
      law: What to draw.
      size: Number of draws, or their shape.
      rng: Source of the noise. Sensitive: never log or save its state.
    """
    shape = as_shape(size)
    result = np.empty(math.prod(shape), dtype=np.int64)
    for start in range(0, len(result), BLOCK):
        block = result[start : start + BLOCK]
        block[:] = signed_floors_of_words(rng.words(len(block)), law, rng=rng)
    return result.reshape(shape)


def signed_floors_of_words(
    words: Words, law: ExponentialFloor, *, rng: NoiseSource, slack: float = FLOOR_SLACK
) -> IntArray:
    """One signed draw for each word: its last bit is the sign, the others begin the uniform.

    Args:
      words: Fresh uniform words.
      law: What to draw.
      rng: Source of further bits for the draws that need them.
      slack: Relative distance from a boundary below which a float does not
        decide. A larger one changes the speed only.
    """
    numerators = (words >> np.uint64(1)).view(np.int64)
    with np.errstate(divide="ignore", invalid="ignore"):
        reals = np.log(numerators * 2.0**-UNIFORM_BITS)
        reals *= -law.scale
        reals += law.offset
        floors = np.floor(reals)
        margins = slack * (reals + law.scale)
        # The distance to the middle between two integers: near 1/2 is near an integer.
        distances = np.abs(reals - floors - 0.5)
        undecided = (distances + margins >= 0.5) | (numerators < LEAST_FAST_NUMERATOR)
        magnitudes: IntArray = floors.astype(np.int64)
    for index in np.flatnonzero(undecided):
        uniform = LazyUniform(int(numerators[index]), UNIFORM_BITS, rng)
        magnitudes[index] = law.decide(uniform)
    signs = -(words & np.uint64(1)).view(np.int64)
    # In two's complement, x ^ -1 is -x - 1.
    magnitudes ^= signs
    magnitudes -= signs
    return magnitudes


def decide_bernoulli_exps(
    exponents: FloatArray,
    exact_exponent: Callable[[int], Fraction],
    *,
    rng: NoiseSource,
    slack: float = BERNOULLI_SLACK,
) -> BoolArray:
    """True with probability exp(-exponent) for each exponent, exactly.

    Args:
      exponents: Exponents >= 0, right to slack / 4 * (1 + exponent).
      exact_exponent: The exact exponent at an index, for draws that floats leave open.
      rng: Source of the draws.
      slack: Distance from the boundary below which a float does not decide.
    """
    numerators = (rng.words(len(exponents)) >> np.uint64(1)).view(np.int64)
    with np.errstate(divide="ignore"):
        logs = np.log(numerators * 2.0**-UNIFORM_BITS)
    logs *= -1.0
    excess = logs - exponents
    undecided = np.abs(excess) <= slack * (1.0 + exponents + logs)
    undecided |= numerators < LEAST_FAST_NUMERATOR
    decided: BoolArray = excess > 0
    for index in np.flatnonzero(undecided):
        uniform = LazyUniform(int(numerators[index]), UNIFORM_BITS, rng)
        decided[index] = decide_bernoulli_exp(exact_exponent(int(index)), uniform)
    return decided


def as_shape(size: Size) -> tuple[int, ...]:
    """The shape of the array that `size` asks for."""
    return (size,) if isinstance(size, int) else tuple(size)


def check_scale(name: str, scale: float, *, least: float = 1e-3) -> None:
    """Refuses scales at which int64 could overflow or the noise is zero in practice.

    Args:
      name: The setting, for the message.
      scale: What was given.
      least: Least scale that is noise to speak of.
    """
    if not least <= scale <= MAX_SCALE:
        raise ConfigError(
            f"{name}={scale} must be in [{least}, {MAX_SCALE:.0f}]; above it count in larger "
            "steps (thousands, say), below it there is no noise to speak of."
        )


def rounded_up(value: float) -> float:
    """A float that is above the exact value of a few float operations, by 2^-50 of it."""
    return value * (1 + 2.0**-50)
