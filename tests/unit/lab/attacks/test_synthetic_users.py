"""Made-up users: cells by brute force, fair bits, the same for the same seed."""

import numpy as np
import pytest
from scipy import stats

from tulle.errors import ConfigError
from tulle.lab.attacks.synthetic_users import COLUMN_NAMES, draw_users


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
