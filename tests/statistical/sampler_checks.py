"""Checks that batches have the stated law, on a table of who was in which step.

Each `assert_…` refuses a right sampler with a chance of at most 1e-9 over all seeds,
shared between its parts. All moments are those of the exact law; the tails are
normal or chi-square, for sums of tens of thousands of inclusions.
"""

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

Table = NDArray[np.bool_]
FALSE_ALARM = 1e-9
WRONG_FACTORS = (0.95, 1.05)
ROW_LAGS = (1, 2, 3, 10)
STEP_LAGS = (1, 2, 5)
_LEAST_EXPECTED = 10.0


def inclusion_table(batches: Iterable[Any], num_rows: int) -> Table:
    """Steps by rows: who was in."""
    lines = []
    for batch in batches:
        line = np.zeros(num_rows, np.bool_)
        line[batch.indices[batch.weights > 0]] = True
        lines.append(line)
    return np.stack(lines)


def assert_poisson(table: Table, sampling_prob: float) -> None:
    """Every row is in every step with one chance, independently of all others."""
    _assert_none_small(_poisson_p_values(table, sampling_prob))
    for factor in WRONG_FACTORS:
        wrong = _poisson_p_values(table, factor * sampling_prob)
        assert min(wrong.values()) < FALSE_ALARM / len(wrong), "the check has no power"


def assert_truncated_poisson(table: Table, sampling_prob: float, max_batch_size: int) -> None:
    """Sizes are those of a cut binomial, and all rows are cut alike, in all steps anew."""
    num_rows = table.shape[1]
    sizes = np.arange(max_batch_size + 1)
    pmf = stats.binom.pmf(sizes, num_rows, sampling_prob)
    pmf[-1] = stats.binom.sf(max_batch_size - 1, num_rows, sampling_prob)
    inclusion = float(sizes @ pmf) / num_rows
    _assert_none_small(
        {
            "sizes": _sizes_p_value(table.sum(axis=1), pmf),
            "rows": _rows_p_value(table, inclusion),
            "halves": _halves_p_value(table),
            **_step_p_values(table, inclusion),
        }
    )


def assert_fixed_size(table: Table, batch_size: int) -> None:
    """Every step has exactly so many rows, all alike, in all steps anew."""
    inclusion = batch_size / table.shape[1]
    assert (table.sum(axis=1) == batch_size).all()
    _assert_none_small(
        {
            "rows": _rows_p_value(table, inclusion),
            "halves": _halves_p_value(table),
            **_step_p_values(table, inclusion),
        }
    )


def assert_cyclic(table: Table, group_of_row: NDArray[np.int64], group_prob: float) -> None:
    """A row comes only in the turns of its group, and there as in Poisson sampling."""
    num_groups = int(group_of_row.max()) + 1
    turns = np.arange(table.shape[0]) % num_groups
    assert not table[turns[:, None] != group_of_row].any(), "a row came out of turn"
    for group in range(num_groups):
        assert_poisson(table[turns == group][:, group_of_row == group], group_prob)


def assert_subsets_follow(table: Table, sampling_prob: float) -> None:
    """Every subset of a few rows has the chance of independent coins."""
    num_rows = table.shape[1]
    codes = table @ (1 << np.arange(num_rows))
    sizes = np.array([code.bit_count() for code in range(2**num_rows)])
    chances = sampling_prob**sizes * (1 - sampling_prob) ** (num_rows - sizes)
    expected = table.shape[0] * chances
    assert expected.min() >= _LEAST_EXPECTED
    found = np.bincount(codes, minlength=2**num_rows)
    statistic = float(((found - expected) ** 2 / expected).sum())
    assert stats.chi2.sf(statistic, 2**num_rows - 1) > FALSE_ALARM


def _poisson_p_values(table: Table, prob: float) -> dict[str, float]:
    num_steps, num_rows = table.shape
    centred = table - prob
    variance = prob * (1 - prob)
    sizes = np.arange(num_rows + 1)
    between_rows = {
        f"rows {lag} apart": _normal_p_value(
            float(np.sum(centred[:, :-lag] * centred[:, lag:])),
            variance * math.sqrt(num_steps * (num_rows - lag)),
        )
        for lag in ROW_LAGS
        if lag < num_rows
    }
    return {
        "share": _normal_p_value(float(centred.sum()), math.sqrt(variance * table.size)),
        "sizes": _sizes_p_value(table.sum(axis=1), stats.binom.pmf(sizes, num_rows, prob)),
        "rows": _rows_p_value(table, prob),
        **between_rows,
        **_step_p_values(table, prob),
    }


def _step_p_values(table: Table, prob: float) -> dict[str, float]:
    """Products of a row with itself in a later step, which have mean zero."""
    centred = table - prob
    return {
        f"steps {lag} apart": _normal_p_value(
            float(np.sum(centred[:-lag] * centred[lag:])),
            prob * (1 - prob) * math.sqrt(table.shape[1] * (table.shape[0] - lag)),
        )
        for lag in STEP_LAGS
    }


def _rows_p_value(table: Table, prob: float) -> float:
    """All rows come equally often; two-sided, as rows that come too evenly are wrong too."""
    num_steps, num_rows = table.shape
    deviations = table.sum(axis=0) - num_steps * prob
    statistic = float(np.sum(deviations**2)) / (num_steps * prob * (1 - prob))
    law = stats.chi2(num_rows)
    return float(2 * min(law.sf(statistic), law.cdf(statistic)))


def _halves_p_value(table: Table) -> float:
    """The first half of the rows comes as often as the second.

    Given the sizes, the difference has at most the variance of independent rows.
    """
    half = table.shape[1] // 2
    difference = float(table[:, :half].sum() - table[:, -half:].sum())
    return _normal_p_value(difference, math.sqrt(table.sum()))


def _sizes_p_value(sizes: NDArray[np.int64], pmf: NDArray[np.float64]) -> float:
    expected, found = sizes.size * pmf, np.bincount(sizes, minlength=pmf.size)
    bins = np.minimum(np.cumsum(expected) // _LEAST_EXPECTED, sizes.size // _LEAST_EXPECTED - 1)
    _, numbers = np.unique(bins, return_inverse=True)
    expected, found = np.bincount(numbers, expected), np.bincount(numbers, found)
    if len(expected) > 1 and expected[0] < _LEAST_EXPECTED:
        expected[1], found[1] = expected[:2].sum(), found[:2].sum()
        expected, found = expected[1:], found[1:]
    statistic = float(np.sum((found - expected) ** 2 / expected))
    return float(stats.chi2.sf(statistic, len(expected) - 1))


def _normal_p_value(value: float, stddev: float) -> float:
    return float(2 * stats.norm.sf(abs(value) / stddev))


def _assert_none_small(p_values: dict[str, float]) -> None:
    small = {name: p for name, p in p_values.items() if p < FALSE_ALARM / len(p_values)}
    assert not small, f"the batches do not have the stated law: {small}"
