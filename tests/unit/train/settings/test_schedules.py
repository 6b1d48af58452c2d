"""Schedules give the factor of each step and survive a settings file."""

import itertools
import math

import pytest
import torch

from tulle.errors import ConfigError
from tulle.privacy.codec import plain_data, settings_from
from tulle.train.settings.phases import ConstantRate, CosineDecay, Schedule


def test_cosine_decay_equals_that_of_torch() -> None:
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=1.0)
    reference = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=20)
    for step in range(20):
        expected = reference.get_last_lr()[0]
        assert CosineDecay().rate_factor(step, 20) == pytest.approx(expected, abs=1e-12)
        optimizer.step()
        reference.step()


def test_cosine_decay_rises_in_a_line_to_one_and_falls_from_there() -> None:
    schedule = CosineDecay(warmup_share=0.25)
    factors = [schedule.rate_factor(step, 16) for step in range(16)]
    assert factors[:5] == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0])
    assert factors[10] == pytest.approx(0.5)
    assert all(later < earlier for earlier, later in itertools.pairwise(factors[4:]))
    assert factors[-1] > 0


def test_every_factor_is_in_reach_for_few_steps() -> None:
    for share in (0.0, 0.5, 0.99):
        for num_steps in (1, 2, 3):
            for step in range(num_steps):
                assert 0 < CosineDecay(warmup_share=share).rate_factor(step, num_steps) <= 1


def test_a_constant_rate_stays() -> None:
    assert {ConstantRate().rate_factor(step, 9) for step in range(9)} == {1.0}


@pytest.mark.parametrize("schedule", [CosineDecay(), ConstantRate()])
@pytest.mark.parametrize(("step", "num_steps"), [(5, 5), (-1, 5), (0, 0), (1.0, 5)])
def test_a_step_outside_the_run_is_refused(schedule: Schedule, step: int, num_steps: int) -> None:
    with pytest.raises(ConfigError, match="step"):
        schedule.rate_factor(step, num_steps)


@pytest.mark.parametrize("share", [-0.1, 1.0, math.nan, True, "0.1"])
def test_a_warmup_that_leaves_no_steps_is_refused(share: object) -> None:
    with pytest.raises(ConfigError, match="warmup_share="):
        CosineDecay(warmup_share=share)  # type: ignore[arg-type]


@pytest.mark.parametrize("schedule", [CosineDecay(warmup_share=0.05), ConstantRate()])
def test_a_schedule_comes_back_from_plain_data(schedule: CosineDecay | ConstantRate) -> None:
    assert settings_from(Schedule, plain_data(schedule), what="schedule") == schedule
