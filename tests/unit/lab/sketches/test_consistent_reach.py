"""Consistent numbers satisfy their relations and are nearer to the truth."""

import itertools
import math

import numpy as np
import pytest

from tulle.errors import ConfigError
from tulle.lab.sketches.consistent_reach import (
    InfeasibleError,
    LinearSystem,
    NearestPoint,
    ReachRelation,
    adds_up,
    covered_by,
    in_order,
    make_consistent,
    nearest_point,
    part_of,
    within_impressions,
)
from tulle.privacy.events import DiscreteLaplace
from tulle.privacy.guarantee import Interval, Release


def number(value: float, stddev: float = 1.0) -> Release:
    return Release(
        value=value,
        noise_stddev=stddev,
        interval=Interval(low=value - 2 * stddev, high=value + 2 * stddev),
        event=DiscreteLaplace(scale=1.0),
    )


RELATIONS = (
    part_of("site a", "all sites"),
    part_of("site b", "all sites"),
    covered_by("all sites", ["site a", "site b"]),
    adds_up("all sites", ["young", "old"]),
    *in_order(["week 1", "week 2", "all sites"]),
    within_impressions("all 2+", 2, "impressions"),
    within_impressions("all sites", 1, "impressions"),
    part_of("all 2+", "all sites"),
)
TRUTH = {
    "site a": 60.0,
    "site b": 50.0,
    "all sites": 100.0,
    "young": 30.0,
    "old": 70.0,
    "week 1": 98.0,
    "week 2": 99.0,
    "all 2+": 30.0,
    "impressions": 131.0,
}


def violations(values: dict[str, float]) -> list[float]:
    found = []
    for relation in RELATIONS:
        total = sum(coefficient * values[name] for name, coefficient in relation.coefficients)
        excess = total - relation.limit
        found.append(abs(excess) if relation.is_equality else max(excess, 0.0))
    return found


def test_numbers_satisfy_all_relations_and_are_never_further_from_the_truth() -> None:
    rng = np.random.default_rng(3)
    stddevs = dict(zip(TRUTH, rng.uniform(1, 30, len(TRUTH)), strict=True))
    num_violated = 0
    for _ in range(100):
        noisy = {name: TRUTH[name] + stddevs[name] * rng.normal() for name in TRUTH}
        result = make_consistent(
            {name: number(noisy[name], stddevs[name]) for name in TRUTH}, RELATIONS
        )
        num_violated += max(violations(noisy)) > 1
        assert max(violations(result.values)) < 1e-7
        assert min(result.values.values()) > -1e-9
        before = sum(((noisy[name] - TRUTH[name]) / stddevs[name]) ** 2 for name in TRUTH)
        after = sum(((result.values[name] - TRUTH[name]) / stddevs[name]) ** 2 for name in TRUTH)
        assert after <= before + 1e-9
    assert num_violated > 90


def test_numbers_that_agree_stay_as_they_are() -> None:
    result = make_consistent({name: number(TRUTH[name]) for name in TRUTH}, RELATIONS)
    assert result.values == pytest.approx(TRUTH)
    assert result.binding == ()


def test_the_less_certain_number_moves_further() -> None:
    result = make_consistent(
        {"part": number(12.0, stddev=1.0), "whole": number(8.0, stddev=3.0)},
        [part_of("part", "whole")],
    )
    # Both meet at the mean with weights 1 and 1/9.
    assert result.values == pytest.approx({"part": 11.6, "whole": 11.6})
    assert result.moves == pytest.approx({"part": -0.4, "whole": 1.2})
    assert result.binding == ("part <= whole",)


def test_a_public_number_of_impressions_limits_reach() -> None:
    result = make_consistent({"3+": number(50.0)}, [within_impressions("3+", 3, 90.0)])
    assert result.values["3+"] == pytest.approx(30.0)


def test_negative_numbers_are_lifted_only_where_asked() -> None:
    assert make_consistent({"a": number(-3.0)}, []).values == {"a": 0.0}
    kept = make_consistent({"a": number(-3.0)}, [], are_non_negative=False)
    assert kept.values == {"a": -3.0}


def test_relations_that_cannot_all_hold_are_refused_by_name() -> None:
    contradictory = [
        within_impressions("a", 1, 10.0),
        ReachRelation(
            description="a is 20", coefficients=(("a", 1.0),), limit=20.0, is_equality=True
        ),
    ]
    with pytest.raises(ConfigError, match=r"no numbers satisfy all 2 relations.*a is 20"):
        make_consistent({"a": number(15.0)}, contradictory)


def test_unknown_names_and_numbers_that_are_none_are_refused() -> None:
    with pytest.raises(ConfigError, match="'b', which is not among the releases"):
        make_consistent({"a": number(1.0)}, [part_of("a", "b")])
    with pytest.raises(ConfigError, match="at least one"):
        make_consistent({}, [])
    with pytest.raises(ConfigError, match="twice"):
        part_of("a", "a")
    with pytest.raises(ConfigError, match="no numbers"):
        ReachRelation(description="nothing", coefficients=())
    with pytest.raises(ConfigError, match="limit"):
        within_impressions("a", 1, math.inf)


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
