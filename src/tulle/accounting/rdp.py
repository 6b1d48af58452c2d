"""Renyi accounting, to reproduce papers and to compare. Not a certificate.

dp-accounting 0.6.0 answers REPLACE_ONE with the sensitivity of add-or-remove
(5.22 instead of 11.00 for one Gaussian with noise multiplier 1 at delta = 1e-6),
so replace is refused here. Under the replace adjacency of a run the noise of a paper
costs more or less than the paper claims: account for it with accountant.py.
"""

import contextlib
import logging
import math
from collections.abc import Callable, Iterator

from tulle.accounting.accountant import calibrate_noise
from tulle.accounting.event_rules import rules_of
from tulle.errors import UnsupportedEventError
from tulle.privacy import events
from tulle.privacy.events import Event
from tulle.privacy.units import Adjacency


def rdp_epsilon(event: events.Event, delta: float, adjacency: Adjacency) -> float:
    """epsilon by Renyi DP under add-or-remove, as in Abadi et al. 2016 and Mironov 2017.

    Local randomizers in a composition add their pure epsilon, as the papers do.

    Args:
      event: What was released.
      delta: Probability that the claim does not cover.
      adjacency: Add-or-remove; any other is refused.

    Raises:
      UnsupportedEventError: Another adjacency, or an event that has no Renyi bound here.
    """
    if adjacency is not Adjacency.ADD_OR_REMOVE:
        raise UnsupportedEventError(
            f"RDP under {adjacency.value} is refused: its Gaussian bound is that of add-or-remove "
            "and would under-report. Use add-remove to reproduce a paper, or the PLD accountant."
        )
    # dp_accounting takes over half a second to import.
    from dp_accounting import NeighboringRelation
    from dp_accounting.rdp import RdpAccountant

    renyi_parts, pure_epsilon = _split(event)
    if not renyi_parts:
        return pure_epsilon
    accountant = RdpAccountant(neighboring_relation=NeighboringRelation.ADD_OR_REMOVE_ONE)
    with _without_warnings():
        for part, count in renyi_parts:
            accountant.compose(rules_of(part).renyi_event(part), count)
        return pure_epsilon + float(accountant.get_epsilon(delta))


def calibrate_noise_rdp(
    make_event: Callable[[float], Event], *, epsilon: float, delta: float
) -> float:
    """The least noise at which Renyi accounting claims (epsilon, delta) under add-or-remove.

    To one part in ten thousand, on the side that meets the target.

    Args:
      make_event: Builds the event from its noise; more noise must cost less.
      epsilon: Target, > 0.
      delta: Target, > 0.
    """
    return calibrate_noise(
        make_event,
        epsilon=epsilon,
        delta=delta,
        adjacency=Adjacency.ADD_OR_REMOVE,
        spent_epsilon=rdp_epsilon,
    )


@contextlib.contextmanager
def _without_warnings() -> Iterator[None]:
    """dp_accounting warns of each order that it leaves out; the others still bound epsilon."""
    logger = logging.getLogger("absl")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def _split(event: events.Event, times: int = 1) -> tuple[list[tuple[events.Event, int]], float]:
    """What Renyi DP composes, and the sum of what is pure."""
    if isinstance(event, events.Composed):
        splits = [_split(part, times) for part in event.events]
        return [p for parts, _ in splits for p in parts], math.fsum(pure for _, pure in splits)
    if isinstance(event, events.Repeated):
        return _split(event.event, times * event.count)
    pure_epsilon = rules_of(event).renyi_epsilon(event)
    return ([(event, times)], 0.0) if pure_epsilon is None else ([], times * pure_epsilon)
