"""Deliberately wrong training noise. Each fault here is one that real libraries have had.

Every function takes the place of `TrainingNoise(rng).add_to`, and
`test_training_noise` must catch it; the list grows with every bug.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from tulle.mechanisms.entropy import NoiseSource, SeededNoise
from tulle.train.steps.training_noise import TrainingNoise

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


def both_of_a_pair_from_one_angle(rng: NoiseSource) -> AddTo:
    """Box and Muller's cosine twice: two entries have one size, each its own sign."""
    noise = TrainingNoise(rng)

    def add_to(values: Tensor, stddev: float) -> None:
        half, signs = torch.zeros(len(values) // 2), torch.zeros(len(values) // 2)
        noise.add_to(half, stddev)
        noise.add_to(signs, 1.0)
        values.add_(torch.cat([half, half * signs.sign()]))

    return add_to


def tails_that_end_at_four_and_a_half_deviations(rng: NoiseSource) -> AddTo:
    noise = TrainingNoise(rng)

    def add_to(values: Tensor, stddev: float) -> None:
        drawn = torch.zeros_like(values)
        noise.add_to(drawn, stddev)
        values.add_(drawn.clamp_(-4.5 * stddev, 4.5 * stddev))

    return add_to


def tails_of_a_uniform_of_14_bits(rng: NoiseSource) -> AddTo:
    """Box and Muller with too few bits: nothing beyond sqrt(2 log 2^14) = 4.4 deviations."""
    generator = torch.Generator().manual_seed(int(rng.words(1)[0]) >> 1)

    def add_to(values: Tensor, stddev: float) -> None:
        num_pairs = -(-len(values) // 2)
        uniforms = (torch.randint(1 << 14, (num_pairs,), generator=generator) + 1) / (1 << 14)
        angles = 2 * math.pi * torch.rand(num_pairs, generator=generator)
        radii = stddev * torch.sqrt(-2 * torch.log(uniforms))
        values.add_(torch.cat([radii * angles.cos(), radii * angles.sin()])[: len(values)])

    return add_to
