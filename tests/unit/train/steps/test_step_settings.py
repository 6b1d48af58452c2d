"""What a private step clips to, and which sums it asks noise for."""

import dataclasses
import math

import pytest
import torch
from torch import Tensor

from tulle.errors import ConfigError
from tulle.train.settings.models import LogisticRegression
from tulle.train.settings.step_noise import IndependentNoise, LatticeNoise
from tulle.train.steps.private_step import CLIP_SLACK, MONITOR, PrivateStep
from unit.train.models.test_tower_model import DATASETS, MODELS
from unit.train.steps.step_reference import (
    flat_sum,
    make_case,
    release_without_noise,
    step_settings,
)

SHARED = DATASETS["shared tables"]
MIXED = DATASETS["two tables a role"]
LOGISTIC = LogisticRegression()


class NotingNames:
    """Notes which sums a step asks noise for, and when it ends."""

    description = "none"

    def __init__(self) -> None:
        self.asked: list[str] = []

    def add_to_sum(self, name: str, values: Tensor, stddev: float) -> None:  # noqa: ARG002
        self.asked.append(name)

    def end_step(self) -> None:
        self.asked.append("end")


@pytest.mark.parametrize("monitor_share", [0.0, 0.1])
@pytest.mark.parametrize("model", MODELS)
def test_every_sum_of_a_step_asks_once_and_then_the_step_ends(
    model: str, monitor_share: float
) -> None:
    case = make_case(MODELS[model], MIXED)
    noise = NotingNames()
    step = PrivateStep(case.model, step_settings(monitor_share=monitor_share), noise)
    wanted = [*case.model.parameters, *([MONITOR] if monitor_share else []), "end"]
    for _ in range(2):
        noise.asked.clear()
        step.release(case.batch, torch.ones(9))
        assert noise.asked == wanted
    assert MONITOR not in case.model.parameters


def test_a_larger_slack_clips_to_less_and_a_smaller_one_is_refused() -> None:
    case = make_case(LOGISTIC, SHARED, scale=0.1)
    usual = step_settings(clip_norm=1e-3, monitor_share=0.0)
    careful = dataclasses.replace(usual, clip_slack=0.04)
    sums = [
        flat_sum(release_without_noise(case, settings, torch.ones(9)), case.model)
        for settings in (usual, careful)
    ]
    torch.testing.assert_close(sums[1], sums[0] * (1 - 0.04) / (1 - CLIP_SLACK))
    for slack in (0.0, 0.9 * CLIP_SLACK, 0.06, math.nan):
        with pytest.raises(ConfigError, match="clip_slack"):
            dataclasses.replace(usual, clip_slack=slack)


@pytest.mark.parametrize("monitor_share", [0.0, 0.1, 0.5])
@pytest.mark.parametrize("clip_norm", [0.3, 1.0, 7.0])
def test_a_lattice_leaves_room_for_rounding_of_all_entries(
    clip_norm: float, monitor_share: float
) -> None:
    noise = LatticeNoise(bits=16)
    settings = dataclasses.replace(
        step_settings(clip_norm=clip_norm, monitor_share=monitor_share), mechanism=noise
    )
    num_entries = 1_000_000
    limit = settings.gradient_limit(num_entries)
    room = noise.grid(clip_norm) * math.sqrt(num_entries + 2)
    assert room > 0.005 * clip_norm
    # Gradient and monitor together, and what rounding adds to both.
    whole = math.hypot(limit, monitor_share * clip_norm) + room
    assert 0.999 * clip_norm < whole <= clip_norm
    independent = dataclasses.replace(settings, mechanism=IndependentNoise())
    usual = independent.gradient_limit(num_entries)
    assert usual == pytest.approx(settings.coordinates.gradient_norm * (1 - CLIP_SLACK))
    assert limit < usual


def test_too_coarse_a_lattice_is_refused() -> None:
    settings = dataclasses.replace(step_settings(), mechanism=LatticeNoise(bits=16))
    with pytest.raises(ConfigError, match="too coarse a grid for 78000000 trained numbers"):
        settings.gradient_limit(78_000_000)
    finer = dataclasses.replace(settings, mechanism=LatticeNoise(bits=24))
    assert finer.gradient_limit(78_000_000) > 0.99
