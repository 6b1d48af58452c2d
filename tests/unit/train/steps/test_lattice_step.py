"""Private steps on a lattice: what they release is on the grid, and no unit exceeds its bound."""

import dataclasses

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tulle.errors import ConfigError
from tulle.mechanisms.entropy import SeededNoise
from tulle.train.settings.optimizers import SGD, Adam
from tulle.train.settings.step_noise import LatticeNoise, lattice_grid, lattice_slack
from tulle.train.steps.gradient_noise import LatticeGradientNoise
from tulle.train.steps.host import DenseStep
from tulle.train.steps.places import host_step
from tulle.train.steps.private_step import PrivateStep, StepRelease, StepSettings
from tulle.train.steps.training_noise import TrainingNoise
from unit.train.models.test_tower_model import DATASETS, MODELS
from unit.train.steps.step_reference import Case, NoNoise, make_case, step_settings, user_units

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
