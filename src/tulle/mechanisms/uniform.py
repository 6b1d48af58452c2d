"""Uniform integers and uniform subsets without bias.

A word modulo n is uniform only if it lies below the largest multiple of n:
words above it are thrown away and drawn again.
"""

import numpy as np
from numpy.typing import NDArray

from tulle.errors import ConfigError
from tulle.mechanisms.entropy import NoiseSource, Words
from tulle.mechanisms.thresholds import WORD_VALUES


def sample_below(bound: int, num_samples: int, *, rng: NoiseSource) -> Words:
    """Uniform integers from 0 to bound - 1.

    Args:
      bound: Public; at most 2^64.
      num_samples: How many to draw.
      rng: Source of the words. Sensitive: never log or save its state.
    """
    if not 1 <= bound <= WORD_VALUES:
        raise ConfigError(f"bound={bound} must be from 1 to 2^64; draw several numbers instead.")
    samples = np.empty(num_samples, np.uint64)
    last_accepted = np.uint64(WORD_VALUES - WORD_VALUES % bound - 1)
    num_filled = 0
    while num_filled < num_samples:
        words = rng.words(num_samples - num_filled)
        words = words[words <= last_accepted]
        samples[num_filled : num_filled + words.size] = words
        num_filled += words.size
    return samples if bound == WORD_VALUES else samples % np.uint64(bound)


def sample_subsets(
    num_items: int, subset_size: int, num_samples: int, *, rng: NoiseSource
) -> NDArray[np.bool_]:
    """Uniform subsets of a fixed size, one row of membership marks for each.

    Floyd's method (Bentley, Floyd 1987), one column of draws at a time.
    """
    if not 0 <= subset_size <= num_items:
        raise ConfigError(f"subset_size={subset_size} must be from 0 to num_items={num_items}.")
    if 2 * subset_size > num_items:
        return ~sample_subsets(num_items, num_items - subset_size, num_samples, rng=rng)
    is_member = np.zeros((num_samples, num_items), np.bool_)
    rows = np.arange(num_samples)
    for newest in range(num_items - subset_size, num_items):
        drawn = sample_below(newest + 1, num_samples, rng=rng).astype(np.int64)
        is_member[rows, np.where(is_member[rows, drawn], newest, drawn)] = True
    return is_member
