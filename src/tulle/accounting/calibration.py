"""Guarantees to settings: how much noise, how many steps, how large a batch.

Each search stays on the safe side: the setting it returns has been accounted
and meets the target.
"""

import math
from collections.abc import Callable

from tulle.accounting.accountant import pld_epsilon
from tulle.errors import ConfigError
from tulle.privacy.events import Event
from tulle.privacy.units import Adjacency

SpentEpsilon = Callable[[Event, float, Adjacency], float]
"""epsilon that an event costs at a delta under an adjacency."""

_NOISE_PRECISION = 1e-4
_LEAST_NOISE, _MOST_NOISE = 1e-2, 1e6


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
    if delta == 0:
        return _calibrate_pure(make_event, epsilon, adjacency, spent_epsilon)

    def log_excess(log_noise: float) -> float:
        spent = spent_epsilon(make_event(math.exp(log_noise)), delta, adjacency)
        return math.inf if math.isinf(spent) else math.log(max(spent, 1e-300) / epsilon)

    return math.exp(_least_safe(log_excess, *_bracket(log_excess, math.log(start))))


def calibrate_steps(
    make_event: Callable[[int], Event], *, epsilon: float, delta: float, adjacency: Adjacency
) -> int:
    """The most steps at which `make_event(steps)` still meets (epsilon, delta)."""
    _check_target(epsilon, delta)

    def fits(steps: int) -> bool:
        return pld_epsilon(make_event(steps), delta, adjacency) <= epsilon

    if not fits(1):
        raise ConfigError(
            f"epsilon={epsilon} is too small for a single step; add noise or sample fewer rows."
        )
    low, high = 1, 2
    while fits(high):
        low, high = high, 2 * high
        if high > 2**40:
            raise ConfigError(
                f"epsilon={epsilon} is not reached in {low} steps; this event costs nothing."
            )
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def calibrate_sampling_prob(
    make_event: Callable[[float], Event], *, epsilon: float, delta: float, adjacency: Adjacency
) -> float:
    """The largest sampling chance at which `make_event(prob)` meets (epsilon, delta)."""
    _check_target(epsilon, delta)

    def fits(log_prob: float) -> bool:
        return pld_epsilon(make_event(math.exp(log_prob)), delta, adjacency) <= epsilon

    if fits(0.0):
        return 1.0
    low, high = -1.0, 0.0
    while not fits(low):
        low, high = 2 * low, low
        if low < -40:
            raise ConfigError(
                f"epsilon={epsilon} is out of reach at any sampling_prob; "
                "add noise or take fewer steps."
            )
    while high - low > _NOISE_PRECISION:
        middle = (low + high) / 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return math.exp(low)


def _calibrate_pure(
    make_event: Callable[[float], Event],
    epsilon: float,
    adjacency: Adjacency,
    spent_epsilon: SpentEpsilon,
) -> float:
    """Pure mechanisms cost c / noise, so one evaluation tells the noise."""
    noise = spent_epsilon(make_event(1.0), 0.0, adjacency) / epsilon
    if not math.isfinite(noise):
        raise ConfigError(
            "delta=0.0 is out of reach for this mechanism at any noise; choose e.g. 1e-7."
        )
    while spent_epsilon(make_event(noise), 0.0, adjacency) > epsilon:
        noise *= 1 + 1e-15
    return noise


_Point = tuple[float, float]  # A log noise and the log of epsilon spent over epsilon allowed.


def _bracket(log_excess: Callable[[float], float], start: float) -> tuple[_Point, _Point]:
    """Two points, the first with too little noise and the second with enough."""
    step = math.log(1.5)
    point = (start, log_excess(start))
    upwards = point[1] > 0
    while True:
        previous, position = point, point[0] + (step if upwards else -step)
        step *= 2
        if not math.log(_LEAST_NOISE) < position < math.log(_MOST_NOISE):
            side = "more" if upwards else "less"
            raise ConfigError(
                f"the target needs noise outside [{_LEAST_NOISE:g}, {_MOST_NOISE:g}] ({side}); "
                "choose another epsilon, fewer steps or a smaller batch."
            )
        point = (position, log_excess(position))
        if (point[1] > 0) != upwards:
            return (previous, point) if upwards else (point, previous)


def _least_safe(log_excess: Callable[[float], float], low: _Point, high: _Point) -> float:
    """The least log noise with excess <= 0, by secants that close in from both sides."""
    tolerance = _NOISE_PRECISION
    while high[0] - low[0] > tolerance:
        if math.isinf(low[1]):
            middle = (low[0] + high[0]) / 2
        else:
            root = high[0] + high[1] * (high[0] - low[0]) / (low[1] - high[1])
            # Just above the root first; if that is where `high` is, then just below it.
            middle = root + tolerance / 4
            if middle > high[0] - tolerance / 4:
                middle = high[0] - tolerance * 0.9
            middle = max(middle, low[0] + tolerance / 4)
        point = (middle, log_excess(middle))
        low, high = (point, high) if point[1] > 0 else (low, point)
    return high[0]


def _check_target(epsilon: float, delta: float) -> None:
    if not 0 < epsilon < math.inf:
        raise ConfigError(f"epsilon={epsilon} must be > 0; for no privacy use a non-private run.")
    if not 0 <= delta < 1:
        raise ConfigError(f"delta={delta} must be in [0, 1); choose e.g. 1e-7.")
