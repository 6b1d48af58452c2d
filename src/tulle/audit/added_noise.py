"""Noise on numbers, as audits see it: two numbers as far apart as one unit can move them.

First the mechanisms themselves, then the totals of a campaign, which use them.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tulle.audit.mechanism_audit import Outputs, Randomizer, Trial
from tulle.measure.queries.query_noise import (
    GaussianBudget,
    LaplaceBudget,
    Sensitivity,
    StepNoise,
)
from tulle.measure.w3c.campaign import AggregationConfig, aggregate_reports
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
_SENSITIVITY = Sensitivity(l1=4, l2=4.0, num_values=1)
"""What one unit adds to a total."""
_REPORTS_AT_ONCE = 64
"""Reports that are aggregated at once, each with two buckets that are nobody else's."""


def _shifted(
    release: Callable[..., NDArray[Any]],
    config: Any,
    distance: float,
    adjacency: Adjacency = Adjacency.ADD_OR_REMOVE,
) -> Trial:
    """A release of 0, or of what is as far from it as the settings let one unit move a number.

    Args:
      release: Function that takes raw numbers, settings and a source of noise.
      config: Settings of the release, which know its event.
      distance: Largest move of a number.
      adjacency: Adjacency that such a move belongs to.
    """

    def draw(is_neighbour: bool, num_draws: int, rng: NoiseSource) -> NDArray[Any]:
        return release(np.full(num_draws, distance * is_neighbour), config, rng=rng)

    return Trial(event=config.event(), adjacency=adjacency, draw=draw, outputs=Outputs.RISING)


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


def _key_counts(config: KeyThresholdConfig) -> Trial:
    """Counts of one key; 0 where it is not published."""

    def draw(is_neighbour: bool, num_draws: int, rng: NoiseSource) -> NDArray[Any]:
        raw_counts = np.full(num_draws, _MANY_UNITS + is_neighbour)
        published = release_key_counts(raw_counts, config, rng=rng)
        noisy_counts = np.zeros(num_draws, np.int64)
        noisy_counts[published.is_published] = published.noisy_counts
        return noisy_counts

    return Trial(
        event=config.event(),
        adjacency=Adjacency.ADD_OR_REMOVE,
        draw=draw,
        outputs=Outputs.RISING,
        delta=2 * _KEY_DELTA,
    )


def _totals(noise: StepNoise) -> Trial:
    def draw(is_neighbour: bool, num_draws: int, rng: NoiseSource) -> NDArray[Any]:
        raw_totals = np.full(num_draws, 100 + _SENSITIVITY.l1 * is_neighbour)
        return noise.release(raw_totals, rng=rng)

    return Trial(
        event=noise.event(),
        adjacency=Adjacency.ADD_OR_REMOVE,
        draw=draw,
        outputs=Outputs.RISING,
    )


def _aggregated_reports(noise_factor: float) -> Trial:
    """A report gives all it has to one of its two buckets; no two reports share one."""
    config = AggregationConfig(epsilon=1 / noise_factor, max_value=1)
    places = 2 * np.arange(_REPORTS_AT_ONCE)

    def draw(is_neighbour: bool, num_draws: int, rng: NoiseSource) -> NDArray[Any]:
        raw_reports = np.zeros((_REPORTS_AT_ONCE, 2 * _REPORTS_AT_ONCE), np.int64)
        raw_reports[places // 2, places + is_neighbour] = 1
        num_sums = -(-num_draws // _REPORTS_AT_ONCE)
        sums = [aggregate_reports(raw_reports, config, rng=rng) for _ in range(num_sums)]
        # Beyond 0 and 1 noise tells no more.
        return np.clip(np.concatenate(sums), 0, 1).reshape(-1, 2)[:num_draws]

    event = config.noise.event()
    return Trial(event=event, adjacency=Adjacency.ADD_OR_REMOVE, draw=draw)


ADDED_NOISE = (
    Randomizer(
        name="laplace",
        modules=("mechanisms.laplace", "mechanisms.lattice"),
        make=lambda factor: _shifted(
            release_laplace, LaplaceConfig(noise_multiplier=factor, max_contribution=0.7), 0.7
        ),
    ),
    Randomizer(
        name="gaussian",
        modules=("mechanisms.gaussian", "mechanisms.lattice"),
        make=lambda factor: _shifted(
            release_gaussian, GaussianConfig(noise_multiplier=factor, max_contribution=0.7), 0.7
        ),
    ),
    Randomizer(
        name="discrete-laplace",
        modules=("mechanisms.discrete_laplace",),
        make=lambda factor: _shifted(
            release_discrete_laplace, DiscreteLaplaceConfig(scale=3 * factor, max_contribution=3), 3
        ),
    ),
    Randomizer(
        name="discrete-gaussian",
        modules=("mechanisms.discrete_gaussian",),
        make=lambda factor: _shifted(
            release_discrete_gaussian,
            DiscreteGaussianConfig(scale=3 * factor, max_contribution=3),
            3,
        ),
    ),
    Randomizer(
        name="staircase",
        modules=("mechanisms.staircase_noise",),
        make=lambda factor: _shifted(
            release_staircase,
            StaircaseConfig(epsilon=1 / factor, sensitivity=3),
            3,
            Adjacency.REPLACE,
        ),
    ),
    Randomizer(name="noise-shares", modules=("mechanisms.polya",), make=_noise_shares),
    Randomizer(name="split-and-mix", modules=("mechanisms.split_and_mix",), make=_split_and_mix),
    Randomizer(name="key-selection", modules=("mechanisms.key_selection",), make=_key_selection),
    Randomizer(
        name="laplace-key-threshold",
        modules=("mechanisms.key_thresholds",),
        make=lambda factor: _key_counts(
            LaplaceKeyThresholdConfig(epsilon=1 / factor, delta=_KEY_DELTA)
        ),
    ),
    Randomizer(
        name="gaussian-key-threshold",
        modules=("mechanisms.key_thresholds",),
        make=lambda factor: _key_counts(
            GaussianKeyThresholdConfig(noise_multiplier=factor, delta=_KEY_DELTA)
        ),
    ),
)
TOTALS = (
    Randomizer(
        name="laplace-totals",
        modules=("measure.queries.query_noise",),
        make=lambda factor: _totals(LaplaceBudget(epsilon=1 / factor).noise(_SENSITIVITY)),
    ),
    Randomizer(
        name="gaussian-totals",
        modules=("measure.queries.query_noise",),
        make=lambda factor: _totals(GaussianBudget(noise_multiplier=factor).noise(_SENSITIVITY)),
    ),
    Randomizer(
        name="aggregated-reports", modules=("measure.w3c.campaign",), make=_aggregated_reports
    ),
)
