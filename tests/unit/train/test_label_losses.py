"""Losses for reports with any chances: exact on average, consistent, and bounded if asked."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from tulle.errors import ConfigError, RunStateError
from tulle.mechanisms.noisy_reports import BinaryChannel
from tulle.mechanisms.randomized_response import RandomizedResponseConfig
from tulle.train.losses import (
    CrossEntropy,
    DebiasedCrossEntropy,
    DebiasedReports,
    ForwardCorrectedCrossEntropy,
    ForwardReports,
    Loss,
    ReportLoss,
    RowWeights,
    loss_of_batch,
)
from tulle.train.models.batches import ExampleBatch
from tulle.train.settings.phases import LabelCorrection

CHANCES = [(0.3, 0.7), (0.01, 0.6), (0.0, 0.5), (0.4, 1.0), (0.0, 1.0), (0.45, 0.55)]
LOGITS = torch.linspace(-30, 30, 121, dtype=torch.float64)


def rows_of(chances: list[tuple[float, float]]) -> tuple[Tensor, Tensor]:
    """Every logit with every pair of chances."""
    probs = torch.tensor(chances, dtype=torch.float64).repeat_interleave(len(LOGITS), 0)
    return LOGITS.repeat(len(chances)), probs


def over_the_channel(loss: Loss, name: str, logits: Tensor, label: int, probs: Tensor) -> Tensor:
    """The exact mean over the report of each row."""
    report_prob = probs[:, label]
    ones = torch.ones_like(logits)
    of_one, of_zero = getattr(loss, name)(logits, ones), getattr(loss, name)(logits, 0 * ones)
    # A report that never comes has the weight 0, also where its loss is infinite.
    return torch.where(report_prob > 0, report_prob * of_one, 0 * ones) + torch.where(
        report_prob < 1, (1 - report_prob) * of_zero, 0 * ones
    )


@pytest.mark.parametrize("label", [0, 1])
@pytest.mark.parametrize("name", ["values", "gradients"])
def test_the_debiased_loss_is_the_clean_loss_on_average_row_by_row(name: str, label: int) -> None:
    logits, probs = rows_of(CHANCES)
    average = over_the_channel(DebiasedReports(report_probs=probs), name, logits, label, probs)
    expected = getattr(CrossEntropy(), name)(logits, torch.full_like(logits, label))
    torch.testing.assert_close(average, expected, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("label", [0, 1])
def test_weights_multiply_the_clean_loss(label: int) -> None:
    logits, probs = rows_of(CHANCES)
    weights = torch.linspace(0.1, 4.0, len(logits), dtype=torch.float64)
    loss = DebiasedReports(report_probs=probs, weights=weights)
    for name in ("values", "gradients"):
        average = over_the_channel(loss, name, logits, label, probs)
        clean = getattr(CrossEntropy(), name)(logits, torch.full_like(logits, label))
        torch.testing.assert_close(average, weights * clean, rtol=1e-11, atol=1e-10)


@pytest.mark.parametrize("report", [0, 1])
def test_the_forward_loss_is_the_likelihood_of_the_report(report: int) -> None:
    logits, probs = rows_of([(0.3, 0.7), (0.01, 0.6), (0.2, 0.9)])
    found = ForwardReports(report_probs=probs).values(logits, torch.full_like(logits, report))
    chance = probs[:, 0] + (probs[:, 1] - probs[:, 0]) * torch.sigmoid(logits)
    expected = -torch.log(chance) if report else -torch.log1p(-chance)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("correction", [DebiasedReports, ForwardReports])
@pytest.mark.parametrize("chances", CHANCES)
@pytest.mark.parametrize("true_prob", [0.03, 0.5, 0.8])
def test_the_best_logit_is_that_of_the_true_label(
    correction: type[DebiasedReports] | type[ForwardReports],
    chances: tuple[float, float],
    true_prob: float,
) -> None:
    probs = torch.tensor([chances], dtype=torch.float64)
    loss = correction(report_probs=probs)
    at = torch.tensor([math.log(true_prob / (1 - true_prob))], dtype=torch.float64)
    report_prob = chances[0] + (chances[1] - chances[0]) * true_prob

    def slope(logit: Tensor) -> float:
        of_one = loss.gradients(logit, torch.ones(1))
        of_zero = loss.gradients(logit, torch.zeros(1))
        return float(report_prob * of_one + (1 - report_prob) * of_zero)

    assert slope(at) == pytest.approx(0, abs=1e-12)
    assert slope(at - 0.1) < 0 < slope(at + 0.1)


@pytest.mark.parametrize("correction", [DebiasedReports, ForwardReports])
@pytest.mark.parametrize("report", [0, 1])
def test_gradients_equal_autograd(
    correction: type[DebiasedReports] | type[ForwardReports], report: int
) -> None:
    logits, probs = rows_of([(0.3, 0.7), (0.01, 0.6), (0.2, 0.9), (1e-9, 0.5)])
    keep = logits != 0
    logits, probs = logits[keep].requires_grad_(), probs[keep]
    settings = {} if correction is ForwardReports else {"max_logit": 7.3}
    loss = correction(report_probs=probs, **settings)
    labels = torch.full_like(logits, report).detach()
    (expected,) = torch.autograd.grad(loss.values(logits, labels).sum(), logits)
    torch.testing.assert_close(loss.gradients(logits.detach(), labels), expected)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0, 20.0])
def test_randomized_response_is_one_channel_for_tables_and_for_training(epsilon: float) -> None:
    channel = BinaryChannel.of_response(RandomizedResponseConfig(epsilon=epsilon))
    chances = [float(channel.prob_if_negative), float(channel.prob_if_positive)]
    probs = torch.tensor([chances], dtype=torch.float64)
    labels = torch.arange(121) % 2
    pairs = [
        (DebiasedReports(report_probs=probs), DebiasedCrossEntropy(epsilon=epsilon)),
        (ForwardReports(report_probs=probs), ForwardCorrectedCrossEntropy(epsilon=epsilon)),
    ]
    for by_channel, by_epsilon in pairs:
        for name in ("values", "gradients"):
            found, expected = (
                getattr(loss, name)(LOGITS, labels) for loss in (by_channel, by_epsilon)
            )
            torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-10)
    # The targets of the loss are those that a released table carries.
    at_zero = torch.zeros(2, dtype=torch.float64)
    targets = 0.5 - DebiasedCrossEntropy(epsilon=epsilon).gradients(at_zero, torch.tensor([0, 1]))
    assert targets.tolist() == pytest.approx(channel.debiased_targets([0, 1]).tolist(), rel=1e-12)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
@pytest.mark.parametrize("report", [0, 1])
def test_a_bound_on_logits_bounds_the_debiased_loss(epsilon: float, report: int) -> None:
    most = 5.0
    logits = torch.linspace(-400, 400, 8001, dtype=torch.float64)
    labels = torch.full_like(logits, report)
    free = DebiasedCrossEntropy(epsilon=epsilon).values(logits, labels)
    bounded = DebiasedCrossEntropy(epsilon=epsilon, max_logit=most)
    values = bounded.values(logits, labels)
    inside = logits.abs() <= most
    assert torch.equal(values[inside], free[inside])
    target = 1 / -math.expm1(-epsilon)
    least = math.log1p(math.exp(most)) - target * most
    assert float(values.min()) == pytest.approx(least)
    assert least == pytest.approx(math.log1p(math.exp(-most)) - most / math.expm1(epsilon))
    assert float(free.min()) < 10 * min(least, -1)
    # Convex still: slopes never fall, and none is steeper than without the bound.
    slopes = bounded.gradients(logits, labels)
    assert (slopes.diff() >= -1e-12).all()
    assert float(slopes.abs().max()) <= target + 1e-12


@pytest.mark.parametrize("label", [0, 1])
def test_the_bounded_loss_is_unbiased_for_logits_within_the_bound(label: int) -> None:
    logits, probs = rows_of(CHANCES)
    loss = DebiasedReports(report_probs=probs, max_logit=10.0)
    average = over_the_channel(loss, "values", logits, label, probs)
    clean = CrossEntropy().values(logits, torch.full_like(logits, label))
    inside = logits.abs() <= 10
    torch.testing.assert_close(average[inside], clean[inside], rtol=1e-11, atol=1e-11)
    assert (average[~inside] > clean[~inside].clamp(max=0)).all()


def memorise(loss: Loss, num_steps: int) -> tuple[Tensor, float]:
    """One free logit for each report, as a model has that can memorise its rows."""
    reports = torch.tensor([0.0, 1.0] * 10)
    logits = torch.zeros(20, dtype=torch.float64)
    for _ in range(num_steps):
        logits -= 0.5 * loss.gradients(logits, reports)
    return logits, float(loss.values(logits, reports).mean())


def test_memorised_rows_diverge_without_a_bound_and_stay_with_one() -> None:
    free = DebiasedCrossEntropy(epsilon=1.0)
    losses = [memorise(free, num_steps)[1] for num_steps in (100, 1000, 10_000)]
    assert losses[2] < 9 * losses[1] < 80 * losses[0] < 0
    assert memorise(free, 10_000)[0].abs().min() > 1000
    logits, loss = memorise(DebiasedCrossEntropy(epsilon=1.0, max_logit=4.0), 10_000)
    assert logits.abs().max() < 4 + 0.5 * 1.6
    assert loss > math.log1p(math.exp(-4)) - 4 / math.expm1(1.0)
    logits, loss = memorise(ForwardCorrectedCrossEntropy(epsilon=1.0), 10_000)
    assert loss > math.log1p(math.exp(-1.0))


def test_float32_is_finite_and_close_to_float64_for_huge_logits() -> None:
    sizes = torch.logspace(-3, 4, 71, dtype=torch.float64)
    values = torch.cat([-sizes, sizes])
    probs = torch.tensor([(0.3, 0.7), (1e-8, 0.4)], dtype=torch.float64)
    logits = values.repeat(2).float()
    probs = probs.repeat_interleave(len(values), 0)
    for loss in (DebiasedReports(report_probs=probs), ForwardReports(report_probs=probs)):
        for report in (0, 1):
            labels = torch.full_like(logits, report)
            for function in (loss.values, loss.gradients):
                found = function(logits, labels)
                assert found.dtype == torch.float32
                assert found.isfinite().all()
                expected = function(logits.double(), labels)
                torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=2e-7)


def test_row_weights_are_those_of_the_channel_with_mean_one() -> None:
    negative, positive = np.array([0.1, 0.3, 0.45]), np.array([0.9, 0.7, 0.55])
    channel = BinaryChannel(prob_if_negative=negative, prob_if_positive=positive)
    found = RowWeights.of(channel, 0.07).at(torch.tensor(np.stack([negative, positive], 1)))
    expected = 1 / (negative * (1 - negative) / (1 - 2 * negative) ** 2 + 0.07 * 0.93)
    assert found.numpy() == pytest.approx(expected / expected.mean())
    assert found[0] > found[1] > found[2]


def test_a_batch_brings_the_chances_of_its_rows() -> None:
    probs = torch.tensor([[0.1, 0.9], [0.4, 0.6]], dtype=torch.float64)
    ids = torch.zeros(2, 0, dtype=torch.int64)
    batch = ExampleBatch(
        public_ids=ids, sensitive_ids=None, labels=torch.tensor([1.0, 1.0]), report_probs=probs
    )
    loss = loss_of_batch(ReportLoss(correction=LabelCorrection.DEBIASED), batch)
    targets = 0.5 - loss.gradients(torch.zeros(2, dtype=torch.float64), batch.labels)
    assert targets.tolist() == pytest.approx([0.9 / 0.8, 0.6 / 0.2])
    assert loss_of_batch(CrossEntropy(), batch) == CrossEntropy()
    without = ExampleBatch(public_ids=ids, sensitive_ids=None, labels=batch.labels)
    with pytest.raises(RunStateError, match="probabilities of each report"):
        loss_of_batch(ReportLoss(correction=LabelCorrection.FORWARD), without)
    naive = loss_of_batch(ReportLoss(correction=LabelCorrection.NAIVE), batch)
    assert naive == CrossEntropy()


@pytest.mark.parametrize("shape", [(2,), (3, 1), (2, 2, 2)])
def test_chances_of_another_shape_are_refused(shape: tuple[int, ...]) -> None:
    for correction in (DebiasedReports, ForwardReports):
        with pytest.raises(ConfigError, match="report_probs of the shape"):
            correction(report_probs=torch.full(shape, 0.5))


@pytest.mark.parametrize("max_logit", [0.0, -1.0, math.inf, math.nan, True])
def test_a_bound_that_is_no_positive_number_is_refused(max_logit: float) -> None:
    with pytest.raises(ConfigError, match="max_logit="):
        DebiasedCrossEntropy(epsilon=1.0, max_logit=max_logit)
