"""Randomizers of one value out of a few, each on two values."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tulle.audit.randomizers.trial import Randomizer, Trial
from tulle.mechanisms.entropy import NoiseSource
from tulle.mechanisms.finite_channel import FiniteChannel
from tulle.mechanisms.joint_response import (
    JointResponseConfig,
    JointSubsetConfig,
    release_joint_response,
)
from tulle.mechanisms.randomized_response import (
    RandomizedResponseConfig,
    release_randomized_bits,
    release_randomized_response,
)
from tulle.mechanisms.rappor import RapporConfig, release_rappor
from tulle.mechanisms.subset_selection import SubsetSelectionConfig, release_subset_selection
from tulle.privacy.events import EpsilonDelta
from tulle.privacy.units import Adjacency

_NUM_VALUES = 4
_NUM_ROWS = 3


def _randomized_response(noise_factor: float) -> Trial:
    config = RandomizedResponseConfig(epsilon=1 / noise_factor, num_values=_NUM_VALUES)
    return _of_values(release_randomized_response, config)


def _bits(noise_factor: float) -> Trial:
    config = RandomizedResponseConfig(epsilon=1 / noise_factor)

    def draw(is_neighbour: bool, num_draws: int, rng: NoiseSource) -> NDArray[Any]:
        raw_bits = np.full(num_draws, is_neighbour, np.uint8)
        return release_randomized_bits(raw_bits, config, rng=rng)

    return Trial(event=config.event(), adjacency=Adjacency.REPLACE, draw=draw)


def _rappor(noise_factor: float) -> Trial:
    config = RapporConfig(epsilon=1 / noise_factor, num_values=_NUM_VALUES)
    return _of_values(release_rappor, config)


def _subset_selection(noise_factor: float) -> Trial:
    config = SubsetSelectionConfig(epsilon=1 / noise_factor, num_values=_NUM_VALUES)
    return _of_values(release_subset_selection, config)


def _of_values(release: Callable[..., NDArray[Any]], config: Any) -> Trial:
    def draw(is_neighbour: bool, num_draws: int, rng: NoiseSource) -> NDArray[Any]:
        return release(np.full(num_draws, +is_neighbour), config, rng=rng)

    return Trial(event=config.event(), adjacency=Adjacency.REPLACE, draw=draw)


def _finite_channel(noise_factor: float) -> Trial:
    epsilon = 1 / noise_factor
    odds = np.exp(epsilon * np.array([[1, 0.5, 0], [0, 0.5, 1]]))
    probs = odds / odds.sum(axis=1, keepdims=True)
    channel = FiniteChannel.from_probs(probs, outputs=(0, 1, 2), epsilon=epsilon)

    def draw(is_neighbour: bool, num_draws: int, rng: NoiseSource) -> NDArray[Any]:
        return channel.draw(np.full(num_draws, +is_neighbour), rng=rng)

    event = EpsilonDelta(epsilon=epsilon, delta=0.0)
    return Trial(event=event, adjacency=Adjacency.REPLACE, draw=draw)


def _joint_response(noise_factor: float) -> Trial:
    config = JointResponseConfig(
        epsilon=1 / noise_factor, num_rows=_NUM_ROWS, max_conversions=_NUM_ROWS - 1
    )
    return _of_vectors(config)


def _joint_subset(noise_factor: float) -> Trial:
    return _of_vectors(JointSubsetConfig(epsilon=1 / noise_factor, num_rows=_NUM_ROWS))


def _of_vectors(config: JointResponseConfig | JointSubsetConfig) -> Trial:
    """No conversion, or one: any two label vectors of a unit are neighbours."""

    def draw(is_neighbour: bool, num_draws: int, rng: NoiseSource) -> NDArray[Any]:
        raw_vectors = np.zeros((num_draws, _NUM_ROWS), np.uint8)
        raw_vectors[:, 1] = is_neighbour
        return release_joint_response(raw_vectors, config, rng=rng)

    return Trial(event=config.event(), adjacency=Adjacency.REPLACE, draw=draw)


RESPONSES = (
    Randomizer(
        name="randomized-response",
        modules=("mechanisms.randomized_response",),
        make=_randomized_response,
    ),
    Randomizer(name="randomized-bits", modules=("mechanisms.randomized_response",), make=_bits),
    Randomizer(name="rappor", modules=("mechanisms.rappor",), make=_rappor),
    Randomizer(
        name="subset-selection", modules=("mechanisms.subset_selection",), make=_subset_selection
    ),
    Randomizer(name="finite-channel", modules=("mechanisms.finite_channel",), make=_finite_channel),
    Randomizer(name="joint-response", modules=("mechanisms.joint_response",), make=_joint_response),
    Randomizer(name="joint-subset", modules=("mechanisms.joint_response",), make=_joint_subset),
)
