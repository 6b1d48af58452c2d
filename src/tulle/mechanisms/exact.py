"""Exact random draws at the speed of float arithmetic.

Each draw is first computed in float64 from the leading bits of a uniform real.
Where the float answer lies further from every decision boundary than the float
error and the undrawn bits can reach, it is the exact answer. The rare other
draws are decided by decimal interval arithmetic that draws more bits as needed.
So the result has exactly the law of ideal real arithmetic, with each float
setting taken as the exact binary fraction that it is.
"""

import dataclasses
import math
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from tulle.errors import ConfigError
from tulle.mechanisms.entropy import NoiseSource, Words
from tulle.mechanisms.lazy_uniform import LazyUniform, decide_bernoulli_exp, directed_contexts

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
UNIFORM_BITS = 63
LEAST_FAST_NUMERATOR = 1 << 46
"""Below it the undrawn bits are too coarse for the float answer (chance 2^-17)."""

# With 63 bits and a numerator >= 2^46, -ln(U) in float64 errs by at most
# 2^-46 (undrawn bits) + 2^-53 (conversion) + 4 units in the last place (numpy's log).
# The slacks below are at least twice what follows from that.
FLOOR_SLACK = 2.0**-45
BERNOULLI_SLACK = 2.0**-36


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
    """Integers k >= 0 with probabilities proportional to exp(-k / scale)."""
    check_scale("scale", scale)
    return np.abs(sample_signed_floors(exponential_floor(scale, Decimal(0)), size, rng=rng))


def sample_bernoulli(prob: float | Fraction, size: Size, *, rng: NoiseSource) -> BoolArray:
    """True with chance `prob`, exactly."""
    if not 0 <= prob <= 1:
        raise ConfigError(f"prob={prob} must be in [0, 1].")
    words = rng.words(math.prod(as_shape(size)))
    scaled = Fraction(prob) * 2**WORD_BITS
    whole = math.floor(scaled)
    if whole == 2**WORD_BITS:
        return np.ones(as_shape(size), dtype=np.bool_)
    decided: BoolArray = words < np.uint64(whole)
    if scaled != whole:
        ties = np.flatnonzero(words == np.uint64(whole))
        if len(ties):
            decided[ties] = sample_bernoulli(scaled - whole, len(ties), rng=rng)
    return decided.reshape(as_shape(size))


def sample_bernoulli_exp(exponent: float | Fraction, size: Size, *, rng: NoiseSource) -> BoolArray:
    """True with chance exp(-exponent), exactly."""
    exact = Fraction(exponent) if math.isfinite(exponent) else Fraction(-1)
    if exact < 0:
        raise ConfigError(f"exponent={exponent} must be finite and >= 0.")
    num_draws = math.prod(as_shape(size))
    exponents = np.full(num_draws, float(exponent))
    return decide_bernoulli_exps(exponents, lambda _: exact, rng=rng).reshape(as_shape(size))


def sample_signed_floors(law: ExponentialFloor, size: Size, *, rng: NoiseSource) -> IntArray:
    """Draws of `law`, each with a fair sign."""
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
    """True with chance exp(-exponent) for each exponent, exactly.

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
    """Refuses scales at which int64 could overflow or the noise is zero in practice."""
    if not least <= scale <= MAX_SCALE:
        raise ConfigError(
            f"{name}={scale} must be in [{least}, {MAX_SCALE:.0f}]; above it count in larger "
            "steps (thousands, say), below it there is no noise to speak of."
        )
