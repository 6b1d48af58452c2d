"""The monitor says loss and clipped share, within its share of the clip norm and its noise."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tulle.mechanisms.entropy import SeededNoise
from tulle.train.steps.gradient_noise import IndependentGradientNoise
from tulle.train.steps.private_step import LOSS_BOUND, MonitorCoordinates, PrivateStep
from tulle.train.steps.training_noise import TrainingNoise
from unit.train.models.test_tower_model import DATASETS, MODELS
from unit.train.steps.step_reference import (
    EXPECTED_SIZE,
    expected_rows,
    make_case,
    release_without_noise,
    step_settings,
    user_means,
    user_units,
)

FEATURES = DATASETS["shared tables"]


@pytest.mark.parametrize("model", MODELS)
def test_without_noise_the_monitor_is_exact(model: str) -> None:
    case = make_case(MODELS[model], FEATURES)
    wanted = expected_rows(case)
    norms = wanted.gradients.norm(dim=1)
    step = step_settings(clip_norm=float(norms.median()))
    found = release_without_noise(case, step, torch.ones(9)).monitored
    assert found is not None
    losses = wanted.losses.clamp(max=LOSS_BOUND)
    assert found.loss == pytest.approx(float(losses.sum()) / EXPECTED_SIZE, rel=1e-6)
    is_clipped = norms > step.coordinates.gradient_norm
    assert found.clipped_share == pytest.approx(float(is_clipped.sum()) / EXPECTED_SIZE)


def test_a_user_has_the_mean_loss_of_its_rows() -> None:
    case = make_case(MODELS["semi-sensitive mlp"], FEATURES)
    units = user_units([4, 1, 3, 1])
    wanted = expected_rows(case)
    losses = user_means(wanted.losses[:, None], units).clamp(max=LOSS_BOUND)
    norms = user_means(wanted.gradients, units).norm(dim=1)
    step = step_settings(clip_norm=float(norms.median()) * 1.01)
    found = release_without_noise(case, step, units.weights, units).monitored
    assert found is not None
    assert found.loss == pytest.approx(float(losses.sum()) / EXPECTED_SIZE, rel=1e-6)
    is_clipped = norms > step.coordinates.gradient_norm
    assert found.clipped_share == pytest.approx(float(is_clipped.sum()) / EXPECTED_SIZE)


def test_noisy_figures_are_right_on_average_and_as_noisy_as_they_say() -> None:
    case = make_case(MODELS["logistic regression"], FEATURES)
    norms = expected_rows(case).gradients.norm(dim=1)
    step = step_settings(clip_norm=float(norms.median()), noise_multiplier=0.4)
    exact = release_without_noise(case, step, torch.ones(9)).monitored
    noisy_step = PrivateStep(
        case.model, step, IndependentGradientNoise(TrainingNoise(SeededNoise(5)))
    )
    released = [noisy_step.release(case.batch, torch.ones(9)).monitored for _ in range(2000)]
    assert exact is not None
    losses = np.array([r.loss for r in released if r is not None])
    shares = np.array([r.clipped_share for r in released if r is not None])
    stddev = exact.loss_noise
    assert stddev == pytest.approx(
        LOSS_BOUND * step.noise_stddev * math.sqrt(2) / (0.1 * step.clip_norm * EXPECTED_SIZE)
    )
    # Seven deviations of a mean and of a standard deviation of 2000 normals.
    for found, wanted, scale in (
        (losses, exact.loss, stddev),
        (shares, exact.clipped_share, stddev / LOSS_BOUND),
    ):
        assert abs(found.mean() - wanted) < 7 * scale / math.sqrt(2000)
        assert abs(found.std() / scale - 1) < 7 / math.sqrt(4000)
    assert abs(np.corrcoef(losses, shares)[0, 1]) < 7 / math.sqrt(2000)


def test_no_share_means_no_monitor_and_the_whole_clip_norm_for_the_gradient() -> None:
    coordinates = MonitorCoordinates(clip_norm=2.0, share=0.0)
    assert coordinates.gradient_norm == 2.0
    case = make_case(MODELS["logistic regression"], FEATURES)
    released = release_without_noise(case, step_settings(monitor_share=0.0), torch.ones(9))
    assert released.monitored is None


@given(
    loss=st.floats(allow_nan=True, allow_infinity=True, width=32),
    is_clipped=st.booleans(),
    share=st.floats(0, 0.5),
)
def test_the_coordinates_of_a_unit_stay_within_the_share(
    loss: float, is_clipped: bool, share: float
) -> None:
    coordinates = MonitorCoordinates(clip_norm=3.0, share=share)
    sums = coordinates.sums(torch.tensor([loss]), torch.tensor([is_clipped]), torch.ones(1))
    assert bool((sums >= 0).all())
    assert float(sums.double().norm()) <= 3.0 * share * (1 + 1e-6)


def test_gradient_and_monitor_share_the_clip_norm() -> None:
    coordinates = MonitorCoordinates(clip_norm=3.0, share=0.3)
    both = math.hypot(coordinates.gradient_norm, coordinates.scale, coordinates.scale)
    assert both == pytest.approx(3.0)


def test_large_and_missing_losses_count_as_the_bound() -> None:
    coordinates = MonitorCoordinates(clip_norm=1.0, share=0.1)
    losses = torch.tensor([100.0, math.inf, math.nan, LOSS_BOUND])
    sums = coordinates.sums(losses, torch.zeros(4, dtype=torch.bool), torch.ones(4))
    read = coordinates.read(sums, expected_size=4.0, noise_stddev=1.0)
    assert read.loss == pytest.approx(LOSS_BOUND)
    assert read.clipped_share == 0
