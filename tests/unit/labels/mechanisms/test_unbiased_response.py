"""The unbiased mechanism: exact privacy of rounding and noise together, no bias, its variance."""

import json
import math
from fractions import Fraction

import numpy as np
import pytest

from statistical.randomizer_checks import assert_private
from tulle.errors import ConfigError, DataError
from tulle.labels.label_grid import LabelGrid
from tulle.labels.label_mechanism import RowMechanism
from tulle.labels.mechanisms.unbiased_response import UnbiasedResponse
from tulle.labels.mechanisms.unbiased_search import SearchLimits
from tulle.mechanisms.entropy import SeededNoise
from tulle.privacy.events import EpsilonDelta

GRID = LabelGrid(low=-10.0, high=30.0, step=2.0)


def made(epsilon: float = 1.0, *, atoms: int = 6, seed: int = 0) -> UnbiasedResponse:
    prior = np.random.default_rng(seed).dirichlet(np.ones(GRID.num_values))
    return UnbiasedResponse(grid=GRID, prior=prior, epsilon=epsilon, atoms=atoms)


EPSILONS = [0.01, 0.5, 2.0, 8.0, 16.0]
each_epsilon = pytest.mark.parametrize("epsilon", EPSILONS)
each_size = pytest.mark.parametrize("atoms", [2, 6, 40])


@each_size
@each_epsilon
def test_all_pairs_of_labels_are_within_epsilon(epsilon: float, atoms: int) -> None:
    mechanism = made(epsilon, atoms=atoms)
    between = np.linspace(GRID.low, GRID.high, 33)
    labels = np.union1d(between, GRID.values)
    assert_private(mechanism.realised_channel(labels), epsilon)
    assert_private(mechanism.channel.realised_channel(), epsilon)
    assert mechanism.channel.realised_epsilon == pytest.approx(epsilon, rel=1e-6)


@each_size
@each_epsilon
def test_mean_and_variance_are_those_of_brute_force_and_the_mean_is_the_label(
    epsilon: float, atoms: int
) -> None:
    mechanism = made(epsilon, atoms=atoms)
    labels = np.union1d(np.linspace(GRID.low, GRID.high, 7), GRID.values)
    outputs = [Fraction(output) for output in mechanism.outputs]
    rows = mechanism.realised_channel(labels)
    means, variances = mechanism.mean(labels), mechanism.variance(labels)
    for label, row, stated_mean, stated in zip(labels, rows, means, variances, strict=True):
        mean = sum(c * o for c, o in zip(row, outputs, strict=True))
        square = sum(c * o**2 for c, o in zip(row, outputs, strict=True))
        assert abs(float(mean - Fraction(label))) <= 1e-9 * 40
        assert stated_mean == pytest.approx(float(mean), abs=1e-9)
        assert stated == pytest.approx(float(square - mean**2), rel=1e-8)
    assert np.abs(mechanism.bias(labels)).max() <= 1e-9 * 40


def test_more_atoms_have_less_variance_and_all_of_them_the_least() -> None:
    variances = [made(3.0, atoms=atoms).expected_variance for atoms in (2, 4, 8, 40)]
    assert variances == sorted(variances, reverse=True)
    assert variances[-1] < 0.7 * variances[0]


def test_two_atoms_are_the_ends_with_binary_response() -> None:
    mechanism = made(1.0, atoms=2)
    labels = GRID.values
    noise = 40**2 * math.e / (math.e - 1) ** 2
    rounding = (labels - GRID.low) * (GRID.high - labels)
    np.testing.assert_allclose(mechanism.variance(labels), noise + rounding, rtol=1e-7)


def test_it_has_less_variance_than_laplace_noise() -> None:
    for epsilon in (0.5, 1.0, 4.0):
        laplace = 2 * 40**2 / epsilon**2
        assert made(epsilon, atoms=40).expected_variance < laplace


def test_samples_have_the_stated_mean_and_variance() -> None:
    mechanism = made(1.0)
    num_rows = 200_000
    for label in (-10.0, 3.7, 30.0):
        noisy = mechanism.release(np.full(num_rows, label), rng=SeededNoise(4))
        variance = float(mechanism.variance(label))
        assert abs(noisy.labels.mean() - label) < 6.5 * math.sqrt(variance / num_rows)
        largest = np.abs(mechanism.outputs - label).max()
        spread = largest**2 / math.sqrt(num_rows)
        assert abs(noisy.labels.var() - variance) < 6.5 * spread
        assert np.isin(noisy.labels, mechanism.outputs).all()
        np.testing.assert_array_equal(noisy.labels, noisy.targets)


def test_labels_without_weight_are_private_and_unbiased_too() -> None:
    prior = np.zeros(GRID.num_values)
    prior[[0, 3]] = [0.9, 0.1]
    mechanism = UnbiasedResponse(grid=GRID, prior=prior, epsilon=1.0)
    assert_private(mechanism.realised_channel(GRID.values), 1.0)
    np.testing.assert_allclose(mechanism.mean(GRID.values), GRID.values, atol=1e-8)
    flat = np.full(GRID.num_values, 1 / GRID.num_values)
    other = UnbiasedResponse(grid=GRID, prior=flat, epsilon=1.0)
    assert mechanism.expected_variance < float(other.variance(GRID.values) @ prior)


def test_it_is_a_row_mechanism_with_its_event() -> None:
    mechanism: RowMechanism = made(2.0)
    assert mechanism.name == "unbiased"
    assert mechanism.event() == EpsilonDelta(epsilon=2.0)
    described = mechanism.describe()
    assert json.loads(json.dumps(described)) == described
    assert described["realised_epsilon"] <= 2.0
    assert described["relative_gap_to_optimum"] <= 1e-6


def test_the_proven_gap_is_that_of_the_search() -> None:
    prior = np.random.default_rng(1).dirichlet(np.ones(GRID.num_values))
    rough = UnbiasedResponse(grid=GRID, prior=prior, epsilon=1.0, limits=SearchLimits(max_rounds=1))
    fine = UnbiasedResponse(grid=GRID, prior=prior, epsilon=1.0)
    assert rough.relative_gap > fine.relative_gap
    assert rough.expected_variance * (1 - rough.relative_gap) <= fine.expected_variance


def test_the_noise_is_shifted_and_scaled_with_the_labels() -> None:
    prior = np.array([0.6, 0.25, 0.15])
    small = UnbiasedResponse(grid=LabelGrid(low=0, high=2), prior=prior, epsilon=0.5)
    large = UnbiasedResponse(
        grid=LabelGrid(low=1000, high=1200, step=100), prior=prior, epsilon=0.5
    )
    assert round(small.expected_variance, 6) == 15.857521
    assert large.expected_variance == pytest.approx(1e4 * small.expected_variance, rel=1e-8)


@pytest.mark.parametrize("bad", [[-10.5], [30.5], [math.nan], ["a"], [None]])
def test_labels_outside_of_the_range_are_refused_without_showing_them(bad: list[object]) -> None:
    mechanism = made()
    with pytest.raises(DataError) as caught:
        mechanism.check_labels(np.array(bad))
    assert "10.5" not in str(caught.value)
    assert "30.5" not in str(caught.value)
    with pytest.raises(DataError):
        mechanism.release(np.array(bad), rng=SeededNoise(0))


@pytest.mark.parametrize("epsilon", [0.0, -1.0, 0.001, 17.0, math.inf, math.nan])
def test_an_epsilon_out_of_reach_is_refused(epsilon: float) -> None:
    with pytest.raises(ConfigError, match="epsilon"):
        made(epsilon)


@pytest.mark.parametrize("prior", [np.full(21, 0.1), np.full(20, 0.05), np.full(21, math.nan)])
def test_a_prior_without_meaning_is_refused(prior: np.ndarray) -> None:
    with pytest.raises(ConfigError, match="prior"):
        UnbiasedResponse(grid=GRID, prior=prior, epsilon=1.0)
