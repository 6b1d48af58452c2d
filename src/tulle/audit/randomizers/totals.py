"""Noise on the totals of a campaign, each on two totals that differ in what one unit adds."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tulle.audit.randomizers.trial import Outputs, Randomizer, Trial
from tulle.measure.central_counts import CentralGaussianConfig, CentralLaplaceConfig
from tulle.measure.queries.query_noise import (
    GaussianBudget,
    LaplaceBudget,
    Sensitivity,
    StepNoise,
)
from tulle.measure.w3c.campaign import AggregationConfig, aggregate_reports
from tulle.mechanisms.analytic_gaussian import gaussian_epsilon
from tulle.mechanisms.entropy import NoiseSource
from tulle.privacy.units import Adjacency

_SENSITIVITY = Sensitivity(l1=4, l2=4.0, num_values=1)
_REPORTS_AT_ONCE = 64


def _laplace_totals(noise_factor: float) -> Trial:
    return _totals(LaplaceBudget(epsilon=1 / noise_factor).noise(_SENSITIVITY))


def _gaussian_totals(noise_factor: float) -> Trial:
    return _totals(GaussianBudget(noise_multiplier=noise_factor).noise(_SENSITIVITY))


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


def _central_laplace(noise_factor: float) -> Trial:
    def draw(is_neighbour: bool, num_draws: int, rng: NoiseSource) -> NDArray[Any]:
        config = CentralLaplaceConfig(
            epsilon=1 / noise_factor, num_users=num_draws, num_values=2 * num_draws
        )
        # Beyond the counts of 0 and 1 noise tells no more.
        return np.clip(_pairs_of_counts(config, is_neighbour, rng), 0, 1)

    config = CentralLaplaceConfig(epsilon=1 / noise_factor, num_users=1, num_values=3)
    return Trial(event=config.event(), adjacency=Adjacency.REPLACE, draw=draw)


def _central_gaussian(noise_factor: float) -> Trial:
    target = gaussian_epsilon(1e-5, noise_factor)

    def draw(is_neighbour: bool, num_draws: int, rng: NoiseSource) -> NDArray[Any]:
        config = CentralGaussianConfig(
            epsilon=target, delta=1e-5, num_users=num_draws, num_values=2 * num_draws
        )
        noisy_pairs = _pairs_of_counts(config, is_neighbour, rng)
        return np.asarray(noisy_pairs[:, 1] - noisy_pairs[:, 0])

    config = CentralGaussianConfig(epsilon=target, delta=1e-5, num_users=1, num_values=3)
    return Trial(
        event=config.event(), adjacency=Adjacency.REPLACE, draw=draw, outputs=Outputs.RISING
    )


def _pairs_of_counts(
    config: CentralLaplaceConfig | CentralGaussianConfig, is_neighbour: bool, rng: NoiseSource
) -> NDArray[np.float64]:
    """Each user holds the first or the second of two values that are nobody else's."""
    raw_values = 2 * np.arange(config.num_users) + is_neighbour
    noisy = [release.value for release in config.release(raw_values, rng=rng)]
    return np.array(noisy, np.float64).reshape(-1, 2)


TOTALS = (
    Randomizer(
        name="laplace-totals", modules=("measure.queries.query_noise",), make=_laplace_totals
    ),
    Randomizer(
        name="gaussian-totals", modules=("measure.queries.query_noise",), make=_gaussian_totals
    ),
    Randomizer(
        name="aggregated-reports",
        modules=("measure.w3c.campaign",),
        make=_aggregated_reports,
    ),
    Randomizer(
        name="central-laplace-counts",
        modules=("measure.central_counts",),
        make=_central_laplace,
    ),
    Randomizer(
        name="central-gaussian-counts",
        modules=("measure.central_counts",),
        make=_central_gaussian,
    ),
)
