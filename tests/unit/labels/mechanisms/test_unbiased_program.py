"""Pricing is exact: no output and no set of labels is cheaper; bounds are bounds."""

import itertools
import math

import numpy as np
import pytest

from tulle.labels.mechanisms.unbiased_program import (
    Columns,
    Duals,
    Problem,
    best_columns,
    lower_bound,
    reduced_costs,
)
from tulle.labels.mechanisms.unbiased_search import SearchLimits, solve


def random_problem(seed: int, num_labels: int = 5, epsilon: float = 1.0) -> Problem:
    generator = np.random.default_rng(seed)
    inside = np.sort(generator.random(num_labels - 2))
    return Problem(
        labels=np.concatenate([[0.0], inside, [1.0]]),
        prior=generator.dirichlet(np.ones(num_labels)),
        low_share=math.exp(-epsilon),
    )


def random_duals(seed: int, num_labels: int = 5) -> Duals:
    generator = np.random.default_rng(1000 + seed)
    return Duals(
        constant=generator.normal(size=num_labels), slope=generator.normal(size=num_labels)
    )


@pytest.mark.parametrize("seed", range(12))
def test_no_output_with_any_set_of_labels_is_cheaper(seed: int) -> None:
    problem, duals = random_problem(seed), random_duals(seed)
    found, costs = best_columns(problem, duals)
    np.testing.assert_allclose(reduced_costs(problem, duals, found), costs, rtol=1e-9, atol=1e-9)
    sets = np.array(list(itertools.product([False, True], repeat=5)))
    grid = np.linspace(found.outputs.min() - 1, found.outputs.max() + 1, 4001)
    everything = Columns(outputs=np.repeat(grid, len(sets)), is_high=np.tile(sets, (grid.size, 1)))
    least = float(reduced_costs(problem, duals, everything).min())
    assert costs.min() <= least + 1e-12
    assert costs.min() == pytest.approx(least, abs=1e-3 * max(1.0, abs(least)))


def test_the_cheapest_column_has_its_output_at_the_least_of_its_parabola() -> None:
    problem, duals = random_problem(3), random_duals(3)
    found, costs = best_columns(problem, duals)
    best = found.select(np.array([int(np.argmin(costs))]))
    for step in (-1e-4, 1e-4):
        moved = Columns(outputs=best.outputs + step, is_high=best.is_high)
        assert reduced_costs(problem, duals, moved)[0] > costs.min()


@pytest.mark.parametrize("seed", range(8))
def test_no_prices_give_a_bound_above_the_optimum(seed: int) -> None:
    problem = random_problem(seed)
    best = solve(problem, SearchLimits(relative_gap=1e-8))
    for scale in (0.01, 1.0, 30.0):
        tried = random_duals(seed)
        duals = Duals(constant=scale * tried.constant, slope=scale * tried.slope)
        assert lower_bound(problem, duals) <= best.mean_squared_error * (1 + 1e-12)
    assert lower_bound(problem, best.duals) >= best.mean_squared_error * (1 - 1e-7)


def test_labels_without_a_root_favour_no_output() -> None:
    problem = random_problem(4)
    duals = Duals(constant=np.full(5, -1.0), slope=np.zeros(5))
    found, costs = best_columns(problem, duals)
    assert found.outputs.size == 1
    assert not found.is_high.any()
    assert costs[0] > 0
