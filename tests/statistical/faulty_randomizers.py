"""Randomizers and key selections that are wrong on purpose. The checks must catch each one."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tulle.mechanisms.entropy import NoiseSource
from tulle.mechanisms.key_selection import KeySelectionConfig, keep_thresholds
from tulle.mechanisms.key_thresholds import LaplaceKeyThresholdConfig
from tulle.mechanisms.polya import NoiseShareConfig, sample_noise_shares
from tulle.mechanisms.randomized_response import RandomizedResponseConfig
from tulle.mechanisms.rappor import RapporConfig
from tulle.mechanisms.split_and_mix import SplitAndMixConfig
from tulle.mechanisms.subset_selection import SubsetSelectionConfig
from tulle.mechanisms.thresholds import loser_mass, sample_subsets

Reports = NDArray[Any]


def threshold_rounded_the_wrong_way(
    raw_values: ArrayLike, config: RandomizedResponseConfig, *, rng: NoiseSource
) -> Reports:
    """One word of 2^64 too few for each wrong value."""
    return _respond(raw_values, config, rng.words, config.words_per_loser - 1)


def other_value_off_by_one(
    raw_values: ArrayLike, config: RandomizedResponseConfig, *, rng: NoiseSource
) -> Reports:
    """Skips the value after the truth instead of the truth."""
    held = np.asarray(raw_values)
    loser = rng.words(held.size) // np.uint64(config.words_per_loser)
    other = np.minimum(loser, config.num_values).astype(np.int64)
    return np.where(loser < config.num_values - 1, other + (other > held), held)


def truth_kept_among_the_others(
    raw_values: ArrayLike, config: RandomizedResponseConfig, *, rng: NoiseSource
) -> Reports:
    """A lie is drawn from all values, the truth included."""
    held = np.asarray(raw_values)
    num_lies = (config.num_values - 1) * config.words_per_loser
    words_per_value = np.uint64(-(-num_lies // config.num_values))
    words = rng.words(held.size)
    return np.where(words < np.uint64(num_lies), (words // words_per_value).astype(int), held)


def one_word_for_keeping_and_for_the_value(
    raw_values: ArrayLike, config: RandomizedResponseConfig, *, rng: NoiseSource
) -> Reports:
    """The word that decided to lie, and so is small, also picks the other value."""
    held = np.asarray(raw_values)
    words = rng.words(held.size)
    other = (words // np.uint64(2**64 // (config.num_values - 1) + 1)).astype(np.int64)
    is_lie = words < np.uint64((config.num_values - 1) * config.words_per_loser)
    return np.where(is_lie, other + (other >= held), held)


def whole_epsilon_for_each_bit(
    raw_values: ArrayLike, config: RapporConfig, *, rng: NoiseSource
) -> Reports:
    """Forgets that two bits differ between two values."""
    return _flip_bits(raw_values, config, rng, loser_mass(config.epsilon, 2))


def one_word_for_all_bits(
    raw_values: ArrayLike, config: RapporConfig, *, rng: NoiseSource
) -> Reports:
    """All bits of a report flip together."""
    held = np.asarray(raw_values)
    is_flipped = rng.words(held.size) < np.uint64(config.words_per_flip)
    return (np.arange(config.num_values) == held[:, None]) ^ is_flipped[:, None]


def absent_subsets_that_may_hold_the_truth(
    raw_values: ArrayLike, config: SubsetSelectionConfig, *, rng: NoiseSource
) -> Reports:
    """Draws a subset "without the truth" from all values."""
    held = np.asarray(raw_values)
    rows = np.arange(held.size)
    is_present = rng.words(held.size) >= np.uint64(config.words_for_absent)
    reports = sample_subsets(config.num_values, config.reported_size, held.size, rng=rng)
    swap = is_present & ~reports[rows, held]
    first = reports.argmax(axis=1)
    reports[rows[swap], first[swap]] = False
    reports[rows[swap], held[swap]] = True
    return reports


def keep_thresholds_one_word_too_high(config: KeySelectionConfig) -> list[int]:
    """Rounds the first step up."""
    table = list(keep_thresholds(config.epsilon, config.delta))
    return [table[0], table[1] + 1, *table[2:]]


def keep_thresholds_one_unit_too_early(config: KeySelectionConfig) -> list[int]:
    """Treats a key with n units as one with n + 1."""
    table = keep_thresholds(config.epsilon, config.delta)
    return [0, *table[2:]]


def key_threshold_one_too_low(config: LaplaceKeyThresholdConfig) -> int:
    """Forgets that the unit itself counts."""
    return config.threshold - 1


def noise_shares_of_all_users(
    config: SplitAndMixConfig, num_samples: int, *, rng: NoiseSource
) -> NDArray[np.int64]:
    """Counts on the noise of users who may be dishonest."""
    share = NoiseShareConfig(scale=config.noise_scale, num_shares=config.num_users)
    return sample_noise_shares(share, num_samples, rng=rng)


def _respond(
    raw_values: ArrayLike, config: RandomizedResponseConfig, draw: Any, words_per_loser: int
) -> Reports:
    held = np.asarray(raw_values)
    loser = draw(held.size) // np.uint64(words_per_loser)
    other = np.minimum(loser, config.num_values).astype(np.int64)
    return np.where(loser < config.num_values - 1, other + (other >= held), held)


def _flip_bits(
    raw_values: ArrayLike, config: RapporConfig, rng: NoiseSource, words_per_flip: int
) -> Reports:
    held = np.asarray(raw_values)
    words = rng.words(held.size * config.num_values).reshape(held.size, config.num_values)
    return (np.arange(config.num_values) == held[:, None]) ^ (words < np.uint64(words_per_flip))
