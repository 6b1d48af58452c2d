"""Whole runs with each noise: they train, stop, go on, and say on the card what they had."""

import dataclasses
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tulle.data.samplers.cyclic_poisson import CyclicPoisson
from tulle.errors import ConfigError, RunInterruptedError
from tulle.runs.folder import RunFolder
from tulle.runs.record import card_of, read_training
from tulle.train.fitting import FitResult, fit
from tulle.train.methods.train_plan import TrainPlan
from tulle.train.run_context import NoiseMemory, NoisePlacement, Progress, RunOptions
from tulle.train.settings.optimizers import SGD, Optimizer
from tulle.train.settings.step_noise import (
    BandedNoise,
    IndependentNoise,
    LatticeNoise,
    SelectedRows,
    StepNoise,
)
from tulle.train.steps.banded import BandedGradientNoise
from tulle.train.steps.step_settings import MONITOR
from unit.train.small_data import (
    SMALL_MLP,
    dp_sgd,
    make_examples,
    make_shape,
    private_phase,
    stop_at,
    two_phase,
)

EXAMPLES = make_examples(200)
BANDED = BandedNoise(num_bands=3)
ADAM = private_phase().optimizer
NOISES: list[StepNoise] = [
    IndependentNoise(),
    LatticeNoise(),
    SelectedRows(),
    BandedNoise(num_bands=1),
    BANDED,
]


def test_all_noises_are_here() -> None:
    assert {type(noise) for noise in NOISES} == set(StepNoise.__args__)


@functools.cache
def plan_of(noise: StepNoise, optimizer: Optimizer = ADAM) -> TrainPlan:
    """Eight private steps."""
    phase = private_phase(noise_multiplier=1.0, noise=noise, optimizer=optimizer)
    size, epochs = (50, 2.0) if isinstance(noise, BandedNoise) else (80, 1.57)
    phase = dataclasses.replace(phase, batch_size=size, epochs=epochs)
    plan = dp_sgd(model=SMALL_MLP, private_phase=phase).make(make_shape(200))
    assert plan.num_private_steps == 8
    return plan


def run(plan: TrainPlan, folder: Path | None, **options: Any) -> FitResult:
    options = {"checkpoint_every": 3, "seed": 1} | options
    return fit(EXAMPLES, plan, options=RunOptions(folder=folder, **options))


def weights_of(result: FitResult) -> torch.Tensor:
    return torch.cat([values.flatten() for values in result.model.model.parameters.values()])


@pytest.mark.parametrize("optimizer", [ADAM, SGD(learning_rate=0.5)], ids=["adam", "sgd"])
@pytest.mark.parametrize("noise", NOISES, ids=str)
def test_every_noise_trains(noise: StepNoise, optimizer: Optimizer, tmp_path: Path) -> None:
    result = run(plan_of(noise, optimizer), tmp_path / "run")
    assert bool(weights_of(result).isfinite().all())
    assert result.num_steps_lost == 0
    assert not torch.equal(weights_of(result), weights_of(run(result.plan, None, seed=2)))


@pytest.mark.parametrize("noise", [LatticeNoise(), BANDED, SelectedRows()], ids=str)
def test_every_noise_goes_on_after_a_stop(noise: StepNoise, tmp_path: Path) -> None:
    plan = plan_of(noise)
    with pytest.raises(RunInterruptedError):
        run(plan, tmp_path / "run", watch=stop_at(4))
    result = run(plan, tmp_path / "run", resume=True)
    assert result.num_steps_lost == 0
    assert bool(weights_of(result).isfinite().all())


def test_two_phases_train_with_correlated_noise() -> None:
    phase = private_phase(noise_multiplier=1.0, noise=BANDED, batch_size=50)
    result = fit(
        EXAMPLES, two_phase(model=SMALL_MLP, private_phase=phase), options=RunOptions(seed=1)
    )
    assert isinstance(result.plan.sampler, CyclicPoisson)
    assert bool(weights_of(result).isfinite().all())


@pytest.fixture
def noises(monkeypatch: pytest.MonkeyPatch) -> list[tuple[float, ...]]:
    """What correlated noise adds to the monitor in each step."""
    found: list[tuple[float, ...]] = []
    add = BandedGradientNoise.add_to_sum

    def noting(self: BandedGradientNoise, name: str, values: torch.Tensor, stddev: float) -> None:
        drawn = torch.zeros_like(values)
        add(self, name, drawn, stddev)
        if name == MONITOR:
            found.append(tuple(drawn.flatten().tolist()))
        values += drawn

    monkeypatch.setattr(BandedGradientNoise, "add_to_sum", noting)
    return found


@pytest.fixture
def batches(monkeypatch: pytest.MonkeyPatch) -> list[set[int]]:
    found: list[set[int]] = []
    draw = CyclicPoisson._draw

    def noting(self: CyclicPoisson, *arguments: Any) -> Iterator[Any]:
        for batch in draw(self, *arguments):
            found.append(set(batch.indices.tolist()))
            yield batch

    monkeypatch.setattr(CyclicPoisson, "_draw", noting)
    return found


@pytest.mark.parametrize("stops", [(), (1,), (2, 4), (1, 2, 3, 4, 5, 6, 7)])
def test_groups_take_turns_by_the_step_of_the_plan_over_all_stops(
    stops: tuple[int, ...],
    tmp_path: Path,
    batches: list[set[int]],
    noises: list[tuple[float, ...]],
) -> None:
    plan = plan_of(BANDED)
    assert isinstance(plan.sampler, CyclicPoisson)
    groups = plan.sampler.groups
    members = [
        set(groups.rows_of(group, np.arange(groups.num_runs)).tolist())
        for group in range(plan.sampler.num_groups)
    ]
    for number, step in enumerate(stops):
        with pytest.raises(RunInterruptedError):
            run(plan, tmp_path / "run", watch=stop_at(step), resume=number > 0)
    run(plan, tmp_path / "run", resume=bool(stops))
    assert len(batches) == len(noises) == 8
    for step, batch in enumerate(batches):
        assert batch <= members[step % 3]
    assert len(set(noises)) == len(noises)


def test_a_lost_block_does_not_shift_the_turns(tmp_path: Path, batches: list[set[int]]) -> None:
    plan = plan_of(BANDED)
    assert isinstance(plan.sampler, CyclicPoisson)
    groups = plan.sampler.groups

    class CrashError(Exception):
        pass

    def crash(progress: Progress) -> None:
        if progress.step == 5:
            raise CrashError

    with pytest.raises(CrashError):
        run(plan, tmp_path / "run", watch=crash)
    batches.clear()
    result = run(plan, tmp_path / "run", resume=True)
    assert result.num_steps_lost == 3
    # Steps 4 to 6 were charged and lost; the next is step 7, whose number is 6.
    assert len(batches) == 2
    for step, batch in zip((6, 7), batches, strict=True):
        assert batch <= set(groups.rows_of(step % 3, np.arange(groups.num_runs)).tolist())


def test_checkpoints_hold_no_noise(tmp_path: Path) -> None:
    kept = []
    for noise in (IndependentNoise(), BANDED):
        run(plan_of(noise), tmp_path / noise.kind)
        latest = RunFolder.open(tmp_path / noise.kind).checkpoints().latest()
        assert latest is not None
        kept.append({name: values.shape for name, values in latest.tensors.items()})
    assert kept[0] == kept[1]


def test_both_memories_train_the_same_model() -> None:
    stored, drawn_again = (
        weights_of(run(plan_of(BANDED), None, noise_memory=memory))
        for memory in (NoiseMemory.STORED, NoiseMemory.REGENERATED)
    )
    torch.testing.assert_close(stored, drawn_again, rtol=0, atol=1e-4)


@pytest.mark.parametrize("noise", [LatticeNoise(), BANDED, SelectedRows()], ids=str)
def test_lazy_noise_is_refused_before_a_step_is_begun(noise: StepNoise, tmp_path: Path) -> None:
    plan = plan_of(noise, SGD(learning_rate=0.5))
    with pytest.raises(ConfigError, match="IndependentNoise"):
        run(plan, tmp_path / "run", noise_placement=NoisePlacement.LAZY)
    records = RunFolder.open(tmp_path / "run").records.read()
    assert not [record for record in records if record["kind"] == "block begun"]


@pytest.mark.parametrize("noise", [LatticeNoise(), BANDED, SelectedRows()], ids=str)
def test_the_card_tells_which_noise_there_was(noise: StepNoise, tmp_path: Path) -> None:
    result = run(plan_of(noise), tmp_path / "run")
    card = card_of(read_training(RunFolder.open(tmp_path / "run")))
    assert card.plan.settings["noise"] == noise.kind
    if noise == BANDED:
        assert result.noise_description.endswith("correlated over 3 steps")
