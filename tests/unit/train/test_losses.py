"""The losses equal their formulas, stay finite, and see through randomized labels."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from tulle.errors import ConfigError
from tulle.train.losses import (
    CrossEntropy,
    DebiasedCrossEntropy,
    ForwardCorrectedCrossEntropy,
    Loss,
)

CORRECTED = [DebiasedCrossEntropy, ForwardCorrectedCrossEntropy]
EPSILONS = [1e-3, 0.1, 1.0, 3.0, 10.0, 50.0]
LOGITS = torch.linspace(-30, 30, 121, dtype=torch.float64)


def all_losses(epsilon: float) -> list[Loss]:
    return [CrossEntropy(), *(loss(epsilon=epsilon) for loss in CORRECTED)]


def flip_prob(epsilon: float) -> float:
    return 1 / (1 + math.exp(epsilon))


def for_label(function: Callable[[Tensor, Tensor], Tensor], label: int) -> Tensor:
    return function(LOGITS, torch.full_like(LOGITS, label))


def over_the_channel(
    function: Callable[[Tensor, Tensor], Tensor], label: int, epsilon: float
) -> Tensor:
    flip = flip_prob(epsilon)
    return (1 - flip) * for_label(function, label) + flip * for_label(function, 1 - label)


def test_cross_entropy_equals_its_definition() -> None:
    probs = torch.sigmoid(LOGITS)
    near = LOGITS.abs() < 15
    for label, expected in ((1, -torch.log(probs)), (0, -torch.log1p(-probs))):
        found = for_label(CrossEntropy().values, label)
        torch.testing.assert_close(found[near], expected[near], rtol=1e-9, atol=0)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0, 10.0])
@pytest.mark.parametrize("label", [0, 1])
def test_the_debiased_loss_is_the_clean_loss_on_average(label: int, epsilon: float) -> None:
    clean, debiased = CrossEntropy(), DebiasedCrossEntropy(epsilon=epsilon)
    for name in ("values", "gradients"):
        average = over_the_channel(getattr(debiased, name), label, epsilon)
        expected = for_label(getattr(clean, name), label)
        torch.testing.assert_close(average, expected, rtol=1e-12, atol=1e-11)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
@pytest.mark.parametrize("report", [0, 1])
def test_the_debiased_loss_is_the_formula_of_the_hybrid_papers(report: int, epsilon: float) -> None:
    keep = 1 / (1 + math.exp(-epsilon))
    losses = [for_label(CrossEntropy().values, label) for label in (0, 1)]
    expected = (losses[1 - report] - keep * (losses[0] + losses[1])) / (1 - 2 * keep)
    found = for_label(DebiasedCrossEntropy(epsilon=epsilon).values, report)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-11)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0, 10.0])
def test_the_forward_loss_is_the_likelihood_of_the_report(epsilon: float) -> None:
    flip, loss = flip_prob(epsilon), ForwardCorrectedCrossEntropy(epsilon=epsilon)
    chance = flip + (1 - 2 * flip) * torch.sigmoid(LOGITS)
    torch.testing.assert_close(for_label(loss.values, 1), -torch.log(chance), rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(
        for_label(loss.values, 0), -torch.log1p(-chance), rtol=1e-9, atol=1e-12
    )


@pytest.mark.parametrize("correction", CORRECTED)
@pytest.mark.parametrize("epsilon", [0.5, 2.0])
@pytest.mark.parametrize("true_prob", [0.03, 0.5, 0.8])
def test_the_best_logit_is_that_of_the_true_label(
    correction: Callable[..., Loss], epsilon: float, true_prob: float
) -> None:
    loss, flip = correction(epsilon=epsilon), flip_prob(epsilon)
    report_prob = flip + (1 - 2 * flip) * true_prob
    logits = torch.linspace(-6, 6, 12_001, dtype=torch.float64)
    ones = torch.ones_like(logits)
    risk = report_prob * loss.values(logits, ones)
    risk += (1 - report_prob) * loss.values(logits, 0 * ones)
    best = float(logits[risk.argmin()])
    assert best == pytest.approx(math.log(true_prob / (1 - true_prob)), abs=1e-3)


def test_uncorrected_loss_learns_the_chance_of_the_report_instead() -> None:
    flip = flip_prob(1.0)
    report_prob = flip + (1 - 2 * flip) * 0.03
    logits = torch.tensor([math.log(0.03 / 0.97), math.log(report_prob / (1 - report_prob))])
    risk = report_prob * CrossEntropy().values(logits, torch.ones(2))
    risk += (1 - report_prob) * CrossEntropy().values(logits, torch.zeros(2))
    assert risk[1] < risk[0]


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("label", [0, 1])
def test_gradients_equal_autograd(label: int, epsilon: float) -> None:
    for loss in all_losses(epsilon):
        logits = LOGITS[LOGITS != 0].requires_grad_()
        labels = torch.full_like(logits, label)
        (expected,) = torch.autograd.grad(loss.values(logits, labels).sum(), logits)
        found = loss.gradients(logits.detach(), labels)
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-13)


def test_gradients_are_right_at_logit_zero() -> None:
    step = torch.tensor([-1e-6, 1e-6], dtype=torch.float64)
    for loss in all_losses(1.5):
        for label in (0, 1):
            low, high = loss.values(step, torch.full((2,), label))
            slope = loss.gradients(torch.zeros(1, dtype=torch.float64), torch.tensor([label]))
            assert float(slope) == pytest.approx(float(high - low) / 2e-6, abs=1e-9)


@pytest.mark.parametrize("epsilon", [*EPSILONS, 1000.0])
@pytest.mark.parametrize("label", [0, 1])
def test_float32_is_finite_and_close_to_float64_for_huge_logits(label: int, epsilon: float) -> None:
    sizes = torch.logspace(-3, 4, 141, dtype=torch.float64)
    logits = torch.cat([-sizes, torch.zeros(1, dtype=torch.float64), sizes]).float()
    labels = torch.full_like(logits, label)
    for loss in all_losses(epsilon):
        for function in (loss.values, loss.gradients):
            found = function(logits, labels)
            assert found.dtype == torch.float32
            assert found.isfinite().all()
            expected = function(logits.double(), labels)
            torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=2e-7)


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_the_forward_loss_is_bounded_and_the_debiased_one_is_not(epsilon: float) -> None:
    logits = torch.tensor([-1e4, -50.0, -1.0, 0.0, 1.0, 50.0, 1e4], dtype=torch.float64)
    flip = flip_prob(epsilon)
    for label in (0, 1):
        forward = ForwardCorrectedCrossEntropy(epsilon=epsilon)
        values = forward.values(logits, torch.full_like(logits, label))
        assert values.min() >= -math.log1p(-flip) - 1e-12
        assert values.max() <= -math.log(flip) + 1e-9
    if epsilon <= 3:
        debiased = DebiasedCrossEntropy(epsilon=epsilon).values(logits, torch.ones_like(logits))
        assert debiased[-1] < -400
        assert debiased[-1] < 100 * debiased[-2] < 0


def test_the_debiased_targets_are_those_of_the_closed_form() -> None:
    at_zero = torch.zeros(2, dtype=torch.float64)
    gradients = DebiasedCrossEntropy(epsilon=1.0).gradients(at_zero, torch.tensor([0, 1]))
    assert (0.5 - gradients).tolist() == pytest.approx([-0.5819767068693265, 1.5819767068693265])


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.uint8, torch.bool])
def test_labels_may_be_of_any_type(dtype: torch.dtype) -> None:
    logits, labels = torch.tensor([0.3, -2.0]), torch.tensor([1, 0])
    for loss in all_losses(1.0):
        for function in (loss.values, loss.gradients):
            assert torch.equal(function(logits, labels.to(dtype)), function(logits, labels))


@pytest.mark.parametrize("correction", CORRECTED)
@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.inf, math.nan, True, "1"])
def test_an_epsilon_that_is_no_positive_number_is_refused(
    correction: Callable[..., Loss], epsilon: object
) -> None:
    with pytest.raises(ConfigError, match="epsilon="):
        correction(epsilon=epsilon)
