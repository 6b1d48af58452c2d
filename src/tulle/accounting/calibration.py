"""Guarantees to settings: how much noise, how many steps, how large a batch.

Each search stays on the safe side: the setting it returns has been accounted
and meets the target.
"""

import math
import sys
from collections.abc import Callable

from tulle.accounting.accountant import pld_epsilon
from tulle.accounting.group_privacy import GroupTooLargeError
from tulle.errors import ConfigError, UnsupportedEventError
from tulle.privacy.events import Event
from tulle.privacy.fields import check_delta
from tulle.privacy.units import Adjacency

SpentEpsilon = Callable[[Event, float, Adjacency], float]
"""epsilon that an event costs at a delta under an adjacency."""

_NOISE_PRECISION = 1e-4
"""Relative precision of the noise that is found; the search ends on the side that meets it."""
_LEAST_NOISE, _MOST_NOISE = 1e-2, 1e6
"""Noise that is looked for: less protects nothing, and with more nothing is left to see."""


def calibrate_noise(
    make_event: Callable[[float], Event],
    *,
    epsilon: float,
    delta: float,
    adjacency: Adjacency,
    start: float = 1.0,
    spent_epsilon: SpentEpsilon = pld_epsilon,
) -> float:
    """The least noise at which `make_event(noise)` meets (epsilon, delta).

    Args:
      make_event: Builds the event from its noise; more noise must cost less.
      epsilon: Target, > 0.
      delta: Target; 0 only for events that are pure.
      adjacency: Which neighbours the target speaks about.
      start: A first guess.
      spent_epsilon: The accountant; any other than the default is for comparison only.
    """
    _check_target(epsilon, delta)
    if not _LEAST_NOISE <= start <= _MOST_NOISE:
        raise ConfigError(f"start={start} must be in [{_LEAST_NOISE:g}, {_MOST_NOISE:g}].")

    def spent(noise: float) -> float:
        return _cost(spent_epsilon, make_event(noise), delta, adjacency)

    if delta == 0 and (exact := _proportional_noise(spent, epsilon)) is not None:
        return exact

    def log_excess(log_noise: float) -> float:
        cost = spent(math.exp(log_noise))
        # The quotient of a small cost and a large target may underflow.
        share = max(cost, 1e-300) / epsilon
        return math.inf if math.isinf(cost) else math.log(max(share, sys.float_info.min))

    return math.exp(_least_safe(log_excess, *_bracket(log_excess, math.log(start))))


def calibrate_steps(
    make_event: Callable[[int], Event],
    *,
    epsilon: float,
    delta: float,
    adjacency: Adjacency,
    spent_epsilon: SpentEpsilon = pld_epsilon,
) -> int:
    """The most steps at which `make_event(steps)` still meets (epsilon, delta).

    Args:
      make_event: Builds the event from the number of steps; more steps must cost more.
      epsilon: Target, > 0.
      delta: Target; 0 only for events that are pure.
      adjacency: Which neighbours the target speaks about.
      spent_epsilon: The accountant; any other than the default is for comparison only.
    """
    _check_target(epsilon, delta)

    def fits(steps: int) -> bool:
        return _cost(spent_epsilon, make_event(steps), delta, adjacency) <= epsilon

    if not fits(1):
        raise ConfigError(
            f"epsilon={epsilon} is too small for a single step; add noise or sample fewer rows."
        )
    low, high = 1, 2
    while fits(high):
        low, high = high, 2 * high
        if high > 2**40:  # a million million steps, more than any run has
            raise ConfigError(
                f"epsilon={epsilon} is not reached in {low} steps; this event costs nothing."
            )
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    # The end that was found to fit, not the middle of the last interval.
    return low


def calibrate_sampling_prob(
    make_event: Callable[[float], Event], *, epsilon: float, delta: float, adjacency: Adjacency
) -> float:
    """The largest sampling probability at which `make_event(prob)` meets (epsilon, delta).

    Args:
      make_event: Builds the event from the probability; a larger one must cost more.
      epsilon: Target, > 0.
      delta: Target; 0 only for events that are pure.
      adjacency: Which neighbours the target speaks about.
    """
    _check_target(epsilon, delta)

    def fits(log_prob: float) -> bool:
        return _cost(pld_epsilon, make_event(math.exp(log_prob)), delta, adjacency) <= epsilon

    if fits(0.0):
        return 1.0
    low, high = -1.0, 0.0
    while not fits(low):
        low, high = 2 * low, low
        if low < -40:  # e^-40 is below one row in any data
            raise ConfigError(
                f"epsilon={epsilon} is out of reach at any sampling_prob; "
                "add noise or take fewer steps."
            )
    while high - low > _NOISE_PRECISION:
        middle = (low + high) / 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    # exp(low) is the very float that was found to fit.
    return math.exp(low)


def _cost(spent_epsilon: SpentEpsilon, event: Event, delta: float, adjacency: Adjacency) -> float:
    try:
        return spent_epsilon(event, delta, adjacency)
    except GroupTooLargeError:  # More noise, or less of the event, brings it into reach.
        return math.inf


def _proportional_noise(spent: Callable[[float], float], epsilon: float) -> float | None:
    """The noise if the cost is c / noise, as for many pure mechanisms; else None."""
    noise = spent(1.0) / epsilon
    if not math.isfinite(noise):
        raise ConfigError(
            "delta=0.0 is out of reach for this mechanism at any noise; choose e.g. 1e-7."
        )
    # The quotient may have rounded down: a few units in the last place more meet the target. A
    # billionth less must miss it, or the cost is not proportional.
    for _ in range(8):
        if spent(noise) <= epsilon:
            return noise if spent(noise * (1 - 1e-9)) > epsilon else None
        noise *= 1 + 1e-15
    return None


_Point = tuple[float, float]
"""A log noise, and the log of the epsilon it costs over the epsilon allowed."""


def _bracket(log_excess: Callable[[float], float], start: float) -> tuple[_Point, _Point]:
    """Two points, the first with too little noise and the second with enough."""
    point = (start, log_excess(start))
    upwards = point[1] > 0
    limit = math.log(_MOST_NOISE if upwards else _LEAST_NOISE)
    step = math.log(1.5) if upwards else -math.log(1.5)
    while point[0] != limit and abs(step) > _NOISE_PRECISION:
        position = point[0] + step if abs(step) < abs(limit - point[0]) else limit
        try:
            further = (position, log_excess(position))
        except UnsupportedEventError:  # Some events are accounted up to a limit: go nearer to it.
            step /= 4
            continue
        if (further[1] > 0) != upwards:
            return (point, further) if upwards else (further, point)
        point, step = further, 2 * step
    side = "more" if upwards else "less"
    raise ConfigError(
        f"the target needs {side} noise than {math.exp(point[0]):.4g}, where the search ends; "
        "choose another epsilon or delta, fewer steps or a smaller batch."
    )


def _least_safe(log_excess: Callable[[float], float], low: _Point, high: _Point) -> float:
    """The least log noise with excess <= 0, by secants that close in from both sides.

    Where one end did not move twice in a row, the interval is halved instead.
    """
    tolerance = _NOISE_PRECISION
    num_same_side = 0
    while high[0] - low[0] > tolerance:
        middle = (low[0] + high[0]) / 2
        if math.isfinite(low[1]) and abs(num_same_side) < 2:
            root = high[0] + high[1] * (high[0] - low[0]) / (low[1] - high[1])
            # Just above the root first; if that is where `high` is, then just below it.
            middle = root + tolerance / 4
            if middle > high[0] - tolerance / 4:
                middle = high[0] - tolerance * 0.9
            middle = max(middle, low[0] + tolerance / 4)
        point = (middle, log_excess(middle))
        if point[1] > 0:
            low, num_same_side = point, max(1, num_same_side + 1)
        else:
            high, num_same_side = point, min(-1, num_same_side - 1)
    # The end whose cost was computed and fits; a root between the two is only an estimate.
    return high[0]


def _check_target(epsilon: float, delta: float) -> None:
    if not 0 < epsilon < math.inf:
        raise ConfigError(f"epsilon={epsilon} must be > 0; for no privacy use a non-private run.")
    check_delta(delta)
