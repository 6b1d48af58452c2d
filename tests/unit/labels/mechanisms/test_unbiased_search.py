"""The unbiased randomizer found is the best one: published toy, closed forms, other programs."""

import math

import numpy as np
import pytest
from scipy.optimize import linprog

from statistical.randomizer_checks import ScriptedNoise, assert_follows
from tulle.errors import ConfigError
from tulle.labels.mechanisms import unbiased_program
from tulle.labels.mechanisms.unbiased_program import (
    Columns,
    Duals,
    Problem,
    constraints,
    merged,
    polished,
    solve_master,
)
from tulle.labels.mechanisms.unbiased_response import choose_atoms
from tulle.labels.mechanisms.unbiased_search import (
    Rounding,
    SearchLimits,
    Solution,
    coarser,
    finer_columns,
    solve,
    start_columns,
)
from tulle.mechanisms.entropy import SeededNoise

ATOMS = np.array([-2.0, 0.0, 0.5, 7.0])
LABELS = np.array([-2.0, -1.9, -0.7, 0.0, 0.1, 0.5, 3.3, 6.999, 7.0])


def test_the_mean_is_the_label() -> None:
    rounding = Rounding(atoms=ATOMS)
    np.testing.assert_allclose(rounding.mixed(ATOMS, LABELS), LABELS, rtol=1e-15, atol=1e-15)


def test_the_variance_is_that_of_two_atoms() -> None:
    rounding = Rounding(atoms=ATOMS)
    squares = rounding.mixed(ATOMS**2, LABELS)
    np.testing.assert_allclose(rounding.variance(LABELS), squares - LABELS**2, atol=1e-13)
    assert rounding.variance(3.3) == pytest.approx((3.3 - 0.5) * (7 - 3.3))


def test_labels_on_atoms_stay() -> None:
    rounding = Rounding(atoms=ATOMS)
    np.testing.assert_array_equal(rounding.variance(ATOMS), 0.0)
    for word in (0, 2**64 - 1):
        drawn = rounding.draw(ATOMS, rng=ScriptedNoise([word] * 4))
        assert drawn.tolist() == [0, 1, 2, 3]


def test_a_label_goes_up_for_words_below_its_threshold_only() -> None:
    rounding = Rounding(atoms=np.array([0.0, 1.0, 3.0]))
    label = np.array([1.5])
    assert rounding.thresholds(label).tolist() == [2**62]
    below = rounding.draw(label, rng=ScriptedNoise([2**62 - 1]))
    at = rounding.draw(label, rng=ScriptedNoise([2**62]))
    assert below.tolist() == [2]
    assert at.tolist() == [1]


def test_draws_follow_the_shares() -> None:
    rounding = Rounding(atoms=ATOMS)
    drawn = rounding.draw(np.full(200_000, 3.3), rng=SeededNoise(1))
    share = (3.3 - 0.5) / 6.5
    assert_follows(np.bincount(drawn, minlength=4)[2:], [1 - share, share])
    assert drawn.min() == 2


def test_a_prior_pushed_onto_atoms_keeps_its_sum_and_mean() -> None:
    prior = np.random.default_rng(0).dirichlet(np.ones(LABELS.size))
    pushed = Rounding(atoms=ATOMS).pushed(LABELS, prior)
    assert pushed.sum() == pytest.approx(1.0)
    assert pushed @ ATOMS == pytest.approx(prior @ LABELS)


def test_few_values_are_all_atoms() -> None:
    values = np.arange(30.0)
    np.testing.assert_array_equal(choose_atoms(values, np.full(30, 1 / 30), 30), values)


@pytest.mark.parametrize("max_atoms", [2, 3, 20, 50])
def test_atoms_have_both_ends_and_are_at_most_as_many_as_asked(max_atoms: int) -> None:
    values = np.linspace(0, 400, 401)
    prior = np.exp(-values / 20)
    atoms = choose_atoms(values, prior / prior.sum(), max_atoms)
    assert atoms[0] == 0
    assert atoms[-1] == 400
    assert 2 <= atoms.size <= max_atoms
    assert np.isin(atoms, values).all()


def test_atoms_are_denser_where_labels_are_likely_and_nowhere_far_apart() -> None:
    values = np.linspace(0, 400, 401)
    prior = np.exp(-values / 20)
    gaps = np.diff(choose_atoms(values, prior / prior.sum(), 40))
    assert gaps[:5].mean() < gaps[-5:].mean()
    assert gaps.max() <= 2.5 * 400 / 39


def test_atoms_near_likely_labels_round_with_less_variance_than_even_ones() -> None:
    values = np.linspace(0, 400, 401)
    prior = np.exp(-values / 20)
    prior /= prior.sum()
    chosen = Rounding(atoms=choose_atoms(values, prior, 21)).variance(values) @ prior
    even = Rounding(atoms=np.linspace(0, 400, 21)).variance(values) @ prior
    assert chosen < even


@pytest.mark.parametrize("atoms", [[1.0], [1.0, 1.0], [2.0, 1.0]])
def test_atoms_without_meaning_are_refused(atoms: list[float]) -> None:
    with pytest.raises(ConfigError):
        Rounding(atoms=np.array(atoms))


def test_less_than_two_atoms_are_refused() -> None:
    with pytest.raises(ConfigError):
        choose_atoms(np.arange(5.0), np.full(5, 0.2), 1)


TIGHT = SearchLimits(relative_gap=1e-9)


def spaced(prior: np.ndarray, epsilon: float) -> Problem:
    return Problem(
        labels=np.linspace(0, 1, prior.size),
        prior=prior / prior.sum(),
        low_share=math.exp(-epsilon),
    )


def assert_feasible(problem: Problem, solution: Solution) -> None:
    chances = solution.columns.shares(problem).T * solution.weights
    assert np.all(solution.weights > 0)
    np.testing.assert_allclose(chances.sum(axis=1), 1.0, atol=1e-11)
    np.testing.assert_allclose(chances @ solution.columns.outputs, problem.labels, atol=1e-10)


def test_the_published_toy_is_reproduced() -> None:
    # WICG slides of 2023-12-11: labels 0, 1, 2; a grid of 300 outputs gave 15.857660.
    problem = spaced(np.array([0.6, 0.25, 0.15]), 0.5)
    solution = solve(problem, TIGHT)
    assert_feasible(problem, solution)
    assert round(4 * solution.mean_squared_error, 6) == 15.857521
    assert solution.relative_gap < 1e-8
    printed = [-3.30771, -3.27009, -2.85625, 4.81863, 5.34534, 5.38296]
    distances = np.abs(2 * solution.columns.outputs[:, None] - printed)
    assert distances.min(axis=0).max() < 0.04
    assert distances.min(axis=1).max() < 0.04


@pytest.mark.parametrize("epsilon", [0.05, 1.0, 3.0, 10.0])
@pytest.mark.parametrize("share", [0.5, 0.02])
def test_two_labels_have_binary_randomized_response(epsilon: float, share: float) -> None:
    solution = solve(spaced(np.array([1 - share, share]), epsilon), TIGHT)
    expected = math.exp(epsilon) / math.expm1(epsilon) ** 2
    assert solution.mean_squared_error == pytest.approx(expected, rel=1e-8)


@pytest.mark.parametrize(("size", "epsilon"), [(3, 0.5), (5, 2.0), (8, 2.0), (6, 4.0)])
def test_no_channel_onto_a_fine_grid_is_better(size: int, epsilon: float) -> None:
    prior = np.random.default_rng(size).dirichlet(np.ones(size))
    problem = spaced(prior, epsilon)
    solution = solve(problem, SearchLimits(relative_gap=1e-8))
    assert_feasible(problem, solution)
    low, high = solution.columns.outputs.min(), solution.columns.outputs.max()
    grid = np.union1d(np.linspace(low - 0.2, high + 0.2, 60), solution.columns.outputs)
    on_grid = least_error_on_grid(problem, grid)
    assert solution.mean_squared_error == pytest.approx(on_grid, rel=1e-6)


def least_error_on_grid(problem: Problem, outputs: np.ndarray) -> float:
    """All unbiased channels onto the outputs: m_o <= M(o|y) <= e^epsilon m_o."""
    num_labels, num_outputs = problem.num_labels, outputs.size
    num_chances = num_labels * num_outputs
    errors = (outputs - problem.labels[:, None]) ** 2
    least = np.tile(np.eye(num_outputs), (num_labels, 1))
    upper = np.hstack([problem.low_share * np.eye(num_chances), -least])
    lower = np.hstack([-np.eye(num_chances), least])
    none = np.zeros((num_labels, num_outputs))
    sums = np.hstack([np.kron(np.eye(num_labels), np.ones(num_outputs)), none])
    means = np.hstack([np.kron(np.eye(num_labels), outputs), none])
    found = linprog(
        np.concatenate([(problem.prior[:, None] * errors).reshape(-1), np.zeros(num_outputs)]),
        A_ub=np.vstack([upper, lower]),
        b_ub=np.zeros(2 * num_chances),
        A_eq=np.vstack([sums, means]),
        b_eq=np.concatenate([np.ones(num_labels), problem.labels]),
    )
    assert found.status == 0
    return float(found.fun)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
def test_twenty_labels_are_solved_to_the_gap(epsilon: float) -> None:
    problem = spaced(np.exp(-np.arange(20) / 5), epsilon)
    solution = solve(problem, SearchLimits(relative_gap=1e-7))
    assert_feasible(problem, solution)
    assert solution.relative_gap <= 1e-7
    assert solution.weights.size <= 2 * problem.num_labels


def test_the_search_ends_after_as_many_rounds_as_it_may_have_and_states_its_gap() -> None:
    problem = spaced(np.exp(-np.arange(20) / 5), 1.0)
    solution = solve(problem, SearchLimits(relative_gap=1e-9, max_rounds=2))
    assert_feasible(problem, solution)
    assert solution.num_rounds == 2
    assert solution.relative_gap > 1e-9


def test_forty_labels_are_solved_to_the_gap() -> None:
    problem = spaced(np.exp(-np.arange(40) / 10), 1.0)
    solution = solve(problem, SearchLimits(relative_gap=1e-7))
    assert_feasible(problem, solution)
    assert solution.relative_gap <= 1e-7


@pytest.mark.parametrize("epsilon", [0.01, 1.0, 6.0, 16.0])
def test_the_start_is_feasible_and_no_better_than_the_ends_with_binary_response(
    epsilon: float,
) -> None:
    problem = spaced(np.array([0.4, 0.1, 0.2, 0.3]), epsilon)
    columns = start_columns(problem)
    weights, _ = solve_master(problem, columns)
    found = merged(problem, columns, weights)
    assert found.worst_miss < 1e-10
    # Rounding to the ends has variance y (1 - y); the noise comes on top.
    rounding = problem.prior @ (problem.labels * (1 - problem.labels))
    ends = math.exp(epsilon) / math.expm1(epsilon) ** 2 + rounding
    assert found.mean_squared_error <= ends * (1 + 1e-9)


def test_prices_are_those_of_the_untransformed_program() -> None:
    problem = spaced(np.array([0.4, 0.1, 0.2, 0.3]), 1.3)
    columns = start_columns(problem)
    _, prices = solve_master(problem, columns)
    shares = columns.shares(problem)
    plain = linprog(
        columns.costs(problem),
        A_eq=np.vstack([shares.T, shares.T * columns.outputs]),
        b_eq=np.concatenate([np.ones(4), problem.labels]),
    )
    assert prices.value(problem) == pytest.approx(plain.fun, rel=1e-9)
    # Dual feasible, which together with the equal value makes them optimal prices.
    paid = shares @ prices.constant + columns.outputs * (shares @ prices.slope)
    assert np.all(columns.costs(problem) - paid > -1e-9)


def test_columns_of_the_same_labels_are_merged_into_one_of_less_error() -> None:
    problem = spaced(np.array([0.6, 0.25, 0.15]), 0.5)
    solution = solve(problem, TIGHT)
    split = Columns(
        outputs=np.concatenate([solution.columns.outputs - 0.5, solution.columns.outputs + 0.5]),
        is_high=np.tile(solution.columns.is_high, (2, 1)),
    )
    weights = np.tile(solution.weights / 2, 2)
    rows, targets = constraints(problem, split)
    np.testing.assert_allclose(rows @ weights, targets, atol=1e-12)
    one = merged(problem, split, weights)
    assert one.weights.size == solution.weights.size
    assert one.worst_miss < 1e-12
    assert one.mean_squared_error == pytest.approx(solution.mean_squared_error, rel=1e-9)
    assert split.costs(problem) @ weights > one.mean_squared_error * 1.01


@pytest.mark.parametrize("epsilon", [0.02, 0.5, 8.0])
def test_polishing_removes_what_a_solver_leaves(epsilon: float) -> None:
    problem = spaced(np.array([0.6, 0.25, 0.15]), epsilon)
    solution = solve(problem, TIGHT)
    signs = np.resize([1, -1, 1], solution.weights.size)
    rough = Columns(
        outputs=solution.columns.outputs * (1 - 1e-7 * signs), is_high=solution.columns.is_high
    )
    rough_weights = solution.weights * (1 + 1e-7 * signs)
    rows, targets = constraints(problem, rough)
    assert np.abs(rows @ rough_weights - targets).max() > 1e-9
    columns, weights = polished(problem, rough, rough_weights)
    rows, targets = constraints(problem, columns)
    assert np.abs(rows @ weights - targets).max() < 1e-14
    np.testing.assert_allclose(weights, rough_weights, rtol=1e-5)


def test_the_worst_miss_is_that_of_the_constraint_that_is_missed_most() -> None:
    problem = spaced(np.array([0.6, 0.25, 0.15]), 0.5)
    solution = solve(problem, TIGHT)
    rough = Columns(outputs=solution.columns.outputs * 1.01, is_high=solution.columns.is_high)
    rows, targets = constraints(problem, rough)
    misses = [abs(sum(row * solution.weights) - t) for row, t in zip(rows, targets, strict=True)]
    # Outputs move the means alone: the constraints on probabilities still hold.
    assert min(misses) < 1e-12
    assert unbiased_program._worst_miss(problem, rough, solution.weights) == pytest.approx(
        max(misses), rel=1e-9
    )
    assert max(misses) > 1e-3


def test_half_the_labels_keep_the_ends_and_the_mean() -> None:
    problem = spaced(np.random.default_rng(0).random(41), 1.0)
    coarse, places = coarser(problem)
    assert places[0] == 0
    assert places[-1] == 40
    assert coarse.num_labels == 21
    assert coarse.prior @ coarse.labels == pytest.approx(problem.prior @ problem.labels)


@pytest.mark.parametrize("wrong", [{"relative_gap": 0.0}, {"relative_gap": 1.0}, {"max_rounds": 0}])
def test_limits_without_meaning_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError):
        SearchLimits(**wrong)  # type: ignore[arg-type]


def test_one_round_gives_a_feasible_randomizer_with_its_gap() -> None:
    problem = spaced(np.exp(-np.arange(12) / 3), 1.0)
    rough = solve(problem, SearchLimits(max_rounds=1))
    best = solve(problem, SearchLimits())
    assert_feasible(problem, rough)
    assert rough.mean_squared_error >= best.mean_squared_error
    assert rough.lower_bound <= best.mean_squared_error
    assert rough.relative_gap > best.relative_gap


def test_an_output_that_no_label_favours_does_not_end_the_search() -> None:
    fine = spaced(np.ones(5), 1.0)
    coarse = Columns(
        outputs=np.array([0.2, 0.9]), is_high=np.array([[False] * 3, [False, True, True]])
    )
    free = Duals(constant=np.zeros(5), slope=np.zeros(5))
    columns = finer_columns(coarse, np.array([0, 2, 4]), fine, free)
    marked = columns.is_high[columns.outputs == 0.9]
    # Ranges that keep the labels at 2 and 4 and leave out the one at 0.
    assert {tuple(np.flatnonzero(marks)) for marks in marked if marks.any()} >= {
        (1, 2, 3, 4),
        (2, 3, 4),
    }
