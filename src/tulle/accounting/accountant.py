"""Events to guarantees: what a mechanism costs under one adjacency.

The default and only certificate is by privacy loss distributions. Renyi
accounting (rdp.py) exists to reproduce papers.

No plan may promise more than its event gives: every epsilon of a plan is computed
again from its event. Whoever acts on a plan (a run, a card) calls `verify_plan` first.
"""

import functools
import math

from tulle.accounting.curve import NoPrivacyCurve, PrivacyCurve, curve_of_parts
from tulle.accounting.event_rules import as_float, event_parts, without_amplification
from tulle.accounting.group_privacy import GroupCurve, ShiftedCurve, split_group
from tulle.errors import ConfigError, UnsupportedEventError
from tulle.privacy.events import Event, Grouped, NonPrivate, contains
from tulle.privacy.guarantee import Claim, Guarantee
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
