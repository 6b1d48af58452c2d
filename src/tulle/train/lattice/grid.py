"""How fine the lattice of noisy sums is, and what rounding to it can add to a sensitivity."""

import math

from tulle.errors import ConfigError
from tulle.mechanisms.lattice import rounded_up
from tulle.privacy.fields import check_count, check_finite

_FINEST = 2.0**-126
"""The least normal number of single precision."""


def lattice_grid(clip_norm: float, bits: int) -> float:
    """The largest power of two that is not above clip_norm * 2**-bits.

    With a power of two, sums in grid widths and grid points as floats are exact.
    """
    check_count("bits", bits)
    if not check_finite("clip_norm", clip_norm) > 0:
        raise ConfigError(f"clip_norm={clip_norm} must be > 0.")
    _, exponent = math.frexp(clip_norm)
    grid = math.ldexp(1.0, max(exponent - 1 - bits, -1100))
    if grid < _FINEST:
        raise ConfigError(
            f"clip_norm={clip_norm} with bits={bits} makes a grid finer than float32 can hold; "
            "lower bits or rescale the clip norm."
        )
    return grid


def lattice_slack(grid: float, num_entries: int) -> float:
    """How much rounding to the grid can add to what one unit moves a sum by.

    Clip units to clip_norm - lattice_slack(grid, num_entries), and noise of
    noise_multiplier * clip_norm has the event of the plan.

    Proof: rounding moves each entry by grid / 2 at most, so for sums s and s + x the
    difference of the rounded sums is x but for at most grid in each of d entries:
    |round(s + x) - round(s)| <= |x| + grid * sqrt(d). Added or removed, a unit clipped to
    clip_norm - grid * sqrt(d) moves the rounded sum by clip_norm at most, whatever the
    others sum up to. A replaced unit x' of a sampled batch needs the same constant: the
    event of a sampled replacement has the batch without the unit in the middle, and both
    round(s + x) and round(s + x') must be within clip_norm of round(s). They are, and so
    within 2 * clip_norm of each other. (Without sampling 2 * |x| + grid * sqrt(d) <=
    2 * clip_norm would do, so half of this slack. The larger one covers every case.)

    Args:
      grid: Width of the lattice.
      num_entries: Entries of all sums of a step together, those of the monitor too.
    """
    return rounded_up(grid * math.sqrt(check_count("num_entries", num_entries)))
