"""Scores without public hints: the figures of the reference, and who is ahead where."""

import dataclasses

import numpy as np
import pytest

from tulle.errors import ConfigError
from tulle.lab.markets.claims import Verdict, score_claims, score_overtaking
from tulle.lab.markets.score_comparison import (
    ONE_BOOSTED,
    SCALED_NOISY_MAX,
    SEVERAL_BOOSTED,
    ScoreLaw,
    ScoreRow,
    compare_on_scores,
    score_sample,
)

EPSILONS = (0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 12.0)


@pytest.fixture(scope="module")
def rows() -> list[ScoreRow]:
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
    mechanism: str, expected: dict[float, float], rows: list[ScoreRow]
) -> None:
    found = {
        row.epsilon: row.mean_score
        for row in rows
        if (row.law, row.num_candidates, row.mechanism) == ("uniform", 100, mechanism)
    }
    # A mean of 100 sets of 100 scores is known to about 0.003.
    assert {epsilon: found[epsilon] for epsilon in expected} == pytest.approx(expected, abs=0.012)


def test_boosting_several_is_never_behind_by_more_than_noise(rows: list[ScoreRow]) -> None:
    by_key = {(r.law, r.num_candidates, r.epsilon, r.mechanism): r.mean_score for r in rows}
    for law, size, epsilon, mechanism in by_key:
        if mechanism == SEVERAL_BOOSTED:
            for other in (ONE_BOOSTED, SCALED_NOISY_MAX):
                assert by_key[law, size, epsilon, mechanism] > (
                    by_key[law, size, epsilon, other] - 0.005
                )


def test_randomized_response_overtakes_where_the_reference_says(rows: list[ScoreRow]) -> None:
    found = score_overtaking(rows)
    assert found["uniform", 15] in {1.0, 2.0}
    assert found["uniform", 100] in {3.0, 4.0, 5.0}
    assert found["Bernoulli 0.9", 15] in {5.0, 6.0}
    assert found["Bernoulli 0.9", 100] in {8.0, 10.0, 12.0}


def test_both_claims_about_scores_hold(rows: list[ScoreRow]) -> None:
    assert [claim.verdict for claim in score_claims(rows)] == [Verdict.HOLDS, Verdict.HOLDS]


def test_the_claims_fail_if_the_laws_trade_places(rows: list[ScoreRow]) -> None:
    other = {"uniform": "Bernoulli 0.9", "Bernoulli 0.9": "uniform"}
    swapped = [dataclasses.replace(row, law=other[row.law]) for row in rows]
    larger, extreme = score_claims(swapped)
    assert (larger.verdict, extreme.verdict) == (Verdict.HOLDS, Verdict.DOES_NOT_HOLD)
    sizes = [dataclasses.replace(row, num_candidates=115 - row.num_candidates) for row in rows]
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
