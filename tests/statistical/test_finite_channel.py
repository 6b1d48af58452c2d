"""Draws from a finite channel follow it, and no channel of a 5% wrong epsilon."""

import math
from collections.abc import Callable

import numpy as np
import pytest

from statistical.randomizer_checks import assert_follows, assert_rejects
from tulle.mechanisms.entropy import NoiseSource, SeededNoise
from tulle.mechanisms.finite_channel import FiniteChannel

EPSILON = 1.0
NUM_INPUTS, NUM_OUTPUTS = 4, 6
# As for other randomizers: 5% of epsilon 1 moves chi-square by about 4e-4 a draw.
NUM_DRAWS = 600_000


def staircase(epsilon: float) -> np.ndarray:
    shares = np.where(np.arange(NUM_OUTPUTS) < 2, math.exp(epsilon), 1.0)
    return np.array([np.roll(shares, place) for place in range(NUM_INPUTS)]) / shares.sum()


def channel() -> FiniteChannel:
    return FiniteChannel.from_probs(staircase(EPSILON), outputs=range(NUM_OUTPUTS), epsilon=EPSILON)


def mixed_inputs() -> np.ndarray:
    return np.tile(np.arange(NUM_INPUTS), NUM_DRAWS)


def counts_of(draws: np.ndarray) -> np.ndarray:
    """How often each output came, one row an input."""
    cells = mixed_inputs() * NUM_OUTPUTS + draws
    flat = np.bincount(cells, minlength=NUM_INPUTS * NUM_OUTPUTS)
    return flat.reshape(NUM_INPUTS, NUM_OUTPUTS)


def assert_all_follow(counts: np.ndarray) -> None:
    for row in range(NUM_INPUTS):
        assert_follows(counts[row], channel().channel_matrix()[row])


def test_draws_follow_the_channel_and_not_one_of_a_5_percent_wrong_epsilon() -> None:
    counts = counts_of(channel().draw(mixed_inputs(), rng=SeededNoise(5)))
    assert_all_follow(counts)
    for row in range(NUM_INPUTS):
        for factor in (0.95, 1.05):
            assert_rejects(counts[row], staircase(factor * EPSILON)[row])


def test_mean_and_variance_of_draws_are_the_stated_ones() -> None:
    draws = channel().draw(mixed_inputs(), rng=SeededNoise(6)).reshape(-1, NUM_INPUTS)
    deviation = np.sqrt(channel().variance() / NUM_DRAWS)
    assert np.all(np.abs(draws.mean(axis=0) - channel().mean()) < 6.5 * deviation)
    # The fourth moment of a bounded output gives the spread of the sample variance.
    spread = (NUM_OUTPUTS - 1) ** 2 / math.sqrt(NUM_DRAWS)
    assert np.all(np.abs(draws.var(axis=0) - channel().variance()) < 6.5 * spread)


def forgets_steps(inputs: np.ndarray, *, rng: NoiseSource) -> np.ndarray:
    """Takes the first output of a word's cell; 16 cells are too few for that."""
    ends = np.cumsum(channel().channel_matrix(), axis=1)
    starts = (rng.words(inputs.size) >> np.uint64(60)).astype(float) / 16
    return (ends[inputs] <= starts[:, None]).sum(axis=1)


def uses_the_row_of_another_input(inputs: np.ndarray, *, rng: NoiseSource) -> np.ndarray:
    return channel().draw((inputs + 1) % NUM_INPUTS, rng=rng)


def repeats_words(inputs: np.ndarray, *, rng: NoiseSource) -> np.ndarray:
    """Draws a tenth of the words and uses them ten times."""
    few = rng.words(inputs.size // 10 + 1)

    class Repeated:
        is_secure = False
        description = "repeated"

        def words(self, num_words: int) -> np.ndarray:
            return np.resize(few, num_words)

    return channel().draw(inputs, rng=Repeated())


@pytest.mark.parametrize("fault", [forgets_steps, uses_the_row_of_another_input, repeats_words])
def test_planted_faults_are_caught(fault: Callable[..., np.ndarray]) -> None:
    counts = counts_of(fault(mixed_inputs(), rng=SeededNoise(7)))
    with pytest.raises(AssertionError):
        assert_all_follow(counts)
