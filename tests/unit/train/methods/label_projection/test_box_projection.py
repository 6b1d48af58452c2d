"""The projection finds the nearest point, as independent solvers do."""

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.optimize import lsq_linear, nnls

from tulle.train.methods.label_projection.projected_step import optimality_gap, project_on_box

Floats = NDArray[np.float64]


def vectors(dim: int, num_vectors: int, seed: int) -> Floats:
    rng = np.random.default_rng(seed)
    found = rng.normal(size=(dim, num_vectors)) + 0.5
    return found * rng.uniform(0.2, 2.0, num_vectors)


def nearest(matrix: Floats, point: Floats, *, steps: int = 20_000) -> Floats:
    """Coefficients by the code under test, from inner products alone."""
    gram = torch.from_numpy(matrix.T @ matrix)
    products = torch.from_numpy(matrix.T @ point)
    start = torch.full((matrix.shape[1],), 0.3, dtype=torch.float64)
    found = project_on_box(gram, products, start, max_iterations=steps, tolerance=1e-13)
    return found.numpy()


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("dim", "num_vectors"), [(40, 12), (12, 12), (5, 30), (1, 8)])
@pytest.mark.parametrize("spread", [0.3, 3.0, 40.0])
def test_it_is_as_near_as_bounded_least_squares(
    seed: int, dim: int, num_vectors: int, spread: float
) -> None:
    matrix = vectors(dim, num_vectors, seed)
    point = np.random.default_rng(seed + 100).normal(size=dim) * spread
    found = nearest(matrix, point)
    assert np.all((found >= 0) & (found <= 1))
    expected = lsq_linear(matrix, point, bounds=(0, 1), tol=1e-14, max_iter=10_000).x
    # The nearest point is unique, its coefficients need not be.
    size = np.linalg.norm(matrix.sum(axis=1)) + np.linalg.norm(point)
    assert np.linalg.norm(matrix @ found - matrix @ expected) <= 2e-5 * size


def test_without_upper_bounds_in_the_way_it_is_nonnegative_least_squares() -> None:
    matrix = vectors(30, 10, 7)
    point = matrix @ np.random.default_rng(8).uniform(-0.5, 0.5, 10)
    expected, _ = nnls(matrix, point)
    assert expected.max() < 1
    np.testing.assert_allclose(nearest(matrix, point), expected, atol=1e-6)


def test_a_point_that_labels_can_give_stays_where_it_is() -> None:
    matrix = vectors(50, 20, 9)
    chances = np.random.default_rng(10).uniform(0, 1, 20)
    np.testing.assert_allclose(nearest(matrix, matrix @ chances), chances, atol=1e-5)


def test_the_gap_bounds_how_far_it_is_from_the_best() -> None:
    matrix = vectors(15, 10, 11)
    point = np.random.default_rng(12).normal(size=15) * 4
    best = nearest(matrix, point)
    gram, products = torch.from_numpy(matrix.T @ matrix), torch.from_numpy(matrix.T @ point)

    def value(coefficients: Floats) -> float:
        return float(np.sum((matrix @ coefficients - point) ** 2) / 2)

    for seed in range(20):
        other = np.random.default_rng(seed).uniform(0, 1, 10)
        gap = optimality_gap(gram, products, torch.from_numpy(other))
        assert gap >= value(other) - value(best) - 1e-9
    assert optimality_gap(gram, products, torch.from_numpy(best)) <= 1e-8


def test_two_hundred_single_precision_steps_are_enough_for_training() -> None:
    rng = np.random.default_rng(13)
    matrix = vectors(60, 300, 14)
    point = matrix @ rng.uniform(0, 0.3, 300) + rng.normal(size=60) * 40
    gram = torch.from_numpy(matrix.T @ matrix).float()
    products = torch.from_numpy(matrix.T @ point).float()
    found = project_on_box(gram, products, torch.full((300,), 0.5), max_iterations=200)
    expected = lsq_linear(matrix, point, bounds=(0, 1), tol=1e-12).x
    size = np.linalg.norm(matrix @ expected)
    assert np.linalg.norm(matrix @ (found.numpy() - expected)) <= 0.02 * size


def test_no_vectors_to_speak_of_leave_the_start() -> None:
    start = torch.tensor([0.2, 0.9])
    found = project_on_box(torch.zeros(2, 2), torch.zeros(2), start, max_iterations=5)
    assert torch.equal(found, start)
