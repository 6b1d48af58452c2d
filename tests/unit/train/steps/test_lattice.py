"""Lattice noise: exact arithmetic on the grid, room for rounding, and what is refused."""

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import Tensor

from tulle.errors import ConfigError, RunStateError
from tulle.mechanisms.entropy import SeededNoise, release_rng
from tulle.mechanisms.gaussian import sample_rounded_normal
from tulle.train.settings.step_noise import lattice_grid, lattice_slack
from tulle.train.steps.gradient_noise import GradientNoise, LatticeGradientNoise

GRID = 2.0**-10
entries = st.floats(-4, 4, width=32)


def noisy(sums: Tensor, *, grid: float = GRID, stddev: float = 0.5, seed: int = 1) -> Tensor:
    values = sums.clone()
    LatticeGradientNoise(SeededNoise(seed), grid=grid).add_to_sum("sums", values, stddev)
    return values


def on_grid(sums: Tensor, grid: float = GRID) -> Tensor:
    return (sums.double() / grid).round() * grid


@given(clip_norm=st.floats(1e-6, 1e6), bits=st.integers(16, 40))
def test_the_grid_is_the_largest_power_of_two_that_is_fine_enough(
    clip_norm: float, bits: int
) -> None:
    grid = lattice_grid(clip_norm, bits)
    assert math.frexp(grid)[0] == 0.5
    assert Fraction(grid) <= Fraction(clip_norm) / 2**bits < 2 * Fraction(grid)


@pytest.mark.parametrize("clip_norm", [0.0, -1.0, math.inf, math.nan, 1e-32])
def test_a_clip_norm_without_a_grid_is_refused(clip_norm: float) -> None:
    with pytest.raises(ConfigError, match="clip_norm"):
        lattice_grid(clip_norm, 24)


@pytest.mark.parametrize("bits", [0, -3, 1.5])
def test_bits_must_be_whole_and_positive(bits: int) -> None:
    with pytest.raises(ConfigError, match="bits"):
        lattice_grid(1.0, bits)


def test_a_grid_that_is_no_power_of_two_is_refused() -> None:
    for grid in (0.3, 0.7 * 2.0**-24, 3.0, 0.0, -0.5):
        with pytest.raises(ConfigError, match="power of two"):
            LatticeGradientNoise(SeededNoise(1), grid=grid)


pairs = st.integers(1, 30).flatmap(
    lambda size: st.tuples(*[st.lists(entries, min_size=size, max_size=size) for _ in range(3)])
)


@given(sums=pairs, bits=st.integers(0, 12))
def test_rounding_adds_no_more_than_the_slack(
    sums: tuple[list[float], list[float], list[float]], bits: int
) -> None:
    base, first, second = (torch.tensor(values, dtype=torch.float64) for values in sums)
    grid = 2.0**-bits
    slack = lattice_slack(grid, len(base))
    without = on_grid(base, grid)
    for unit in (first, second):
        moved = float((on_grid(base + unit, grid) - without).norm())
        assert moved <= (float(unit.norm()) + slack) * (1 + 1e-12)
    replaced = float((on_grid(base + first, grid) - on_grid(base + second, grid)).norm())
    assert replaced <= (float((first - second).norm()) + slack) * (1 + 1e-12)


@pytest.mark.parametrize("num_entries", [1, 4, 1000])
def test_a_smaller_slack_would_not_do(num_entries: int) -> None:
    base = torch.full((num_entries,), 0.4999 * GRID, dtype=torch.float64)
    unit = torch.full_like(base, 0.0002 * GRID)
    moved = float((on_grid(base + unit) - on_grid(base)).norm())
    slack = lattice_slack(GRID, num_entries)
    assert moved == pytest.approx(slack)
    assert moved > float(unit.norm()) + 0.9 * slack


@given(
    steps=st.integers(-(2**40), 2**40),
    normal=st.floats(-(2.0**30), 2.0**30),
)
def test_rounding_a_sum_on_the_grid_is_adding_a_rounded_normal(steps: int, normal: float) -> None:
    exact = Fraction(normal)
    assume(exact % 1 != Fraction(1, 2))
    assert round(steps + exact) == steps + round(exact)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e4])
def test_sum_and_noise_are_added_as_integers(scale: float, dtype: torch.dtype) -> None:
    sums = (torch.randn(500, generator=torch.Generator().manual_seed(2)) * scale).to(dtype)
    found = noisy(sums, seed=5)
    noise = sample_rounded_normal(0.5 / GRID, 500, rng=SeededNoise(5))
    for value, raw, drawn in zip(found, sums, noise, strict=True):
        steps = round(Fraction(float(raw)) / Fraction(GRID)) + int(drawn)
        wanted = torch.tensor(float(steps * Fraction(GRID)), dtype=torch.float64).to(dtype)
        assert float(value) == float(wanted)


@given(sums=st.lists(st.floats(-(2.0**100), 2.0**100, width=32), min_size=1, max_size=20))
def test_every_released_number_is_a_multiple_of_the_grid(sums: list[float]) -> None:
    values = torch.tensor(sums, dtype=torch.float32)
    try:
        found = noisy(values)
    except RunStateError:
        assert float(values.abs().max()) > 2.0**62 * GRID
        return
    for value in found.tolist():
        assert Fraction(value) % Fraction(GRID) == 0


def test_a_tensor_that_is_larger_than_a_chunk_gets_the_noise_of_one_draw_after_another() -> None:
    size = (1 << 18) + 3
    found = noisy(torch.zeros(size), seed=8)
    rng = SeededNoise(8)
    parts = [sample_rounded_normal(0.5 / GRID, n, rng=rng) for n in (1 << 18, 3)]
    np.testing.assert_array_equal(found.numpy(), np.concatenate(parts) * GRID)


def test_shapes_and_strides_are_kept() -> None:
    sums = torch.randn(6, 4, generator=torch.Generator().manual_seed(3))
    turned = sums.t().contiguous().t()
    assert not turned.is_contiguous()
    values = turned.clone(memory_format=torch.preserve_format)
    LatticeGradientNoise(SeededNoise(1), grid=GRID).add_to_sum("sums", values, 0.5)
    torch.testing.assert_close(values, noisy(sums), rtol=0, atol=0)
    empty = torch.zeros(0, 3)
    assert noisy(empty).shape == (0, 3)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 1e30])
def test_entries_that_clipping_never_lets_through_are_refused_without_a_word_on_them(
    bad: float,
) -> None:
    values = torch.tensor([0.25, bad, 0.75])
    with pytest.raises(RunStateError, match="no numbers") as error:
        LatticeGradientNoise(SeededNoise(1), grid=GRID).add_to_sum("public.table.0", values, 0.5)
    assert "public.table.0" in str(error.value)
    assert not any(text in str(error.value) for text in ("0.25", "0.75", "inf", "nan", "1e+30"))
    # Nothing was noised: the tensor is as it was.
    assert values[0] == 0.25


@pytest.mark.parametrize("stddev", [0.0, -1.0, 1e-4 * GRID, 2.0**41 * GRID, math.nan])
def test_noise_that_is_none_or_too_much_for_the_grid_is_refused(stddev: float) -> None:
    with pytest.raises(ConfigError, match="stddev"):
        noisy(torch.zeros(2), stddev=stddev)


def test_tensors_that_cannot_hold_noise_are_refused() -> None:
    with pytest.raises(ConfigError, match="float32 or float64"):
        noisy(torch.zeros(2, dtype=torch.int64))
    shared = torch.zeros(1).expand(3)
    with pytest.raises(ConfigError, match="own memory"):
        LatticeGradientNoise(SeededNoise(1), grid=GRID).add_to_sum("sums", shared, 0.5)


def test_steps_do_not_share_their_noise() -> None:
    noise: GradientNoise = LatticeGradientNoise(SeededNoise(1), grid=GRID)
    steps = [torch.zeros(100) for _ in range(2)]
    for values in steps:
        noise.add_to_sum("sums", values, 0.5)
        noise.end_step()
    assert not torch.equal(*steps)


def test_the_description_names_source_and_lattice() -> None:
    described = LatticeGradientNoise(release_rng(), grid=GRID).description
    assert "operating-system entropy" in described
    assert "lattice" in described


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_noise_on_a_gpu_is_on_the_same_lattice() -> None:
    sums = torch.full((200_000,), 0.3, device="cuda")
    LatticeGradientNoise(SeededNoise(1), grid=GRID).add_to_sum("sums", sums, 0.5)
    steps = sums.double().cpu() / GRID
    assert torch.equal(steps, steps.round())
    assert float(sums.mean()) == pytest.approx(0.3, abs=0.01)
    assert float(sums.std()) == pytest.approx(0.5, rel=0.02)
