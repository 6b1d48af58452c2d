"""Golden values: unit tests of google-research/ara_optimization (Aksu et al. 2024)."""

import itertools
import math
from fractions import Fraction

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from scipy.optimize import approx_fprime

from tulle.errors import ConfigError, DataError
from tulle.measure.clipping import (
    ValueHistory,
    expected_errors,
    optimise_clips,
    quantile_clips,
    smooth_error,
    whole_steps,
)
from tulle.measure.slice_jobs import Amount
from tulle.measure.trees.level_budgets import GaussianLevels, LaplaceLevels
from tulle.mechanisms.discrete_laplace import sample_discrete_laplace
from tulle.mechanisms.entropy import SeededNoise

STEPS = 1 << 16
BUDGET = LaplaceLevels(epsilon=8.0, max_steps_per_unit=STEPS, steps=STEPS)


def test_slices_of_a_table_are_its_distinct_keys() -> None:
    frame = pl.DataFrame(
        {"geo": ["x", "y", "x", "x"], "age": ["1", "1", "2", "1"], "price": [1, 2, 3, 4]}
    )
    history = ValueHistory.from_frame(frame, slices=["geo", "age"], values=["price"])
    assert history.names == ("price",)
    assert sorted(history.true_totals[:, 0].tolist()) == [2, 3, 5]
    assert sorted(history.true_counts.tolist()) == [1, 1, 2]
    assert history.slices[0] == history.slices[3]
    whole = ValueHistory.from_frame(frame, slices=[], values=["price"])
    assert whole.true_totals.tolist() == [[10.0]]


def test_what_bounds_cut_off_is_in_the_truth_and_not_in_what_is_kept() -> None:
    history = ValueHistory(
        names=("price",),
        values=np.array([[1.0], [2.0], [4.0]]),
        slices=np.array([0, 0, 1]),
        kept=np.array([1.0, 0.5, 0.0]),
    )
    assert history.true_totals[:, 0].tolist() == [3, 4]
    assert history.kept_totals(history.values[:, 0]).tolist() == [2, 0]


def test_five_usual_rows_are_the_default_tau() -> None:
    history = ValueHistory(
        names=("price", "items"),
        values=np.array([[10.0, 0.0], [20.0, 1.0], [90.0, 3.0]]),
        slices=np.zeros(3, dtype=np.int64),
    )
    assert history.default_taus() == (100.0, 10.0, 5.0)


@pytest.mark.parametrize(
    ("values", "slices", "kept", "message"),
    [
        (np.empty((0, 1)), [], None, "at least one"),
        ([[1.0], [2.0]], [0], None, "for 1 rows"),
        ([[1.0], [-2.0]], [0, 0], None, ">= 0"),
        ([[1.0], [np.nan]], [0, 0], None, "finite"),
        ([[0.0], [0.0]], [0, 0], None, "'price' .* only zeros"),
        ([[1.0], [2.0]], [0, -1], None, "numbers of slices"),
        ([[1.0], [2.0]], [0, 0], [0.5, 1.5], "from 0 to 1"),
        ([[1.0], [2.0]], [0, 0], [0.5], "for each row"),
    ],
)
def test_rows_that_are_none_are_refused(values, slices, kept, message: str) -> None:
    with pytest.raises(DataError, match=message):
        ValueHistory(
            names=("price",),
            values=np.asarray(values, dtype=float),
            slices=np.asarray(slices, dtype=np.int64),
            kept=None if kept is None else np.asarray(kept),
        )


def test_an_empty_table_is_refused() -> None:
    with pytest.raises(DataError, match="no rows"):
        ValueHistory.from_frame(pl.DataFrame({"price": []}), slices=[], values=["price"])


def shop_history(seed: int = 71) -> ValueHistory:
    rng = np.random.default_rng(seed)
    return ValueHistory(
        names=("price", "items"),
        values=np.column_stack([rng.lognormal(3, 1.2, 2000), 1 + rng.poisson(1, 2000)]),
        slices=rng.integers(0, 60, 2000),
    )


def test_no_clips_and_shares_of_a_grid_beat_the_plan() -> None:
    history = shop_history()
    plan = optimise_clips(history, BUDGET)
    quantiles = np.quantile(history.values, np.linspace(0.5, 1.0, 12), axis=0)
    for price, items, share in itertools.product(
        quantiles[:, 0], np.unique(quantiles[:, 1]), np.linspace(0.1, 0.9, 9)
    ):
        amounts = [
            Amount(name="price", column="price", share=float(share), clip=float(price)),
            Amount(name="items", column="items", share=float(1 - share), clip=float(items)),
        ]
        other = expected_errors(history, amounts, BUDGET, has_rest=True)
        assert plan.expected_rmsre <= other.overall * (1 + 1e-4)


def test_the_plan_beats_the_usual_clips_on_another_period() -> None:
    plan = optimise_clips(shop_history(), BUDGET)
    later = shop_history(seed=72)
    found = expected_errors(later, plan.amounts, BUDGET, has_rest=plan.has_rest)
    for quantile in (0.9, 0.95, 0.99):
        usual = quantile_clips(shop_history(), BUDGET, quantile=quantile)
        baseline = expected_errors(later, usual.amounts, BUDGET, has_rest=usual.has_rest)
        assert found.overall < 0.8 * baseline.overall


def test_shares_of_a_plan_are_whole_steps_that_use_up_one_contribution() -> None:
    for plan in (
        optimise_clips(shop_history(), BUDGET),
        quantile_clips(shop_history(), BUDGET, quantile=0.95),
    ):
        steps = [Fraction(amount.share) * STEPS for amount in plan.amounts]
        assert all(step.denominator == 1 for step in steps)
        assert sum(steps) == STEPS


def test_the_usual_clips_are_quantiles_and_equal_shares_with_one_for_the_count() -> None:
    history = shop_history()
    plan = quantile_clips(history, BUDGET, quantile=0.95)
    assert [amount.column for amount in plan.amounts] == ["price", "items", None]
    assert plan.amounts[0].clip == np.quantile(history.values[:, 0], 0.95)
    assert [amount.share for amount in plan.amounts] == pytest.approx([1 / 3] * 3, abs=1e-4)
    assert not plan.has_rest


def test_a_larger_budget_clips_less() -> None:
    clips = [
        optimise_clips(
            shop_history(),
            LaplaceLevels(epsilon=epsilon, max_steps_per_unit=STEPS, steps=STEPS),
        )
        .amounts[0]
        .clip
        for epsilon in (1.0, 8.0, 64.0)
    ]
    assert clips == sorted(clips)
    assert clips[2] > 2 * clips[0]


def test_one_column_gets_the_whole_contribution() -> None:
    history = ValueHistory(
        names=("price",), values=np.array([[1.0], [2.0], [50.0]]), slices=np.array([0, 0, 1])
    )
    plan = optimise_clips(history, BUDGET)
    assert [amount.share for amount in plan.amounts] == [1.0]


def test_a_column_that_is_mostly_zero_still_gets_a_clip_above_zero() -> None:
    values = np.zeros((200, 1))
    values[:3] = 7.0
    history = ValueHistory(names=("price",), values=values, slices=np.arange(200) % 5)
    assert quantile_clips(history, BUDGET, quantile=0.5).amounts[0].clip == 7.0
    assert 0 < optimise_clips(history, BUDGET).amounts[0].clip <= 7.0 * (1 + 1e-12)


@given(st.lists(st.floats(1e-9, 1e3), min_size=1, max_size=8), st.sampled_from([8, 100, STEPS]))
def test_whole_steps_add_up_and_are_close_to_what_was_wanted(
    shares: list[float], steps: int
) -> None:
    whole = whole_steps(shares, steps)
    assert whole.sum() == steps
    assert whole.min() >= 1
    wanted = np.array(shares) / sum(shares) * steps
    if wanted.min() >= 1:
        assert np.abs(whole - wanted).max() < 1 + 1e-9


def test_settings_that_cannot_be_used_are_refused() -> None:
    coarse = LaplaceLevels(epsilon=1.0, max_steps_per_unit=2, steps=2)
    with pytest.raises(ConfigError, match="steps=2"):
        optimise_clips(shop_history(), coarse)
    with pytest.raises(ConfigError, match="quantile=0"):
        quantile_clips(shop_history(), BUDGET, quantile=0)
    with pytest.raises(ConfigError, match="steps=2"):
        whole_steps([1.0, 1.0, 1.0], 2)


BUDGET_OF_CLIP_ERRORS = LaplaceLevels(epsilon=1.0, max_steps_per_unit=STEPS, steps=STEPS)


TWO_ROWS = ValueHistory(
    names=("A", "B"), values=np.array([[1.0, 3.0], [2.0, 4.0]]), slices=np.array([0, 0])
)


# Above all totals, so that the relative error is the plain one over it.
TAU = 1000.0


def amounts_of(*settings: tuple[str | None, float, float]) -> list[Amount]:
    return [
        Amount(name=column or "count", column=column, share=share, clip=clip)
        for column, share, clip in settings
    ]


def random_history(rng: np.random.Generator, num_rows: int = 300) -> ValueHistory:
    return ValueHistory(
        names=("price", "items"),
        values=np.column_stack([rng.lognormal(2, 1, num_rows), rng.poisson(2, num_rows)]),
        slices=rng.integers(0, 12, num_rows),
        kept=rng.choice([0.0, 0.5, 1.0], num_rows),
    )


def test_the_error_of_the_values_is_the_golden_one() -> None:
    squared, _ = smooth_error(
        TWO_ROWS, np.log([5.0, 5.0]), np.log([1.0, 3.0]), 2.0, np.full(3, TAU)
    )
    assert math.sqrt(squared) * TAU == pytest.approx(20 * math.sqrt(10 / 9), rel=1e-12)


def test_the_error_with_the_free_count_is_the_golden_one() -> None:
    amounts = amounts_of(("A", 0.25, 5.0), ("B", 0.75, 5.0))
    errors = expected_errors(
        TWO_ROWS, amounts, BUDGET_OF_CLIP_ERRORS, has_rest=True, taus=[TAU] * 3
    )
    variance = stats.dlaplace(1 / STEPS).var()
    golden = math.sqrt(variance * (400 * 10 / 9 + 3) / 3) / STEPS
    assert errors.overall * TAU == pytest.approx(golden, rel=1e-9)
    assert errors.count * TAU == pytest.approx(math.sqrt(3 * variance) / STEPS, rel=1e-10)


def test_the_error_with_a_share_for_the_count_is_the_golden_one() -> None:
    amounts = amounts_of(("A", 1 / 8, 5.0), ("B", 3 / 8, 5.0), (None, 1 / 2, 1.0))
    errors = expected_errors(
        TWO_ROWS, amounts, BUDGET_OF_CLIP_ERRORS, has_rest=False, taus=[TAU] * 3
    )
    assert errors.overall * TAU == pytest.approx(math.sqrt(24054) * 2 / 9, rel=1e-9)


def test_the_gradient_is_that_of_differences() -> None:
    rng = np.random.default_rng(61)
    history = random_history(rng)
    taus = np.array(history.default_taus())
    for _ in range(5):
        point = np.concatenate([rng.normal([2.0, 0.3], 0.5), rng.normal(0, 1, 2)])

        def value(x: np.ndarray) -> float:
            return smooth_error(history, x[:2], x[2:], 3.0, taus)[0]

        _, gradient = smooth_error(history, point[:2], point[2:], 3.0, taus)
        differences = approx_fprime(point, value, 1e-7)
        np.testing.assert_allclose(gradient, differences, rtol=1e-4, atol=1e-6)


def test_the_smooth_error_is_the_exact_one_up_to_rounding() -> None:
    history = random_history(np.random.default_rng(62))
    amounts = amounts_of(("price", 0.75, 20.0), ("items", 0.25, 4.0))
    exact = expected_errors(history, amounts, BUDGET_OF_CLIP_ERRORS, has_rest=True)
    smooth, _ = smooth_error(
        history,
        np.log([20.0, 4.0]),
        np.log([0.75, 0.25]),
        2.0,
        np.array(history.default_taus()),
    )
    assert math.sqrt(np.mean(np.square(exact.values))) == pytest.approx(math.sqrt(smooth), rel=1e-4)


def test_the_error_is_that_of_releases() -> None:
    """20,000 releases: mean squares within 7 standard errors, and 5% wrong noise is not."""
    history = random_history(np.random.default_rng(63), num_rows=60)
    amounts = amounts_of(("price", 0.75, 20.0), ("items", 0.25, 4.0))
    expected = expected_errors(history, amounts, BUDGET_OF_CLIP_ERRORS, has_rest=True)
    columns = [
        np.rint(np.minimum(history.values[:, j] / a.clip, 1) * a.share * STEPS)
        for j, a in enumerate(amounts)
    ]
    columns.append(STEPS - columns[0] - columns[1])
    kept = np.stack([history.kept_totals(column) for column in columns], axis=1)
    num_runs = 20_000
    noise = sample_discrete_laplace(STEPS, (num_runs, *kept.shape), rng=SeededNoise(64))
    noisy = kept + noise
    taus = history.default_taus()
    found = [
        (noisy[..., 0] * 20 / (0.75 * STEPS), history.true_totals[:, 0], expected.values[0]),
        (noisy[..., 1] * 4 / (0.25 * STEPS), history.true_totals[:, 1], expected.values[1]),
        (noisy.sum(axis=2) / STEPS, history.true_counts, expected.count),
    ]
    for (estimates, truth, error), tau in zip(found, taus, strict=True):
        squares = np.mean(((estimates - truth) / np.maximum(tau, truth)) ** 2, axis=1)
        standard_error = squares.std() / math.sqrt(num_runs)
        assert abs(squares.mean() - error**2) < 7 * standard_error
        assert abs(squares.mean() - (1.05 * error) ** 2) > 7 * standard_error


def test_more_contributions_of_a_unit_are_more_noise() -> None:
    amounts = amounts_of(("A", 0.25, 5.0), ("B", 0.75, 5.0))
    three = LaplaceLevels(epsilon=1.0, max_steps_per_unit=3 * STEPS, steps=STEPS)
    one = expected_errors(TWO_ROWS, amounts, BUDGET_OF_CLIP_ERRORS, has_rest=True)
    assert expected_errors(TWO_ROWS, amounts, three, has_rest=True).count == pytest.approx(
        3 * one.count, rel=1e-9
    )


def test_gaussian_noise_has_its_own_variance() -> None:
    budget = GaussianLevels(rho=0.125, max_steps_per_unit=STEPS, steps=STEPS)
    amounts = amounts_of(("A", 0.25, 5.0), ("B", 0.75, 5.0))
    errors = expected_errors(TWO_ROWS, amounts, budget, has_rest=True, taus=[TAU] * 3)
    assert errors.values[0] * TAU == pytest.approx(math.sqrt(400 * 4), rel=1e-6)


def test_amounts_and_taus_must_fit_the_history() -> None:
    only_a = amounts_of(("A", 0.5, 5.0))
    with pytest.raises(ConfigError, match="column 'B'"):
        expected_errors(TWO_ROWS, only_a, BUDGET_OF_CLIP_ERRORS, has_rest=True)
    both = amounts_of(("A", 0.5, 5.0), ("B", 0.5, 5.0))
    with pytest.raises(ConfigError, match="a count"):
        expected_errors(TWO_ROWS, both, BUDGET_OF_CLIP_ERRORS, has_rest=False)
    with pytest.raises(ConfigError, match="taus="):
        expected_errors(TWO_ROWS, both, BUDGET_OF_CLIP_ERRORS, has_rest=True, taus=[1.0, 1.0])
