"""Moments of missed steps on a device are those of `AgeTable`."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from tulle.errors import ConfigError
from tulle.train.steps.age_table import AgeTable
from tulle.train.steps.gpu.device_rows import DeviceAges
from unit.train.steps.test_age_table import cosine, random, rising, warmup_and_cosine

CPU = torch.device("cpu")
MOST_ERROR = 1e-12


def some_zeros(num_steps: int) -> list[float]:
    """Rates of 0 at the start, at the end and in between."""
    rates = np.array(random(num_steps))
    rates[np.random.default_rng(2).random(num_steps) < 0.3] = 0
    rates[:3] = rates[-2:] = 0
    return [float(rate) for rate in rates]


def zeros(num_steps: int) -> list[float]:
    return [0.0] * num_steps


SCHEDULES = [cosine, warmup_and_cosine, rising, random, some_zeros, zeros]


def device_ages(momentum: float, weight_decay: float = 0.0, max_steps: int = 1000) -> DeviceAges:
    return DeviceAges(momentum=momentum, weight_decay=weight_decay, max_steps=max_steps, device=CPU)


def end(ages: DeviceAges, rate: float) -> None:
    ages.expect(1)
    ages.end_step(torch.tensor([rate], dtype=torch.float64))


def assert_equal_moments(ages: DeviceAges, table: AgeTable, num_steps: int) -> None:
    """For rows that were last exact at every step so far."""
    seen = torch.arange(num_steps + 1)
    age = num_steps - seen
    assert int(ages.now) == num_steps
    right = table.moments(age)
    short = age.clamp(max=ages.horizon)
    found = {
        "drift": ages.drift[seen],
        "memory": ages.memory[short],
        "weight_variance": ages.weight_variance[seen],
        "covariance": ages.covariance[seen],
        "momentum_variance": ages.momentum_variance[short],
        "kept": ages.kept[seen],
    }
    for name, values in found.items():
        expected: Tensor | None = getattr(right, name)
        if expected is None:
            expected = torch.ones_like(values)
        torch.testing.assert_close(values, expected, rtol=MOST_ERROR, atol=1e-30, msg=name)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("weight_decay", [0.0, 0.3])
@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.9, 0.99])
def test_moments_are_those_of_the_age_table(
    momentum: float, weight_decay: float, schedule: Callable[[int], list[float]]
) -> None:
    ages, table = (
        device_ages(momentum, weight_decay),
        AgeTable(momentum=momentum, weight_decay=weight_decay),
    )
    assert_equal_moments(ages, table, 0)
    for step, rate in enumerate(schedule(450), start=1):
        end(ages, rate)
        table.end_step(rate)
        if step in (1, 2, 3, 60, 395, 450):
            assert_equal_moments(ages, table, step)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_after_a_reset_all_begins_again(momentum: float) -> None:
    ages, table = device_ages(momentum, 0.1, 60), AgeTable(momentum=momentum, weight_decay=0.1)
    for rate in random(60):
        end(ages, rate)
    ages.reset()
    assert_equal_moments(ages, table, 0)
    for rate in cosine(50):
        end(ages, rate)
        table.end_step(rate)
    assert_equal_moments(ages, table, 50)


def test_steps_without_room_are_refused_before_they_are_taken() -> None:
    ages = device_ages(0.9, max_steps=3)
    ages.expect(2)
    with pytest.raises(ConfigError, match=r"4 steps .* max_steps=3; flush"):
        ages.expect(2)
    ages.expect(1)
    with pytest.raises(ConfigError, match="flush"):
        ages.expect(1)
    ages.reset()
    ages.expect(3)


@pytest.mark.parametrize(
    ("momentum", "weight_decay", "max_steps"), [(1.0, 0.0, 5), (-0.1, 0.0, 5), (0.9, -1.0, 5)]
)
def test_settings_that_make_no_sense_are_refused(
    momentum: float, weight_decay: float, max_steps: int
) -> None:
    with pytest.raises(ConfigError):
        device_ages(momentum, weight_decay, max_steps)


def test_no_room_at_all_is_refused() -> None:
    with pytest.raises(ConfigError, match="max_steps"):
        device_ages(0.9, max_steps=0)
