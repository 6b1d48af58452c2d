"""Randomizers that add noise to numbers, each on two numbers as far apart as it allows."""

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tulle.audit.randomizers.trial import Draw, Outputs, Randomizer, Trial
from tulle.mechanisms.centred_noise import CentredNoise
from tulle.mechanisms.discrete_gaussian import DiscreteGaussianConfig, release_discrete_gaussian
from tulle.mechanisms.discrete_laplace import DiscreteLaplaceConfig, release_discrete_laplace
from tulle.mechanisms.entropy import NoiseSource
from tulle.mechanisms.gaussian import GaussianConfig, release_gaussian
from tulle.mechanisms.key_selection import KeySelectionConfig, select_keys
from tulle.mechanisms.key_thresholds import (
    GaussianKeyThresholdConfig,
    KeyThresholdConfig,
    LaplaceKeyThresholdConfig,
    release_key_counts,
)
from tulle.mechanisms.laplace import LaplaceConfig, release_laplace
from tulle.mechanisms.polya import NoiseShareConfig, sample_noise_shares
from tulle.mechanisms.split_and_mix import (
    SplitAndMixConfig,
    decode_sum,
    encode_values,
    shuffle_messages,
)
from tulle.mechanisms.staircase_noise import StaircaseConfig, release_staircase
from tulle.privacy.events import DiscreteLaplace
from tulle.privacy.units import Adjacency

_NUM_PARTIES = 19
"""Users of split-and-mix: the fewest for which its bound is proven."""
_SUMS_AT_ONCE = 5000
"""Sums that are drawn at once, so that the messages of all users fit into memory."""
_KEY_DELTA = 0.01
"""Delta of a key, large enough to be seen in some ten thousand draws."""
_MANY_UNITS, _SOME_UNITS = 30, 3
"""Units of a key: so many that it passes almost surely, and so few that it passes sometimes."""


def _laplace(noise_factor: float) -> Trial:
    config = LaplaceConfig(noise_multiplier=noise_factor, max_contribution=0.7)

    def draw(is_neighbour: bool, num_draws: int, rng: NoiseSource) -> NDArray[Any]:
        return release_laplace(np.full(num_draws, 0.7 * is_neighbour), config, rng=rng)

    return _rising(config, draw)


def _gaussian(noise_factor: float) -> Trial:
    config = GaussianConfig(noise_multiplier=noise_factor, max_contribution=0.7)

    def draw(is_neighbour: bool, num_draws: int, rng: NoiseSource) -> NDArray[Any]:
        return release_gaussian(np.full(num_draws, 0.7 * is_neighbour), config, rng=rng)

    return _rising(config, draw)


def _discrete_laplace(noise_factor: float) -> Trial:
    config = DiscreteLaplaceConfig(scale=3 * noise_factor, max_contribution=3)

    def draw(is_neighbour: bool, num_draws: int, rng: NoiseSource) -> NDArray[Any]:
        return release_discrete_laplace(np.full(num_draws, 3 * is_neighbour), config, rng=rng)

    return _rising(config, draw)


def _discrete_gaussian(noise_factor: float) -> Trial:
    config = DiscreteGaussianConfig(scale=3 * noise_factor, max_contribution=3)

    def draw(is_neighbour: bool, num_draws: int, rng: NoiseSource) -> NDArray[Any]:
        return release_discrete_gaussian(np.full(num_draws, 3 * is_neighbour), config, rng=rng)

    return _rising(config, draw)


def _staircase(noise_factor: float) -> Trial:
    config = StaircaseConfig(epsilon=1 / noise_factor, sensitivity=3)

    def draw(is_neighbour: bool, num_draws: int, rng: NoiseSource) -> NDArray[Any]:
        return release_staircase(np.full(num_draws, 3 * is_neighbour), config, rng=rng)

    return Trial(
        event=config.event(), adjacency=Adjacency.REPLACE, draw=draw, outputs=Outputs.RISING
    )


def _noise_shares(noise_factor: float) -> Trial:
    """All shares together; what one party adds alone is no release."""
    config = NoiseShareConfig(scale=noise_factor, num_shares=_NUM_PARTIES)

    def draw(is_neighbour: bool, num_draws: int, rng: NoiseSource) -> NDArray[Any]:
        shares = sample_noise_shares(config, num_draws * _NUM_PARTIES, rng=rng)
        totals: NDArray[Any] = shares.reshape(num_draws, _NUM_PARTIES).sum(axis=1)
        return totals + is_neighbour

    return Trial(
        event=DiscreteLaplace(scale=config.scale, max_contribution=1),
        adjacency=Adjacency.ADD_OR_REMOVE,
        draw=draw,
        outputs=Outputs.RISING,
    )


def _split_and_mix(noise_factor: float) -> Trial:
    """The sum after mixing; one of the users has 0 or the largest value."""
    config = SplitAndMixConfig(
        epsilon=1 / noise_factor,
        max_value=2,
        num_users=_NUM_PARTIES,
        min_honest_users=_NUM_PARTIES,
        security_delta=1e-4,
    )

    def draw(is_neighbour: bool, num_draws: int, rng: NoiseSource) -> NDArray[Any]:
        sums = []
        for start in range(0, num_draws, _SUMS_AT_ONCE):
            values = np.ones((min(_SUMS_AT_ONCE, num_draws - start), _NUM_PARTIES), np.int64)
            values[:, 0] = 2 * is_neighbour
            messages = encode_values(values, config, rng=rng).reshape(len(values), -1)
            sums += [decode_sum(shuffle_messages(each), config) for each in messages]
        return np.array(sums)

    return Trial(
        event=config.event(),
        adjacency=Adjacency.REPLACE,
        draw=draw,
        outputs=Outputs.RISING,
        delta=1e-3,
    )


def _key_selection(noise_factor: float) -> Trial:
    config = KeySelectionConfig(epsilon=1 / noise_factor, delta=_KEY_DELTA)

    def draw(is_neighbour: bool, num_draws: int, rng: NoiseSource) -> NDArray[Any]:
        return select_keys(np.full(num_draws, _SOME_UNITS + is_neighbour), config, rng=rng)

    return Trial(
        event=config.event(),
        adjacency=Adjacency.ADD_OR_REMOVE,
        draw=draw,
        delta=2 * _KEY_DELTA,
    )


def _laplace_threshold(noise_factor: float) -> Trial:
    return _key_counts(LaplaceKeyThresholdConfig(epsilon=1 / noise_factor, delta=_KEY_DELTA))


def _gaussian_threshold(noise_factor: float) -> Trial:
    return _key_counts(GaussianKeyThresholdConfig(noise_multiplier=noise_factor, delta=_KEY_DELTA))


def _key_counts(config: KeyThresholdConfig) -> Trial:
    """Counts of one key; 0 where it is not published."""

    def draw(is_neighbour: bool, num_draws: int, rng: NoiseSource) -> NDArray[Any]:
        raw_counts = np.full(num_draws, _MANY_UNITS + is_neighbour)
        published = release_key_counts(raw_counts, config, rng=rng)
        noisy_counts = np.zeros(num_draws, np.int64)
        noisy_counts[published.is_published] = published.noisy_counts
        return noisy_counts

    return dataclasses.replace(_rising(config, draw), delta=2 * _KEY_DELTA)


def _rising(config: CentredNoise | KeyThresholdConfig, draw: Draw) -> Trial:
    return Trial(
        event=config.event(),
        adjacency=Adjacency.ADD_OR_REMOVE,
        draw=draw,
        outputs=Outputs.RISING,
    )


ADDITIVE = (
    Randomizer(name="laplace", modules=("mechanisms.laplace", "mechanisms.lattice"), make=_laplace),
    Randomizer(
        name="gaussian", modules=("mechanisms.gaussian", "mechanisms.lattice"), make=_gaussian
    ),
    Randomizer(
        name="discrete-laplace", modules=("mechanisms.discrete_laplace",), make=_discrete_laplace
    ),
    Randomizer(
        name="discrete-gaussian",
        modules=("mechanisms.discrete_gaussian",),
        make=_discrete_gaussian,
    ),
    Randomizer(name="staircase", modules=("mechanisms.staircase_noise",), make=_staircase),
    Randomizer(name="noise-shares", modules=("mechanisms.polya",), make=_noise_shares),
    Randomizer(name="split-and-mix", modules=("mechanisms.split_and_mix",), make=_split_and_mix),
    Randomizer(name="key-selection", modules=("mechanisms.key_selection",), make=_key_selection),
    Randomizer(
        name="laplace-key-threshold",
        modules=("mechanisms.key_thresholds",),
        make=_laplace_threshold,
    ),
    Randomizer(
        name="gaussian-key-threshold",
        modules=("mechanisms.key_thresholds",),
        make=_gaussian_threshold,
    ),
)
