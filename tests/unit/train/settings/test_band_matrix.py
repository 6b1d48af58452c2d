"""The band matrix against dense linear algebra in float64, and what makes it private."""

import itertools

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.linalg import toeplitz

from tulle.data.samplers.cyclic_poisson import CyclicPoisson
from tulle.errors import ConfigError
from tulle.privacy.events import Gaussian
from tulle.train.settings.band_matrix import (
    BandMatrix,
    band_coefficients,
    inverse_coefficients,
    short_inverse,
)

SIZES = [(1, 1), (1, 5), (2, 2), (2, 9), (3, 10), (4, 4), (16, 100), (64, 400)]


def dense(matrix: BandMatrix) -> NDArray[np.float64]:
    column = np.zeros(matrix.num_steps)
    column[: matrix.num_bands] = matrix.coefficients
    return np.tril(toeplitz(column))


def prefix_error(c: NDArray[np.float64]) -> float:
    """Straight from the definition: rows of A C^-1 against rows of A."""
    ones = np.tril(np.ones_like(c))
    longest = np.linalg.norm(c, axis=0).max()
    return longest * np.linalg.norm(ones @ np.linalg.inv(c)) / np.linalg.norm(ones)


@pytest.mark.parametrize(("num_bands", "num_steps"), SIZES)
def test_the_inverse_is_that_of_the_dense_matrix(num_bands: int, num_steps: int) -> None:
    matrix = BandMatrix(num_bands=num_bands, num_steps=num_steps)
    wanted = np.linalg.inv(dense(matrix))[:, 0]
    found = np.zeros(num_steps)
    inverse = inverse_coefficients(matrix.coefficients, num_steps)
    found[: len(inverse)] = inverse
    np.testing.assert_allclose(found, wanted, atol=1e-13)


@pytest.mark.parametrize(("num_bands", "num_steps"), SIZES)
def test_the_error_is_that_of_dense_prefix_sums(num_bands: int, num_steps: int) -> None:
    matrix = BandMatrix(num_bands=num_bands, num_steps=num_steps)
    assert matrix.prefix_error == pytest.approx(prefix_error(dense(matrix)), rel=1e-12)


@pytest.mark.parametrize(("num_bands", "num_steps"), SIZES)
def test_no_column_is_longer_than_one_and_the_full_ones_are_that_long(
    num_bands: int, num_steps: int
) -> None:
    norms = np.linalg.norm(dense(BandMatrix(num_bands=num_bands, num_steps=num_steps)), axis=0)
    np.testing.assert_allclose(norms[: num_steps - num_bands + 1], 1, rtol=1e-14)
    assert norms.max() <= 1 + 1e-14


def test_coefficients_are_those_of_the_power_series() -> None:
    found = band_coefficients(4, 0.5)
    np.testing.assert_allclose(found / found[0], [1, 1 / 2, 3 / 8, 5 / 16])
    assert band_coefficients(1, 0.5).tolist() == [1.0]


@pytest.mark.parametrize(("num_bands", "num_steps"), [(2, 2), (2, 9), (5, 60), (16, 400)])
def test_the_exponent_is_the_best_of_all_thousandths(num_bands: int, num_steps: int) -> None:
    matrix = BandMatrix(num_bands=num_bands, num_steps=num_steps)

    def error(place: int) -> float:
        column = np.zeros(num_steps)
        column[:num_bands] = band_coefficients(num_bands, place / 1000)
        inverse = np.zeros(num_steps)
        found = inverse_coefficients(column[:num_bands], num_steps)
        inverse[: len(found)] = found
        return float(np.sum(np.cumsum(inverse) ** 2 * np.arange(num_steps, 0, -1)))

    assert matrix.exponent == min(range(1000), key=error) / 1000


def test_more_bands_have_less_error() -> None:
    errors = [BandMatrix(num_bands=b, num_steps=500).prefix_error for b in (1, 2, 4, 16, 64)]
    assert errors[0] == 1.0
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 0.25


@pytest.mark.parametrize(("num_bands", "num_steps"), [(4, 3000), (16, 3000), (64, 3000)])
def test_a_shortened_inverse_has_no_less_noise_than_stated(num_bands: int, num_steps: int) -> None:
    coefficients = band_coefficients(num_bands, 0.75)
    short, lost = short_inverse(coefficients, num_steps)
    assert len(short) < 2000
    assert 0 < lost < 1e-7
    # With C' the matrix whose inverse was shortened, C^-1 z' has z' = C C'^-1 z.
    mixed = np.convolve(coefficients, short)
    np.testing.assert_allclose(mixed[: len(short)], np.eye(1, len(short))[0], atol=1e-12)
    size = 400
    for scale in (1.0, 3e6):
        # The spectrum of such a matrix is above 1 minus the sum of its off-diagonal entries. A
        # scaled copy shows that the bound has no room for more than rounding.
        entries = scale * mixed[len(short) :]
        off = np.tril(toeplitz(np.concatenate([[0.0], entries, np.zeros(size)])[:size]))
        least = np.linalg.svd(np.eye(size) - off, compute_uv=False).min()
        assert least >= 1 - scale * lost - 1e-12


def test_an_inverse_that_is_needed_whole_stays_whole() -> None:
    inverse, lost = short_inverse(band_coefficients(4, 0.9), 10)
    assert len(inverse) == 10
    assert lost == 0.0


@pytest.mark.parametrize(
    ("num_steps", "num_bands", "num_groups"), [(4, 2, 2), (7, 3, 3), (6, 2, 3)]
)
def test_turns_of_a_row_meet_separate_parts_of_the_noise(
    num_steps: int, num_bands: int, num_groups: int
) -> None:
    """Brute force over all patterns: |C x|^2 is the sum over turns of |x_t|^2 at most.

    So with +-1 at the turns that a row's coins choose, the Gaussian mechanism on C x is the
    composition of one Gaussian of sensitivity 1 a chosen turn, which is what is accounted.
    """
    c = dense(BandMatrix(num_bands=num_bands, num_steps=num_steps))
    sampler = CyclicPoisson(num_rows=6, sampling_prob=0.1, num_groups=num_groups, steps=num_steps)
    for group in range(num_groups):
        turns = range(group, num_steps, num_groups)
        assert len(turns) <= sampler.max_participations
        for pattern in itertools.product([0, 1], repeat=len(turns)):
            for signs in itertools.product([-1, 1], repeat=len(turns)):
                x = np.zeros(num_steps)
                x[list(turns)] = np.multiply(pattern, signs)
                assert np.sum((c @ x) ** 2) <= sum(pattern) + 1e-12
        gram = c[:, list(turns)].T @ c[:, list(turns)]
        np.testing.assert_allclose(gram - np.diag(np.diag(gram)), 0)


def test_more_bands_than_groups_would_overlap() -> None:
    c = dense(BandMatrix(num_bands=3, num_steps=4))
    assert np.sum((c @ [1, 0, 1, 0]) ** 2) > 2.05
    sampler = CyclicPoisson(num_rows=6, sampling_prob=0.1, num_groups=2, steps=4)
    with pytest.raises(ConfigError, match="num_bands=3"):
        sampler.event(Gaussian(noise_multiplier=1.0), num_bands=3)


def test_a_restart_only_shortens_columns() -> None:
    c = dense(BandMatrix(num_bands=3, num_steps=9))
    for start in range(1, 9):
        restarted = c.copy()
        restarted[start:, :start] = 0
        assert (np.linalg.norm(restarted, axis=0) <= np.linalg.norm(c, axis=0)).all()
        gram = restarted[:, ::3].T @ restarted[:, ::3]
        np.testing.assert_allclose(gram - np.diag(np.diag(gram)), 0)


def test_more_bands_than_steps_are_refused() -> None:
    with pytest.raises(ConfigError, match="num_bands=5 must be <= num_steps=4"):
        BandMatrix(num_bands=5, num_steps=4)
