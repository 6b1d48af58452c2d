"""Lattice noise: exact arithmetic on the grid, room for rounding, and what is refused."""

import dataclasses
import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor

from tulle.errors import ConfigError, RunStateError
from tulle.mechanisms.entropy import SeededNoise, release_rng
from tulle.mechanisms.gaussian import sample_rounded_normal
from tulle.train.settings.optimizers import SGD, Adam
from tulle.train.settings.step_noise import LatticeNoise, lattice_grid, lattice_slack
from tulle.train.steps.gradient_noise import GradientNoise, LatticeGradientNoise
from tulle.train.steps.host import DenseStep
from tulle.train.steps.places import host_step
from tulle.train.steps.private_step import PrivateStep, StepRelease
from tulle.train.steps.step_settings import StepSettings
from tulle.train.steps.training_noise import TrainingNoise
from unit.train.models.test_tower_model import DATASETS, MODELS
from unit.train.steps.step_reference import Case, NoNoise, make_case, step_settings, user_units

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


FEATURES = DATASETS["two tables a role"]
# A power of two: dividing by it keeps sums on a grid.
SIZE = 8.0


class OnlyRounding:
    """Takes the place of noise: sums are rounded to the grid and get none."""

    description = "none"

    def __init__(self, grid: float) -> None:
        self._grid = grid

    def add_to_sum(self, name: str, values: Tensor, stddev: float) -> None:  # noqa: ARG002
        values.copy_((values.double() / self._grid).round() * self._grid)

    def end_step(self) -> None:
        pass


def on_a_lattice(clip_norm: float, bits: int, monitor_share: float = 0.0) -> StepSettings:
    step = step_settings(clip_norm=clip_norm, monitor_share=monitor_share)
    return dataclasses.replace(step, expected_size=SIZE, mechanism=LatticeNoise(bits=bits))


def sums_of(released: StepRelease) -> Tensor:
    return SIZE * torch.cat([g.values.double().flatten() for g in released.gradients])


@pytest.mark.parametrize("model", MODELS)
def test_all_that_is_released_is_on_the_grid(model: str) -> None:
    case = make_case(MODELS[model], FEATURES, dtype=torch.float32)
    step = on_a_lattice(0.7, 24)
    grid = lattice_grid(0.7, 24)
    noise = LatticeGradientNoise(SeededNoise(1), grid=grid)
    released = PrivateStep(case.model, step, noise).release(case.batch, torch.ones(9))
    steps = sums_of(released) / grid
    assert torch.equal(steps, steps.round())
    raw = PrivateStep(case.model, step, NoNoise()).release(case.batch, torch.ones(9))
    off_grid = sums_of(raw) / grid
    assert not torch.equal(off_grid, off_grid.round())


@given(
    model=st.sampled_from(sorted(MODELS)),
    seed=st.integers(0, 2**31),
    scale=st.floats(-2, 2).map(lambda power: 10**power),
    as_users=st.booleans(),
)
@settings(max_examples=60)
def test_a_unit_moves_rounded_sums_by_at_most_the_clip_norm(
    model: str, seed: int, scale: float, as_users: bool
) -> None:
    case = make_case(MODELS[model], FEATURES, size=5, seed=seed, scale=scale)
    step = on_a_lattice(0.05, 16)
    rounding = OnlyRounding(lattice_grid(0.05, 16))
    both = []
    for rows, sizes in (slice(0, None), [2, 3]), (slice(2 if as_users else 1, None), [3]):
        batch = part_of(case, rows)
        units = user_units(sizes) if as_users else None
        weights = torch.ones(len(batch.labels))
        private = PrivateStep(case.model, step, rounding)
        both.append(sums_of(private.release(batch.batch, weights, units)))
    assert float((both[0] - both[1]).norm()) <= step.clip_norm


def part_of(case: Case, rows: slice) -> Case:
    batch = case.batch
    assert batch.sensitive_ids is not None
    kept = dataclasses.replace(
        batch,
        public_ids=batch.public_ids[rows],
        sensitive_ids=batch.sensitive_ids[rows],
        labels=case.labels[rows],
    )
    return dataclasses.replace(case, batch=kept)


def test_the_step_leaves_the_room_that_the_proof_asks_for() -> None:
    step = on_a_lattice(0.7, 16)
    num_entries = 4000
    room = lattice_slack(lattice_grid(0.7, 16), num_entries)
    assert step.gradient_limit(num_entries) <= step.clip_norm - room
    assert step.gradient_limit(num_entries) > step.clip_norm - 1.3 * room


def test_a_grid_that_is_too_coarse_for_the_model_is_refused() -> None:
    with pytest.raises(ConfigError, match="too coarse"):
        on_a_lattice(1.0, 16).gradient_limit(100_000_000)
    assert on_a_lattice(1.0, 24).gradient_limit(100_000_000) > 0.999


@pytest.mark.parametrize("optimizer", [SGD(learning_rate=0.1), Adam(learning_rate=0.1)])
def test_updates_on_a_lattice_are_dense_for_every_optimizer(optimizer: SGD | Adam) -> None:
    case = make_case(MODELS["semi-sensitive mlp"], FEATURES, dtype=torch.float32)
    rng = SeededNoise(2)
    step = on_a_lattice(0.7, 24)
    before = {name: values.clone() for name, values in case.model.parameters.items()}
    updates = host_step(case.model, step, optimizer, TrainingNoise(rng), rng=rng)
    assert isinstance(updates, DenseStep)
    assert "lattice" in updates.noise_description
    updates.take(case.batch, torch.ones(9), None, 0.1)
    for name, values in case.model.parameters.items():
        assert (values != before[name]).all()
