"""Randomized response overtakes clipping later with more candidates and with less to know."""

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest

from tulle.errors import ConfigError
from tulle.lab.markets.claims import Verdict, grid_claims, score_claims
from tulle.lab.markets.market_sample import MarketSample, mix_device_clicks
from tulle.lab.markets.overtaking import (
    ONE_BOOSTED,
    SCALED_NOISY_MAX,
    SEVERAL_BOOSTED,
    GridRow,
    GridSettings,
    ScoreLaw,
    ScoreRow,
    compare_on_scores,
    groups_by_size,
    mixing_grid,
    overtaking_epsilon,
    score_overtaking,
    score_sample,
)
from tulle.lab.markets.synthetic_market import DISPLAY
from tulle.select.mechanisms.floors import FloorMechanism

SampleOf = Callable[..., MarketSample]
SETTINGS = GridSettings(
    alphas=(1.0, 0.25), epsilons=(1.0, 2.0, 3.0, 4.0, 6.0, 8.0), relative_widths=(0.02, 0.1, 0.35)
)


def display(num_candidates: int, sample_of: SampleOf, num_auctions: int = 1500) -> MarketSample:
    market = dataclasses.replace(
        DISPLAY, num_candidates=num_candidates, num_eligible=num_candidates
    )
    return sample_of(market, num_auctions)


@pytest.fixture
def rows(sample_of: SampleOf) -> tuple[GridRow, ...]:
    return mixing_grid({"3": display(3, sample_of), "15": display(15, sample_of)}, SETTINGS)


def test_overtaking_moves_as_the_paper_says(rows: tuple[GridRow, ...]) -> None:
    found = {(row.group, row.alpha): row.overtaking_epsilon for row in rows}
    assert found["3", 1.0] <= found["15", 1.0] <= 3.0
    assert found["3", 0.25] <= found["15", 0.25]
    assert found["3", 1.0] < found["3", 0.25]
    assert found["15", 1.0] < found["15", 0.25]
    assert [claim.verdict for claim in grid_claims(rows)] == [Verdict.HOLDS, Verdict.HOLDS]


def test_the_claims_fail_if_the_groups_or_alphas_trade_places(rows: tuple[GridRow, ...]) -> None:
    more, less = grid_claims(rows[::-1])
    assert (more.verdict, less.verdict) == (Verdict.DOES_NOT_HOLD, Verdict.HOLDS)
    swapped = [dataclasses.replace(row, alpha=1.25 - row.alpha) for row in rows]
    assert grid_claims(swapped)[1].verdict is Verdict.DOES_NOT_HOLD


def test_a_row_is_about_the_mixed_devices(sample_of: SampleOf, rows: tuple[GridRow, ...]) -> None:
    sample = display(3, sample_of)
    (row,) = [row for row in rows if (row.group, row.alpha) == ("3", 0.25)]
    device = mix_device_clicks(sample.auctions, sample.device, alpha=0.25)
    mixed = dataclasses.replace(sample, device=device)
    expected = [mixed.metrics(FloorMechanism(epsilon=e)).click_rate for e in SETTINGS.epsilons]
    assert list(row.response_values) == expected
    assert row.baseline == mixed.baseline.click_rate
    assert max(row.response_values) < row.ideal
    assert row.to_dict()["overtaking_epsilon"] == row.overtaking_epsilon


def test_auctions_are_grouped_by_their_candidates(sample_of: SampleOf) -> None:
    small = display(4, sample_of, 20)
    offsets = np.array([0, 2, 5, 9, 12, 24, 80])
    ragged = dataclasses.replace(
        small, auctions=dataclasses.replace(small.auctions, offsets=offsets)
    )
    groups = groups_by_size(ragged)
    assert {name: group.auctions.sizes.tolist() for name, group in groups.items()} == {
        "up to 3 candidates": [2, 3, 3],
        "4 to 9 candidates": [4],
        "10 candidates or more": [12, 56],
    }
    assert list(groups_by_size(small)) == ["4 to 9 candidates"]
    with pytest.raises(ConfigError, match="few=5"):
        groups_by_size(small, few=5, many=5)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1, 2, 5, 6], 3.0),
        # Ahead once, then behind: not yet overtaken.
        ([4, 2, 5, 6], 3.0),
        ([3, 3, 3, 4], 4.0),
        ([3, 3, 3, 3], None),
        ([9, 9, 9, 9], 1.0),
        # Equal is overtaken.
        ([3, 4, 4, 4], 2.0),
    ],
)
def test_the_last_lead_counts(values: list[float], expected: float | None) -> None:
    assert overtaking_epsilon([1.0, 2.0, 3.0, 4.0], values, [4, 4, 4, 4]) == expected


EPSILONS = (0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 12.0)


@pytest.fixture(scope="module")
def score_rows() -> list[ScoreRow]:
    return [
        row
        for law in ScoreLaw
        for size in (15, 100)
        for row in compare_on_scores(
            law, num_candidates=size, epsilons=EPSILONS, num_sets=100, seed=1
        )
    ]


@pytest.mark.parametrize(
    ("mechanism", "expected"),
    [
        (SEVERAL_BOOSTED, {1.0: 0.619, 2.0: 0.727, 3.0: 0.813}),
        (SCALED_NOISY_MAX, {1.0: 0.540, 2.0: 0.581, 3.0: 0.621}),
        (ONE_BOOSTED, {1.0: 0.506, 2.0: 0.528, 3.0: 0.577}),
    ],
)
def test_a_hundred_uniform_scores_give_the_figures_of_the_reference(
    mechanism: str, expected: dict[float, float], score_rows: list[ScoreRow]
) -> None:
    found = {
        row.epsilon: row.mean_score
        for row in score_rows
        if (row.law, row.num_candidates, row.mechanism) == ("uniform", 100, mechanism)
    }
    # A mean of 100 sets of 100 scores is known to about 0.003.
    assert {epsilon: found[epsilon] for epsilon in expected} == pytest.approx(expected, abs=0.012)


def test_boosting_several_is_never_behind_by_more_than_noise(score_rows: list[ScoreRow]) -> None:
    by_key = {(r.law, r.num_candidates, r.epsilon, r.mechanism): r.mean_score for r in score_rows}
    for law, size, epsilon, mechanism in by_key:
        if mechanism == SEVERAL_BOOSTED:
            for other in (ONE_BOOSTED, SCALED_NOISY_MAX):
                assert by_key[law, size, epsilon, mechanism] > (
                    by_key[law, size, epsilon, other] - 0.005
                )


def test_randomized_response_overtakes_where_the_reference_says(score_rows: list[ScoreRow]) -> None:
    found = score_overtaking(score_rows)
    assert found["uniform", 15] in {1.0, 2.0}
    assert found["uniform", 100] in {3.0, 4.0, 5.0}
    assert found["Bernoulli 0.9", 15] in {5.0, 6.0}
    assert found["Bernoulli 0.9", 100] in {8.0, 10.0, 12.0}


def test_both_claims_about_scores_hold(score_rows: list[ScoreRow]) -> None:
    assert [claim.verdict for claim in score_claims(score_rows)] == [Verdict.HOLDS, Verdict.HOLDS]


def test_the_claims_fail_if_the_laws_trade_places(score_rows: list[ScoreRow]) -> None:
    other = {"uniform": "Bernoulli 0.9", "Bernoulli 0.9": "uniform"}
    swapped = [dataclasses.replace(row, law=other[row.law]) for row in score_rows]
    larger, extreme = score_claims(swapped)
    assert (larger.verdict, extreme.verdict) == (Verdict.HOLDS, Verdict.DOES_NOT_HOLD)
    sizes = [
        dataclasses.replace(row, num_candidates=115 - row.num_candidates) for row in score_rows
    ]
    assert score_claims(sizes)[0].verdict is Verdict.DOES_NOT_HOLD


def test_randomized_response_is_worth_what_its_formula_says() -> None:
    (row, *_) = compare_on_scores(
        ScoreLaw.UNIFORM, num_candidates=15, epsilons=[2.0], num_sets=50, seed=7
    )
    scores = score_sample(ScoreLaw.UNIFORM, num_candidates=15, num_sets=50, seed=8)
    raw = scores.raw_scores.reshape(50, 15)
    expected = (raw.sum(axis=1) + (np.exp(2) - 1) * raw.max(axis=1)) / (14 + np.exp(2))
    assert row.mechanism == ONE_BOOSTED
    assert row.mean_score == pytest.approx(expected.mean(), rel=1e-12)
    assert row.score_stddev == pytest.approx(expected.std(), rel=1e-9)


def test_scores_have_the_stated_law() -> None:
    uniform = score_sample(ScoreLaw.UNIFORM, num_candidates=10, num_sets=4000, seed=1).raw_scores
    ones = score_sample(ScoreLaw.BERNOULLI, num_candidates=10, num_sets=4000, seed=1).raw_scores
    # 7 standard errors: a false alarm below 1e-9.
    assert uniform.mean() == pytest.approx(0.5, abs=7 * np.sqrt(1 / 12 / 40_000))
    assert ones.mean() == pytest.approx(0.9, abs=7 * np.sqrt(0.09 / 40_000))
    assert set(ones.tolist()) == {0.0, 1.0}


def test_one_candidate_is_no_comparison() -> None:
    with pytest.raises(ConfigError, match="num_candidates=1"):
        score_sample(ScoreLaw.UNIFORM, num_candidates=1, num_sets=2, seed=1)
