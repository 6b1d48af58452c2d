"""Linkage: joins by brute force, exact chances behind noise, and noise for a bit that moves."""

import dataclasses
import json
import math

import numpy as np
import pytest
from scipy import stats

from tulle.errors import ConfigError
from tulle.lab.attacks.bounds import guess_ceiling
from tulle.lab.attacks.differencing import COLUMN_NAMES, SyntheticUsers, draw_users
from tulle.lab.attacks.linkage import (
    LinkageConfig,
    _guess_from_counts,
    attack_by_linkage,
    cell_noise,
    link_rows,
)
from tulle.mechanisms.discrete_laplace import DiscreteLaplaceConfig


@pytest.mark.parametrize("num_columns", [1, 2, 3])
def test_names_are_those_of_a_search_through_both_tables(num_columns: int) -> None:
    columns = COLUMN_NAMES[:num_columns]
    users = draw_users(300, seed=4)
    rng = np.random.default_rng(5)
    is_logged, is_listed = rng.random(300) < 0.5, rng.random(300) < 0.6
    keys = [tuple(int(users.columns[name][n]) for name in columns) for n in range(300)]
    log = [n for n in range(300) if is_logged[n]]
    names = [n for n in range(300) if is_listed[n]]
    expected_named, expected_right = [], []
    for row in log:
        alike = [n for n in log if keys[n] == keys[row]]
        found = [n for n in names if keys[n] == keys[row]]
        expected_named.append(len(alike) == 1 and len(found) == 1)
        expected_right.append(len(alike) == 1 and found == [row])
    named, right = link_rows(users, columns, is_logged, is_listed)
    assert named.tolist() == expected_named
    assert right.tolist() == expected_right
    assert sum(expected_right) > 0
    # Names that are wrong occur with few columns, so that the two are told apart.
    assert num_columns == 3 or sum(expected_named) > sum(expected_right)


def test_a_complete_table_never_gives_a_wrong_name() -> None:
    result = attack_by_linkage(LinkageConfig(num_users=2000, listed_prob=1.0))
    for row in result.rows:
        assert row.share_named == row.share_named_right


def test_more_columns_give_more_names() -> None:
    result = attack_by_linkage(LinkageConfig(num_users=20_000))
    shares = [row.share_named_right for row in result.rows]
    assert shares == sorted(shares)
    assert [len(row.columns) for row in result.rows] == [1, 2, 3, 4]
    assert shares[0] < 0.01 < 0.7 < shares[-1] <= 0.85


def expected_guesses(noise: DiscreteLaplaceConfig) -> float:
    """The chance that the larger of two noisy counts, 1 and 0, is that of the bit."""
    values = np.arange(-200, 201)
    probs = noise.pmf(values)
    joint = probs[:, None] * probs
    own, other = 1 + values[:, None], values
    if_one, if_zero = joint[own >= other].sum(), joint[own > other].sum()
    return float((if_one + if_zero) / 2)


def test_guesses_through_noise_are_right_as_often_as_computed() -> None:
    num_users, epsilon = 400_000, 3.0
    number = np.arange(num_users)
    # Everybody is alone in their cell.
    users = SyntheticUsers(
        columns={"area": number % 400, "device": number // 400 % 200, "day": number // 80_000}
        | {"age band": np.zeros(num_users, dtype=np.int64)},
        bits=np.random.default_rng(6).integers(0, 2, num_users),
    )
    config = LinkageConfig(epsilon=epsilon)
    guesses = _guess_from_counts(users, COLUMN_NAMES, np.ones(num_users, dtype=bool), config)
    num_right = int(np.sum(guesses == users.bits))

    def p_value(of_epsilon: float) -> float:
        expected = expected_guesses(cell_noise(of_epsilon))
        return float(stats.binomtest(num_right, num_users, expected).pvalue)

    assert p_value(epsilon) > 1e-9
    assert p_value(0.95 * epsilon) < 1e-9
    assert p_value(1.05 * epsilon) < 1e-9
    assert expected_guesses(cell_noise(epsilon)) < guess_ceiling(epsilon)


def test_a_bit_that_moves_from_count_to_count_costs_epsilon() -> None:
    def worst_loss(noise: DiscreteLaplaceConfig) -> float:
        values = np.arange(-20, 21)
        stays, enters = np.log(noise.pmf(values)), np.log(noise.pmf(values - 1))
        return float(np.abs((stays[:, None] + enters) - (enters[:, None] + stays)).max())

    for epsilon in (0.5, 1.0, 4.0):
        assert 0.999999 * epsilon <= worst_loss(cell_noise(epsilon)) <= epsilon + 1e-9
        # The planted fault: noise as if the bit only left or only entered.
        for_one = DiscreteLaplaceConfig(scale=1 / epsilon, replace_factor=1.0)
        assert worst_loss(for_one) > 1.9 * epsilon


def test_noisy_counts_keep_the_bound_that_the_join_breaks() -> None:
    config = LinkageConfig(num_users=20_000, logged_prob=1.0, listed_prob=1.0)
    result = attack_by_linkage(config)
    users = draw_users(config.num_users, seed=config.seed)
    for row in result.rows:
        # McDiarmid: a cell decides on the share of its rows alone. Chance of 1e-9 to be above.
        sizes = np.bincount(users.cells(row.columns)) / len(users)
        margin = math.sqrt(math.log(1e9) / 2 * np.sum(sizes**2))
        assert row.noisy_share_right <= result.ceiling + margin
    assert result.ceiling == guess_ceiling(config.epsilon)
    # The planted fault: a log without names, claimed to be private. Named rows are certain.
    named = result.rows[-1].share_named_right
    assert margin < 0.03
    assert named + (1 - named) / 2 > result.ceiling + margin


def test_the_same_seed_gives_the_same_result_as_strict_json() -> None:
    config = LinkageConfig(num_users=1000)
    first, second = (
        json.dumps(attack_by_linkage(config).to_dict(), allow_nan=False) for _ in range(2)
    )
    other = attack_by_linkage(dataclasses.replace(config, seed=2)).to_dict()
    assert first == second != json.dumps(other, allow_nan=False)
    assert json.loads(first)["privacy"].startswith("not a private release")


@pytest.mark.parametrize(
    "settings",
    [{"num_users": 0}, {"logged_prob": 0.0}, {"listed_prob": 1.5}, {"epsilon": -1.0}],
)
def test_settings_out_of_range_are_refused(settings: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=next(iter(settings))):
        LinkageConfig(**settings)  # type: ignore[arg-type]


def test_a_log_of_nobody_is_refused() -> None:
    with pytest.raises(ConfigError, match="nobody"):
        attack_by_linkage(LinkageConfig(num_users=3, logged_prob=1e-9))
