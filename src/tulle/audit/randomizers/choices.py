"""Choices of ads, each on two devices whose preferences are as different as can be."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tulle.audit.randomizers.trial import MakeTrial, Randomizer, Trial
from tulle.mechanisms.entropy import NoiseSource
from tulle.privacy.units import Adjacency
from tulle.select.auctions import Auctions
from tulle.select.mechanisms.floors import FloorMechanism
from tulle.select.mechanisms.mechanism import SelectionMechanism
from tulle.select.mechanisms.noisy_max import Calibration, NoisyMax, ScaledScores
from tulle.select.mechanisms.noisy_max_probs import NoiseKind
from tulle.select.mechanisms.prior_choice import PriorChoice
from tulle.select.mechanisms.slots import SlotMechanism

_NUM_ADS = 3
_RAW_SCORES = ((1.0, 0.0, 0.0), (0.0, 1.0, 1.0))
"""One ad is the best, or the worst."""


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
