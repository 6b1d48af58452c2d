"""Estimates are right where a server's would be wrong, and their intervals hold."""

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

from tulle.errors import ConfigError, DataError
from tulle.mechanisms.entropy import SeededNoise
from tulle.select.auctions import FloatArray
from tulle.select.evaluation.device_terms import Estimator
from tulle.select.evaluation.estimate import (
    EvaluationResult,
    OnDeviceEvaluation,
    release_estimate,
)
from tulle.select.mechanisms.floors import FloorMechanism
from tulle.select.mechanisms.mechanism import NonPersonalised
from tulle.select.mechanisms.noisy_max import NoisyMax, ScaledScores
from tulle.select.mechanisms.noisy_max_probs import NoiseKind
from tulle.select.mechanisms.shortlists import TopCandidates
from unit.select.evaluation.logged_decisions import (
    ShowRank,
    logged,
    private_clicks,
    same_auctions,
)

SERVER = np.array([0.12, 0.1, 0.08, 0.06, 0.05])
RESPONSE = FloorMechanism(epsilon=3.0)


def settings_for(**changes: Any) -> OnDeviceEvaluation:
    given: dict[str, Any] = {
        "logging": RESPONSE,
        "target": ShowRank(rank=None),
        "estimator": Estimator.INVERSE_PROPENSITY,
        "epsilon": 1.0,
        "max_decisions_per_user": 1,
    }
    return OnDeviceEvaluation(**given | changes)


@pytest.mark.parametrize("target", [ShowRank(rank=0), ShowRank(rank=2), ShowRank(rank=None)])
def test_a_server_with_average_chances_is_wrong_and_devices_are_right(target: ShowRank) -> None:
    auctions = same_auctions(300_000, SERVER)
    click_probs = private_clicks(auctions, 1.0, np.random.default_rng(3))
    log = logged(auctions, click_probs, RESPONSE, seed=4)
    truth = float(
        (target.selection_probs(auctions, log.raw_scores) * click_probs).sum() / len(auctions)
    )

    # What a server knows: how often each ad was chosen in this context, and the clicks.
    shown = auctions.ads[log.choices]
    marginal = np.bincount(shown, minlength=5) / len(auctions)
    wanted = target.selection_probs(auctions, log.raw_scores)[log.choices]
    server_side = float(np.mean(wanted / marginal[shown] * log.raw_clicks))
    assert server_side > 1.5 * truth

    for estimator in Estimator:
        result = release_estimate(
            auctions, log, settings_for(target=target, estimator=estimator), rng=SeededNoise(5)
        )
        assert abs(result.estimate.value - truth) < 3 * result.sampling_stddev
        # The same sample tells the server's value from the truth.
        assert abs(result.estimate.value - server_side) > 6.2 * result.sampling_stddev
        assert result.interval.low < truth < result.interval.high < server_side
        assert result.estimate.noise_stddev < 3e-4


def test_a_good_model_makes_a_doubly_robust_estimate_sharper() -> None:
    auctions = same_auctions(200_000, SERVER * 5)
    click_probs = private_clicks(auctions, 1.0, np.random.default_rng(3))
    log = dataclasses.replace(
        logged(auctions, click_probs, RESPONSE, seed=4), raw_model_clicks=click_probs
    )
    spreads = [
        release_estimate(
            auctions, log, settings_for(estimator=estimator, epsilon=8.0), rng=SeededNoise(5)
        ).sampling_stddev
        for estimator in Estimator
    ]
    assert spreads[1] < 0.85 * spreads[0]


def test_the_target_may_decide_by_other_scores() -> None:
    auctions = same_auctions(200_000, SERVER * 5)
    click_probs = private_clicks(auctions, 1.0, np.random.default_rng(3))
    worst_first = 1 - click_probs
    log = dataclasses.replace(
        logged(auctions, click_probs, RESPONSE, seed=4), raw_target_scores=worst_first
    )
    target = FloorMechanism(epsilon=2.0, shortlist=TopCandidates(num_finalists=3))
    truth = target.selection_probs(auctions, worst_first) @ click_probs / len(auctions)
    same = target.selection_probs(auctions, click_probs) @ click_probs / len(auctions)
    result = release_estimate(auctions, log, settings_for(target=target), rng=SeededNoise(5))
    assert result.interval.low < truth < result.interval.high < same


def test_clicks_may_have_a_value() -> None:
    auctions = same_auctions(100_000, SERVER * 5)
    click_probs = private_clicks(auctions, 1.0, np.random.default_rng(3))
    values = np.tile([4.0, 0.0, 1.0, 2.0, 0.5], len(auctions))
    log = logged(auctions, click_probs, RESPONSE, seed=4)
    target = ShowRank(rank=None)
    truth = target.selection_probs(auctions, click_probs) @ (values * click_probs) / len(auctions)
    for estimator in Estimator:
        result = release_estimate(
            auctions,
            log,
            settings_for(target=target, estimator=estimator),
            values=values,
            rng=SeededNoise(5),
        )
        assert result.interval.low < truth < result.interval.high
        assert result.interval.high - result.interval.low < 0.2 * truth


def repeated_results(
    num_runs: int, *, size: int, per_user: int, private_stddev: float = 1.0, **changes: Any
) -> tuple[float, list[EvaluationResult]]:
    """The true value in a market, and results of fresh users in it.

    The decisions of one user have the same private data.
    """
    rng = np.random.default_rng(8)
    many = same_auctions(100_000, SERVER * 5)
    target = changes.get("target", ShowRank(rank=None))
    clicks = private_clicks(many, private_stddev, rng)
    truth = float(target.selection_probs(many, clicks) @ clicks / len(many))
    auctions = same_auctions(size, SERVER * 5)
    owners = same_auctions(size // per_user, SERVER * 5)
    results = []
    for run in range(num_runs):
        of_users = private_clicks(owners, private_stddev, rng).reshape(-1, 5)
        click_probs = np.repeat(of_users, per_user, axis=0).ravel()
        users = np.repeat(np.arange(size // per_user), per_user)
        log = logged(auctions, click_probs, RESPONSE, seed=100 + run, users=users)
        settings = settings_for(max_decisions_per_user=per_user, **changes)
        results.append(release_estimate(auctions, log, settings, rng=SeededNoise(run)))
    return truth, results


@pytest.mark.parametrize("estimator", Estimator)
@pytest.mark.parametrize(("per_user", "epsilon"), [(1, 0.5), (1, 8.0), (20, 8.0)])
def test_the_interval_covers_noise_and_sampling(
    estimator: Estimator, per_user: int, epsilon: float
) -> None:
    truth, results = repeated_results(
        200, size=2000, per_user=per_user, estimator=estimator, epsilon=epsilon
    )
    misses = sum(not r.interval.low <= truth <= r.interval.high for r in results)
    # With a confidence of 95% more misses than this have a probability below 1e-9.
    most = stats.binom.isf(1e-9, 200, 0.05)
    assert misses <= most
    # Noise is not all there is: its own interval misses too often where noise is small.
    noise_misses = sum(
        not r.estimate.interval.low <= truth <= r.estimate.interval.high for r in results
    )
    assert noise_misses > most or epsilon < 1 or per_user > 1


def test_the_spread_counts_users_and_not_decisions() -> None:
    """20 decisions with the same private data are worth less than 20 users."""
    truth, results = repeated_results(
        200, size=4000, per_user=20, private_stddev=3.0, epsilon=1e5, target=RESPONSE
    )
    errors = np.array([r.estimate.value - truth for r in results])
    stated = float(np.mean([r.sampling_stddev for r in results]))
    spread = math.sqrt(float(np.mean(errors**2)))
    # Over 200 runs the spread of the errors is known to 35% with probability 1 - 1e-9.
    assert 0.65 * stated < spread < 1.35 * stated
    # As if decisions were independent, each a click or none.
    independent = math.sqrt(truth * (1 - truth) / 4000)
    assert spread > 1.35 * independent


def exact_result(**changes: Any) -> EvaluationResult:
    """Without visible noise."""
    auctions = same_auctions(50_000, SERVER * 5)
    click_probs = private_clicks(auctions, 1.0, np.random.default_rng(3))
    log = logged(auctions, click_probs, RESPONSE, seed=4)
    return release_estimate(auctions, log, settings_for(epsilon=1e5, **changes), rng=SeededNoise(5))


def test_a_cut_is_stated_and_lowers_the_estimate() -> None:
    whole, cut = exact_result(), exact_result(max_weight=2.0)
    assert not whole.is_weight_cut
    assert whole.max_weight == pytest.approx(math.exp(3.0) + 4)
    assert cut.is_weight_cut
    assert cut.max_weight == 2.0
    assert cut.estimate.value < 0.8 * whole.estimate.value
    assert not exact_result(max_weight=1e6).is_weight_cut


def test_noise_follows_from_the_range_the_users_and_the_decisions() -> None:
    result = exact_result(max_decisions_per_user=3, variance_share=0.5)
    width = math.exp(3.0) + 4
    expected = math.sqrt(2) * width * 3 / (0.5 * 1e5) / 50_000
    assert result.estimate.noise_stddev == pytest.approx(expected, rel=1e-6)


def test_a_noisy_maximum_needs_a_stated_cut() -> None:
    auctions = same_auctions(50_000, SERVER * 5)
    click_probs = private_clicks(auctions, 1.0, np.random.default_rng(3))
    noisy_max = NoisyMax(epsilon=2.0, noise=NoiseKind.GUMBEL, score_bound=ScaledScores())
    log = logged(auctions, click_probs, noisy_max, seed=4)
    with pytest.raises(ConfigError, match="max_weight=None needs a FloorMechanism that decided"):
        release_estimate(auctions, log, settings_for(logging=noisy_max), rng=SeededNoise(5))
    result = release_estimate(
        auctions, log, settings_for(logging=noisy_max, max_weight=30.0), rng=SeededNoise(5)
    )
    truth = float(np.mean(click_probs))
    assert result.is_weight_cut
    assert result.interval.low < truth < result.interval.high


def test_only_personalised_decisions_and_a_users_first_ones_count() -> None:
    auctions = same_auctions(6, SERVER)
    log = logged(auctions, np.tile(SERVER, 6), RESPONSE, seed=1, users=np.array([1, 1, 1, 2, 2, 3]))
    log = dataclasses.replace(log, is_personalised=np.array([True, False, True, True, True, False]))
    result = release_estimate(auctions, log, settings_for(), rng=SeededNoise(1))
    assert (result.num_decisions, result.num_users) == (2, 2)
    nobody = dataclasses.replace(log, is_personalised=np.zeros(6, np.bool_))
    with pytest.raises(DataError, match="no personalised decision"):
        release_estimate(auctions, nobody, settings_for(), rng=SeededNoise(1))


def test_decisions_that_do_not_count_change_nothing() -> None:
    """A decision that was not personalised has another probability than the rule says."""
    auctions = same_auctions(6, SERVER)
    log = logged(auctions, np.tile(SERVER, 6), RESPONSE, seed=1, users=np.arange(6) // 2)
    opposite = dataclasses.replace(
        log, raw_clicks=np.where(np.arange(6) % 2 == 1, ~log.raw_clicks, log.raw_clicks)
    )
    results = [
        release_estimate(auctions, one, settings_for(), rng=SeededNoise(1))
        for one in (log, opposite)
    ]
    assert results[0] == results[1]


def test_an_unsupported_target_is_refused() -> None:
    auctions = same_auctions(4, SERVER)
    top = FloorMechanism(epsilon=3.0, shortlist=TopCandidates(num_finalists=2))
    log = logged(auctions, np.tile(SERVER, 4), top, seed=1)
    with pytest.raises(ConfigError, match="may show ads that"):
        release_estimate(auctions, log, settings_for(logging=top), rng=SeededNoise(1))
    settings = settings_for(logging=top, target=NonPersonalised())
    release_estimate(auctions, log, settings, rng=SeededNoise(1))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"epsilon": 0.0}, "epsilon=0"),
        ({"epsilon": math.inf}, "epsilon=inf"),
        ({"max_decisions_per_user": 0}, "max_decisions_per_user=0"),
        ({"max_weight": 0.0}, "max_weight=0.0 must be > 0"),
        ({"max_weight": math.nan}, "max_weight=nan must be > 0"),
        ({"variance_share": 1.0}, "variance_share=1.0 must be in"),
        ({"estimator": "inverse propensity"}, "must be an Estimator"),
    ],
)
def test_settings_are_refused_by_name(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        settings_for(**changes)


@pytest.mark.parametrize(
    ("values", "error", "message"),
    [
        (np.ones(3), ConfigError, "values must have one entry"),
        (np.full(20, -1.0), DataError, "values must be finite and >= 0"),
        (np.full(20, np.inf), DataError, "values must be finite and >= 0"),
        (np.zeros(20), ConfigError, "nothing to estimate"),
    ],
)
def test_values_are_checked(values: FloatArray, error: type[Exception], message: str) -> None:
    auctions = same_auctions(4, SERVER)
    log = logged(auctions, np.tile(SERVER, 4), RESPONSE, seed=1)
    with pytest.raises(error, match=message):
        release_estimate(auctions, log, settings_for(), values=values, rng=SeededNoise(1))
