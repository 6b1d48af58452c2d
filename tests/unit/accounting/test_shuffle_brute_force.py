"""Both shuffle bounds against the exact truth, over all data sets of a few units."""

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from tulle.accounting.shuffling import (
    Blanket,
    clones_blanket,
    profile_delta,
    response_blanket,
)

FloatArray = NDArray[np.float64]
Bound = Callable[[FloatArray, float, int, int], FloatArray]

# (num_values, num_reports, local_epsilon)
CASES = [
    *itertools.product((2, 3), (2, 4, 6), (0.5, 1.0, 3.0)),
    *itertools.product((4,), (2, 3, 5), (1.0, 3.0)),
    (4, 6, 2.0),
    (5, 5, 1.0),
]
FRACTIONS = np.array([0.0, 0.1, 0.3, 0.6, 0.9, 0.99])


def randomized_response(num_values: int, local_epsilon: float) -> FloatArray:
    odds = np.ones((num_values, num_values)) + np.eye(num_values) * math.expm1(local_epsilon)
    return odds / odds.sum(axis=1, keepdims=True)


def exact_delta(randomizer: FloatArray, num_reports: int, epsilons: FloatArray) -> FloatArray:
    """The hockey stick of the shuffled counts, largest over all pairs of data sets."""
    num_inputs = len(randomizer)
    worst = np.zeros(len(epsilons))
    for others in itertools.combinations_with_replacement(range(num_inputs), num_reports - 1):
        counts = np.zeros((num_reports + 1,) * randomizer.shape[1])
        counts.flat[0] = 1.0
        for value in others:
            counts = _with_one_more(counts, randomizer[value])
        outputs = [_with_one_more(counts, chances) for chances in randomizer]
        for one, other in itertools.permutations(outputs, 2):
            sticks = [np.maximum(one - math.exp(e) * other, 0).sum() for e in epsilons]
            worst = np.maximum(worst, sticks)
    return worst


def _with_one_more(counts: FloatArray, chances: FloatArray) -> FloatArray:
    return sum(
        (chance * np.roll(counts, 1, axis=value) for value, chance in enumerate(chances)),
        start=np.zeros_like(counts),
    )


def sound_blanket(
    epsilons: FloatArray, local_epsilon: float, num_values: int, num_reports: int
) -> FloatArray:
    return profile_delta(response_blanket(local_epsilon, num_values, num_reports), epsilons)


def sound_clones(
    epsilons: FloatArray, local_epsilon: float, num_values: int, num_reports: int
) -> FloatArray:
    del num_values
    return profile_delta(clones_blanket(local_epsilon, num_reports), epsilons)


def fault_one_report_too_many(
    epsilons: FloatArray, local_epsilon: float, num_values: int, num_reports: int
) -> FloatArray:
    return sound_blanket(epsilons, local_epsilon, num_values, num_reports + 1)


def fault_one_value_too_many(
    epsilons: FloatArray, local_epsilon: float, num_values: int, num_reports: int
) -> FloatArray:
    return sound_blanket(epsilons, local_epsilon, num_values + 1, num_reports)


def fault_clones_with_one_report_too_many(
    epsilons: FloatArray, local_epsilon: float, num_values: int, num_reports: int
) -> FloatArray:
    return sound_clones(epsilons, local_epsilon, num_values, num_reports + 1)


def fault_every_report_is_a_clone(
    epsilons: FloatArray, local_epsilon: float, num_values: int, num_reports: int
) -> FloatArray:
    del num_values
    all_clones = Blanket(
        local_epsilon=local_epsilon,
        num_reports=num_reports,
        truth_prob=1 / (1 + math.exp(-local_epsilon)),
        value_prob=0.4999,
        rest_prob=0.0,
    )
    return profile_delta(all_clones, epsilons)


def fault_others_hold_a_third_value(
    epsilons: FloatArray, local_epsilon: float, num_values: int, num_reports: int
) -> FloatArray:
    """A lower bound sold as a certificate: one data set instead of all."""
    if num_values < 3:
        return np.ones(len(epsilons))
    chances = randomized_response(num_values, local_epsilon)
    merged = np.column_stack([chances[:, :2], chances[:, 2:].sum(axis=1)])
    counts = np.zeros((num_reports + 1,) * 3)
    counts[0, 0, 0] = 1.0
    for _ in range(num_reports - 1):
        counts = _with_one_more(counts, merged[2])
    first, second = (_with_one_more(counts, merged[value]) for value in (0, 1))
    return np.array([np.maximum(first - math.exp(e) * second, 0).sum() for e in epsilons])


@pytest.fixture(scope="module")
def truths() -> dict[tuple[int, int, float], FloatArray]:
    return {
        (k, n, local): exact_delta(randomized_response(k, local), n, FRACTIONS * local)
        for k, n, local in CASES
    }


def _least_ratio(bound: Bound, truths: dict[tuple[int, int, float], FloatArray]) -> float:
    return min(
        float(np.min(bound(FRACTIONS * local, local, k, n) / truth))
        for (k, n, local), truth in truths.items()
    )


@pytest.mark.parametrize("bound", [sound_blanket, sound_clones])
def test_no_data_set_loses_more_than_the_bound(
    bound: Bound, truths: dict[tuple[int, int, float], FloatArray]
) -> None:
    assert _least_ratio(bound, truths) >= 1 - 1e-12


@pytest.mark.parametrize(
    "fault",
    [
        fault_one_report_too_many,
        fault_one_value_too_many,
        fault_others_hold_a_third_value,
    ],
)
def test_a_wrong_blanket_is_caught(
    fault: Bound, truths: dict[tuple[int, int, float], FloatArray]
) -> None:
    assert _least_ratio(fault, truths) < 0.97


@pytest.mark.parametrize(
    "fault", [fault_clones_with_one_report_too_many, fault_every_report_is_a_clone]
)
def test_wrong_clones_are_caught(
    fault: Bound, truths: dict[tuple[int, int, float], FloatArray]
) -> None:
    assert _least_ratio(fault, truths) < 0.97


def test_the_blanket_is_usually_close_to_the_truth(
    truths: dict[tuple[int, int, float], FloatArray],
) -> None:
    ratios = np.concatenate(
        [sound_blanket(FRACTIONS * e, e, k, n) / truth for (k, n, e), truth in truths.items()]
    )
    assert np.median(ratios) < 1.001
    assert np.max(ratios) < 1.35


def test_the_case_where_the_lower_bound_is_below_the_truth() -> None:
    """The values of k=5, n=5 that were computed independently, to all printed digits."""
    epsilons = np.array([0.6])
    truth = exact_delta(randomized_response(5, 1.0), 5, epsilons)[0]
    lower = fault_others_hold_a_third_value(epsilons, 1.0, 5, 5)[0]
    assert truth == pytest.approx(0.011431, abs=5e-7)
    assert lower == pytest.approx(0.009907, abs=5e-7)
    assert lower < truth <= sound_blanket(epsilons, 1.0, 5, 5)[0]


@pytest.mark.parametrize("seed", range(12))
def test_clones_cover_any_local_randomizer(seed: int) -> None:
    rng = np.random.default_rng(seed)
    # Two levels per output, as in the extreme points of all local randomizers.
    is_likely = (rng.random((3, 3)) < 0.3) | np.eye(3, dtype=bool)
    rows = np.exp(rng.choice([0.5, 1.0, 2.0]) * is_likely) * rng.dirichlet(np.ones(3))
    rows /= rows.sum(axis=1, keepdims=True)
    local_epsilon = float(np.log((rows[:, None, :] / rows[None, :, :]).max()))
    epsilons = FRACTIONS * local_epsilon
    truth = exact_delta(rows, 4, epsilons)
    assert np.all(truth <= sound_clones(epsilons, local_epsilon, 0, 4) * (1 + 1e-9))
