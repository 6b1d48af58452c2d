"""Correlated noise is C^-1 z, kept or drawn again, and starts again when asked to."""

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.linalg import toeplitz
from torch import Tensor

from tulle.errors import ConfigError, RunStateError
from tulle.mechanisms.entropy import SeededNoise
from tulle.train.run_context import NoiseMemory
from tulle.train.settings.band_matrix import BandMatrix
from tulle.train.steps.banded import (
    MOST_STORED_BYTES,
    AddressedNormals,
    BandedGradientNoise,
    fitting_memory,
)

STORED, REGENERATED = NoiseMemory.STORED, NoiseMemory.REGENERATED
SIZES = [(1, 4), (2, 7), (3, 3), (4, 12), (5, 40)]
STDDEV = 1.7


def noise_of_steps(
    noise: BandedGradientNoise,
    num_steps: int,
    *,
    restarts: tuple[int, ...] = (),
    dtype: torch.dtype = torch.float64,
) -> Tensor:
    """[steps, 8]: what two sums get, side by side."""
    found = []
    for step in range(num_steps):
        if step in restarts:
            noise.restart()
        sums = {"a": torch.zeros(5, dtype=dtype), "b": torch.zeros(1, 3, dtype=dtype)}
        for name, values in sums.items():
            noise.add_to_sum(name, values, STDDEV)
        noise.end_step()
        found.append(torch.cat([values.flatten() for values in sums.values()]))
    return torch.stack(found)


def normals_of_steps(num_steps: int) -> Tensor:
    """The z of the same seed."""
    normals = AddressedNormals(SeededNoise(1))
    found = []
    for step in range(num_steps):
        sums = {"a": torch.zeros(5, dtype=torch.float64), "b": torch.zeros(3, dtype=torch.float64)}
        for name, values in sums.items():
            normals.add_to(values, name, [(step, STDDEV)])
        found.append(torch.cat(list(sums.values())))
    return torch.stack(found)


def dense(matrix: BandMatrix) -> NDArray[np.float64]:
    column = np.zeros(matrix.num_steps)
    column[: matrix.num_bands] = matrix.coefficients
    return np.tril(toeplitz(column))


@pytest.mark.parametrize("memory", [STORED, REGENERATED])
@pytest.mark.parametrize(("num_bands", "num_steps"), SIZES)
def test_noise_is_the_inverse_matrix_times_independent_normals(
    num_bands: int, num_steps: int, memory: NoiseMemory
) -> None:
    matrix = BandMatrix(num_bands=num_bands, num_steps=num_steps)
    found = noise_of_steps(BandedGradientNoise(matrix, SeededNoise(1), memory), num_steps)
    wanted = np.linalg.inv(dense(matrix)) @ normals_of_steps(num_steps).numpy()
    np.testing.assert_allclose(found.numpy(), wanted, atol=1e-12)


@pytest.mark.parametrize("memory", [STORED, REGENERATED])
def test_after_a_restart_the_matrix_is_block_diagonal(memory: NoiseMemory) -> None:
    matrix = BandMatrix(num_bands=4, num_steps=12)
    noise = BandedGradientNoise(matrix, SeededNoise(1), memory)
    found = noise_of_steps(noise, 12, restarts=(5, 6))
    c = dense(matrix)
    for start in (5, 6):
        c[start:, :start] = 0
    wanted = np.linalg.inv(c) @ normals_of_steps(12).numpy()
    np.testing.assert_allclose(found.numpy(), wanted, atol=1e-12)


@pytest.mark.parametrize(("dtype", "num_steps"), [(torch.float32, 120), (torch.float64, 600)])
def test_both_memories_give_the_same_noise(dtype: torch.dtype, num_steps: int) -> None:
    matrix = BandMatrix(num_bands=8, num_steps=num_steps)
    stored, drawn_again = (
        noise_of_steps(
            BandedGradientNoise(matrix, SeededNoise(1), memory),
            num_steps,
            restarts=(num_steps * 3 // 4,),
            dtype=dtype,
        )
        for memory in (STORED, REGENERATED)
    )
    # Also where the inverse is cut short, as that of 600 steps: by less than rounding to single
    # precision.
    torch.testing.assert_close(stored, drawn_again, rtol=0, atol=2e-5)
    assert float(stored.std()) > 1


def test_large_sums_are_made_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    matrix = BandMatrix(num_bands=3, num_steps=6)
    whole = noise_of_steps(BandedGradientNoise(matrix, SeededNoise(1), STORED), 6)
    monkeypatch.setattr("tulle.train.steps.banded._ENTRIES_AT_A_TIME", 2)
    parts = noise_of_steps(BandedGradientNoise(matrix, SeededNoise(1), STORED), 6)
    torch.testing.assert_close(parts, whole)


def test_noise_is_added_to_what_is_there() -> None:
    noise = BandedGradientNoise(BandMatrix(num_bands=2, num_steps=4), SeededNoise(1), STORED)
    again = BandedGradientNoise(BandMatrix(num_bands=2, num_steps=4), SeededNoise(1), STORED)
    for _ in range(3):
        zeros, ones = torch.zeros(4), torch.ones(4)
        noise.add_to_sum("a", zeros, 1.0)
        again.add_to_sum("a", ones, 1.0)
        torch.testing.assert_close(ones, 1 + zeros)
        noise.end_step()
        again.end_step()


def test_the_same_sum_twice_in_a_step_is_refused() -> None:
    noise = BandedGradientNoise(BandMatrix(num_bands=2, num_steps=4), SeededNoise(1), STORED)
    noise.add_to_sum("a", torch.zeros(2), 1.0)
    with pytest.raises(RunStateError, match="has its noise"):
        noise.add_to_sum("a", torch.zeros(2), 1.0)


def test_a_step_without_one_of_its_sums_is_refused() -> None:
    noise = BandedGradientNoise(BandMatrix(num_bands=2, num_steps=4), SeededNoise(1), STORED)
    noise_of_steps(noise, 2)
    noise.add_to_sum("a", torch.zeros(5, dtype=torch.float64), STDDEV)
    with pytest.raises(RunStateError, match="no sum 'b'"):
        noise.end_step()


def test_another_scale_is_refused() -> None:
    noise = BandedGradientNoise(BandMatrix(num_bands=2, num_steps=4), SeededNoise(1), STORED)
    noise_of_steps(noise, 1)
    with pytest.raises(RunStateError, match="scale"):
        noise.add_to_sum("a", torch.zeros(5, dtype=torch.float64), STDDEV / 2)


def test_a_restart_within_a_step_is_refused() -> None:
    noise = BandedGradientNoise(BandMatrix(num_bands=2, num_steps=4), SeededNoise(1), STORED)
    noise.add_to_sum("a", torch.zeros(2), 1.0)
    with pytest.raises(RunStateError, match="within a step"):
        noise.restart()


def test_memory_follows_the_size_of_the_model_unless_it_is_given() -> None:
    limit = MOST_STORED_BYTES // 15
    assert fitting_memory(NoiseMemory.AUTO, 16, limit) is STORED
    assert fitting_memory(NoiseMemory.AUTO, 16, limit + 1) is REGENERATED
    assert fitting_memory(STORED, 16, 2**60) is STORED
    assert fitting_memory(REGENERATED, 2, 8) is REGENERATED
    with pytest.raises(ConfigError, match="fitting_memory"):
        BandedGradientNoise(BandMatrix(num_bands=2, num_steps=4), SeededNoise(1), NoiseMemory.AUTO)


def test_the_description_tells_of_the_correlation() -> None:
    noise = BandedGradientNoise(BandMatrix(num_bands=2, num_steps=4), SeededNoise(1), STORED)
    assert noise.description == "fixed seed 1, correlated over 2 steps"
