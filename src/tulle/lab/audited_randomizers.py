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
        name="source-noise", modules=("lab.browser_reports.source_noise",), make=_source_noise
    ),
)
"""All randomizers of the lab that are audited."""
