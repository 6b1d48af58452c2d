"""Deliberately wrong training noise. Each fault here is one that real libraries have had.

Every function takes the place of `TrainingNoise(rng).add_to`, and
`test_training_noise` must catch it; the list grows with every bug.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from tulle.mechanisms.entropy import NoiseSource, SeededNoise
from tulle.train.noise import TrainingNoise

AddTo = Callable[[Tensor, float], None]


def noise_reused_across_steps(rng: NoiseSource) -> AddTo:
    """Makes the generator anew in each step: the difference of two steps is exact."""
    seed = int(rng.words(1)[0])
    return lambda values, stddev: TrainingNoise(SeededNoise(seed)).add_to(values, stddev)


def noise_reused_with_the_other_sign(rng: NoiseSource) -> AddTo:
    """Antithetic noise: the sum of two steps is exact."""
    seed, signs = int(rng.words(1)[0]), [1]

    def add_to(values: Tensor, stddev: float) -> None:
        noise = torch.zeros_like(values)
        TrainingNoise(SeededNoise(seed)).add_to(noise, stddev)
        values.add_(noise, alpha=signs[0])
        signs[0] = -signs[0]

    return add_to


def half_noise(rng: NoiseSource) -> AddTo:
    noise = TrainingNoise(rng)
    return lambda values, stddev: noise.add_to(values, stddev / 2)


def root_two_noise(rng: NoiseSource) -> AddTo:
    """Takes the variance of one worker for that of the sum of two."""
    noise = TrainingNoise(rng)
    return lambda values, stddev: noise.add_to(values, stddev * math.sqrt(2))


def five_percent_less_noise(rng: NoiseSource) -> AddTo:
    noise = TrainingNoise(rng)
    return lambda values, stddev: noise.add_to(values, 0.95 * stddev)


def one_draw_for_all_entries(rng: NoiseSource) -> AddTo:
    noise = TrainingNoise(rng)

    def add_to(values: Tensor, stddev: float) -> None:
        draw = torch.zeros(())
        noise.add_to(draw, stddev)
        values.add_(draw)

    return add_to


def every_stream_from_the_same_start(rng: NoiseSource) -> AddTo:
    """Draws the parts of a large tensor from generators of one and the same state."""
    noise = TrainingNoise(rng)

    def add_to(values: Tensor, stddev: float) -> None:
        part = torch.zeros(-(-len(values) // 8))
        noise.add_to(part, stddev)
        values.add_(part.repeat(8)[: len(values)])

    return add_to


def half_of_the_entries_left_out(rng: NoiseSource) -> AddTo:
    noise = TrainingNoise(rng)
    return lambda values, stddev: noise.add_to(values[: len(values) // 2], stddev)
