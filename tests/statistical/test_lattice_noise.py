"""Noise on a lattice has the chances of the rounded normal, and one support for all sums.

Every planted fault must be caught by one of the checks.
"""

import inspect
from collections.abc import Callable

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy import stats

from statistical import faulty_lattice_noise as faulty
from statistical.noise_checks import assert_discrete, assert_gaussian, assert_one_lattice
from statistical.test_training_noise import STDDEV, assert_independent
from tulle.mechanisms.entropy import NoiseSource, SeededNoise
from tulle.train.settings.step_noise import lattice_grid
from tulle.train.steps.gradient_noise import LatticeGradientNoise

Values = NDArray[np.float64]

# Coarse, so that the cells of the rounded normal can be told from a density.
COARSE = 2.0**-3
# Neighbouring sums of clipped gradients, in the float32 of training.
NEIGHBOURS = (0.0, 0.7), (-5.3, -4.9), (1e-9, 123.4)
FINE = lattice_grid(0.7, 24)

Start = type[LatticeGradientNoise]


def release(start: Start, sums: Values, rng: NoiseSource, *, grid: float, stddev: float) -> Values:
    values = torch.from_numpy(sums.astype(np.float32))
    start(rng, grid=grid).add_to_sum("sums", values, stddev)
    return values.double().numpy()


def check_chances_of_cells(start: Start) -> None:
    def chances(scale: float) -> Callable[[NDArray[np.int64]], Values]:
        law = stats.norm(scale=scale)
        return lambda steps: np.asarray(law.cdf(steps + 0.5) - law.cdf(steps - 0.5))

    for scale, raw in ((0.6, 0.4 * COARSE), (2.0, -0.3 * COARSE), (6.0, 0.0)):

        def noise(rng: NoiseSource, size: int, scale: float = scale, raw: float = raw) -> Values:
            sums = np.full(size, 3 * COARSE + raw)
            noisy = release(start, sums, rng, grid=COARSE, stddev=scale * COARSE)
            return noisy / COARSE - 3

        assert_discrete(noise, chances, scale=scale)


def check_scale_on_a_fine_grid(start: Start) -> None:
    assert_gaussian(
        lambda rng, size: release(start, np.zeros(size), rng, grid=FINE, stddev=0.9), stddev=0.9
    )


def check_support(start: Start) -> None:
    for neighbours in NEIGHBOURS:
        assert_one_lattice(
            lambda sums, rng: release(start, sums, rng, grid=FINE, stddev=0.9),
            neighbours,
            width=FINE,
        )


def check_reached_values(start: Start) -> None:
    """All grid points near two neighbouring sums come from both."""
    reached = [
        set(
            release(
                start, np.full(100_000, raw), SeededNoise(17), grid=COARSE, stddev=COARSE
            ).tolist()
        )
        for raw in (0.0, 0.9 * COARSE)
    ]
    near = {step * COARSE for step in range(-2, 4)}
    for values in reached:
        assert near <= values
    low, high = -3 * COARSE, 4 * COARSE
    sets = [{value for value in values if low < value < high} for values in reached]
    assert sets[0] == sets[1] == near


def check_independence_of_entries(start: Start) -> None:
    noisy = release(start, np.zeros(8 * 60_000), SeededNoise(6), grid=FINE, stddev=STDDEV)
    # In parts far from each other, and in neighbours.
    assert_independent(np.array_split(noisy, 8))
    assert_independent(list(noisy.reshape(-1, 4).T))


CHECKS = [
    check_chances_of_cells,
    check_scale_on_a_fine_grid,
    check_support,
    check_reached_values,
    check_independence_of_entries,
]


@pytest.mark.parametrize("check", CHECKS)
def test_noise_on_a_lattice_is_right(check: Callable[[Start], None]) -> None:
    check(LatticeGradientNoise)


CAUGHT = [
    (faulty.FloatNoise, check_support),
    (faulty.FloatNoise, check_chances_of_cells),
    (faulty.FloatNoise, check_reached_values),
    (faulty.OnlyNoiseIsRounded, check_support),
    (faulty.OnlyNoiseIsRounded, check_reached_values),
    (faulty.GridIsNoPowerOfTwo, check_support),
    (faulty.NoiseIsRoundedTowardZero, check_chances_of_cells),
    (faulty.FivePercentLessNoise, check_chances_of_cells),
    (faulty.FivePercentLessNoise, check_scale_on_a_fine_grid),
    (faulty.NoiseOfTheGridAbove, check_scale_on_a_fine_grid),
    (faulty.TwoEntriesShareADraw, check_independence_of_entries),
]


@pytest.mark.parametrize(("fault", "check"), CAUGHT)
def test_a_fault_is_caught(fault: Start, check: Callable[[Start], None]) -> None:
    with pytest.raises(AssertionError):
        check(fault)


def test_every_fault_in_the_file_is_listed() -> None:
    planted = {
        member
        for _, member in inspect.getmembers(faulty, inspect.isclass)
        if member.__module__ == faulty.__name__
    }
    assert planted == {fault for fault, _ in CAUGHT}
