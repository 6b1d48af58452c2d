"""What one run gives away about many coins: lower bounds on epsilon from right guesses.

Each of many canaries holds the outcome of a fair coin, and whoever sees what the run
released guesses some of the coins. A private run makes right guesses rare. The first bound
needs (epsilon, delta) alone (Steinke, Nasr, Jagielski 2023); the second holds the guesses
against a whole privacy curve and sees more (Mahloujifar, Melis, Chaudhuri 2024). Flipping
one coin must be a neighbouring data set of the claim: a flipped label is one that was
replaced.
"""

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from tulle.accounting.curve import PrivacyCurve
from tulle.audit.canary_guesses import Guesses
from tulle.errors import ConfigError
from tulle.privacy.fields import check_finite

FloatArray = NDArray[np.float64]

_LARGEST_EPSILON = 40.0
"""More than any number of guesses can show."""
_NUM_EPSILONS = 801
_PRECISION = 1e-3
_MOST_NOISE = 64.0


def guesses_chance(guesses: Guesses, *, epsilon: float, delta: float) -> float:
    """At most how likely so many right guesses are if the run is (epsilon, delta)-private.

    Steinke, Nasr, Jagielski 2023, theorem 5.2: a binomial tail, and a part for delta.
    """
    from scipy.stats import binom

    _check_epsilon_and_delta(epsilon, delta)
    right, made = guesses.num_correct, guesses.num_guesses
    prob = 1 / (1 + math.exp(-epsilon))
    tail = float(binom.sf(right - 1, made, prob))
    below = binom.pmf(np.arange(right - 1, -1, -1), made, prob)
    shares = np.cumsum(below) / np.arange(1, right + 1)
    worst = float(np.max(shares, initial=0.0))
    return min(1.0, tail + 2 * guesses.num_canaries * delta * worst)


def least_epsilon(guesses: Guesses, *, delta: float, false_alarm_prob: float) -> float:
    """No run with a smaller epsilon at `delta` gives so many right guesses, almost surely.

    Args:
      guesses: What was guessed. Their number must have been fixed before scores were seen.
      delta: Where epsilon is asked for.
      false_alarm_prob: Largest chance that the bound is above the truth.
    """
    _check_alarm(false_alarm_prob)
    low, high = 0.0, _LARGEST_EPSILON
    if guesses_chance(guesses, epsilon=low, delta=delta) > false_alarm_prob:
        return low
    while high - low > _PRECISION:
        middle = (low + high) / 2
        is_refuted = guesses_chance(guesses, epsilon=middle, delta=delta) <= false_alarm_prob
        low, high = (middle, high) if is_refuted else (low, middle)
    return low


def refutes_curve(guesses: Guesses, claim: PrivacyCurve, *, false_alarm_prob: float) -> bool:
    """True if a run under `claim` gives so many right guesses with less than this chance.

    The mean over canaries of the chance to guess right while at least j - 1 others are
    right is at most what the curve allows for the same with a wrong guess. So a chance
    `false_alarm_prob` of so many right guesses forces a chance of one fewer, and so on down
    to none; the claim is refuted if all of them together exceed 1.
    """
    _check_alarm(false_alarm_prob)
    slopes, intercepts = _least_wrong_lines(claim)
    made, total = guesses.num_guesses, guesses.num_canaries
    right_mass = false_alarm_prob * guesses.num_correct / total
    wrong_mass = false_alarm_prob * (made - guesses.num_correct) / total
    for right in range(guesses.num_correct - 1, -1, -1):
        forced = float(np.max(slopes * right_mass + intercepts))
        if forced <= wrong_mass:
            return False
        right_mass += right / (made - right) * (forced - wrong_mass)
        wrong_mass = forced
        if (right_mass + wrong_mass) * total > made:
            return True
    return False


def least_epsilon_in_family(
    guesses: Guesses,
    family: Callable[[float], PrivacyCurve],
    *,
    delta: float,
    false_alarm_prob: float,
) -> float:
    """Epsilon at `delta` of the most private curve of a family that the guesses allow.

    Args:
      guesses: What was guessed. Their number must have been fixed before scores were seen.
      family: The curve with the noise times a factor; more noise must be more private. The
        bound holds for runs whose curve is one of the family, or above one of it.
      delta: Where epsilon is asked for.
      false_alarm_prob: Largest chance that the bound is above the truth.
    """

    def is_refuted(factor: float) -> bool:
        return refutes_curve(guesses, family(factor), false_alarm_prob=false_alarm_prob)

    low, high = 1 / _MOST_NOISE, _MOST_NOISE
    if not is_refuted(high):
        return 0.0
    while high > low * (1 + _PRECISION):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if is_refuted(middle) else (middle, high)
    return family(high).epsilon(delta)


def _least_wrong_lines(claim: PrivacyCurve) -> tuple[FloatArray, FloatArray]:
    """Lines whose maximum is the least chance of an event where its neighbour's is given.

    From p <= e^epsilon f + delta for the event and for its opposite. A grid of epsilons
    leaves lines out, so the maximum is never too large.
    """
    epsilons = np.linspace(0.0, _LARGEST_EPSILON, _NUM_EPSILONS)
    deltas = claim.deltas(epsilons)
    ratios = np.exp(epsilons)
    slopes = np.concatenate([[0.0], 1 / ratios, ratios])
    intercepts = np.concatenate([[0.0], -deltas / ratios, 1 - deltas - ratios])
    return slopes, intercepts


def _check_epsilon_and_delta(epsilon: float, delta: float) -> None:
    if check_finite("epsilon", epsilon) < 0:
        raise ConfigError(f"epsilon={epsilon} must be >= 0.")
    if not 0 <= check_finite("delta", delta) < 1:
        raise ConfigError(f"delta={delta} must be in [0, 1); choose e.g. 1e-5.")


def _check_alarm(false_alarm_prob: float) -> None:
    if not 0 < check_finite("false_alarm_prob", false_alarm_prob) < 1:
        raise ConfigError(f"false_alarm_prob={false_alarm_prob} must be in (0, 1), e.g. 0.05.")
