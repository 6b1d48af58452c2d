"""No mechanism above given floors has a better expected score than their greedy fill.

Let m_y be the least probability of ad y over all private data. Whatever epsilon-local mechanism has
these floors stays below e^epsilon m_y. Starting from the floors and giving the rest to the best
private scores, each up to e^epsilon m_y, stays within the same limits, so it is as private; and
no probabilities within them have a larger expected score. Randomized response is the fill of equal
floors, so nothing with its floors is better.
"""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from tulle.select.mechanisms.floors import FloorMechanism
from unit.select.mechanisms.tiny_auctions import auctions_of

SCORES = st.integers(-3, 3).map(float) | st.floats(-100, 100)
ROUNDING = 1e-12


def fill(floors: np.ndarray, scores: np.ndarray, epsilon: float) -> np.ndarray:
    """Probabilities from the floors up, the best scores at their limits, ties in order."""
    probs = np.array(floors, float)
    for place in np.argsort(-np.asarray(scores), kind="stable"):
        left = max(1 - probs.sum(), 0)
        probs[place] += min(left, math.expm1(epsilon) * floors[place])
    assert probs.sum() == pytest.approx(1, abs=ROUNDING), "no mechanism has these floors"
    return probs


def floor_value(floors: np.ndarray, scores: np.ndarray, epsilon: float) -> float:
    """Expected score of the fill by its dual, the most that any mechanism with the floors gets.

    The least value over t of t + sum_y m_y (e^epsilon (s_y - t)^+ - (t - s_y)^+), which is convex
    and has its kinks at the scores.
    """
    excess = np.subtract.outer(scores, scores).T
    gains = np.where(excess > 0, math.exp(epsilon) * excess, excess)
    return float(np.min(scores + gains @ floors))


@st.composite
def floors_with_two_devices(
    draw: st.DrawFn,
) -> tuple[float, np.ndarray, np.ndarray, np.ndarray]:
    size = draw(st.integers(1, 7))
    epsilon = draw(st.floats(0.01, 12))
    shares = np.array(draw(st.lists(st.floats(0.01, 1), min_size=size, max_size=size)))
    least = math.exp(-epsilon)
    total = least + draw(st.floats(0.001, 0.999)) * (1 - least)
    both = st.lists(SCORES, min_size=size, max_size=size).map(np.array)
    return epsilon, shares / shares.sum() * total, draw(both), draw(both)


@settings(max_examples=200)
@given(floors_with_two_devices())
def test_no_two_devices_differ_by_more_than_epsilon(
    case: tuple[float, np.ndarray, np.ndarray, np.ndarray],
) -> None:
    epsilon, floors, *devices = case
    one, other = (fill(floors, scores, epsilon) for scores in devices)
    assert np.all(one >= floors)
    assert np.all(np.abs(np.log(one / other)) <= epsilon + ROUNDING)


@settings(max_examples=100)
@given(floors_with_two_devices())
def test_the_dual_gives_the_expected_score_of_the_fill(
    case: tuple[float, np.ndarray, np.ndarray, np.ndarray],
) -> None:
    epsilon, floors, scores, _ = case
    expected = fill(floors, scores, epsilon) @ scores
    assert floor_value(floors, scores, epsilon) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 5.0])
@pytest.mark.parametrize("size", [2, 3, 15])
def test_randomized_response_is_the_fill_of_its_own_floors(epsilon: float, size: int) -> None:
    scores = np.random.default_rng(size).random(size)
    probs = FloorMechanism(epsilon=epsilon).selection_probs(auctions_of([0.5] * size), scores)
    floors = np.full(size, 1 / (size - 1 + math.exp(epsilon)))
    assert probs == pytest.approx(fill(floors, scores, epsilon), abs=1e-11)


def exponential_mechanism(rate: float, scores: np.ndarray) -> np.ndarray:
    weights = np.exp(rate * (scores - scores.max()))
    return weights / weights.sum()


def permute_and_flip(rate: float, scores: np.ndarray) -> np.ndarray:
    """P_i = q_i INT_0^1 PROD_(j != i) (1 - q_j u) du; the quadrature is exact for polynomials."""
    odds = np.exp(rate * (scores - scores.max()))
    nodes, weights = np.polynomial.legendre.leggauss(len(scores))
    nodes, weights = (nodes + 1) / 2, weights / 2
    return np.array(
        [
            q * weights @ np.prod(1 - np.delete(odds, i)[:, None] * nodes, axis=0)
            for i, q in enumerate(odds)
        ]
    )


@pytest.mark.parametrize("mechanism", [exponential_mechanism, permute_and_flip])
@pytest.mark.parametrize(("epsilon", "size"), [(0.5, 3), (3.0, 15), (6.0, 6)])
def test_at_its_own_floors_a_noisy_maximum_is_never_better(
    mechanism: object, epsilon: float, size: int
) -> None:
    rate = epsilon / 2  # scores within [0, 1], so a sensitivity of 1
    worst = np.ones(size)
    worst[0] = 0
    floor = mechanism(rate, worst)[0]  # type: ignore[operator]
    floors = np.full(size, floor)
    rng = np.random.default_rng(5)
    gains = []
    for scores in [*rng.random((40, size)), *rng.integers(0, 2, (20, size)).astype(float)]:
        filled = fill(floors, scores, epsilon) @ scores
        gains.append(filled - mechanism(rate, scores) @ scores)  # type: ignore[operator]
    assert min(gains) > -1e-11
    assert max(gains) > 0.01


def best_of_all_mechanisms(floors: np.ndarray, devices: np.ndarray, epsilon: float) -> float:
    """Largest sum of the devices' expected scores over all epsilon-local mechanisms.

    A linear programme over the probabilities of every ad for every device, with one device more for
    each ad at which that ad has its floor. No probability is below a floor.
    """
    num_devices, size = devices.shape
    num_rows = num_devices + size
    pairs, equal, equal_to = [], [], []
    for row, other in itertools.permutations(range(num_rows), 2):
        for ad in range(size):
            line = np.zeros((num_rows, size))
            line[row, ad], line[other, ad] = 1, -math.exp(epsilon)
            pairs.append(line.ravel())
    for row in range(num_rows):
        line = np.zeros((num_rows, size))
        line[row] = 1
        equal.append(line.ravel())
        equal_to.append(1.0)
    for ad in range(size):
        line = np.zeros((num_rows, size))
        line[num_devices + ad, ad] = 1
        equal.append(line.ravel())
        equal_to.append(floors[ad])
    goal = np.concatenate([devices, np.zeros((size, size))])
    solution = linprog(
        -goal.ravel(),
        A_ub=np.array(pairs),
        b_ub=np.zeros(len(pairs)),
        A_eq=np.array(equal),
        b_eq=equal_to,
        bounds=[(floor, 1) for _ in range(num_rows) for floor in floors],
    )
    assert solution.status == 0
    return -float(solution.fun)


@pytest.mark.parametrize(
    ("floors", "epsilon"),
    [([0.2, 0.2, 0.25], 1.0), ([0.05, 0.02, 0.08, 0.03], 2.5), ([0.3, 0.2, 0.1, 0.2, 0.1], 0.4)],
)
def test_the_value_is_that_of_the_best_mechanism_with_these_floors(
    floors: list[float], epsilon: float
) -> None:
    devices = np.random.default_rng(2).normal(size=(4, len(floors)))
    best = best_of_all_mechanisms(np.array(floors), devices, epsilon)
    values = [floor_value(np.array(floors), scores, epsilon) for scores in devices]
    assert sum(values) == pytest.approx(best, abs=1e-6)
    filled = [fill(np.array(floors), scores, epsilon) @ scores for scores in devices]
    assert sum(filled) == pytest.approx(best, abs=1e-6)
