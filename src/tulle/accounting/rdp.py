"""Renyi accounting, to reproduce papers and to compare. Not a certificate.

dp-accounting 0.6.0 answers REPLACE_ONE with the sensitivity of add-or-remove
(5.22 instead of 11.00 for one Gaussian with noise multiplier 1 at delta = 1e-6),
so replace is refused here.
"""

import contextlib
import functools
import logging
import math
from collections.abc import Iterator

from tulle.accounting.event_profiles import event_parts
from tulle.errors import UnsupportedEventError
from tulle.privacy import events
from tulle.privacy.units import Adjacency

_LEAST_NOISE, _MOST_NOISE = 1e-100, 1e100


def rdp_epsilon(event: events.Event, delta: float, adjacency: Adjacency) -> float:
    """epsilon by Renyi DP under add-or-remove, as in Abadi et al. 2016 and Mironov 2017.

    Local randomizers in a composition add their pure epsilon, as the papers do.
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
            accountant.compose(_dp_event(part), count)
        return pure_epsilon + float(accountant.get_epsilon(delta))


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
    if isinstance(event, (events.RandomizedResponse, events.SubsetSelection)):
        ((profile, _),) = event_parts(event, Adjacency.ADD_OR_REMOVE)
        return [], times * profile.pure_epsilon
    return [(event, times)], 0.0


@functools.singledispatch
def _dp_event(event: events.Event) -> object:
    raise UnsupportedEventError(
        f"RDP has no accounting for {type(event).__name__} here; use the PLD accountant."
    )


@_dp_event.register
def _(event: events.Gaussian) -> object:
    from dp_accounting import GaussianDpEvent

    if not _LEAST_NOISE <= event.noise_multiplier <= _MOST_NOISE:
        raise UnsupportedEventError(
            f"RDP with noise_multiplier={event.noise_multiplier:g} is refused: its square leaves "
            f"the range of a float. Use noise in [{_LEAST_NOISE:g}, {_MOST_NOISE:g}], or the PLD "
            "accountant."
        )
    return GaussianDpEvent(event.noise_multiplier)


@_dp_event.register
def _(event: events.Laplace) -> object:
    from dp_accounting import LaplaceDpEvent

    return LaplaceDpEvent(event.noise_multiplier)


@_dp_event.register
def _(event: events.PoissonSampled) -> object:
    from dp_accounting import PoissonSampledDpEvent

    if event.max_rows_per_unit > 1 or not isinstance(event.event, events.Gaussian):
        raise UnsupportedEventError(
            "RDP here covers Poisson-sampled Gaussian noise with one row a unit; "
            "use the PLD accountant for anything else."
        )
    return PoissonSampledDpEvent(event.sampling_prob, _dp_event(event.event))
