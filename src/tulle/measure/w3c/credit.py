"""Fair credit: a whole value divided by weights, in whole parts.

Shares are rounded in pairs. One of the two becomes whole, the other takes what that one lost
or gained, and chances are such that each keeps its mean. So parts add up to the value, every
part has the mean it should have, and none is off by one or more. Shares are kept as whole
multiples of 1 / (sum of weights), which makes all of this exact.
"""

import functools
import math
from collections.abc import Sequence

from tulle.measure.w3c.draws import Draws


def fairly_allocate_credit(credit: Sequence[float], value: int, draws: Draws) -> list[int]:
    """Whole parts of `value` in proportion to `credit`, in expectation."""
    if len(credit) == 1:
        return [value]
    weights, whole = _whole_weights(tuple(credit))
    parts = [value * weight for weight in weights]
    open_part = 0
    for next_part in range(1, len(parts)):
        open_rest, next_rest = parts[open_part] % whole, parts[next_part] % whole
        if open_rest == next_rest == 0:
            continue
        rounds_up = open_rest + next_rest > whole
        open_step = whole - open_rest if rounds_up else -open_rest
        next_step = whole - next_rest if rounds_up else -next_rest
        if draws.is_below(abs(next_step), abs(open_step + next_step)):
            open_part, next_part, step = next_part, open_part, open_step
        else:
            step = next_step
        parts[next_part] += step
        parts[open_part] -= step
    return [part // whole for part in parts]


@functools.lru_cache(maxsize=64)
def _whole_weights(credit: tuple[float, ...]) -> tuple[tuple[int, ...], int]:
    """Credit as whole numbers in the same proportion, and their sum."""
    ratios = [weight.as_integer_ratio() for weight in credit]
    denominator = math.lcm(*(below for _, below in ratios))
    weights = tuple(above * (denominator // below) for above, below in ratios)
    return weights, sum(weights)
