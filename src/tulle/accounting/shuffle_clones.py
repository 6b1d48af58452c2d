"""Shuffled reports of any local randomizer: hiding among clones.

With chance e^-local_epsilon a report is a clone: distributed as if it came from
one of the two values compared, each with chance 1/2 (Feldman, McMillan, Talwar
2021, Theorem 3.2). Clones form a blanket over two outputs, so that the profile
is computed as for randomized response. It also holds for reports that depend
on earlier ones.

The chance 2 / (e^local_epsilon + 1) of the follow-up (2023) is not used: its
general bound carries an erratum. For randomized response use the blanket.
"""

import math

from tulle.accounting.shuffle_profile import (
    Blanket,
    Epsilons,
    check_delta,
    check_local_epsilon,
    profile_delta,
    profile_epsilon,
)
from tulle.errors import ConfigError


def clones_delta(epsilon: Epsilons, *, local_epsilon: float, num_reports: int) -> Epsilons:
    """An upper bound of delta at each epsilon >= 0, for one value or an array.

    One direction is enough: exchanging the two outputs exchanges the two data sets.

    Args:
      epsilon: Where to evaluate the profile; 0 is answered from `local_epsilon` on.
      local_epsilon: Protection of one report before the shuffle, with delta = 0.
      num_reports: Reports that are shuffled together, this unit's included.
    """
    return profile_delta(_clones(local_epsilon, num_reports), epsilon)


def clones_epsilon(delta: float, *, local_epsilon: float, num_reports: int) -> float:
    """The least epsilon that clones prove at `delta`.

    Never above `local_epsilon`, and equal to it for a single report.
    """
    return profile_epsilon(_clones(local_epsilon, num_reports), delta)


def clones_epsilon_closed_form(delta: float, *, local_epsilon: float, num_reports: int) -> float:
    """A formula for planning by hand, several times looser than `clones_epsilon()`.

    Raises:
      ConfigError: if there are too few reports for the formula to be proved.
    """
    _clones(local_epsilon, num_reports)
    check_delta(delta)
    if delta == 0:
        raise ConfigError("delta=0 must be > 0 for the closed form; choose e.g. 1e-7.")
    # FMT21, Theorem 3.1.
    most = math.log(num_reports / (16 * math.log(2 / delta)))
    if local_epsilon > most:
        raise ConfigError(
            f"local_epsilon={local_epsilon} must be <= log(num_reports / (16 log(2/delta))) = "
            f"{most:.4g} for the closed form; use clones_epsilon(), which has no such limit."
        )
    odds = math.exp(local_epsilon)
    spread = 8 * math.sqrt(odds * math.log(4 / delta) / num_reports) + 8 * odds / num_reports
    return min(local_epsilon, math.log1p(math.tanh(local_epsilon / 2) * spread))


def _clones(local_epsilon: float, num_reports: int) -> Blanket:
    check_local_epsilon(local_epsilon)
    clone_prob = math.exp(-local_epsilon)
    return Blanket(
        local_epsilon=local_epsilon,
        num_reports=num_reports,
        truth_prob=1 / (1 + clone_prob),
        value_prob=clone_prob / 2,
        rest_prob=0.0,
    )
