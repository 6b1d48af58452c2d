"""The greedy fill is private, and no mechanism with its floors has a better expected score."""

import itertools
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from statistical.randomizer_checks import ScriptedNoise, exceeds_exp
from tulle.errors import ConfigError, DataError
from tulle.lab.markets.floor_fill import (
    Floors,
    FloorVectorMechanism,
    cap_factor,
    cap_words,
    fill,
    fill_rows,
    floor_value,
    floor_words,
)
from tulle.mechanisms.entropy import release_rng
from tulle.mechanisms.thresholds import WORD_VALUES
from tulle.privacy.events import Composed, EpsilonDelta
from tulle.select.auctions import Auctions, FloatArray
from tulle.select.mechanisms.floors import FloorMechanism
from unit.select.mechanisms.tiny_auctions import auctions_of, random_auctions

SCORES = st.integers(-3, 3).map(float) | st.floats(-100, 100)


@st.composite
def floors_with_two_devices(draw: st.DrawFn) -> tuple[Floors, list[float], list[float]]:
    size = draw(st.integers(1, 7))
    epsilon = draw(st.floats(0.01, 12))
    shares = np.array(draw(st.lists(st.floats(0.01, 1), min_size=size, max_size=size)))
    least = math.exp(-epsilon)
    total = least + draw(st.floats(0.001, 1)) * (1 - least)
    floors = Floors.from_chances(shares / shares.sum() * total, epsilon=epsilon)
    both = st.lists(SCORES, min_size=size, max_size=size)
    return floors, draw(both), draw(both)


@settings(max_examples=300)
@given(floors_with_two_devices())
def test_no_two_devices_differ_by_more_than_epsilon(
    case: tuple[Floors, list[float], list[float]],
) -> None:
    floors, *devices = case
    laws = [fill(floors, scores) for scores in devices]
    for law in laws:
        assert sum(law) == WORD_VALUES
        assert all(map(int.__ge__, law, floors.words))
    for first, second in itertools.permutations(laws):
        for words, other_words in zip(first, second, strict=True):
            assert not exceeds_exp(Fraction(words, other_words), floors.epsilon)


@settings(max_examples=100)
@given(floors_with_two_devices())
def test_the_dual_gives_the_expected_score_of_the_fill(
    case: tuple[Floors, list[float], list[float]],
) -> None:
    floors, scores, _ = case
    expected = sum(map(float.__mul__, scores, (w / WORD_VALUES for w in fill(floors, scores))))
    probs = [words / WORD_VALUES for words in floors.words]
    value = floor_value(probs, scores, epsilon=floors.epsilon)
    assert value == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 5.0])
@pytest.mark.parametrize("size", [2, 3, 15])
def test_equal_floors_of_randomized_response_give_randomized_response(
    epsilon: float, size: int
) -> None:
    normaliser = size - 1 + math.exp(epsilon)
    floors = Floors.from_chances([1 / normaliser] * size, epsilon=epsilon)
    scores = np.random.default_rng(size).random(size).tolist()
    chances = [words / WORD_VALUES for words in fill(floors, scores)]
    stated = [math.exp(epsilon * (score == max(scores))) / normaliser for score in scores]
    assert chances == pytest.approx(stated, abs=2e-12)


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
    floors = Floors.from_chances(np.full(size, floor), epsilon=epsilon)
    rng = np.random.default_rng(5)
    gains = []
    for scores in [*rng.random((40, size)), *rng.integers(0, 2, (20, size)).astype(float)]:
        filled = np.array(fill(floors, scores.tolist()), float) / WORD_VALUES @ scores
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
    values = [floor_value(floors, scores, epsilon=epsilon) for scores in devices]
    assert sum(values) == pytest.approx(best, abs=1e-6)
    laws = [fill(Floors.from_chances(floors, epsilon=epsilon), row.tolist()) for row in devices]
    assert np.sum(np.array(laws, float) / WORD_VALUES * devices) == pytest.approx(best, abs=1e-6)


def test_equal_scores_are_filled_in_the_public_order() -> None:
    floors = Floors.from_chances([0.2, 0.2, 0.2], epsilon=1.0)
    first, second, third = fill(floors, [0.0, 0.0, 0.0])
    assert first > second > third == floors.words[2]
    assert first == floors.caps[0]


def test_all_chance_on_one_candidate_is_a_floor_and_personalises_nothing() -> None:
    floors = Floors.from_chances([0.0, 1.0, 0.0], epsilon=1.0)
    assert fill(floors, [9.0, 0.0, 5.0]) == (0, WORD_VALUES, 0)


def test_floats_that_add_up_to_just_above_one_are_floors() -> None:
    chances = np.array([0.1, 0.2, 0.3, 0.4])
    chances *= (1 + 4e-16) / chances.sum()
    assert sum(map(Fraction, chances)) > 1
    floors = Floors.from_chances(chances, epsilon=1.0)
    assert sum(fill(floors, [1, 2, 3, 4])) == WORD_VALUES


def test_a_large_epsilon_lets_the_best_take_what_the_floors_leave() -> None:
    floors = Floors(epsilon=2000.0, words=(1, 1, 5))
    assert fill(floors, [0.0, 1.0, 0.5]) == (1, WORD_VALUES - 6, 5)


@pytest.mark.parametrize(
    ("chances", "epsilon"), [([0.6, 0.6], 1.0), ([0.1, 0.1], 1.0), ([0.0, 0.0], 3.0)]
)
def test_floors_that_no_mechanism_has_are_refused_with_the_reason(
    chances: list[float], epsilon: float
) -> None:
    with pytest.raises(ConfigError, match=r"at most 1 and.*at least e\^-epsilon"):
        Floors.from_chances(chances, epsilon=epsilon)
    with pytest.raises(ConfigError, match=r"at most 1 and.*at least e\^-epsilon"):
        floor_value(chances, [0.0, 1.0], epsilon=epsilon)


def test_a_few_words_too_many_or_too_few_are_refused() -> None:
    half = WORD_VALUES // 2
    assert fill(Floors(epsilon=1.0, words=(half, half)), [0.0, 1.0]) == (half, half)
    with pytest.raises(ConfigError, match="add up"):
        Floors(epsilon=1.0, words=(half, half + 1))
    with mpmath.workdps(60):
        least = int(mpmath.ceil(half / mpmath.e))
    assert sum(Floors(epsilon=1.0, words=(least + 1, least + 1)).caps) >= WORD_VALUES
    with pytest.raises(ConfigError, match="add up"):
        Floors(epsilon=1.0, words=(least - 1, least - 1))


@pytest.mark.parametrize("scores", [[0.0], [0.0, -math.inf], [0.0, math.nan], [0.0, 1.0, 2.0]])
def test_missing_and_infinite_scores_are_refused(scores: list[float]) -> None:
    with pytest.raises(DataError, match="finite"):
        fill(Floors.from_chances([0.4, 0.4], epsilon=1.0), scores)
    with pytest.raises(DataError, match="finite"):
        floor_value([0.4, 0.4], scores, epsilon=1.0)


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.inf, math.nan])
def test_an_epsilon_that_is_none_is_refused(epsilon: float) -> None:
    with pytest.raises(ConfigError, match="epsilon"):
        Floors(epsilon=epsilon, words=(1, 1))
    with pytest.raises(ConfigError, match=r"epsilon=.* must be > 0"):
        floor_value([0.5, 0.5], [0.0, 1.0], epsilon=epsilon)


def test_floors_below_zero_and_no_floors_are_refused() -> None:
    with pytest.raises(ConfigError, match="probabilities in"):
        Floors.from_chances([-0.1, 0.9], epsilon=1.0)
    with pytest.raises(ConfigError, match="at least one candidate"):
        Floors(epsilon=1.0, words=())


EXTREMES = [0, 1, 2, 3, 2**32 - 1, 2**32, 2**32 + 1, 2**63 - 1, 2**63, 2**64 - 2, 2**64 - 1]


@settings(max_examples=200)
@given(
    st.lists(st.sampled_from(EXTREMES) | st.integers(0, 2**64 - 1), min_size=1, max_size=20),
    st.sampled_from([1e-90, 1e-12, 0.3, 1.0, 22.18, 22.19, 44.3, 44.4, 70.0, 5000.0])
    | st.floats(1e-3, 60),
)
def test_caps_are_exact_for_all_words(floors: list[int], epsilon: float) -> None:
    caps = cap_words(np.array(floors, np.uint64), epsilon)
    exact = [floor * cap_factor(epsilon) // WORD_VALUES for floor in floors]
    assert caps.tolist() == [min(cap, WORD_VALUES - 1) for cap in exact]


@settings(max_examples=60)
@given(st.integers(1, 8), st.floats(0.01, 50), st.floats(1e-3, 1), st.integers(0, 2**32))
def test_rows_have_the_words_of_the_exact_fill(
    size: int, epsilon: float, share: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    chances = rng.random((9, size)) * rng.integers(0, 2, (9, size)) + 1e-12
    least = min(np.exp(-epsilon) * 1.01 + 1e-9, 1.0)
    chances *= ((least + share * (1 - least)) / chances.sum(axis=1))[:, None]
    scores = rng.integers(0, 4, (9, size)).astype(float)
    floors = floor_words(chances, epsilon)
    words = fill_rows(floors, scores, epsilon=epsilon)
    for row in range(9):
        exact = Floors(epsilon=epsilon, words=tuple(floors[row].tolist()))
        filled = fill(exact, scores[row].tolist())
        assert words[row].tolist() == [min(w, WORD_VALUES - 1) for w in filled]


@pytest.mark.parametrize("floors", [[[2**63, 2**63 + 1]], [[2**60, 2**60]], [[0, 0]]])
def test_floors_that_no_mechanism_has_are_refused(floors: list[list[int]]) -> None:
    with pytest.raises(ConfigError, match="add up"):
        fill_rows(np.array(floors, np.uint64), np.zeros((1, 2)), epsilon=1.0)


@pytest.mark.parametrize("epsilon", [1e-90, 1e-30])
def test_an_epsilon_near_zero_lets_no_candidate_rise(epsilon: float) -> None:
    floors = np.array([[2**62, 2**63, 2**62 - 1]], np.uint64)
    assert cap_words(floors, epsilon).tolist() == floors.tolist()
    with pytest.raises(ConfigError, match="add up"):
        fill_rows(floors, np.zeros((1, 3)), epsilon=epsilon)


EPSILON = 1.5


def softmax_floors(auctions: Auctions) -> FloatArray:
    """Half of what a public softmax of server scores gives."""
    weights = np.exp(3 * auctions.server_scores)
    totals = np.add.reduceat(weights, auctions.offsets[:-1])
    return 0.5 * weights / np.repeat(totals, auctions.sizes)


def equal_floors(auctions: Auctions) -> FloatArray:
    sizes = np.repeat(auctions.sizes, auctions.sizes)
    return 1 / (sizes - 1 + math.exp(EPSILON))


SOFT = FloorVectorMechanism(epsilon=EPSILON, floor_probs=softmax_floors, floors_name="softmax")
EQUAL = FloorVectorMechanism(epsilon=EPSILON, floor_probs=equal_floors, floors_name="equal")


@pytest.mark.parametrize("mechanism", [SOFT, EQUAL])
@pytest.mark.parametrize("num_levels", [0, 2])
def test_chances_are_those_of_the_exact_fill(
    mechanism: FloorVectorMechanism, num_levels: int
) -> None:
    sizes = np.random.default_rng(1).integers(1, 9, 200).tolist()
    auctions = random_auctions(sizes, seed=2, num_levels=num_levels)
    scores = np.random.default_rng(3).integers(0, 4, auctions.num_candidates).astype(float)
    probs = mechanism.selection_probs(auctions, scores)
    floors, server = mechanism.floor_probs(auctions), auctions.server_scores
    for first, last in zip(auctions.offsets[:-1], auctions.offsets[1:], strict=True):
        order = sorted(range(first, last), key=lambda place: (-server[place], place))
        words = fill(Floors.from_chances(floors[order], epsilon=EPSILON), scores[order].tolist())
        assert probs[order].tolist() == [entry / WORD_VALUES for entry in words]
        value = floor_value(floors[order], scores[order], epsilon=EPSILON)
        assert probs[order] @ scores[order] == pytest.approx(value, abs=1e-9)


def test_equal_floors_are_randomized_response() -> None:
    auctions = random_auctions([1, 2, 5, 5, 25], seed=2)
    scores = np.random.default_rng(3).random(38)
    exact = FloorMechanism(epsilon=EPSILON).selection_probs(auctions, scores)
    assert EQUAL.selection_probs(auctions, scores) == pytest.approx(exact, abs=1e-11)


def test_all_chance_on_the_server_winner_personalises_nothing() -> None:
    auctions = auctions_of([0.1, 0.9, 0.3], [0.5])
    mechanism = FloorVectorMechanism(
        epsilon=EPSILON,
        floor_probs=lambda _: np.array([0.0, 1.0, 0.0, 1.0]),
        floors_name="server winner",
    )
    scores = np.array([5.0, 1.0, 9.0, 0.0])
    assert mechanism.selection_probs(auctions, scores).tolist() == [0, 1, 0, 1]
    for word in (0, 2**63, 2**64 - 2, 2**64 - 1):
        chosen = mechanism.choose(auctions, scores, rng=ScriptedNoise([word] * 2))
        assert chosen.tolist() == [1, 3]


def test_the_cost_is_a_pure_epsilon_and_nothing_for_one_finalist() -> None:
    assert SOFT.event(7) == EpsilonDelta(epsilon=EPSILON)
    assert SOFT.event(1) == Composed()
    assert SOFT.name == "greedy fill, softmax, epsilon 1.5"


def test_floors_of_other_candidates_are_refused() -> None:
    mechanism = FloorVectorMechanism(
        epsilon=1.0, floor_probs=lambda _: np.array([0.5]), floors_name="short"
    )
    with pytest.raises(ConfigError, match="one floor for each"):
        mechanism.selection_probs(auctions_of([0.1, 0.2]), np.zeros(2))


def test_infeasible_floors_and_excluded_candidates_are_refused() -> None:
    auctions = auctions_of([0.1, 0.2])
    low = FloorVectorMechanism(
        epsilon=1.0, floor_probs=lambda _: np.array([0.1, 0.1]), floors_name="low"
    )
    with pytest.raises(ConfigError, match="add up"):
        low.choose(auctions, np.zeros(2), rng=release_rng())
    with pytest.raises(DataError, match="hard private exclusion is impossible"):
        SOFT.choose(auctions, np.array([0.0, -np.inf]), rng=release_rng())
