"""Settings that no sampler can use are refused, with the way out."""

import math
from typing import Any

import pytest

from tulle.data.samplers.sampler_settings import (
    check_first_step,
    check_noise,
    check_sampling_prob,
    sampling_prob_for,
)
from tulle.errors import ConfigError
from tulle.privacy.events import (
    Composed,
    Gaussian,
    PoissonSampled,
    Repeated,
    TruncatedPoissonSampled,
)

NOISE = Gaussian(noise_multiplier=1.0)


def test_the_chance_for_an_expected_size() -> None:
    assert sampling_prob_for(16384, 36_000_000) == 16384 / 36_000_000
    assert sampling_prob_for(0.5, 1) == 0.5


@pytest.mark.parametrize("size", [0, -1, 11, math.nan, math.inf])
def test_an_expected_size_that_no_chance_gives_is_refused(size: float) -> None:
    with pytest.raises(ConfigError, match="num_rows=10"):
        sampling_prob_for(size, 10)


@pytest.mark.parametrize("prob", [0, -0.1, 1.1, 1e-13, math.nan, math.inf, "half", None, True])
def test_chances_that_cannot_be_drawn_are_refused(prob: Any) -> None:
    with pytest.raises(ConfigError, match="sampling_prob="):
        check_sampling_prob("sampling_prob", prob)


@pytest.mark.parametrize("step", [-1, 11, 1.0, True, None])
def test_a_first_step_outside_the_run_is_refused(step: Any) -> None:
    with pytest.raises(ConfigError, match="first_step="):
        check_first_step(step, 10)


def test_first_and_last_steps_are_fine() -> None:
    check_first_step(0, 10)
    check_first_step(10, 10)


@pytest.mark.parametrize(
    "noise",
    [
        None,
        1.0,
        PoissonSampled(sampling_prob=0.1, event=NOISE),
        Repeated(
            event=TruncatedPoissonSampled(
                sampling_prob=0.1, num_rows=10, max_batch_size=5, event=NOISE
            ),
            count=3,
        ),
        Composed((NOISE, PoissonSampled(sampling_prob=0.1, event=NOISE))),
    ],
)
def test_noise_that_is_sampled_already_is_refused(noise: Any) -> None:
    with pytest.raises(ConfigError, match="noise="):
        check_noise(noise)


def test_several_releases_of_one_batch_are_fine() -> None:
    check_noise(Composed((NOISE, Repeated(event=NOISE, count=2))))
