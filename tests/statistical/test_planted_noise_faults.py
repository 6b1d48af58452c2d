"""Every planted fault in noise is caught; the same checks pass on the right code."""

import inspect
from collections.abc import Callable

import numpy as np
import pytest

from statistical import faulty_noise
from statistical.noise_checks import (
    Sampler,
    assert_discrete,
    assert_gaussian,
    assert_laplace,
    assert_one_lattice,
)
from tulle.mechanisms.discrete_laplace import DiscreteLaplaceConfig, release_discrete_laplace
from tulle.mechanisms.gaussian import GaussianConfig, release_gaussian
from tulle.mechanisms.laplace import LaplaceConfig, release_laplace

GAUSSIAN = GaussianConfig(noise_multiplier=1.5, max_contribution=3.0)
LAPLACE = LaplaceConfig(noise_multiplier=2.0)
COUNTS = DiscreteLaplaceConfig(scale=3.0)


def check_gaussian(release: Callable[..., np.ndarray]) -> None:
    assert_gaussian(lambda rng, size: release(np.zeros(size), GAUSSIAN, rng), stddev=4.5)


def check_laplace(release: Callable[..., np.ndarray]) -> None:
    assert_laplace(lambda rng, size: release(np.zeros(size), LAPLACE, rng), scale=2.0)


def check_counts(release: Callable[..., np.ndarray]) -> None:
    def sampler(rng, size):
        return release(np.zeros(size, int), COUNTS, rng)

    assert_discrete(sampler, lambda scale: DiscreteLaplaceConfig(scale=scale).pmf, scale=3.0)


def check_laplace_lattice(release: Callable[..., np.ndarray]) -> None:
    width = LAPLACE.fitted.lattice.width
    assert_one_lattice(lambda raw, rng: release(raw, LAPLACE, rng), (0.0, 0.1), width=width)


def check_gaussian_lattice(release: Callable[..., np.ndarray]) -> None:
    width = GAUSSIAN.fitted.lattice.width
    assert_one_lattice(lambda raw, rng: release(raw, GAUSSIAN, rng), (0.0, 0.1), width=width)


RIGHT = [
    (check_gaussian, lambda raw, config, rng: release_gaussian(raw, config, rng=rng)),
    (check_gaussian_lattice, lambda raw, config, rng: release_gaussian(raw, config, rng=rng)),
    (check_laplace, lambda raw, config, rng: release_laplace(raw, config, rng=rng)),
    (check_laplace_lattice, lambda raw, config, rng: release_laplace(raw, config, rng=rng)),
    (check_counts, lambda raw, config, rng: release_discrete_laplace(raw, config, rng=rng)),
]


def for_one_value(raw, config, rng):
    return faulty_noise.gaussian_for_one_value_of_many(raw, config, rng, num_values=9)


def from_a_new_generator(raw, config, _rng):
    return faulty_noise.gaussian_from_a_generator_made_anew(raw, config)


FAULTS = {
    "half_gaussian_noise": (check_gaussian, faulty_noise.half_gaussian_noise),
    "half_discrete_laplace_noise": (check_counts, faulty_noise.half_discrete_laplace_noise),
    "gaussian_for_one_value_of_many": (check_gaussian, for_one_value),
    "laplace_with_the_scale_taken_for_the_stddev": (
        check_laplace,
        faulty_noise.laplace_with_the_scale_taken_for_the_stddev,
    ),
    "gaussian_from_a_generator_made_anew": (check_gaussian, from_a_new_generator),
    "discrete_laplace_with_two_zeros": (check_counts, faulty_noise.discrete_laplace_with_two_zeros),
    "discrete_laplace_without_zero": (check_counts, faulty_noise.discrete_laplace_without_zero),
    "laplace_in_floats": (check_laplace_lattice, faulty_noise.laplace_in_floats),
    "gaussian_rounded_after_the_raw_value": (
        check_gaussian_lattice,
        faulty_noise.gaussian_rounded_after_the_raw_value,
    ),
    "gaussian_with_cut_tails": (check_gaussian, faulty_noise.gaussian_with_cut_tails),
    "discrete_laplace_with_cut_tails": (check_counts, faulty_noise.discrete_laplace_with_cut_tails),
    "one_gaussian_for_all_values": (check_gaussian, faulty_noise.one_gaussian_for_all_values),
    "counts_without_noise_on_empty_slices": (
        check_counts,
        faulty_noise.counts_without_noise_on_empty_slices,
    ),
}


@pytest.mark.parametrize(("check", "release"), RIGHT)
def test_the_checks_pass_on_the_right_code(check: Callable, release: Sampler) -> None:
    check(release)


@pytest.mark.parametrize("name", FAULTS)
def test_every_planted_fault_is_caught(name: str) -> None:
    check, release = FAULTS[name]
    with pytest.raises(AssertionError):
        check(release)


def test_every_fault_in_the_file_is_listed() -> None:
    planted = {
        name
        for name, function in inspect.getmembers(faulty_noise, inspect.isfunction)
        if function.__module__ == faulty_noise.__name__
    }
    assert planted == set(FAULTS)
