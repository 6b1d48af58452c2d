"""Joint responses that are wrong on purpose. The checks must catch each one."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tulle.mechanisms.entropy import NoiseSource
from tulle.mechanisms.joint_response import (
    ConversionChoice,
    JointResponseConfig,
    cap_conversions,
    release_joint_response,
)
from tulle.mechanisms.randomized_response import (
    RandomizedResponseConfig,
    release_randomized_response,
)
from tulle.mechanisms.subset_ranks import rank_vectors, unrank_vectors
from tulle.mechanisms.thresholds import loser_mass

Reports = NDArray[np.uint8]


def one_state_too_few(
    raw_vectors: ArrayLike, config: JointResponseConfig, *, rng: NoiseSource
) -> Reports:
    """Forgets that no conversion at all is a state too, in the chances only."""
    states = _states(raw_vectors, config, rng)
    loser = rng.words(states.size) // np.uint64(loser_mass(config.epsilon, config.num_states - 1))
    # The mass that is missing for the last state goes to the truth.
    is_lie = loser < config.num_states - 2
    other = np.where(is_lie, loser, 0).astype(np.int64)
    reports = np.where(is_lie, other + (other >= states), states)
    return unrank_vectors(reports, config.num_rows, config.max_conversions)


def noise_redrawn_for_each_row(
    raw_vectors: ArrayLike, config: JointResponseConfig, *, rng: NoiseSource
) -> Reports:
    """Takes each row from a fresh report of its unit."""
    reports = [release_joint_response(raw_vectors, config, rng=rng) for _ in range(config.num_rows)]
    columns = [report[:, row] for row, report in enumerate(reports)]
    return np.stack(columns, axis=1)


def noise_redrawn_until_two_agree(
    raw_vectors: ArrayLike, config: JointResponseConfig, *, rng: NoiseSource
) -> Reports:
    """Draws a second and a third report and keeps the third where the others differ."""
    first, second, third = (release_joint_response(raw_vectors, config, rng=rng) for _ in range(3))
    agrees = (first == second).all(axis=1)
    return np.where(agrees[:, None], first, third)


def conversions_capped_across_units(
    raw_vectors: ArrayLike, config: JointResponseConfig, *, rng: NoiseSource
) -> Reports:
    """Keeps the first conversions of two units together."""
    vectors = np.asarray(raw_vectors, bool)
    pairs = vectors.reshape(-1, 2 * config.num_rows)
    capped = cap_conversions(pairs, config.max_conversions, ConversionChoice.FIRST, rng=rng)
    return release_joint_response(capped.reshape(vectors.shape), config, rng=rng)


def cap_after_the_noise(
    raw_vectors: ArrayLike, config: JointResponseConfig, *, rng: NoiseSource
) -> Reports:
    """Noises each row with the whole epsilon, and counts on the cap to bound what a unit says."""
    response = RandomizedResponseConfig(epsilon=config.epsilon)
    noisy = release_randomized_response(raw_vectors, response, rng=rng).astype(bool)
    capped = cap_conversions(noisy, config.max_conversions, ConversionChoice.FIRST, rng=rng)
    return capped.astype(np.uint8)


def last_state_never_reported(
    raw_vectors: ArrayLike, config: JointResponseConfig, *, rng: NoiseSource
) -> Reports:
    """Draws a lie from one state too few."""
    states = _states(raw_vectors, config, rng)
    loser = rng.words(states.size) // np.uint64(config.response.words_per_loser)
    other = np.minimum(loser, config.num_states).astype(np.int64)
    reports = np.where(loser < config.num_states - 2, other + (other >= states), states)
    return unrank_vectors(reports, config.num_rows, config.max_conversions)


def _states(
    raw_vectors: ArrayLike, config: JointResponseConfig, rng: NoiseSource
) -> NDArray[np.int64]:
    vectors = np.asarray(raw_vectors, bool)
    capped = cap_conversions(vectors, config.max_conversions, config.choice, rng=rng)
    return rank_vectors(capped, config.max_conversions)
