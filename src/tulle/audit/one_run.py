"""What one run gives away about many coins: lower bounds on epsilon from right guesses.

Each of many canaries holds the outcome of a fair coin, and whoever sees what the run
released guesses some of the coins. A private run makes right guesses rare. The first bound
needs (epsilon, delta) alone (Steinke, Nasr, Jagielski 2023); the second holds the guesses
against a whole privacy curve and sees more (Mahloujifar, Melis, Chaudhuri 2024). Flipping
one coin must be a neighbouring data set of the claim: a flipped label is one that was
replaced.

How many coins to guess is chosen beforehand: few guesses are surer, many are more evidence.
Several numbers are tried, and the probability of a false alarm is shared among them.
"""

import dataclasses
import functools
import math
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tulle.accounting.accountant import privacy_curve
from tulle.accounting.curve import PrivacyCurve
from tulle.accounting.event_rules import with_noise_scaled
from tulle.errors import ConfigError, DataError
from tulle.privacy.events import Event, Gaussian, NonPrivate, contains
from tulle.privacy.fields import check_count, check_delta, check_finite, check_prob
from tulle.privacy.units import Adjacency

FloatArray = NDArray[np.float64]
_LARGEST_EPSILON = 40.0
"""Largest epsilon that is tested, more than any number of guesses can show."""
_NUM_EPSILONS = 801
"""Points of a curve that guesses are held against; points left out make the bound looser."""
_PRECISION = 1e-3
"""Precision of a bound on epsilon and of the noise of a family; the search stays below."""
_MOST_NOISE = 64.0
"""Factor on the noise beyond which nothing is looked for: nearly no guess is right there."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class OneRunConfig:
    """Settings of an audit of one run. Every field is public information."""

    delta: float = 1e-5
    """The delta at which epsilon is compared."""
    false_alarm_prob: float = 0.05
    """Largest probability that a right run is called wrong, or a bound is above the truth."""
    guess_shares: tuple[float, ...] = (0.3, 0.1, 0.03)
    """Shares of the coins that are guessed; each is tried."""

    def __post_init__(self) -> None:
        check_prob("false_alarm_prob", self.false_alarm_prob)
        check_delta(self.delta)
        if not self.guess_shares:
            raise ConfigError("guess_shares=() leaves nothing to guess; give e.g. (0.1,).")
        for share in self.guess_shares:
            if not 0 < check_finite("guess_shares", share) <= 1:
                raise ConfigError(f"guess_shares has {share}; each must be in (0, 1].")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Guesses:
    """How many coins there were, how many were guessed, and how many of these right."""

    num_canaries: int
    num_guesses: int
    num_correct: int

    def __post_init__(self) -> None:
        check_count("num_canaries", self.num_canaries)
        check_count("num_guesses", self.num_guesses)
        check_count("num_correct", self.num_correct, least=0)
        if not self.num_correct <= self.num_guesses <= self.num_canaries:
            raise ConfigError(
                f"num_correct={self.num_correct} of num_guesses={self.num_guesses} for "
                f"num_canaries={self.num_canaries}: no number may exceed the next."
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class OneRunResult:
    """What the guesses of one run say about its claim."""

    guesses: Guesses
    """The guesses that give the largest lower bound on epsilon."""
    curve_lower_bound: float
    """Least epsilon at `delta` of a run of the claimed kind, with any noise."""
    epsilon_lower_bound: float
    """Least epsilon at `delta` of any run whatever."""
    claimed_epsilon: float
    """What the claim says at `delta`; math.inf for a run without privacy."""
    delta: float
    false_alarm_prob: float
    is_violated: bool
    """True if the claim is wrong, but for the probability of a false alarm."""


def audit_canaries(
    scores: ArrayLike,
    coins: ArrayLike,
    event: Event,
    adjacency: Adjacency,
    config: OneRunConfig | None = None,
) -> OneRunResult:
    """Compares right guesses with what an event allows.

    Args:
      scores: One for each canary, from what the run released; high where 1 is likelier.
      coins: What was drawn, 0 or 1, fair and independent.
      event: What the run is claimed to cost.
      adjacency: Relation under which two data sets that differ in one coin are neighbours.
      config: How sure to be, and how many coins to guess.

    Privacy:
      For canaries drawn for the audit. The result tells nothing about other rows.
    """
    config = config or OneRunConfig()
    coins_guessed = [
        guess_surest(scores, coins, num_guesses=num_guesses)
        for num_guesses in _numbers_of_guesses(np.size(coins), config)
    ]
    alarm = config.false_alarm_prob / len(coins_guessed)
    family = _family(event, adjacency)
    claim = privacy_curve(event, adjacency)
    of_any = [least_epsilon(g, delta=config.delta, false_alarm_prob=alarm) for g in coins_guessed]
    of_kind = [
        least_epsilon_in_family(g, family, delta=config.delta, false_alarm_prob=alarm)
        for g in coins_guessed
    ]
    best = max(range(len(of_kind)), key=lambda place: (of_kind[place], of_any[place]))
    return OneRunResult(
        guesses=coins_guessed[best],
        curve_lower_bound=of_kind[best],
        epsilon_lower_bound=max(of_any),
        claimed_epsilon=claim.epsilon(config.delta),
        delta=config.delta,
        false_alarm_prob=config.false_alarm_prob,
        is_violated=any(refutes_curve(g, claim, false_alarm_prob=alarm) for g in coins_guessed),
    )


def guess_surest(scores: ArrayLike, coins: ArrayLike, *, num_guesses: int) -> Guesses:
    """Guesses 1 where scores are highest and 0 where they are lowest, half of each.

    Args:
      scores: One for each canary, computed without its coin; high where 1 is likelier.
      coins: What was drawn, 0 or 1.
      num_guesses: How many to guess. Fix it before scores are seen.

    Privacy:
      Coins are drawn for the audit; counts of right guesses are about them alone.
    """
    values, drawn = np.asarray(scores, dtype=np.float64), np.asarray(coins)
    if values.ndim != 1 or values.shape != drawn.shape:
        raise DataError(
            f"scores of shape {values.shape} and coins of shape {drawn.shape} must be two vectors "
            "with one entry for each canary."
        )
    if np.isnan(values).any() or not np.isin(drawn, (0, 1)).all():
        raise DataError("every canary needs a score that is a number, and a coin that is 0 or 1.")
    if check_count("num_guesses", num_guesses) > values.size:
        raise ConfigError(
            f"num_guesses={num_guesses} must be <= the number of canaries, {values.size}."
        )
    order = np.argsort(values, kind="stable")
    num_ones = num_guesses // 2
    lowest, highest = order[: num_guesses - num_ones], order[values.size - num_ones :]
    correct = np.count_nonzero(drawn[lowest] == 0) + np.count_nonzero(drawn[highest] == 1)
    return Guesses(num_canaries=values.size, num_guesses=num_guesses, num_correct=int(correct))


def guesses_prob(guesses: Guesses, *, epsilon: float, delta: float) -> float:
    """Largest probability of so many right guesses if the run is (epsilon, delta)-private.

    Steinke, Nasr, Jagielski 2023, theorem 5.2: a binomial tail, and a part for delta.

    Args:
      guesses: What was guessed.
      epsilon: Epsilon of the run.
      delta: Delta of the run.
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
      false_alarm_prob: Largest probability that the bound is above the truth.
    """
    check_prob("false_alarm_prob", false_alarm_prob)
    low, high = 0.0, _LARGEST_EPSILON
    if guesses_prob(guesses, epsilon=low, delta=delta) > false_alarm_prob:
        return low
    while high - low > _PRECISION:
        middle = (low + high) / 2
        is_refuted = guesses_prob(guesses, epsilon=middle, delta=delta) <= false_alarm_prob
        low, high = (middle, high) if is_refuted else (low, middle)
    return low


def refutes_curve(guesses: Guesses, claim: PrivacyCurve, *, false_alarm_prob: float) -> bool:
    """True if a run under `claim` gives so many right guesses with less than this probability.

    The mean over canaries of the probability to guess right while at least j - 1 others are
    right is at most what the curve allows for the same with a wrong guess. So a probability
    `false_alarm_prob` of so many right guesses forces a probability of one fewer, and so on
    down to none; the claim is refuted if all of them together exceed 1.

    Args:
      guesses: What was guessed. Their number must have been fixed before scores were seen.
      claim: The curve that the run is claimed to have.
      false_alarm_prob: Largest probability that a right claim is refuted.
    """
    check_prob("false_alarm_prob", false_alarm_prob)
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
      false_alarm_prob: Largest probability that the bound is above the truth.
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
    """Lines whose maximum is the least probability of an event where its neighbour's is given.

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
    check_delta(delta)


def _numbers_of_guesses(num_canaries: int, config: OneRunConfig) -> list[int]:
    return sorted({max(1, round(share * num_canaries)) for share in config.guess_shares})


def _family(event: Event, adjacency: Adjacency) -> Callable[[float], PrivacyCurve]:
    """The claimed event with any noise; Gaussian noise for a run that claims nothing."""
    start = Gaussian(noise_multiplier=1.0) if contains(event, NonPrivate) else event

    @functools.cache
    def with_noise(factor: float) -> PrivacyCurve:
        return privacy_curve(with_noise_scaled(start, factor), adjacency)

    return with_noise
