"""Estimates from randomized labels: right on average, with errors that say how far they miss."""

import dataclasses
import itertools
import json
import math

import numpy as np
import pytest

from tulle.errors import ConfigError, DataError
from tulle.mechanisms.noisy_reports import BinaryChannel
from tulle.mechanisms.randomized_response import RandomizedResponseConfig
from tulle.quality.metrics import auc_loss, evaluate_predictions
from tulle.quality.noisy_labels import NoisyLabelMetrics, auc_of_labels, evaluate_on_reports

NAMES = ["mean_label", "auc_loss", "log_loss", "relative_log_likelihood", "calibration"]


def channel_of(*epsilons: float) -> BinaryChannel:
    channels = [BinaryChannel.of_response(RandomizedResponseConfig(epsilon=e)) for e in epsilons]
    if len(channels) == 1:
        return channels[0]
    return BinaryChannel(
        prob_if_negative=np.array([c.prob_if_negative for c in channels]),
        prob_if_positive=np.array([c.prob_if_positive for c in channels]),
    )


def draw(labels: np.ndarray, channel: BinaryChannel, rng: np.random.Generator) -> np.ndarray:
    chances = np.where(labels, channel.prob_if_positive, channel.prob_if_negative)
    return (rng.random(len(labels)) < chances).astype(int)


def test_mean_label_and_log_loss_are_unbiased_over_all_reports() -> None:
    labels, chances = np.array([1, 0, 0, 1, 0]), np.array([0.7, 0.2, 0.4, 0.6, 0.1])
    channel = BinaryChannel(
        prob_if_negative=np.array([0.1, 0.05, 0.2, 0.1, 0.15]),
        prob_if_positive=np.array([0.9, 0.8, 0.95, 0.7, 0.99]),
    )
    totals = {"mean_label": 0.0, "log_loss": 0.0}
    weight = 0.0
    for reports in itertools.product((0, 1), repeat=5):
        positive = np.where(labels, channel.prob_if_positive, channel.prob_if_negative)
        prob = float(np.where(reports, positive, 1 - positive).prod())
        targets = channel.debiased_targets(reports)
        weight += prob
        totals["mean_label"] += prob * float(targets.mean())
        terms = -targets * np.log(chances) - (1 - targets) * np.log1p(-chances)
        totals["log_loss"] += prob * float(terms.mean())
        if 0 < targets.mean() < 1:
            found = evaluate_on_reports(reports, channel, chances)
            assert found.mean_label.value == pytest.approx(targets.mean())
            assert found.log_loss.value == pytest.approx(terms.mean())
    exact = evaluate_predictions(labels, chances)
    assert weight == pytest.approx(1)
    assert totals["mean_label"] == pytest.approx(0.4)
    assert totals["log_loss"] == pytest.approx(exact.log_loss)


def test_without_noise_the_figures_are_those_of_the_labels() -> None:
    rng = np.random.default_rng(2)
    chances = rng.random(300).round(1)
    labels = (rng.random(300) < chances).astype(int)
    clean = BinaryChannel(prob_if_negative=np.asarray(0.0), prob_if_positive=np.asarray(1.0))
    found, exact = (
        evaluate_on_reports(labels, clean, chances),
        evaluate_predictions(labels, chances),
    )
    for name in ("auc_loss", "log_loss", "relative_log_likelihood", "bidding_utility"):
        estimate = getattr(found, name)
        assert estimate.value == pytest.approx(getattr(exact, name), abs=1e-12)
        error = getattr(exact, f"{name}_standard_error")
        assert estimate.standard_error == pytest.approx(error, rel=0.02)
    assert found.calibration.value == pytest.approx(exact.calibration)
    assert found.mean_label.value == pytest.approx(labels.mean())


def exact_report_auc(rate: float, auc: float, channel: BinaryChannel) -> tuple[float, float]:
    """By the classes of both rows of a pair, in a world of two scores.

    A positive row has the high score with chance h, a negative one with chance l.
    """
    high, low = 0.5 + (auc - 0.5), 0.5 - (auc - 0.5)
    q0, q1 = float(channel.prob_if_negative), float(channel.prob_if_positive)
    report_rate = rate * q1 + (1 - rate) * q0
    of_ones = (rate * q1 * high + (1 - rate) * q0 * low) / report_rate
    of_zeros = (rate * (1 - q1) * high + (1 - rate) * (1 - q0) * low) / (1 - report_rate)
    return 0.5 + (of_ones - of_zeros) / 2, report_rate


@pytest.mark.parametrize("rate", [0.02, 0.3, 0.9])
@pytest.mark.parametrize("chances", [(0.27, 0.73), (0.0, 0.4), (0.1, 0.95)])
def test_the_auc_of_labels_is_affine_in_that_of_reports(
    rate: float, chances: tuple[float, float]
) -> None:
    negative, positive = map(np.asarray, chances)
    channel = BinaryChannel(prob_if_negative=negative, prob_if_positive=positive)
    for auc in (0.4, 0.5, 0.75, 0.95):
        # In this world the AUC is 1/2 + (h - l) / 2 = auc.
        report_auc, report_rate = exact_report_auc(rate, auc, channel)
        assert auc_of_labels(report_auc, report_rate, channel) == pytest.approx(auc)
        if auc != 0.5:
            assert report_auc != pytest.approx(auc, abs=1e-3)


def test_weighted_pairs_agree_with_the_affine_form() -> None:
    rng = np.random.default_rng(4)
    chances = rng.beta(1, 3, 4000).round(3)
    channel = channel_of(1.0)
    reports = draw(rng.random(4000) < chances, channel, rng)
    report_auc = 1 - auc_loss(chances[reports == 1], chances[reports == 0]).value
    affine = auc_of_labels(report_auc, reports.mean(), channel)
    found = 1 - evaluate_on_reports(reports, channel, chances).auc_loss.value
    assert found == pytest.approx(affine, abs=2e-3)
    assert abs(found - report_auc) > 0.05


def simulate(
    channel: BinaryChannel, num_rows: int, num_runs: int
) -> tuple[list[NoisyLabelMetrics], dict[str, float]]:
    rng = np.random.default_rng(11)
    runs = []
    for _ in range(num_runs):
        chances = rng.beta(2, 6, num_rows)
        labels = rng.random(num_rows) < chances
        runs.append(evaluate_on_reports(draw(labels, channel, rng), channel, chances**0.9))
    many = rng.beta(2, 6, 1_000_000)
    # Chances in the place of labels: no luck of labels in what is true on average.
    clean = BinaryChannel(prob_if_negative=np.asarray(0.0), prob_if_positive=np.asarray(1.0))
    exact = evaluate_on_reports((rng.random(1_000_000) < many).astype(int), clean, many**0.9)
    return runs, {name: getattr(exact, name).value for name in NAMES}


ROW_EPSILONS = np.tile([0.7, 1.0, 2.0, 4.0], 750)


@pytest.mark.parametrize("kind", ["one channel", "a channel for each row"])
def test_intervals_cover_the_truth_about_as_often_as_they_say(kind: str) -> None:
    channel = channel_of(1.0) if kind == "one channel" else channel_of(*ROW_EPSILONS)
    runs, truth = simulate(channel, 3000, 1000)
    for name in NAMES:
        estimates = [getattr(run, name) for run in runs]
        values = np.array([estimate.value for estimate in estimates])
        errors = np.array([estimate.standard_error for estimate in estimates])
        reach = np.array([estimate.interval[1] for estimate in estimates]) - values
        covered = np.mean(abs(values - truth[name]) <= reach)
        # Six standard deviations (0.0069 each), and 0.01 for the normal law being a limit only.
        assert covered == pytest.approx(0.95, abs=0.052), name
        assert np.mean(abs(values - truth[name]) <= 0.7 * reach) != pytest.approx(0.95, abs=0.052)
        # A spread of 1000 draws is known to 2.3%; the ratio figures have longer tails.
        assert values.std(ddof=1) / np.sqrt(np.mean(errors**2)) == pytest.approx(1, abs=0.2), name


def test_taking_reports_for_labels_would_be_far_off() -> None:
    rng = np.random.default_rng(6)
    chances = rng.beta(1, 9, 50_000)
    labels = rng.random(50_000) < chances
    channel = channel_of(1.0)
    reports = draw(labels, channel, rng)
    exact, naive = evaluate_predictions(labels, chances), evaluate_predictions(reports, chances)
    found = evaluate_on_reports(reports, channel, chances)
    for name in ("auc_loss", "log_loss", "relative_log_likelihood", "calibration"):
        estimate = getattr(found, name)
        gap = abs(getattr(exact, name) - estimate.value)
        assert gap < 5 * estimate.standard_error, name
        assert abs(getattr(exact, name) - getattr(naive, name)) > 5 * estimate.standard_error, name


def test_plain_data_survives_json() -> None:
    found = evaluate_on_reports([0, 1, 0, 0], channel_of(3.0), [0.1, 0.5, 0.2, 0.3])
    data = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert set(data) == {field.name for field in dataclasses.fields(found)}
    assert data["log_loss"]["value"] == found.log_loss.value


def test_what_cannot_be_estimated_is_refused() -> None:
    with pytest.raises(DataError, match="not between 0 and 1"):
        evaluate_on_reports([0, 0, 0], channel_of(1.0), [0.1, 0.2, 0.3])
    with pytest.raises(DataError, match="2 rows where there are 3 reports"):
        evaluate_on_reports([0, 1, 0], channel_of(1.0, 2.0), [0.1, 0.2, 0.3])
    with pytest.raises(DataError, match="numbers 0 and 1"):
        evaluate_on_reports([0, 1.58, 0], channel_of(1.0), [0.1, 0.2, 0.3])
    with pytest.raises(ConfigError, match="from row to row"):
        auc_of_labels(0.6, 0.4, channel_of(1.0, 2.0))
    for rate in (0.1, 0.9, 0.0):
        with pytest.raises(DataError, match="report_rate="):
            auc_of_labels(0.6, rate, channel_of(1.0))


def test_one_row_gives_no_standard_error() -> None:
    channel = BinaryChannel(prob_if_negative=np.asarray(0.0), prob_if_positive=np.asarray(1.0))
    with pytest.raises(DataError):
        evaluate_on_reports([1], channel, [0.5])
    found = evaluate_on_reports([0, 1], channel, [0.5, 0.6])
    assert math.isfinite(found.log_loss.standard_error)
