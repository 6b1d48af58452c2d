"""Holds many runs of a mechanism against everything its privacy curve claims.

An attacker who names a data set from one score gets a true-positive rate p at a
false-positive rate f. A curve delta(epsilon) claims p <= e^epsilon f + delta(epsilon)
for every epsilon and every threshold of every score. A single point of the curve hides
most faults; all of it shows plain Gaussian noise that is 15% too small in 20,000 runs.
"""

import dataclasses
import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tulle.accounting.curve import PrivacyCurve
from tulle.errors import DataError
from tulle.privacy.fields import check_count, check_delta, check_prob

FloatArray = NDArray[np.float64]

LEAST_RUNS = 100
"""Least number of runs of an audit; fewer prove nothing."""
_NUM_EPSILONS = 401
"""Points of the claim that rates are held against; points left out can only hide a fault."""
_PLACING_SHARE = 10
"""One run of so many places the thresholds; the others are counted."""
_RUNS_BEYOND = 3
"""Placing runs beyond the outermost thresholds."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProfileAuditConfig:
    """Settings of a profile audit. Every field is public information."""

    false_alarm_prob: float = 1e-6
    """Largest probability that a right mechanism is called wrong."""
    num_thresholds: int = 100
    """Thresholds from the lower tail to the upper; fewer than 3 leave nothing in between."""
    delta: float = 1e-5
    """The delta at which a lower bound on epsilon is given."""

    def __post_init__(self) -> None:
        check_prob("false_alarm_prob", self.false_alarm_prob)
        check_count("num_thresholds", self.num_thresholds, least=3)
        check_delta(self.delta)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProfileAuditResult:
    """What many runs say about a claim."""

    worst_excess: float
    """How far the surest true-positive rate is above what the claim allows; <= 0 if none is."""
    threshold_quantile: float
    """The share of all scores below the threshold of `worst_excess`."""
    num_runs: int
    """Number of runs on both data sets together."""
    false_alarm_prob: float
    epsilon_lower_bound: float
    """No mechanism with these scores has a smaller epsilon at `delta`."""
    claimed_epsilon: float
    """What the claim says at `delta`."""
    delta: float

    @property
    def is_violated(self) -> bool:
        """True if the claim is wrong, but for the probability of a false alarm."""
        return self.worst_excess > 0


def audit_profile(
    scores: ArrayLike,
    neighbour_scores: ArrayLike,
    claim: PrivacyCurve,
    config: ProfileAuditConfig | None = None,
) -> ProfileAuditResult:
    """Compares what scores tell apart with what a curve claims at most.

    Args:
      scores: One number of each run on one data set, from what the run released. Runs
        are independent; the better the score tells the data sets apart, the more is seen.
      neighbour_scores: The same of runs on a neighbouring data set.
      claim: The curve under the adjacency of the two data sets.
      config: How sure to be, and how many thresholds to try.

    Privacy:
      For synthetic data sets: the result is exact and not private.
    """
    config = config or ProfileAuditConfig()
    first, second = _checked("scores", scores), _checked("neighbour_scores", neighbour_scores)
    thresholds = _place(first[::_PLACING_SHARE], second[::_PLACING_SHARE], config)
    # Every threshold has two bounds in each of the two data sets.
    alarm = config.false_alarm_prob / (4 * len(thresholds))
    pair = _Rates.above(_counted(first), thresholds, alarm)
    other = _Rates.above(_counted(second), thresholds, alarm)
    excesses = _excesses(pair, other, claim, math.log(first.size + second.size))
    worst = int(np.argmax(excesses))
    everything = np.concatenate([first, second])
    return ProfileAuditResult(
        worst_excess=float(excesses[worst]),
        threshold_quantile=float(np.mean(everything <= thresholds[worst])),
        num_runs=everything.size,
        false_alarm_prob=config.false_alarm_prob,
        epsilon_lower_bound=_least_epsilon(pair, other, config.delta),
        claimed_epsilon=claim.epsilon(config.delta),
        delta=config.delta,
    )


@dataclasses.dataclass(frozen=True, eq=False)
class _Rates:
    """Bounds of the probability of an event, for one event a threshold."""

    low: FloatArray
    high: FloatArray

    @classmethod
    def above(cls, scores: FloatArray, thresholds: FloatArray, alarm: float) -> "_Rates":
        """Bounds on the probability of a score above each threshold (Clopper and Pearson 1934).

        Args:
          scores: Independent scores, all of one data set.
          thresholds: Values that were chosen without these scores.
          alarm: Probability at which each bound may be wrong.
        """
        from scipy.special import betaincinv

        total = scores.size
        counts = total - np.searchsorted(np.sort(scores), thresholds, side="right")
        low = np.where(counts > 0, betaincinv(np.maximum(counts, 1), total - counts + 1, alarm), 0)
        rest = np.maximum(total - counts, 1)
        high = np.where(counts < total, 1 - betaincinv(rest, counts + 1, alarm), 1)
        return cls(low, high)

    @property
    def opposite(self) -> "_Rates":
        """Bounds for a score that is not above."""
        return _Rates(1 - self.high, 1 - self.low)


def _tests(first: _Rates, second: _Rates) -> list[tuple[FloatArray, FloatArray]]:
    """Lower bounds of true-positive and upper ones of false-positive rates, each way round."""
    pairs = [(first, second), (second, first)]
    pairs += [(one.opposite, other.opposite) for one, other in pairs]
    return [(one.low, other.high) for one, other in pairs]


def _excesses(
    first: _Rates, second: _Rates, claim: PrivacyCurve, largest_epsilon: float
) -> FloatArray:
    """[thresholds]: the worst over all ways round and all epsilons.

    From log(runs) on the claim allows everything that so few runs can show.
    """
    epsilons = np.linspace(0.0, largest_epsilon, _NUM_EPSILONS)
    deltas = claim.deltas(epsilons)
    excesses = [
        true_rates - np.min(np.exp(epsilons)[:, None] * false_rates + deltas[:, None], axis=0)
        for true_rates, false_rates in _tests(first, second)
    ]
    return np.asarray(np.max(excesses, axis=0), dtype=np.float64)


def _least_epsilon(first: _Rates, second: _Rates, delta: float) -> float:
    found = 0.0
    for true_rates, false_rates in _tests(first, second):
        ratios = (true_rates - delta) / false_rates
        found = max(found, math.log(max(1.0, float(np.max(ratios)))))
    return found


def _place(first: FloatArray, second: FloatArray, config: ProfileAuditConfig) -> FloatArray:
    """Thresholds at quantiles of scores that are not counted, denser in the tails."""
    from scipy.special import ndtr, ndtri

    both = np.concatenate([first, second])
    end = float(ndtri(_RUNS_BEYOND / both.size))
    levels = ndtr(np.linspace(end, -end, config.num_thresholds))
    # Values that occur, never means of two: scores may be infinite.
    return np.asarray(np.quantile(both, levels, method="inverted_cdf"), dtype=np.float64)


def _counted(scores: FloatArray) -> FloatArray:
    return np.delete(scores, np.s_[::_PLACING_SHARE])


def _checked(name: str, values: ArrayLike) -> FloatArray:
    scores = np.asarray(values, dtype=np.float64)
    if scores.ndim != 1 or scores.size < LEAST_RUNS:
        raise DataError(
            f"{name} of shape {scores.shape} must be one vector of at least {LEAST_RUNS} runs."
        )
    if np.isnan(scores).any():
        raise DataError(f"{name} has values that are no numbers; give every run a score.")
    return scores
