"""Nearest points agree with a search over all sets of binding rows, and satisfy the conditions."""

import itertools

import numpy as np
import pytest

from tulle.measure.reach.least_distance import (
    InfeasibleError,
    LinearSystem,
    NearestPoint,
    nearest_point,
)


def random_system(
    rng: np.random.Generator, *, num_equal: int, is_feasible_at_zero: bool
) -> LinearSystem:
    num_numbers = 4
    upper = rng.integers(-2, 3, (5, num_numbers)).astype(float)
    equal = rng.integers(-2, 3, (num_equal, num_numbers)).astype(float)
    inside = np.zeros(num_numbers) if is_feasible_at_zero else rng.normal(size=num_numbers)
    return LinearSystem(
        upper=upper,
        upper_limits=upper @ inside + rng.exponential(0.5, 5) * (rng.random(5) < 0.5),
        equal=equal,
        equal_limits=equal @ inside,
    )


def nearest_by_search(target: np.ndarray, system: LinearSystem) -> np.ndarray:
    """Tries every set of rows as equalities and keeps the best feasible point."""
    best, best_distance = None, np.inf
    for size in range(len(system.upper) + 1):
        for rows in itertools.combinations(range(len(system.upper)), size):
            matrix = np.vstack([system.equal, system.upper[list(rows)]])
            limits = np.concatenate([system.equal_limits, system.upper_limits[list(rows)]])
            point = target + np.linalg.pinv(matrix) @ (limits - matrix @ target)
            is_feasible = (
                np.allclose(matrix @ point, limits, atol=1e-9)
                and (system.upper @ point <= system.upper_limits + 1e-9).all()
            )
            distance = float(np.sum((point - target) ** 2))
            if is_feasible and distance < best_distance:
                best, best_distance = point, distance
    assert best is not None
    return best


def condition_errors(target: np.ndarray, system: LinearSystem, found: NearestPoint) -> list[float]:
    slack = system.upper_limits - system.upper @ found.point
    pull = target - found.point - system.upper.T @ found.multipliers
    along_equal = pull
    if len(system.equal):
        along_equal = pull - system.equal.T @ (np.linalg.pinv(system.equal.T) @ pull)
    return [
        float(np.abs(along_equal).max()),
        float(np.abs(found.multipliers * slack).max()),
        float(np.maximum(-slack, 0).max()),
        float(np.maximum(-found.multipliers, 0).max()),
        float(np.abs(system.equal @ found.point - system.equal_limits).max(initial=0.0)),
    ]


@pytest.mark.parametrize("num_equal", [0, 1, 2])
@pytest.mark.parametrize("is_feasible_at_zero", [True, False])
def test_the_point_is_the_one_that_a_search_finds(
    num_equal: int, is_feasible_at_zero: bool
) -> None:
    rng = np.random.default_rng(1 + num_equal)
    for _ in range(40):
        system = random_system(rng, num_equal=num_equal, is_feasible_at_zero=is_feasible_at_zero)
        target = 3 * rng.normal(size=4)
        found = nearest_point(target, system)
        np.testing.assert_allclose(found.point, nearest_by_search(target, system), atol=1e-8)
        assert max(condition_errors(target, system, found)) < 1e-8


def test_conditions_of_a_wrong_point_are_broken() -> None:
    system = LinearSystem(
        upper=np.array([[1.0, -1.0]]),
        upper_limits=np.zeros(1),
        equal=np.zeros((0, 2)),
        equal_limits=np.zeros(0),
    )
    target = np.array([3.0, 1.0])
    right = nearest_point(target, system)
    np.testing.assert_allclose(right.point, [2.0, 2.0])
    wrong = NearestPoint(point=np.array([1.0, 1.0]), multipliers=np.array([1.0]))
    assert max(condition_errors(target, system, right)) < 1e-12
    assert max(condition_errors(target, system, wrong)) > 0.5


def test_a_large_system_with_many_scales_satisfies_the_conditions() -> None:
    rng = np.random.default_rng(5)
    num_numbers = 60
    upper = np.zeros((3 * num_numbers, num_numbers))
    for row in upper[: 2 * num_numbers]:
        first, second = rng.choice(num_numbers, 2, replace=False)
        row[first], row[second] = 1.0, -1.0
    upper[2 * num_numbers :] = -np.eye(num_numbers)
    system = LinearSystem(
        upper=upper,
        upper_limits=np.zeros(len(upper)),
        equal=np.zeros((0, num_numbers)),
        equal_limits=np.zeros(0),
    ).scaled(10 ** rng.uniform(0, 3, num_numbers))
    target = rng.normal(100, 100, num_numbers)
    found = nearest_point(target, system)
    assert max(condition_errors(target, system, found)) < 1e-6


def test_rows_that_contradict_one_another_are_refused() -> None:
    rows = [np.array([1.0, -1.0]), np.array([-1.0, 0.0])]
    with pytest.raises(InfeasibleError):
        nearest_point(np.array([0.5]), LinearSystem.of_rows(rows, [], 1))
    twice = [np.array([1.0, 1.0, 2.0]), np.array([1.0, 1.0, 3.0])]
    with pytest.raises(InfeasibleError):
        nearest_point(np.zeros(2), LinearSystem.of_rows([], twice, 2))


def test_an_inequality_that_follows_from_the_equalities_changes_nothing_or_is_refused() -> None:
    equal = [np.array([1.0, 1.0, 2.0])]
    implied = LinearSystem.of_rows([np.array([2.0, 2.0, 4.0])], equal, 2)
    found = nearest_point(np.array([3.0, 1.0]), implied)
    np.testing.assert_allclose(found.point, [2.0, 0.0], atol=1e-12)
    contradicted = LinearSystem.of_rows([np.array([2.0, 2.0, 3.0])], equal, 2)
    with pytest.raises(InfeasibleError):
        nearest_point(np.array([3.0, 1.0]), contradicted)
