"""Randomized values, labels and choices, as audits see them: two inputs as different as can be.

A mechanism for labels brings its own small example: it says which labels are as different as any,
and whether its outputs rise with the label.
"""

from collections.abc import Callable
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from tulle.audit.mechanism_audit import MakeTrial, Outputs, Randomizer, Trial
from tulle.labels.label_mechanism import RowMechanism
from tulle.labels.label_noise import LabelSettings, RowNoise
from tulle.labels.mechanisms.catalogue import LABEL_MECHANISMS
from tulle.labels.mechanisms.label_prior import LabelPriorConfig, release_prior_of_counts
from tulle.labels.mechanisms.unit_noise import UnitNoise
from tulle.labels.mechanisms.unit_response import UnitResponse
from tulle.labels.unit_rows import group_rows
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
from tulle.privacy.units import Adjacency, Unit
from tulle.select.auctions import Auctions
from tulle.select.mechanisms.floors import FloorMechanism
from tulle.select.mechanisms.mechanism import SelectionMechanism
from tulle.select.mechanisms.noisy_max import Calibration, NoisyMax, ScaledScores
from tulle.select.mechanisms.noisy_max_probs import NoiseKind
from tulle.select.mechanisms.prior_choice import PriorChoice
from tulle.select.mechanisms.slots import SlotMechanism

_NUM_VALUES = 4
"""Values that a user may hold: more than two, so that a false one is drawn among several, and few
enough that every report is frequent."""
_NUM_ROWS = 3
"""Rows of a unit whose labels are randomized together."""
_NUM_ADS = 3
"""Candidates of an auction: one that the neighbours disagree on, and two that tie."""
_RAW_SCORES = ((1.0, 0.0, 0.0), (0.0, 1.0, 1.0))
"""Scores of two devices: one ad is the best, or the worst."""


def _bits(noise_factor: float) -> Trial:
    config = RandomizedResponseConfig(epsilon=1 / noise_factor)

    def draw(is_neighbour: bool, num_draws: int, rng: NoiseSource) -> NDArray[Any]:
        raw_bits = np.full(num_draws, is_neighbour, np.uint8)
        return release_randomized_bits(raw_bits, config, rng=rng)

    return Trial(event=config.event(), adjacency=Adjacency.REPLACE, draw=draw)


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
        make=lambda factor: _of_values(
            release_randomized_response,
            RandomizedResponseConfig(epsilon=1 / factor, num_values=_NUM_VALUES),
        ),
    ),
    Randomizer(name="randomized-bits", modules=("mechanisms.randomized_response",), make=_bits),
    Randomizer(
        name="rappor",
        modules=("mechanisms.rappor",),
        make=lambda factor: _of_values(
            release_rappor, RapporConfig(epsilon=1 / factor, num_values=_NUM_VALUES)
        ),
    ),
    Randomizer(
        name="subset-selection",
        modules=("mechanisms.subset_selection",),
        make=lambda factor: _of_values(
            release_subset_selection,
            SubsetSelectionConfig(epsilon=1 / factor, num_values=_NUM_VALUES),
        ),
    ),
    Randomizer(name="finite-channel", modules=("mechanisms.finite_channel",), make=_finite_channel),
    Randomizer(
        name="joint-response",
        modules=("mechanisms.joint_response",),
        make=lambda factor: _of_vectors(
            JointResponseConfig(
                epsilon=1 / factor, num_rows=_NUM_ROWS, max_conversions=_NUM_ROWS - 1
            )
        ),
    ),
    Randomizer(
        name="joint-subset",
        modules=("mechanisms.joint_response",),
        make=lambda factor: _of_vectors(JointSubsetConfig(epsilon=1 / factor, num_rows=_NUM_ROWS)),
    ),
)


def _audited(settings: LabelSettings) -> Randomizer:
    """The audit of one mechanism for labels."""
    trial = _unit_trial if settings.noise(1.0).is_for_units else _row_trial

    def make(noise_factor: float) -> Trial:
        return trial(settings, 1 / noise_factor)

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


def _choices(build: Callable[[float], SelectionMechanism | SlotMechanism]) -> MakeTrial:
    def make(noise_factor: float) -> Trial:
        mechanism = build(1 / noise_factor)

        def draw(is_neighbour: bool, num_draws: int, rng: NoiseSource) -> NDArray[Any]:
            auctions = _auctions(num_draws)
            raw_scores = np.tile(np.array(_RAW_SCORES[is_neighbour]), num_draws)
            return mechanism.choose(auctions, raw_scores, rng=rng) % _NUM_ADS

        return Trial(event=mechanism.event(_NUM_ADS), adjacency=Adjacency.REPLACE, draw=draw)

    return make


def _auctions(num_auctions: int) -> Auctions:
    num_candidates = num_auctions * _NUM_ADS
    return Auctions(
        offsets=np.arange(0, num_candidates + 1, _NUM_ADS),
        ads=np.tile(np.arange(_NUM_ADS), num_auctions),
        bids=np.ones(num_candidates),
        server_click_probs=np.full(num_candidates, 0.5),
    )


def _noisy_max(noise: NoiseKind) -> MakeTrial:
    return _choices(
        lambda epsilon: NoisyMax(
            epsilon=epsilon,
            noise=noise,
            score_bound=ScaledScores(),
            calibration=Calibration.TIGHT,
        )
    )


def _equal_winners(auctions: Auctions) -> NDArray[np.float64]:
    return np.repeat(1 / auctions.sizes, auctions.sizes)


CHOICES = (
    Randomizer(
        name="floor-choice",
        modules=("select.mechanisms.floors",),
        make=_choices(lambda epsilon: FloorMechanism(epsilon=epsilon)),
    ),
    *(
        Randomizer(
            name=f"noisy-max-{noise.value}",
            modules=("select.mechanisms.noisy_max",),
            make=_noisy_max(noise),
        )
        for noise in NoiseKind
    ),
    Randomizer(
        name="prior-choice",
        modules=("select.mechanisms.prior_choice",),
        make=_choices(lambda epsilon: PriorChoice(epsilon=epsilon, winner_probs=_equal_winners)),
    ),
    Randomizer(
        name="slot-choice",
        modules=("select.mechanisms.slots",),
        make=_choices(lambda epsilon: SlotMechanism(epsilon=epsilon, num_slots=2)),
    ),
)
