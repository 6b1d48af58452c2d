"""Randomizers of the lab, as `tulle audit mechanisms` attacks them beside those of the product."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tulle.audit.mechanism_audit import MakeTrial, Outputs, Randomizer, Trial
from tulle.lab.browser_reports.report_states import ReportSpec
from tulle.lab.browser_reports.source_noise import SourceNoise, noise_sources
from tulle.lab.linear_labels.feature_rows import OneHotFields
from tulle.lab.linear_labels.label_sums import (
    LabelBlock,
    LabelSumsConfig,
    SumsNoise,
    release_label_sums,
)
from tulle.lab.trust.central_counts import CentralGaussianConfig, CentralLaplaceConfig
from tulle.mechanisms.analytic_gaussian import gaussian_epsilon
from tulle.mechanisms.entropy import NoiseSource
from tulle.privacy.units import Adjacency


def _label_sums(noise: SumsNoise, num_fields: int) -> MakeTrial:
    """Each row has ids of its own in all fields: their sums tell its label."""

    def make(noise_factor: float) -> Trial:
        def config_of(num_draws: int) -> LabelSumsConfig:
            layout = OneHotFields(num_ids=(num_draws,) * num_fields)
            return LabelSumsConfig(layout=layout, noise=noise, noise_multiplier=noise_factor)

        def draw(is_neighbour: bool, num_draws: int, rng: NoiseSource) -> NDArray[Any]:
            config = config_of(num_draws)
            ids = np.tile(np.arange(num_draws)[:, None], num_fields)
            rows = OneHotFields(num_ids=(num_draws,) * num_fields).rows(ids)
            block = LabelBlock(rows=rows, raw_labels=np.full(num_draws, +is_neighbour))
            noisy = release_label_sums([block], config, rng=rng).noisy_sums
            return np.asarray(noisy[1:].reshape(num_fields, num_draws).sum(axis=0))

        return Trial(
            event=config_of(1).event(),
            adjacency=Adjacency.REPLACE,
            draw=draw,
            outputs=Outputs.RISING,
        )

    return make


def _source_noise(noise_factor: float) -> Trial:
    noise = SourceNoise(spec=ReportSpec.event(), epsilon=1 / noise_factor)

    def draw(is_neighbour: bool, num_draws: int, rng: NoiseSource) -> NDArray[Any]:
        raw_states = noise.spec.states_at(np.full(num_draws, +is_neighbour))
        return noise_sources(raw_states, noise, rng=rng)

    return Trial(event=noise.event(), adjacency=Adjacency.REPLACE, draw=draw)


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


LAB_RANDOMIZERS: tuple[Randomizer, ...] = (
    Randomizer(
        name="laplace-label-sums",
        modules=("lab.linear_labels.label_sums",),
        make=_label_sums(SumsNoise.LAPLACE, 1),
    ),
    Randomizer(
        name="gaussian-label-sums",
        modules=("lab.linear_labels.label_sums",),
        make=_label_sums(SumsNoise.GAUSSIAN, 8),
    ),
    Randomizer(
        name="central-laplace-counts",
        modules=("lab.trust.central_counts",),
        make=_central_laplace,
    ),
    Randomizer(
        name="central-gaussian-counts",
        modules=("lab.trust.central_counts",),
        make=_central_gaussian,
    ),
    Randomizer(
        name="source-noise", modules=("lab.browser_reports.source_noise",), make=_source_noise
    ),
)
"""All randomizers of the lab that are audited."""
