"""Profiles of mechanisms that see a random part of the rows.

Gaussian noise has tight pairs of its own (gaussian_pairs.py). This file holds
what is true for every mechanism, from its profile alone, and what truncation of
a Poisson batch costs.
"""

import functools
import math
import sys

import numpy as np
from scipy import special

from tulle.accounting.gaussian_pairs import (
    multi_row_remove_profile,
    multi_row_replace_profile,
    sampled_gaussian_remove_profile,
    sampled_gaussian_replace_profile,
)
from tulle.accounting.profiles import FloatArray, Profile, gaussian_profile
from tulle.errors import ConfigError

MOST_ROWS_PER_UNIT = 10_000
"""Most rows of a unit in sampled batches with Gaussian noise that are accounted; more are refused,
as the tables of so many take long."""


def poisson_remove_profile(base: Profile, sampling_prob: float) -> Profile:
    """Poisson sampling of any mechanism under add-or-remove; exact.

    `base` is the mechanism with the unit against without it. With P1 = M(with),
    Q = M(without), the pair is (1-q) Q + q P1 against Q.
    """
    q = sampling_prob

    def remove(epsilon: FloatArray) -> FloatArray:
        return q * base.forward(_log_one_plus_expm1_over(epsilon, q))

    def add(epsilon: FloatArray) -> FloatArray:
        # [Q - a ((1-q) Q + q P1)]+ = (1 - a (1-q)) [Q - g P1]+ with g = a q / (1 - a (1-q)).
        # e^709 is the end of floats. Where `left` is negative the loss is out of reach: delta is 0.
        left = 1 - np.exp(np.minimum(epsilon, 700.0)) * (1 - q)
        inside = left > 0
        safe = np.where(inside, left, 1.0)
        inner = np.maximum(0.0, epsilon + math.log(q) - np.log(safe))
        return np.where(inside, safe * base.swapped().forward(inner), 0.0)

    return Profile(remove, add, amplified_epsilon(base.pure_epsilon, q))


def poisson_replace_profile(remove: Profile, replace: Profile, sampling_prob: float) -> Profile:
    """Poisson sampling of any mechanism under replace; an upper bound.

    Advanced joint convexity (Balle, Barthe, Gaboardi 2018, theorem 2): with
    e^inner = 1 + (e^epsilon - 1) / q, the sampled unit is compared with the
    mixture of "not sampled" (remove) and "replaced" (replace).

    Args:
      remove: The profile of the mechanism with the unit against without it.
      replace: The profile of the mechanism with the unit against another one.
      sampling_prob: Probability of each row to be in the batch (q).
    """
    q = sampling_prob

    def delta(epsilon: FloatArray) -> FloatArray:
        inner = _log_one_plus_expm1_over(epsilon, q)
        replaced_share = np.exp(epsilon - inner)
        mixed = (1 - replaced_share) * remove.worst(inner) + replaced_share * replace.worst(inner)
        return np.asarray(q * mixed)

    base_epsilon = max(remove.pure_epsilon, replace.pure_epsilon)
    return Profile(delta, largest_loss=amplified_epsilon(base_epsilon, q))


def fixed_size_replace_profile(replace: Profile, sampling_prob: float) -> Profile:
    """A uniform batch of fixed size under replace (Balle, Barthe, Gaboardi 2018, theorem 11)."""
    return poisson_replace_profile(replace, replace, sampling_prob)


def amplified_epsilon(epsilon: float, sampling_prob: float) -> float:
    """log(1 + q (e^epsilon - 1)), what sampling makes of a pure epsilon."""
    if epsilon < 700:  # e^709 is the end of floats
        return math.log1p(sampling_prob * math.expm1(epsilon))
    return epsilon + math.log(sampling_prob)


def rows_used_weights(max_rows: int, sampling_prob: float) -> FloatArray:
    """Probabilities that 0, 1, ..., max_rows rows of a unit enter a Poisson batch."""
    # By logarithms: the binomial coefficients of many rows leave the range of floats.
    used = np.arange(max_rows + 1, dtype=np.float64)
    log_choices = -special.betaln(used + 1, max_rows - used + 1) - math.log(max_rows + 1)
    log_chances = special.xlogy(used, sampling_prob) + special.xlog1py(
        max_rows - used, -sampling_prob
    )
    return np.asarray(np.exp(log_choices + log_chances))


@functools.lru_cache(maxsize=8)
def poisson_gaussian_profile(
    sampling_prob: float, noise_multiplier: float, max_rows: int, *, replace: bool
) -> Profile:
    """The tight pair of Gaussian noise on a Poisson batch.

    Kept for the next number of steps: the tables of many rows take a while.

    Args:
      sampling_prob: Probability of each row to be in the batch.
      noise_multiplier: Noise over the largest contribution of one row.
      max_rows: Most rows of one unit.
      replace: Whether the unit is replaced, and not removed.
    """
    if max_rows > MOST_ROWS_PER_UNIT:
        raise ConfigError(
            f"max_rows_per_unit={max_rows} must be <= {MOST_ROWS_PER_UNIT} to be accounted row by "
            "row; keep fewer rows of each unit, or clip all rows of a unit together."
        )
    if max_rows == 1 and replace:
        return sampled_gaussian_replace_profile(sampling_prob, noise_multiplier)
    if max_rows == 1:
        return sampled_gaussian_remove_profile(sampling_prob, noise_multiplier)
    weights = rows_used_weights(max_rows, sampling_prob)
    if replace:
        return multi_row_replace_profile(weights, noise_multiplier)
    return multi_row_remove_profile(weights, noise_multiplier)


def truncation_profile(
    num_rows: int, sampling_prob: float, max_batch_size: int, noise_multiplier: float, max_rows: int
) -> tuple[float, Profile]:
    """The probability that a batch may be cut, and the profile given that.

    One row: Ganesh 2025 (arXiv 2508.15089): a cut batch is a uniform batch of
    fixed size, in which the row takes the place of another (distance 2).
    Several rows: the others alone leave no room for all of them; then nothing is
    claimed for sampling, and up to `max_rows` rows change or push out others.

    Args:
      num_rows: Number of rows of the data.
      sampling_prob: Probability of each row to be in the batch.
      max_batch_size: Rows that fit into a batch.
      noise_multiplier: Noise over the largest contribution of one row.
      max_rows: Most rows of one unit.
    """
    # Of the others alone: whether they leave room does not depend on the unit, so neighbours agree
    # on this probability and it may mix two cases like a public coin.
    others = num_rows - max_rows
    cut_prob = _more_than(max_batch_size - max_rows, others, sampling_prob)
    # 2 max_rows: rows of the unit may enter, and as many rows of others leave for them.
    if cut_prob == 0 or max_rows > 1:
        return cut_prob, gaussian_profile(2 * max_rows / noise_multiplier)
    # Given a full batch of B, the row is in it with Pr[Bin(n, q) > B] B / (n cut_prob).
    too_many = _more_than(max_batch_size, num_rows, sampling_prob)
    inclusion = too_many * max_batch_size / num_rows / cut_prob
    # A probability that underflows is rounded up: it has a logarithm then, and costs more.
    inclusion = min(1.0, max(inclusion, sys.float_info.min))
    # Half the noise is twice the distance: the row's place may go to another row.
    return cut_prob, sampled_gaussian_replace_profile(inclusion, noise_multiplier / 2)


def mixed_profile(first: Profile, second: Profile, second_prob: float) -> Profile:
    """The profile where a public coin decides which of two mechanisms runs.

    Args:
      first: The profile of one.
      second: The profile of the other.
      second_prob: Probability that the other runs.
    """

    def forward(epsilon: FloatArray) -> FloatArray:
        return (1 - second_prob) * first.forward(epsilon) + second_prob * second.forward(epsilon)

    infinite_prob = (1 - second_prob) * first.infinite_prob + second_prob * second.infinite_prob
    if first.backward is None and second.backward is None:
        return Profile(forward, infinite_prob=infinite_prob)

    def backward(epsilon: FloatArray) -> FloatArray:
        return (1 - second_prob) * first.swapped().forward(
            epsilon
        ) + second_prob * second.swapped().forward(epsilon)

    return Profile(forward, backward, infinite_prob=infinite_prob)


def _more_than(count: int, num_rows: int, sampling_prob: float) -> float:
    """The probability that more than `count` of `num_rows` rows are sampled."""
    if count < 0 or count >= num_rows:
        return 1.0 if count < 0 else 0.0
    return float(special.betainc(count + 1, num_rows - count, sampling_prob))


def _log_one_plus_expm1_over(epsilon: FloatArray, q: float) -> FloatArray:
    """log(1 + (e^epsilon - 1) / q) without overflow."""
    with np.errstate(divide="ignore"):
        log_expm1 = epsilon + np.log(-np.expm1(-epsilon))
    return np.asarray(np.logaddexp(0.0, log_expm1 - math.log(q)))
