"""The profile audit passes exact mechanisms and sees noise, claims and atoms that are wrong."""

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from tulle.accounting.accountant import privacy_curve
from tulle.accounting.curve import NoPrivacyCurve
from tulle.audit.profile import LEAST_RUNS, ProfileAuditConfig, ProfileAuditResult, audit_profile
from tulle.errors import ConfigError, DataError
from tulle.privacy.events import Gaussian, PoissonSampled, RandomizedResponse
from tulle.privacy.units import Adjacency

GAUSSIAN = Gaussian(noise_multiplier=1.0)
SAMPLED = PoissonSampled(sampling_prob=0.5, event=GAUSSIAN)
REPLACE = privacy_curve(GAUSSIAN, Adjacency.REPLACE)
SAMPLED_REPLACE = privacy_curve(SAMPLED, Adjacency.REPLACE)

Scores = tuple[NDArray[np.float64], NDArray[np.float64]]


def replaced_scores(
    num_runs: int, *, stddev: float = 1.0, sampling_prob: float = 1.0, seed: int = 0
) -> Scores:
    """Sums of a sampled Gaussian for neighbours whose unit adds 1, and -1."""
    rng = np.random.default_rng(seed)

    def runs(value: int) -> NDArray[np.float64]:
        is_in = rng.random(num_runs) < sampling_prob
        return value * is_in + stddev * rng.standard_normal(num_runs)

    return runs(1), runs(-1)


@pytest.mark.parametrize("seed", range(5))
def test_the_right_noise_passes(seed: int) -> None:
    assert not audit_profile(*replaced_scores(20_000, seed=seed), REPLACE).is_violated
    scores = replaced_scores(20_000, sampling_prob=0.5, seed=seed)
    assert not audit_profile(*scores, SAMPLED_REPLACE).is_violated


@pytest.mark.parametrize("seed", range(5))
def test_fifteen_percent_too_little_noise_is_caught(seed: int) -> None:
    result = audit_profile(*replaced_scores(20_000, stddev=0.85, seed=seed), REPLACE)
    assert result.is_violated
    assert result.worst_excess > 0.05


def test_five_percent_too_little_noise_is_caught_with_more_runs() -> None:
    assert audit_profile(*replaced_scores(100_000, stddev=0.95), REPLACE).is_violated


def test_more_noise_than_claimed_passes() -> None:
    assert not audit_profile(*replaced_scores(20_000, stddev=1.15), REPLACE).is_violated


@pytest.mark.parametrize("stddev", [0.5, math.sqrt(0.5)])
def test_faults_of_a_sampled_mechanism_are_caught(stddev: float) -> None:
    scores = replaced_scores(20_000, stddev=stddev, sampling_prob=0.5)
    assert audit_profile(*scores, SAMPLED_REPLACE).is_violated


def test_replaced_rows_break_a_claim_for_added_rows() -> None:
    claim = privacy_curve(SAMPLED, Adjacency.ADD_OR_REMOVE)
    result = audit_profile(*replaced_scores(20_000, sampling_prob=0.5), claim)
    assert result.worst_excess > 0.1


def test_neither_order_nor_sign_of_the_scores_matters() -> None:
    first, second = replaced_scores(20_000, stddev=0.85)
    results = [
        audit_profile(first, second, REPLACE),
        audit_profile(second, first, REPLACE),
        audit_profile(-first, -second, REPLACE),
    ]
    assert all(result.is_violated for result in results)
    assert results[0].worst_excess == results[1].worst_excess


@pytest.mark.parametrize("is_swapped", [False, True])
def test_a_rare_output_of_one_data_set_alone_is_caught(is_swapped: bool) -> None:
    rng = np.random.default_rng(0)
    first, second = rng.standard_normal((2, 20_000))
    first[rng.random(20_000) < 0.01] = math.inf
    scores = (second, first) if is_swapped else (first, second)
    claim = privacy_curve(Gaussian(noise_multiplier=20.0), Adjacency.REPLACE)
    assert audit_profile(*scores, claim, ProfileAuditConfig(num_thresholds=1000)).is_violated
    first[:] = rng.standard_normal(20_000)
    assert not audit_profile(*scores, claim, ProfileAuditConfig(num_thresholds=1000)).is_violated


def test_discrete_scores_are_compared_exactly() -> None:
    claim = privacy_curve(RandomizedResponse(epsilon=1.0), Adjacency.REPLACE)

    def reports(epsilon: float) -> Scores:
        rng = np.random.default_rng(3)
        flip_prob = 1 / (1 + math.exp(epsilon))
        return tuple((rng.random(40_000) < flip_prob) ^ bool(bit) for bit in (0, 1))

    right = audit_profile(*reports(1.0), claim)
    assert not right.is_violated
    assert 0.8 < right.epsilon_lower_bound <= 1.0
    assert audit_profile(*reports(1.2), claim).is_violated


def test_the_lower_bound_is_below_the_claim_and_of_use() -> None:
    result = audit_profile(*replaced_scores(20_000), REPLACE)
    assert result.claimed_epsilon == REPLACE.epsilon(1e-5)
    assert 3 < result.epsilon_lower_bound < result.claimed_epsilon


def test_false_alarms_are_as_rare_as_stated() -> None:
    # At the edge of the claim and with a large false alarm: few of many audits may fail.
    config = ProfileAuditConfig(false_alarm_prob=0.05, num_thresholds=3)
    audits = [
        audit_profile(*replaced_scores(400, seed=seed), REPLACE, config) for seed in range(400)
    ]
    assert sum(audit.is_violated for audit in audits) <= stats.binom(400, 0.05).isf(1e-9)


def test_every_claim_of_no_privacy_holds() -> None:
    scores = np.zeros(LEAST_RUNS), np.ones(LEAST_RUNS)
    result = audit_profile(*scores, NoPrivacyCurve())
    assert not result.is_violated
    assert result.epsilon_lower_bound > 0


def test_the_result_says_where_and_with_how_many_runs() -> None:
    result = audit_profile(*replaced_scores(5000, stddev=0.5), REPLACE)
    assert isinstance(result, ProfileAuditResult)
    assert result.num_runs == 10_000
    assert 0.2 < result.threshold_quantile < 0.8


@pytest.mark.parametrize(
    "scores",
    [np.zeros(LEAST_RUNS - 1), np.zeros((LEAST_RUNS, 2)), np.full(LEAST_RUNS, np.nan)],
)
def test_scores_that_say_nothing_are_refused(scores: NDArray[np.float64]) -> None:
    with pytest.raises(DataError, match="neighbour_scores"):
        audit_profile(np.zeros(LEAST_RUNS), scores, REPLACE)


@pytest.mark.parametrize(
    "settings",
    [{"false_alarm_prob": 0.0}, {"false_alarm_prob": 1.0}, {"num_thresholds": 2}, {"delta": 1.0}],
)
def test_settings_out_of_range_are_refused(settings: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=next(iter(settings))):
        ProfileAuditConfig(**settings)  # type: ignore[arg-type]
