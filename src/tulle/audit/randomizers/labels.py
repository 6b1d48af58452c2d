"""Releases of labels, each on two labels, or two label vectors of one unit.

Every mechanism of the catalogue is audited, by its own small example: it says which labels are as
different as any, and whether its outputs rise with the label.
"""

from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from tulle.audit.randomizers.trial import Outputs, Randomizer, Trial
from tulle.labels.label_mechanism import RowMechanism
from tulle.labels.label_noise import LabelSettings, RowNoise
from tulle.labels.mechanisms.catalogue import LABEL_MECHANISMS
from tulle.labels.mechanisms.label_prior import LabelPriorConfig, release_prior_of_counts
from tulle.labels.mechanisms.unit_noise import UnitNoise
from tulle.labels.mechanisms.unit_response import UnitResponse
from tulle.labels.unit_rows import group_rows
from tulle.mechanisms.entropy import NoiseSource
from tulle.privacy.units import Adjacency, Unit

_NUM_ROWS = 3
"""Rows of a unit in a trial."""


def _audited(settings: LabelSettings) -> Randomizer:
    """The audit of one mechanism."""
    noise_of = {False: _row_trial, True: _unit_trial}
    is_for_units = settings.noise(1.0).is_for_units

    def make(noise_factor: float) -> Trial:
        return noise_of[is_for_units](settings, 1 / noise_factor)

    module = settings.mechanism_class.__module__.removeprefix("tulle.")
    return Randomizer(name=f"{settings.kind}-labels", modules=(module,), make=make)


def _row_trial(settings: LabelSettings, epsilon: float) -> Trial:
    """The trial of a mechanism that noises each label by itself."""
    mechanism: RowMechanism = cast(RowNoise, settings.noise(epsilon)).mechanism

    def draw(is_neighbour: bool, num_draws: int, rng: NoiseSource) -> NDArray[Any]:
        raw_labels = np.full(num_draws, mechanism.far_labels[is_neighbour])
        return mechanism.release(raw_labels, rng=rng).labels

    outputs = Outputs.RISING if mechanism.has_rising_outputs else Outputs.FINITE
    return Trial(event=mechanism.event(), adjacency=Adjacency.REPLACE, draw=draw, outputs=outputs)


def _unit_trial(settings: LabelSettings, epsilon: float) -> Trial:
    """The trial of a mechanism that noises all labels of a unit: none is 1, or the first are."""
    mechanism: UnitResponse = cast(UnitNoise, settings.noise(epsilon)).mechanism

    def draw(is_neighbour: bool, num_draws: int, rng: NoiseSource) -> NDArray[Any]:
        users = np.repeat(np.arange(num_draws), _NUM_ROWS)
        rows = group_rows(Unit.user(), owner_ids=users)
        raw_labels = np.zeros((num_draws, _NUM_ROWS), np.uint8)
        raw_labels[:, : mechanism.most_ones] = is_neighbour
        noisy = mechanism.release(raw_labels.reshape(-1), rows, rng=rng)
        return noisy.labels.reshape(num_draws, _NUM_ROWS)

    event = mechanism.event([_NUM_ROWS])
    return Trial(event=event, adjacency=Adjacency.REPLACE, draw=draw)


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


LABELS = (
    *(_audited(settings.example()) for settings in LABEL_MECHANISMS.values()),
    Randomizer(name="label-prior", modules=("labels.mechanisms.label_prior",), make=_label_prior),
)
