"""Events to guarantees, and guarantees to settings.

What a mechanism costs under one adjacency, and how much noise, how many steps or how large a batch
meet a target.

The default and only certificate is by privacy loss distributions. Renyi
accounting (rdp.py) exists to reproduce papers.

No plan may promise more than its event gives: every epsilon of a plan is computed
again from its event. Whoever acts on a plan (a run, a card) calls `verify_plan` first.

Each search for a setting stays on the safe side: the setting it returns has been accounted
and meets the target.
"""

import dataclasses
import functools
import math
import sys
from collections.abc import Callable

from tulle.accounting.curve import NoPrivacyCurve, PrivacyCurve, curve_of_parts
from tulle.accounting.event_rules import as_float, event_parts, without_amplification
from tulle.accounting.group_privacy import (
    GroupCurve,
    GroupTooLargeError,
    ShiftedCurve,
    split_group,
)
from tulle.errors import ConfigError, UnsupportedEventError
from tulle.privacy.events import Event, Gaussian, Grouped, NonPrivate, contains
from tulle.privacy.fields import check_delta
from tulle.privacy.guarantee import Claim, Guarantee, group_parameters
from tulle.privacy.plan import Plan
from tulle.privacy.units import Adjacency, Scope, Unit

_MOST_REMEMBERED = 512
"""Answers that are kept: an event and a number each, and no curve, which can take megabytes."""
TOLERANCE = 1e-7
"""Relative tolerance of a claim. It covers the rounding of figures on a card, not another event."""


def privacy_curve(event: Event, adjacency: Adjacency) -> PrivacyCurve:
    """What an event costs at every epsilon and delta, never too little.

    Raises:
      UnsupportedEventError: No sound accounting is known for this combination.
    """
    _check_adjacency(adjacency)
    # First: however small a part it is, it voids the guarantee of the whole.
    if contains(event, NonPrivate):
        return NoPrivacyCurve()
    if contains(event, Grouped):
        group, pure_epsilon = split_group(event, adjacency)
        of_one = curve_of_parts(event_parts(group.event, adjacency))
        return ShiftedCurve(GroupCurve(of_one, group.group_size), as_float(pure_epsilon))
    return curve_of_parts(event_parts(event, adjacency))


def pld_epsilon(event: Event, delta: float, adjacency: Adjacency) -> float:
    """The least epsilon that an event costs at `delta`; inf if there is none.

    Args:
      event: What was released.
      delta: Probability that the guarantee does not cover.
      adjacency: Which data sets are neighbours.
    """
    _check_adjacency(adjacency)
    return _remembered_epsilon(event, delta, adjacency)


def guarantee(
    event: Event,
    *,
    delta: float,
    unit: Unit,
    adjacency: Adjacency,
    scope: Scope = Scope.LABELS_AND_SENSITIVE_COLUMNS,
) -> Guarantee:
    """The guarantee that an event gives at `delta`.

    Args:
      event: What was released.
      delta: Probability that the guarantee does not cover.
      unit: Unit whose largest contribution the event speaks of.
      adjacency: Which data sets are neighbours.
      scope: Columns of a unit that are protected.

    Raises:
      UnsupportedEventError: No sound accounting is known for this combination.
    """
    epsilon = pld_epsilon(event, delta, adjacency)
    return Guarantee(epsilon=epsilon, delta=delta, unit=unit, adjacency=adjacency, scope=scope)


def verify_plan(plan: Plan) -> tuple[float, ...]:
    """The epsilon that the event of each claim gives, headline first.

    Raises:
      ConfigError: A claim is stronger than its event.
      UnsupportedEventError: No sound accounting is known for an event.
    """
    return tuple(_verified_epsilon(plan.name, claim) for claim in plan.claims)


def claim_epsilon(claim: Claim) -> float:
    """The epsilon that the event of a claim gives at its delta; math.inf if there is none."""
    guarantee = claim.guarantee
    if guarantee.delta >= 1:
        return math.inf
    return pld_epsilon(claim.event, guarantee.delta, guarantee.adjacency)


def group_cost(claim: Claim, num_units: int) -> tuple[float, float]:
    """Epsilon and delta of several units together, such as all rows of a person.

    Args:
      claim: What is claimed for one unit.
      num_units: Number of units.
    """
    event, given = claim.event, claim.guarantee
    if isinstance(event, Gaussian):
        # Units that are replaced one after the other move the mean by at most so many times what
        # one does, which is exact; no bound from epsilon and delta alone is nearly as small.
        of_all = dataclasses.replace(event, noise_multiplier=event.noise_multiplier / num_units)
        return pld_epsilon(of_all, given.delta, given.adjacency), given.delta
    return group_parameters(given.epsilon, given.delta, num_units)


def unamplified_epsilon(claim: Claim) -> float:
    """The epsilon of a claim if its batches and the order of its reports were known.

    math.inf where no finite epsilon can be certified without amplification.
    """
    try:
        event = without_amplification(claim.event)
        return claim_epsilon(Claim(guarantee=claim.guarantee, event=event))
    except (ConfigError, UnsupportedEventError):
        # What cannot be bounded counts as unbounded: a figure that warns may only be too large.
        return math.inf


def _verified_epsilon(plan_name: str, claim: Claim) -> float:
    epsilon = claim_epsilon(claim)
    guarantee = claim.guarantee
    if guarantee.is_private and guarantee.epsilon < epsilon * (1 - TOLERANCE):
        raise ConfigError(
            f"plan {plan_name!r} claims epsilon={guarantee.epsilon:.6g} at "
            f"delta={guarantee.delta:g} ({guarantee.unit}, {guarantee.adjacency.value}), but its "
            f"event gives only epsilon={epsilon:.6g}; claim what "
            "tulle.accounting.accountant.guarantee() returns, or add noise."
        )
    return epsilon


# The search for a plan's noise, its claims, its card and its ledger ask for the same epsilons, each
# of which composes distributions of losses. Events are frozen and compared by value, and refusals
# are not kept.
@functools.lru_cache(maxsize=_MOST_REMEMBERED)
def _remembered_epsilon(event: Event, delta: float, adjacency: Adjacency) -> float:
    return privacy_curve(event, adjacency).epsilon(delta)


def _check_adjacency(adjacency: Adjacency) -> None:
    if not isinstance(adjacency, Adjacency):
        raise ConfigError(f"adjacency={adjacency!r} must be an Adjacency, e.g. Adjacency.REPLACE.")


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
