"""Differencing: pairs by brute force, exact chances, and noise that is enough for both counts."""

import json
import math

import numpy as np
import pytest
from scipy import stats

from tulle.errors import ConfigError, DataError
from tulle.lab.attacks.bounds import guess_ceiling
from tulle.lab.attacks.differencing import (
    COLUMN_NAMES,
    DifferencingConfig,
    _noisy_row,
    attack_by_differencing,
    draw_users,
    expected_share_right,
    find_slice_pairs,
    pair_noise,
)
from tulle.mechanisms.discrete_laplace import DiscreteLaplaceConfig

EPSILONS = [0.1, 1.0, 3.0, 5.0]
SMALL = DifferencingConfig(num_users=3000, thresholds=(1, 20, 100, 3000))


def test_pairs_of_slices_are_those_of_a_search_through_all() -> None:
    users = draw_users(120, seed=2)
    pairs = find_slice_pairs(users)
    for user in range(len(users)):
        best = -1
        for outer in COLUMN_NAMES:
            of_slice = [
                n
                for n in range(len(users))
                if users.columns[outer][n] == users.columns[outer][user]
            ]
            for inner in set(COLUMN_NAMES) - {outer}:
                value = users.columns[inner][user]
                without = [n for n in of_slice if users.columns[inner][n] != value]
                if len(of_slice) - len(without) == 1:
                    best = max(best, len(without))
        assert pairs.smaller_sizes[user] == best
    assert pairs.smaller_sizes.max() > 5


def test_counts_are_of_slices_that_differ_in_the_user_alone() -> None:
    users = draw_users(500, seed=3)
    pairs = find_slice_pairs(users)
    has_pair = pairs.smaller_sizes >= 0
    assert has_pair.sum() > 100
    first, second = pairs.raw_counts[has_pair].T
    assert np.array_equal(first - second, users.bits[has_pair])
    assert np.all(second <= pairs.smaller_sizes[has_pair])
    assert np.any(second > 1)


def test_a_threshold_hides_slices_but_not_their_difference() -> None:
    result = attack_by_differencing(SMALL)
    for row in result.by_threshold[:-1]:
        assert row.share_right == 1.0
        assert row.num_exposed == round(row.share_exposed * SMALL.num_users) > 0
    shares = [row.share_exposed for row in result.by_threshold]
    assert shares == sorted(shares, reverse=True)
    assert (shares[-1], result.by_threshold[-1].share_right) == (0.0, 0.0)
    assert result.num_targets == result.by_threshold[0].num_exposed


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_the_chance_to_guess_is_the_sum_over_all_noises(epsilon: float) -> None:
    noise = pair_noise(epsilon)
    reach = math.ceil(40 * noise.scale)
    probs = noise.pmf(np.arange(-reach, reach + 1))
    # Chances of the difference of the two noises.
    of_difference = np.convolve(probs, probs[::-1])
    zero = 2 * reach
    if_one = of_difference[zero:].sum()
    if_zero = of_difference[: zero + 1].sum()
    assert expected_share_right(noise) == pytest.approx((if_one + if_zero) / 2, abs=1e-12)
    assert 0.5 < expected_share_right(noise) < guess_ceiling(epsilon)


def worst_loss(noise: DiscreteLaplaceConfig) -> float:
    """The largest log ratio of chances, for a bit that moves both counts, over a grid of them."""
    values = np.arange(-30, 31)
    log_probs = np.log(noise.pmf(values)), np.log(noise.pmf(values - 1))
    losses = [log_probs[0][:, None] + log_probs[0], log_probs[1][:, None] + log_probs[1]]
    return float(np.abs(losses[0] - losses[1]).max())


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_two_counts_together_cost_epsilon_and_noise_for_one_would_not(epsilon: float) -> None:
    assert 0.999999 * epsilon <= worst_loss(pair_noise(epsilon)) <= epsilon + 1e-9
    # The planted fault: noise as if a user were in one count.
    for_one = DiscreteLaplaceConfig(scale=1 / epsilon, max_contribution=1, replace_factor=1.0)
    assert worst_loss(for_one) > 1.9 * epsilon


def test_the_measured_share_is_the_expected_one() -> None:
    num_targets, epsilon = 400_000, 5.0
    bits = np.random.default_rng(5).integers(0, 2, num_targets)
    raw_counts = np.stack([100 + bits, np.full(num_targets, 100)], axis=1)
    num_right = round(_noisy_row(bits, raw_counts, epsilon, seed=6).share_right * num_targets)

    def p_value(noise: DiscreteLaplaceConfig) -> float:
        return float(stats.binomtest(num_right, num_targets, expected_share_right(noise)).pvalue)

    assert p_value(pair_noise(epsilon)) > 1e-9
    for factor in (0.95, 1.05):
        assert p_value(pair_noise(factor * epsilon)) < 1e-9


def test_noise_keeps_the_bound_that_exact_counts_break() -> None:
    result = attack_by_differencing(SMALL)
    # Targets have noise of their own, so hits are independent coins.
    margin = math.sqrt(math.log(1e9) / (2 * result.num_targets))
    for row in result.by_epsilon:
        assert row.share_right <= row.ceiling + margin
        assert row.ceiling == guess_ceiling(row.epsilon)
        assert abs(row.share_right - row.expected_share_right) <= margin
    # The planted fault: no noise, claimed to be private.
    assert result.by_threshold[0].share_right > guess_ceiling(1.0) + margin


def test_the_result_is_strict_json_and_says_that_it_is_not_private() -> None:
    facts = json.loads(json.dumps(attack_by_differencing(SMALL).to_dict(), allow_nan=False))
    assert facts["privacy"].startswith("not a private release")
    assert [row["threshold"] for row in facts["by_threshold"]] == [1, 20, 100, 3000]


@pytest.mark.parametrize(
    "settings",
    [
        {"num_users": 0},
        {"thresholds": ()},
        {"thresholds": (0,)},
        {"epsilons": ()},
        {"epsilons": (0.0,)},
    ],
)
def test_settings_out_of_range_are_refused(settings: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=next(iter(settings))):
        DifferencingConfig(**settings)  # type: ignore[arg-type]


def test_users_of_whom_none_is_exposed_are_refused() -> None:
    with pytest.raises(DataError, match="expose none"):
        attack_by_differencing(DifferencingConfig(num_users=50, thresholds=(1000,)))


def test_users_in_a_cell_are_those_alike_in_all_columns() -> None:
    users = draw_users(400, seed=1)
    columns = COLUMN_NAMES[1:3]
    keys = [tuple(users.columns[name][n] for name in columns) for n in range(len(users))]
    cells = users.cells(columns)
    for first in range(0, len(users), 7):
        for second in range(len(users)):
            assert (cells[first] == cells[second]) == (keys[first] == keys[second])


def test_bits_are_fair_and_independent_of_what_others_know() -> None:
    users = draw_users(40_000, seed=2)
    assert stats.binomtest(int(users.bits.sum()), len(users)).pvalue > 1e-9
    ages = users.columns["age band"]
    table = [np.bincount(ages[users.bits == bit], minlength=10) for bit in (0, 1)]
    assert stats.chi2_contingency(table).pvalue > 1e-9
    # The same check sees a bit that leans by 0.1 in one age band out of ten.
    leaning = users.bits | ((ages == 0) & (np.random.default_rng(1).random(len(users)) < 0.2))
    table = [np.bincount(ages[leaning == bit], minlength=10) for bit in (0, 1)]
    assert stats.chi2_contingency(table).pvalue < 1e-9


def test_the_seed_decides() -> None:
    first, second, other = (draw_users(50, seed=seed) for seed in (1, 1, 2))
    for name in COLUMN_NAMES:
        assert np.array_equal(first.columns[name], second.columns[name])
        assert not np.array_equal(first.columns[name], other.columns[name])
    assert np.array_equal(first.bits, second.bits)


def test_no_users_are_refused() -> None:
    with pytest.raises(ConfigError, match="num_users"):
        draw_users(0, seed=1)
