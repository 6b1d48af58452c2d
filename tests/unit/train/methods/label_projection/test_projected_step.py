"""A projected step moves the model along the label chances that come nearest to noisy sums."""

import dataclasses

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.optimize import lsq_linear, nnls
from torch import Tensor

from tulle.mechanisms.entropy import SeededNoise
from tulle.train.methods.label_projection.label_sums import LabelSums, fitting_settings, logit_pass
from tulle.train.methods.label_projection.method import Projection, SmoothingPrior
from tulle.train.methods.label_projection.projected_step import (
    ProjectedStep,
    label_chances,
    optimality_gap,
    project_on_box,
    projected_gradients,
)
from tulle.train.settings.models import TOWERS
from tulle.train.settings.optimizers import SGD
from tulle.train.steps.step_settings import CLIP_SLACK
from tulle.train.steps.training_noise import TrainingNoise
from unit.train.methods.label_projection.test_label_sums import flat, gradients_of_logits, of_rows
from unit.train.models.test_tower_model import DATASETS, MODELS, assert_close
from unit.train.steps.step_reference import Case, NoNoise, make_case, step_settings

EXACT = Projection(smoothing=0.0, max_iterations=10_000)
EACH_MODEL = pytest.mark.parametrize("model", MODELS)


def dense(case: Case, gradients: list[object]) -> Tensor:
    found = {gradient.name: gradient for gradient in gradients}  # type: ignore[attr-defined]
    parts = []
    for name, parameter in case.model.parameters.items():
        values = torch.zeros_like(parameter)
        if name in found:
            rows = getattr(found[name], "rows", slice(None))
            values[rows] = found[name].values  # type: ignore[attr-defined]
        parts.append(values.flatten())
    return torch.cat(parts)


@EACH_MODEL
def test_the_gradient_is_that_of_the_nearest_labels_by_another_solver(model: str) -> None:
    case = make_case(MODELS[model], DATASETS["separate tables"], size=24)
    private, other = of_rows(case, slice(0, 16)), of_rows(case, slice(16, 24))
    public = logit_pass(case.model, other, TOWERS)
    settings = fitting_settings(step_settings(clip_norm=1.2, noise_multiplier=1.5), public)
    noise = TrainingNoise(SeededNoise(5))
    weights = torch.ones(16, dtype=torch.float64)
    noisy = LabelSums(case.model, noise).release(private, weights, public, settings)
    found = dense(case, list(projected_gradients(public, noisy, settings, EXACT)))
    gradients, logits = gradients_of_logits(case, other)
    factors = torch.clamp(settings.gradient_limit(0) / gradients.norm(dim=1), max=1)
    columns = (factors[:, None] * gradients).numpy().T / len(gradients)
    point = flat(case, noisy).numpy() / settings.expected_size
    nearest = lsq_linear(columns, point, bounds=(0, 1), tol=1e-14, max_iter=10_000).x
    expected = columns @ (torch.sigmoid(logits).numpy() - nearest)
    scale = np.linalg.norm(columns.sum(axis=1))
    assert np.linalg.norm(found.numpy() - expected) <= 0.01 * scale


@EACH_MODEL
def test_without_noise_the_true_labels_come_back(model: str) -> None:
    """With the same rows on both sides: only to see that the projection keeps what is right."""
    case = make_case(MODELS[model], DATASETS["two tables a role"], size=7)
    public = logit_pass(case.model, case.batch, TOWERS)
    settings = fitting_settings(step_settings(clip_norm=100.0), public)
    weights = torch.ones(7, dtype=torch.float64)
    noisy = LabelSums(case.model, NoNoise()).release(case.batch, weights, public, settings)
    assert settings.expected_size == 7.0
    found = dense(case, list(projected_gradients(public, noisy, settings, EXACT)))
    gradients, logits = gradients_of_logits(case, case.batch)
    errors = (torch.sigmoid(logits) - case.labels.double()) / 7
    factors = torch.clamp(settings.gradient_limit(0) / gradients.norm(dim=1), max=1)
    expected = (errors * factors) @ gradients
    size = float((gradients / 7).sum(0).norm())
    assert float((found - expected).norm()) <= 0.01 * size


def test_smoothing_draws_chances_towards_its_prior() -> None:
    case = make_case(MODELS["logistic regression"], DATASETS["shared tables"], size=12)
    public = logit_pass(case.model, of_rows(case, slice(6, 12)), TOWERS)
    settings = fitting_settings(step_settings(), public)
    weights = torch.ones(6, dtype=torch.float64)
    private = of_rows(case, slice(0, 6))
    noisy = LabelSums(case.model, NoNoise()).release(private, weights, public, settings)
    raw = label_chances(public, noisy, settings, dataclasses.replace(EXACT, smoothing=0.0))
    for prior, values in (
        (SmoothingPrior.HALF, torch.full((6,), 0.5).double()),
        (SmoothingPrior.MODEL, torch.sigmoid(public.logits)),
    ):
        smooth = dataclasses.replace(EXACT, smoothing=0.4, prior=prior)
        found = label_chances(public, noisy, settings, smooth)
        assert_close(found, 0.6 * raw + 0.4 * values, 1e-9)


def test_a_model_that_is_right_stays_where_it_is_under_its_own_prior() -> None:
    case = make_case(MODELS["logistic regression"], DATASETS["shared tables"], size=6)
    public = logit_pass(case.model, case.batch, TOWERS)
    settings = fitting_settings(step_settings(clip_norm=100.0), public)
    right = dataclasses.replace(case.batch, labels=torch.sigmoid(public.logits))
    scaled = dataclasses.replace(settings, expected_size=6.0)
    noisy = LabelSums(case.model, NoNoise()).release(
        right, torch.ones(6, dtype=torch.float64), public, scaled
    )
    moved = {}
    for prior in SmoothingPrior:
        smooth = dataclasses.replace(EXACT, smoothing=0.25, prior=prior)
        gradients = projected_gradients(public, noisy, scaled, smooth)
        moved[prior] = float(dense(case, list(gradients)).norm())
    assert moved[SmoothingPrior.MODEL] < 1e-3
    assert moved[SmoothingPrior.HALF] > 0.05


@EACH_MODEL
def test_only_rows_that_public_rows_read_are_moved(model: str) -> None:
    case = make_case(MODELS[model], DATASETS["separate tables"], size=20, dtype=torch.float32)
    before = {name: values.clone() for name, values in case.model.parameters.items()}
    step = ProjectedStep(
        case.model,
        step_settings(),
        Projection(),
        SGD(learning_rate=0.1, momentum=0.0),
        TrainingNoise(SeededNoise(1)),
    )
    private, other = of_rows(case, slice(0, 15)), of_rows(case, slice(15, 20))
    public = dataclasses.replace(other, labels=None)
    monitored = step.take(private, torch.ones(15), public, 0.1)
    assert monitored is not None
    reads = {r.table: r.rows.unique() for r in case.model.reads(other.public_ids, None).tables}
    moved = False
    for name, values in case.model.parameters.items():
        changed = (values != before[name]).reshape(len(values), -1).any(1)
        if name in reads:
            assert set(changed.nonzero().squeeze(1).tolist()) <= set(reads[name].tolist())
            moved |= bool(changed.any())
        elif name.startswith("sensitive."):
            assert not bool(changed.any())
    assert moved or model == "hybrid mlp"  # Its first layer is silent for these rows.


def test_the_monitored_loss_is_that_of_bounded_logits() -> None:
    case = make_case(MODELS["hybrid mlp"], DATASETS["shared tables"], size=9, scale=2.0)
    settings = dataclasses.replace(
        step_settings(clip_norm=1e4, noise_multiplier=3.0), expected_size=9.0
    )
    step = ProjectedStep(
        case.model,
        settings,
        Projection(),
        SGD(learning_rate=0.1),
        NoNoise(),  # type: ignore[arg-type]
    )
    logits = case.model.forward(case.batch.public_ids, None).logits.clamp(-4, 4)
    assert float(logits.abs().max()) == 4
    found = step.take(case.batch, torch.ones(9, dtype=torch.float64), case.batch, 0.0)
    loss = torch.nn.functional.binary_cross_entropy_with_logits(logits, case.labels.double())
    assert found is not None
    assert found.loss == pytest.approx(float(loss), rel=1e-6)
    assert found.loss_noise == pytest.approx(4 * 3.0 / (0.1 * 9.0))
    assert found.clipped_share == 0


@pytest.mark.parametrize("clip_norm", [0.5, 1e4])
def test_noise_is_relative_to_the_clip_norm_that_fits_public_rows(clip_norm: float) -> None:
    case = make_case(MODELS["logistic regression"], DATASETS["separate tables"], size=12)
    noise = NoNoise()
    step = ProjectedStep(
        case.model,
        step_settings(clip_norm=clip_norm, noise_multiplier=3.0),
        Projection(),
        SGD(learning_rate=0.1),
        noise,  # type: ignore[arg-type]
    )
    weights = torch.ones(8, dtype=torch.float64)
    step.take(of_rows(case, slice(0, 8)), weights, of_rows(case, slice(8, 12)), 0.1)
    # Three ids and the bias, each with a gradient of 1.
    fitting = 2.0 / (1 - CLIP_SLACK) / (1 - 0.1**2) ** 0.5
    (stddev,) = {stddev for _, stddev in noise.asked}
    assert stddev == pytest.approx(3.0 * min(clip_norm, fitting), rel=1e-6)


Floats = NDArray[np.float64]


def vectors(dim: int, num_vectors: int, seed: int) -> Floats:
    rng = np.random.default_rng(seed)
    found = rng.normal(size=(dim, num_vectors)) + 0.5
    return found * rng.uniform(0.2, 2.0, num_vectors)


def nearest(matrix: Floats, point: Floats, *, steps: int = 20_000) -> Floats:
    """Coefficients by the code under test, from inner products alone."""
    gram = torch.from_numpy(matrix.T @ matrix)
    products = torch.from_numpy(matrix.T @ point)
    start = torch.full((matrix.shape[1],), 0.3, dtype=torch.float64)
    found = project_on_box(gram, products, start, max_iterations=steps, tolerance=1e-13)
    return found.numpy()


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("dim", "num_vectors"), [(40, 12), (12, 12), (5, 30), (1, 8)])
@pytest.mark.parametrize("spread", [0.3, 3.0, 40.0])
def test_it_is_as_near_as_bounded_least_squares(
    seed: int, dim: int, num_vectors: int, spread: float
) -> None:
    matrix = vectors(dim, num_vectors, seed)
    point = np.random.default_rng(seed + 100).normal(size=dim) * spread
    found = nearest(matrix, point)
    assert np.all((found >= 0) & (found <= 1))
    expected = lsq_linear(matrix, point, bounds=(0, 1), tol=1e-14, max_iter=10_000).x
    # The nearest point is unique, its coefficients need not be.
    size = np.linalg.norm(matrix.sum(axis=1)) + np.linalg.norm(point)
    assert np.linalg.norm(matrix @ found - matrix @ expected) <= 2e-5 * size


def test_without_upper_bounds_in_the_way_it_is_nonnegative_least_squares() -> None:
    matrix = vectors(30, 10, 7)
    point = matrix @ np.random.default_rng(8).uniform(-0.5, 0.5, 10)
    expected, _ = nnls(matrix, point)
    assert expected.max() < 1
    np.testing.assert_allclose(nearest(matrix, point), expected, atol=1e-6)


def test_a_point_that_labels_can_give_stays_where_it_is() -> None:
    matrix = vectors(50, 20, 9)
    chances = np.random.default_rng(10).uniform(0, 1, 20)
    np.testing.assert_allclose(nearest(matrix, matrix @ chances), chances, atol=1e-5)


def test_the_gap_bounds_how_far_it_is_from_the_best() -> None:
    matrix = vectors(15, 10, 11)
    point = np.random.default_rng(12).normal(size=15) * 4
    best = nearest(matrix, point)
    gram, products = torch.from_numpy(matrix.T @ matrix), torch.from_numpy(matrix.T @ point)

    def value(coefficients: Floats) -> float:
        return float(np.sum((matrix @ coefficients - point) ** 2) / 2)

    for seed in range(20):
        other = np.random.default_rng(seed).uniform(0, 1, 10)
        gap = optimality_gap(gram, products, torch.from_numpy(other))
        assert gap >= value(other) - value(best) - 1e-9
    assert optimality_gap(gram, products, torch.from_numpy(best)) <= 1e-8


def test_two_hundred_single_precision_steps_are_enough_for_training() -> None:
    rng = np.random.default_rng(13)
    matrix = vectors(60, 300, 14)
    point = matrix @ rng.uniform(0, 0.3, 300) + rng.normal(size=60) * 40
    gram = torch.from_numpy(matrix.T @ matrix).float()
    products = torch.from_numpy(matrix.T @ point).float()
    found = project_on_box(gram, products, torch.full((300,), 0.5), max_iterations=200)
    expected = lsq_linear(matrix, point, bounds=(0, 1), tol=1e-12).x
    size = np.linalg.norm(matrix @ expected)
    assert np.linalg.norm(matrix @ (found.numpy() - expected)) <= 0.02 * size


def test_no_vectors_to_speak_of_leave_the_start() -> None:
    start = torch.tensor([0.2, 0.9])
    found = project_on_box(torch.zeros(2, 2), torch.zeros(2), start, max_iterations=5)
    assert torch.equal(found, start)
