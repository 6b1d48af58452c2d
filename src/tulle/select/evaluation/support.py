"""Whether a logged rule can tell about another one, decided from public data alone.

Only ads that the logging rule may show say anything. What a device finds missing in its own
probabilities must not stop an evaluation: that it stopped would be a release.
"""

import math
from collections.abc import Callable
from functools import partial

import numpy as np

from tulle.errors import ConfigError
from tulle.mechanisms.thresholds import WORD_VALUES
from tulle.select.auctions import Auctions, BoolArray, FloatArray, IntArray
from tulle.select.mechanisms.floors import FloorMechanism
from tulle.select.mechanisms.mechanism import SelectionMechanism
from tulle.select.mechanisms.shortlists import Shortlist, finalist_sizes


def check_support(
    logging: SelectionMechanism, target: SelectionMechanism, auctions: Auctions, counted: BoolArray
) -> None:
    """Refuses a target that may show an ad which the logging rule never shows.

    Args:
      logging: The rule that decided; its finalists are the best few by server score.
      target: The rule to evaluate. Where its finalists are unknown, they are all candidates.
      auctions: The public side.
      counted: [auctions], the decisions that are evaluated.
    """
    shortlist = _shortlist(logging)
    if shortlist is None:
        raise ConfigError(
            f"logging={logging.name!r} gives no public probability to every finalist, so it tells "
            "nothing about other choices; log with a FloorMechanism."
        )
    missing = _target_sizes(target, auctions) > finalist_sizes(auctions, shortlist)
    if num_missing := int(np.count_nonzero(missing & counted)):
        raise ConfigError(
            f"target={target.name!r} may show ads that logging={logging.name!r} never shows, in "
            f"{num_missing} auctions. Evaluate a target with a shorter shortlist, or log with a "
            "longer one."
        )


def weight_limits(
    logging: SelectionMechanism, target: SelectionMechanism, auctions: Auctions
) -> FloatArray | None:
    """[auctions], what no weight target probability / logging probability exceeds; None if unknown.

    Known where floors are: no finalist's probability is below its floor.

    Args:
      logging: The rule that decided.
      target: The rule to evaluate.
      auctions: The public side.
    """
    if not isinstance(logging, FloorMechanism):
        return None
    floors = _by_size(finalist_sizes(auctions, logging.shortlist), partial(_floor, logging))
    if not isinstance(target, FloorMechanism):
        return 1 / floors
    tops = _by_size(finalist_sizes(auctions, target.shortlist), partial(_top, target))
    return tops / floors


def _shortlist(mechanism: SelectionMechanism) -> Shortlist | None:
    """The public rule for finalists, each of which has a probability; None if there is none."""
    return mechanism.shortlist if 0 < mechanism.epsilon < math.inf else None


def _target_sizes(target: SelectionMechanism, auctions: Auctions) -> IntArray:
    shortlist = target.shortlist
    return auctions.sizes if shortlist is None else finalist_sizes(auctions, shortlist)


def _by_size(sizes: IntArray, chance: Callable[[int], float]) -> FloatArray:
    """[auctions], a probability that follows from the number of finalists."""
    chances = np.ones(int(sizes.max(initial=0)) + 1)
    for size in np.unique(sizes).tolist():
        chances[size] = chance(size)
    return chances[sizes]


def _floor(mechanism: FloorMechanism, num_finalists: int) -> float:
    if num_finalists == 1:
        return 1.0
    return mechanism.masses(num_finalists).floor_words / WORD_VALUES


def _top(mechanism: FloorMechanism, num_finalists: int) -> float:
    return max(mechanism.masses(num_finalists).boosted_words) / WORD_VALUES
