"""Runs whose tables get their noise late: checkpoints, resumes and ends are flushed."""

import functools
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tulle.data.samplers.batch import Batch
from tulle.errors import ConfigError, RunInterruptedError
from tulle.runs.folder import RunFolder
from tulle.train.fitting import FitResult, fit
from tulle.train.methods.dp_sgd import DpSgdConfig
from tulle.train.methods.train_plan import TrainPlan
from tulle.train.run_context import NoisePlacement, RunOptions
from tulle.train.settings.models import FactorizationMachine, LogisticRegression, ModelSettings
from tulle.train.settings.optimizers import SGD
from tulle.train.steps.host import HostPlace, LazyStep
from tulle.train.steps.step_context import FolderJournal, SavedState
from tulle.train.steps.training_noise import TrainingNoise
from unit.train.small_data import (
    SMALL_MLP,
    dp_sgd,
    make_examples,
    make_shape,
    private_phase,
    stop_at,
)

EXAMPLES = make_examples(200)
LAZY, DENSE = NoisePlacement.LAZY, NoisePlacement.DENSE
MODELS: dict[str, ModelSettings] = {
    "mlp": SMALL_MLP,
    "factorization machine": FactorizationMachine(factor_dim=3),
    "logistic regression": LogisticRegression(),
}
Saves = dict[int, dict[str, torch.Tensor]]


@functools.cache
def plan_of(model: str = "mlp") -> TrainPlan:
    """Eight private steps of SGD."""
    optimizer = SGD(learning_rate=0.5, momentum=0.9)
    phase = private_phase(noise_multiplier=1.0, batch_size=80, epochs=1.57, optimizer=optimizer)
    config: DpSgdConfig = dp_sgd(model=MODELS[model], private_phase=phase)
    plan = config.make(make_shape(200))
    assert plan.num_private_steps == 8
    return plan


def run(plan: TrainPlan, folder: Path, **options: Any) -> FitResult:
    options = {"checkpoint_every": 3, "seed": 1} | options
    return fit(EXAMPLES, plan, options=RunOptions(folder=folder, **options))


@pytest.fixture
def saves(monkeypatch: pytest.MonkeyPatch) -> Saves:
    """What every checkpoint of the private phase holds, by its step."""
    found: Saves = {}
    save = FolderJournal.save

    def noting(self: FolderJournal, state: SavedState) -> None:
        found[state.step] = {name: values.clone() for name, values in state.tensors.items()}
        save(self, state)

    monkeypatch.setattr(FolderJournal, "save", noting)
    return found


@pytest.fixture
def no_chance(monkeypatch: pytest.MonkeyPatch) -> None:
    """No noise, and the batch of a step depends on its number alone."""

    def batches(first_step: int) -> Iterator[Batch]:
        for step in itertools.count(first_step):
            indices = np.random.default_rng(step).integers(0, 200, 60)
            weights = np.ones(60, np.float32)
            yield Batch(indices=np.sort(indices), weights=weights, expected_size=60.0)

    def begin(self: HostPlace, first_step: int) -> None:
        self._batches = batches(first_step)

    monkeypatch.setattr(HostPlace, "begin", begin)
    monkeypatch.setattr(TrainingNoise, "add_to", lambda *_: None)
    monkeypatch.setattr(TrainingNoise, "fill", lambda _, values, __: values.zero_())


def assert_same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> None:
    assert one.keys() == other.keys()
    for name, values in one.items():
        torch.testing.assert_close(values, other[name], rtol=0, atol=1e-5)


def weights_of(result: FitResult) -> dict[str, torch.Tensor]:
    return dict(result.model.model.parameters)


@pytest.mark.usefixtures("no_chance")
@pytest.mark.parametrize("model", MODELS)
def test_every_checkpoint_and_the_end_are_those_of_a_dense_run(
    tmp_path: Path, saves: Saves, model: str
) -> None:
    plan = plan_of(model)
    lazy = run(plan, tmp_path / "lazy", noise_placement=LAZY)
    of_lazy = dict(saves)
    saves.clear()
    dense = run(plan, tmp_path / "dense", noise_placement=DENSE)
    assert of_lazy.keys() == saves.keys() == {3, 6, 8}
    for step, tensors in saves.items():
        assert_same(of_lazy[step], tensors)
    assert_same(weights_of(lazy), weights_of(dense))


@pytest.mark.usefixtures("no_chance")
@pytest.mark.parametrize("placement", [LAZY, DENSE])
def test_checkpoints_in_between_change_nothing(tmp_path: Path, placement: NoisePlacement) -> None:
    plan = plan_of()
    often = run(plan, tmp_path / "often", checkpoint_every=1, noise_placement=placement)
    once = run(plan, tmp_path / "once", checkpoint_every=8, noise_placement=placement)
    assert_same(weights_of(often), weights_of(once))


@pytest.mark.usefixtures("no_chance")
@pytest.mark.parametrize("last_step", [1, 4, 6])
@pytest.mark.parametrize("ways", list(itertools.product([LAZY, DENSE], repeat=2)))
def test_a_run_that_was_stopped_ends_where_it_would_have(
    tmp_path: Path, ways: tuple[NoisePlacement, NoisePlacement], last_step: int
) -> None:
    plan = plan_of("factorization machine")

    folder = tmp_path / "run"
    with pytest.raises(RunInterruptedError):
        run(plan, folder, watch=stop_at(last_step), noise_placement=ways[0])
    resumed = run(plan, folder, resume=True, noise_placement=ways[1])
    whole = run(plan, tmp_path / "whole", noise_placement=DENSE)
    assert_same(weights_of(resumed), weights_of(whole))


@pytest.mark.parametrize("model", MODELS)
def test_a_checkpoint_has_noise_in_every_entry(tmp_path: Path, saves: Saves, model: str) -> None:
    plan = plan_of(model)
    first = run(plan, tmp_path / "one", seed=1)
    of_first = dict(saves)
    run(plan, tmp_path / "other", seed=2)
    for step, tensors in saves.items():
        for name, values in tensors.items():
            if name != "optimizer/num_steps":
                assert bool((values != of_first[step][name]).all()), (step, name)
    last = {f"model/{name}": values for name, values in weights_of(first).items()}
    for name, values in last.items():
        assert torch.equal(values, of_first[8][name])


def test_the_end_is_what_the_last_checkpoint_holds(tmp_path: Path) -> None:
    result = run(plan_of(), tmp_path / "run")
    latest = RunFolder.open(tmp_path / "run").checkpoints().latest()
    assert latest is not None
    for name, values in weights_of(result).items():
        assert np.array_equal(values.numpy(), latest.tensors[f"model/{name}"])


def test_sgd_trains_lazily_unless_told_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[object] = []
    take = LazyStep.take

    def noting(self: LazyStep, *arguments: Any) -> object:
        taken.append(self)
        return take(self, *arguments)

    monkeypatch.setattr(LazyStep, "take", noting)
    run(plan_of(), tmp_path / "auto")
    assert len(taken) == 8
    run(plan_of(), tmp_path / "dense", noise_placement=DENSE)
    assert len(taken) == 8


def test_lazy_noise_with_adam_is_refused_before_a_step_is_begun(tmp_path: Path) -> None:
    phase = private_phase(noise_multiplier=1.0, batch_size=80, epochs=1.57)
    plan = dp_sgd(private_phase=phase).make(make_shape(200))
    with pytest.raises(ConfigError, match="SGD only"):
        run(plan, tmp_path / "run", noise_placement=LAZY)
    records = RunFolder.open(tmp_path / "run").records.read()
    assert not [record for record in records if record["kind"] == "block begun"]
