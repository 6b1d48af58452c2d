"""Releases of labels, each on two labels, or two label vectors of one unit."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tulle.audit.randomizers.trial import MakeTrial, Outputs, Randomizer, Trial
from tulle.labels.additive_noise import DiscreteLaplaceLabels, LaplaceLabels
from tulle.labels.binary_response import BinaryResponse
from tulle.labels.bins.bin_response import BinResponse
from tulle.labels.class_response import ClassResponse
from tulle.labels.label_grid import LabelGrid
from tulle.labels.label_prior import LabelPriorConfig, release_prior_of_counts
from tulle.labels.linear.label_sums import (
    LabelBlock,
    LabelSumsConfig,
    SumsNoise,
    release_label_sums,
)
from tulle.labels.linear.one_hot_rows import OneHotFields
from tulle.labels.prior_response import PriorResponse
from tulle.labels.row_mechanism import RowMechanism
from tulle.labels.staircase import StaircaseLabels
from tulle.labels.unbiased.unbiased_response import UnbiasedResponse
from tulle.labels.units.unit_response import JointResponse, PerRowResponse, UnitMechanism
from tulle.labels.units.unit_rows import group_rows
from tulle.mechanisms.entropy import NoiseSource
from tulle.privacy.units import Adjacency, Unit

_GRID = LabelGrid(low=0, high=3)
_PRIOR = np.array([0.4, 0.3, 0.2, 0.1])
_NUM_ROWS = 3


def _row(build: Callable[[float], RowMechanism], labels: tuple[float, float]) -> MakeTrial:
    """The trial of a mechanism that noises each label by itself."""

    def make(noise_factor: float) -> Trial:
        mechanism = build(1 / noise_factor)

        def draw(is_neighbour: bool, num_draws: int, rng: NoiseSource) -> NDArray[Any]:
            raw_labels = np.full(num_draws, labels[is_neighbour])
            return mechanism.release(raw_labels, rng=rng).labels

        return Trial(event=mechanism.event(), adjacency=Adjacency.REPLACE, draw=draw)

    return make


def _number(build: Callable[[float], RowMechanism]) -> MakeTrial:
    """The same for noise that is added to a number."""
    make_finite = _row(build, (_GRID.low, _GRID.high))

    def make(noise_factor: float) -> Trial:
        return dataclasses.replace(make_finite(noise_factor), outputs=Outputs.RISING)

    return make


def _unit(build: Callable[[float], UnitMechanism], most_ones: int) -> MakeTrial:
    """The trial of a mechanism that noises all labels of a unit: none is 1, or the first are."""

    def make(noise_factor: float) -> Trial:
        mechanism = build(1 / noise_factor)

        def draw(is_neighbour: bool, num_draws: int, rng: NoiseSource) -> NDArray[Any]:
            users = np.repeat(np.arange(num_draws), _NUM_ROWS)
            rows = group_rows(Unit.user(), owner_ids=users)
            raw_labels = np.zeros((num_draws, _NUM_ROWS), np.uint8)
            raw_labels[:, :most_ones] = is_neighbour
            noisy = mechanism.release(raw_labels.reshape(-1), rows, rng=rng)
            return noisy.labels.reshape(num_draws, _NUM_ROWS)

        event = mechanism.event([_NUM_ROWS])
        return Trial(event=event, adjacency=Adjacency.REPLACE, draw=draw)

    return make


def _label_prior(noise_factor: float) -> Trial:
    """A replaced label moves from one cell to another; pairs of cells do not touch others."""
    epsilon = 1 / noise_factor

    def draw(is_neighbour: bool, num_draws: int, rng: NoiseSource) -> NDArray[Any]:
        config = LabelPriorConfig(epsilon=epsilon, labels=2 * num_draws)
        raw_pair = (5, 6) if is_neighbour else (6, 5)
        raw_counts = np.tile(np.array(raw_pair, np.int64), num_draws)
        noisy = release_prior_of_counts(raw_counts, config, rng=rng).noisy_counts
        # Beyond the two counts noise tells no more.
        return np.clip(noisy, 5, 6).reshape(num_draws, 2)

    event = LabelPriorConfig(epsilon=epsilon, labels=2).event()
    return Trial(event=event, adjacency=Adjacency.REPLACE, draw=draw)


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


LABELS = (
    Randomizer(
        name="binary-labels",
        modules=("labels.binary_response",),
        make=_row(lambda epsilon: BinaryResponse(epsilon=epsilon), (0, 1)),
    ),
    Randomizer(
        name="class-labels",
        modules=("labels.class_response",),
        make=_row(lambda epsilon: ClassResponse(epsilon=epsilon, num_classes=4), (0, 1)),
    ),
    Randomizer(
        name="prior-labels",
        modules=("labels.prior_response",),
        make=_row(lambda epsilon: PriorResponse(epsilon=epsilon, prior=_PRIOR), (0, 1)),
    ),
    Randomizer(
        name="laplace-labels",
        modules=("labels.additive_noise",),
        make=_number(lambda epsilon: LaplaceLabels(epsilon=epsilon, grid=_GRID)),
    ),
    Randomizer(
        name="discrete-laplace-labels",
        modules=("labels.additive_noise",),
        make=_number(lambda epsilon: DiscreteLaplaceLabels(epsilon=epsilon, grid=_GRID)),
    ),
    Randomizer(
        name="staircase-labels",
        modules=("labels.staircase",),
        make=_number(lambda epsilon: StaircaseLabels(epsilon=epsilon, grid=_GRID)),
    ),
    Randomizer(
        name="bin-labels",
        modules=("labels.bins.bin_response",),
        make=_row(
            lambda epsilon: BinResponse(epsilon=epsilon, grid=_GRID, prior=_PRIOR),
            (_GRID.low, _GRID.high),
        ),
    ),
    Randomizer(
        name="unbiased-labels",
        modules=("labels.unbiased.unbiased_response",),
        make=_row(
            lambda epsilon: UnbiasedResponse(epsilon=epsilon, grid=_GRID, prior=_PRIOR),
            (_GRID.low, _GRID.high),
        ),
    ),
    Randomizer(
        name="unit-labels",
        modules=("labels.units.unit_response",),
        make=_unit(
            lambda epsilon: PerRowResponse(epsilon=epsilon, max_rows_per_unit=_NUM_ROWS),
            _NUM_ROWS,
        ),
    ),
    Randomizer(
        name="joint-unit-labels",
        modules=("labels.units.unit_response",),
        make=_unit(lambda epsilon: JointResponse(epsilon=epsilon), 1),
    ),
    Randomizer(name="label-prior", modules=("labels.label_prior",), make=_label_prior),
    Randomizer(
        name="laplace-label-sums",
        modules=("labels.linear.label_sums",),
        make=_label_sums(SumsNoise.LAPLACE, 1),
    ),
    Randomizer(
        name="gaussian-label-sums",
        modules=("labels.linear.label_sums",),
        make=_label_sums(SumsNoise.GAUSSIAN, 8),
    ),
)
