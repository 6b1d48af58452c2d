"""A mechanism from given floors fills each auction as the exact fill does."""

import math

import numpy as np
import pytest

from statistical.randomizer_checks import ScriptedNoise
from tulle.errors import ConfigError, DataError
from tulle.mechanisms.entropy import release_rng
from tulle.mechanisms.thresholds import WORD_VALUES
from tulle.privacy.events import Composed, EpsilonDelta
from tulle.select.auctions import Auctions, FloatArray
from tulle.select.floors.floor_mechanism import FloorMechanism
from tulle.select.floors.floor_vector import FloorVectorMechanism
from tulle.select.floors.greedy_fill import Floors, fill, floor_value
from unit.select.floors.tiny_auctions import auctions_of, random_auctions

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
