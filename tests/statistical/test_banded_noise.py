"""Correlated noise over steps has the covariance C^-1 C^-T, and wrong noise is caught.

Entries of a sum are independent of each other, so one run gives many samples of the noise
of all steps. Times C they must be independent normals of the stated scale.
"""

import inspect

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.linalg import toeplitz

from statistical import faulty_banded_noise
from statistical.faulty_banded_noise import zeros
from statistical.law_checks import worst_score_against
from statistical.noise_checks import assert_gaussian
from statistical.test_training_noise import assert_independent
from tulle.mechanisms.entropy import SeededNoise
from tulle.train.run_context import NoiseMemory
from tulle.train.settings.band_matrix import BandMatrix
from tulle.train.steps.banded import BandedGradientNoise

Values = NDArray[np.float64]
STORED, REGENERATED = NoiseMemory.STORED, NoiseMemory.REGENERATED
MATRIX = BandMatrix(num_bands=3, num_steps=8)
RESTART = 5
STDDEV = 1.5


def run(kind: type[BandedGradientNoise], memory: NoiseMemory) -> dict[str, Values]:
    """The noise of every sum: [steps, entries], with the correlation begun anew once."""
    noise = kind(MATRIX, SeededNoise(4), memory)
    found: dict[str, list[Values]] = {name: [] for name in zeros()}
    for step in range(MATRIX.num_steps):
        if step == RESTART:
            noise.restart()
        for name, values in zeros().items():
            noise.add_to_sum(name, values, STDDEV)
            found[name].append(values.double().numpy())
        noise.end_step()
    return {name: np.stack(values) for name, values in found.items()}


def stated_matrix() -> Values:
    column = np.zeros(MATRIX.num_steps)
    column[: MATRIX.num_bands] = MATRIX.coefficients
    c = np.tril(toeplitz(column))
    c[RESTART:, :RESTART] = 0
    return c


def check(kind: type[BandedGradientNoise], memory: NoiseMemory) -> None:
    found = run(kind, memory)
    c = stated_matrix()
    inverse = np.linalg.inv(c)
    covariance = STDDEV**2 * inverse @ inverse.T
    assert worst_score_against(found["a"], np.zeros(MATRIX.num_steps), covariance) <= 1
    for wrong in (0.95, 1.05):
        scaled = wrong**2 * covariance
        assert worst_score_against(found["a"], np.zeros(MATRIX.num_steps), scaled) > 1
    whole = {name: c @ values for name, values in found.items()}
    for values in whole["a"]:
        halves = iter(np.array_split(values[:40_000], 2))
        assert_gaussian(lambda _, __, halves=halves: next(halves), stddev=STDDEV)
    assert_independent([*whole["a"][:, :60_000], *whole["b"][:2, :60_000]])


@pytest.mark.parametrize("memory", [STORED, REGENERATED])
def test_noise_has_the_stated_covariance_over_steps(memory: NoiseMemory) -> None:
    check(BandedGradientNoise, memory)


FAULTS = {
    name: kind
    for name, kind in inspect.getmembers(faulty_banded_noise, inspect.isclass)
    if issubclass(kind, BandedGradientNoise) and kind is not BandedGradientNoise
}


@pytest.mark.parametrize("name", FAULTS)
def test_wrong_noise_is_caught(name: str) -> None:
    with pytest.raises(AssertionError):
        check(FAULTS[name], STORED)


def test_all_faults_are_there() -> None:
    assert len(FAULTS) >= 9
