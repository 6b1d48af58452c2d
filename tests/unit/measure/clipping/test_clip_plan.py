import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tulle.errors import ConfigError
from tulle.measure.clipping.clip_errors import expected_errors
from tulle.measure.clipping.clip_plan import optimise_clips, quantile_clips, whole_steps
from tulle.measure.clipping.value_history import ValueHistory
from tulle.measure.slice_jobs import Amount
from tulle.measure.trees.level_noise import LaplaceLevels

STEPS = 1 << 16
BUDGET = LaplaceLevels(epsilon=8.0, max_steps_per_unit=STEPS, steps=STEPS)


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
