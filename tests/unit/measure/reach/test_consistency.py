"""Consistent numbers satisfy their relations and are nearer to the truth."""

import math

import numpy as np
import pytest

from tulle.errors import ConfigError
from tulle.measure.reach.consistency import make_consistent
from tulle.measure.reach.relations import (
    Relation,
    adds_up,
    covered_by,
    in_order,
    part_of,
    within_impressions,
)
from tulle.privacy.events import DiscreteLaplace
from tulle.privacy.release import Interval, Release


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
        Relation(description="a is 20", coefficients=(("a", 1.0),), limit=20.0, is_equality=True),
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
        Relation(description="nothing", coefficients=())
    with pytest.raises(ConfigError, match="limit"):
        within_impressions("a", 1, math.inf)
