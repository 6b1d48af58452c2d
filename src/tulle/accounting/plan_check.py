"""No plan may promise more than its event gives.

Every epsilon of a plan is computed again from its event. Whoever acts on a
plan (a run, a card) calls `verify_plan` first.
"""

import math

from tulle.accounting.accountant import privacy_curve
from tulle.accounting.amplification import without_amplification
from tulle.errors import ConfigError, UnsupportedEventError
from tulle.privacy.claim import Claim
from tulle.privacy.plan import Plan

TOLERANCE = 1e-7
"""Relative. Covers the rounding of figures on a card, not a different event."""


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
    return privacy_curve(claim.event, guarantee.adjacency).epsilon(guarantee.delta)


def unamplified_epsilon(claim: Claim) -> float:
    """The epsilon of a claim if its batches and the order of its reports were known.

    math.inf where no finite epsilon can be certified without amplification.
    """
    try:
        event = without_amplification(claim.event)
        return claim_epsilon(Claim(guarantee=claim.guarantee, event=event))
    except (ConfigError, UnsupportedEventError):
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
