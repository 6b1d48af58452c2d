"""Noisy numbers follow their stated channels, and none of a 5% wrong epsilon."""

import numpy as np
import pytest

from statistical.randomizer_checks import assert_follows, assert_rejects
from tulle.labels.label_grid import LabelGrid
from tulle.labels.label_mechanism import RowMechanism
from tulle.labels.mechanisms.bin_response import BinResponse
from tulle.labels.mechanisms.unbiased_response import UnbiasedResponse
from tulle.mechanisms.entropy import SeededNoise

GRID = LabelGrid(low=0, high=6)
PRIOR = np.array([0.4, 0.2, 0.12, 0.1, 0.08, 0.06, 0.04])
NUM_DRAWS = 600_000


def counts_of(mechanism: RowMechanism, label: float, outputs: np.ndarray, seed: int) -> np.ndarray:
    noisy = mechanism.release(np.full(NUM_DRAWS, label), rng=SeededNoise(seed)).labels
    return np.array([np.count_nonzero(noisy == output) for output in outputs])


def with_epsilon(chances: np.ndarray, favoured: np.ndarray, factor: float) -> np.ndarray:
    """The same channel row with the odds of its favoured outputs moved by a factor."""
    moved = np.where(favoured, chances * factor, chances)
    return moved / moved.sum()


@pytest.mark.parametrize("label", [0.0, 2.0, 6.0])
def test_bins_are_reported_by_randomized_response(label: float) -> None:
    mechanism = BinResponse(epsilon=1.0, grid=GRID, prior=PRIOR)
    values = mechanism.bins.values
    row = int(mechanism.bins.bin_of_label()[int(label)])
    chances = mechanism.response.channel_matrix()[row]
    counts = counts_of(mechanism, label, values, seed=3)
    assert counts.sum() == NUM_DRAWS
    assert_follows(counts, chances)
    is_own = np.arange(len(values)) == row
    for factor in (np.exp(-0.05), np.exp(0.05)):
        assert_rejects(counts, with_epsilon(chances, is_own, factor))


@pytest.mark.parametrize("label", [0.0, 2.5, 6.0])
def test_the_unbiased_outputs_follow_rounding_and_channel_together(label: float) -> None:
    mechanism = UnbiasedResponse(epsilon=1.0, grid=GRID, prior=PRIOR, atoms=4)
    outputs = mechanism.outputs
    (row,) = mechanism.realised_channel([label])
    chances = np.array([float(chance) for chance in row])
    counts = counts_of(mechanism, label, outputs, seed=4)
    assert counts.sum() == NUM_DRAWS
    assert_follows(counts, chances)
    is_high = outputs > np.median(outputs)
    for factor in (np.exp(-0.05), np.exp(0.05)):
        assert_rejects(counts, with_epsilon(chances, is_high, factor))


def test_the_mean_of_unbiased_labels_is_the_label_between_atoms_too() -> None:
    mechanism = UnbiasedResponse(epsilon=1.0, grid=GRID, prior=PRIOR, atoms=4)
    for label in (0.0, 1.3, 2.5, 6.0):
        noisy = mechanism.release(np.full(NUM_DRAWS, label), rng=SeededNoise(5)).labels
        deviation = float(np.sqrt(mechanism.variance(label) / NUM_DRAWS))
        assert abs(noisy.mean() - label) < 6.5 * deviation
        assert abs(noisy.mean() - 1.05 * label - 0.3) > 6.5 * deviation
