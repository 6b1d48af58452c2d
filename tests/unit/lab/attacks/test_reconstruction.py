"""Reconstruction finds what answers determine, and stays under the bound of their epsilon."""

import itertools
import json
import math

import numpy as np
import pytest

from tulle.errors import ConfigError, DataError
from tulle.lab.attacks.bounds import guess_ceiling
from tulle.lab.attacks.reconstruction import (
    ReconstructionConfig,
    ReconstructionRow,
    answer_queries,
    attack_by_reconstruction,
    reconstruct_bits,
)
from tulle.mechanisms.discrete_laplace import DiscreteLaplaceConfig
from tulle.mechanisms.entropy import SeededNoise

SMALL = ReconstructionConfig(
    num_users=20, num_queries=80, noise_scales=(0.0, 2.0), query_counts=(40, 160), num_trials=1000
)
# Hoeffding: a mean of so many independent shares is above its expectation by more than this with
# a chance of 1e-9.
MARGIN = math.sqrt(math.log(1e9) / (2 * SMALL.num_trials))


@pytest.mark.parametrize("seed", range(5))
def test_exact_answers_that_determine_the_bits_give_all_of_them(seed: int) -> None:
    rng = np.random.default_rng(seed)
    bits, queries = rng.integers(0, 2, 8), rng.integers(0, 2, (40, 8))
    explaining = [
        guess
        for guess in itertools.product((0, 1), repeat=8)
        if np.array_equal(queries @ guess, queries @ bits)
    ]
    assert explaining == [tuple(bits)]
    assert np.array_equal(reconstruct_bits(queries, queries @ bits), bits)


def test_answers_that_are_too_few_give_little_more_than_chance() -> None:
    rng = np.random.default_rng(1)
    bits, queries = rng.integers(0, 2, 500), rng.integers(0, 2, (2, 500))
    right = np.mean(reconstruct_bits(queries, queries @ bits) == bits)
    # Seven standard deviations of a fair guess.
    assert abs(right - 0.5) < 7 * math.sqrt(0.25 / 500)


def test_noisy_answers_are_solved_like_a_linear_model_with_a_prior() -> None:
    rng = np.random.default_rng(3)
    bits, queries = rng.integers(0, 2, 30), rng.integers(0, 2, (60, 30))
    answers = queries @ bits + rng.normal(scale=2.0, size=60)
    # The posterior mean under bits of mean 1/2 and variance 1/4, by its normal equations.
    precision = queries.T @ queries / 4 + 4 * np.eye(30)
    mean = 0.5 + np.linalg.solve(precision, queries.T @ (answers - queries.sum(axis=1) / 2) / 4)
    expected = (mean > 0.5).astype(int)
    assert np.array_equal(reconstruct_bits(queries, answers, noise_stddev=2.0), expected)
    assert not np.array_equal(reconstruct_bits(queries, answers), expected)


def test_a_replaced_bit_moves_answers_by_no_more_than_the_noise_is_for() -> None:
    rng = np.random.default_rng(4)
    queries, bits = rng.integers(0, 2, (50, 10)), rng.integers(0, 2, 10)
    most = int(queries.sum(axis=0).max())
    moved = []
    for user in range(10):
        neighbour = bits.copy()
        neighbour[user] = 1 - neighbour[user]
        moved.append(int(np.abs(queries @ bits - queries @ neighbour).sum()))
    assert max(moved) == most
    noise = DiscreteLaplaceConfig(scale=1.0, max_contribution=most, replace_factor=1.0)
    assert answer_queries(queries, bits, noise, rng=SeededNoise(1)).shape == (50,)
    too_little = DiscreteLaplaceConfig(scale=1.0, max_contribution=most - 1, replace_factor=1.0)
    with pytest.raises(ConfigError, match="max_contribution"):
        answer_queries(queries, bits, too_little, rng=SeededNoise(1))


def test_epsilon_counts_every_answer_that_a_user_is_in() -> None:
    config = ReconstructionConfig(
        num_users=20, num_queries=80, noise_scales=(2.0,), query_counts=(40,), num_trials=3
    )
    result = attack_by_reconstruction(config)
    most = 0
    for trial in range(3):
        rng = np.random.default_rng([config.seed, trial])
        rng.integers(0, 2, size=20)
        most = max(most, int(rng.integers(0, 2, size=(80, 20)).sum(axis=0).max()))
    assert result.by_noise[0].epsilon == pytest.approx(most / 2.0, rel=1e-9)
    assert result.epsilon_each[0].epsilon > 20 * config.epsilon
    in_total = result.epsilon_in_total[0]
    assert 0.999 < in_total.epsilon <= 1.0
    assert in_total.ceiling == guess_ceiling(in_total.epsilon)


def test_noise_for_all_answers_keeps_the_bound_and_noise_for_each_does_not() -> None:
    result = attack_by_reconstruction(SMALL)
    claimed = guess_ceiling(SMALL.epsilon)

    def breaks_the_claim(row: ReconstructionRow) -> bool:
        return row.share_right > claimed + MARGIN

    assert not any(map(breaks_the_claim, result.epsilon_in_total))
    # The planted fault: epsilon of one answer, claimed for all of them.
    assert breaks_the_claim(result.epsilon_each[-1])
    assert all(row.share_right <= row.ceiling + MARGIN for row in result.epsilon_each)
    assert all(row.share_right <= row.ceiling + MARGIN for row in result.by_noise)


def test_more_noise_hides_more_and_more_answers_show_more() -> None:
    result = attack_by_reconstruction(ReconstructionConfig(num_trials=3))
    exact = result.by_noise[0]
    assert (exact.share_right, exact.epsilon, exact.ceiling) == (1.0, math.inf, 1.0)
    assert result.by_noise[-1].share_right < 0.6
    assert result.epsilon_each[-1].share_right > 0.99 > result.epsilon_each[0].share_right
    ceilings = [row.ceiling for row in result.by_noise]
    assert ceilings == sorted(ceilings, reverse=True)


def test_the_same_seed_gives_the_same_result_as_strict_json() -> None:
    config = ReconstructionConfig(num_users=10, query_counts=(20,), num_trials=2)
    first, second = (attack_by_reconstruction(config).to_dict() for _ in range(2))
    assert json.dumps(first, allow_nan=False) == json.dumps(second, allow_nan=False)
    assert first["privacy"] == "not a private release: users are synthetic and noise has a seed"


@pytest.mark.parametrize(
    "settings",
    [
        {"num_users": 0},
        {"num_trials": 0},
        {"noise_scales": ()},
        {"noise_scales": (-1.0,)},
        {"query_counts": (0,)},
        {"query_counts": ()},
        {"epsilon": 0.0},
        {"epsilon": math.inf},
    ],
)
def test_settings_out_of_range_are_refused(settings: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=next(iter(settings))):
        ReconstructionConfig(**settings)  # type: ignore[arg-type]


def test_answers_that_do_not_fit_the_queries_are_refused() -> None:
    with pytest.raises(DataError, match="one answer a row"):
        reconstruct_bits(np.ones((3, 2)), np.ones(2))
