"""Several processes train the model that one trains, if they see the same batches."""

import dataclasses
from typing import Any

import pytest
import torch

from tulle.errors import ConfigError, RunStateError
from tulle.mechanisms.entropy import SeededNoise
from tulle.train.models.tower_model import TowerModel
from tulle.train.settings.models import TOWERS
from tulle.train.settings.optimizers import SGD, Adam
from tulle.train.settings.step_noise import (
    BandedNoise,
    IndependentNoise,
    LatticeNoise,
    SelectedRows,
    StepNoise,
)
from tulle.train.steps.gradient_noise import GradientNoise
from tulle.train.steps.host import DenseStep
from tulle.train.steps.places import sum_noise
from tulle.train.steps.private_step import StepSettings
from tulle.train.steps.processes.sharded import ShardedStep
from tulle.train.steps.processes.shared_steps import ReplicatedStep
from tulle.train.steps.training_noise import TrainingNoise
from unit.train.models.test_tower_model import DATASETS, MODELS
from unit.train.steps.noiseless_updates import DENSE, LAZY, Training, assert_same, train
from unit.train.steps.processes.noiseless_processes import (
    REPLICATED,
    SHARDED,
    take_part,
    train_together,
)
from unit.train.steps.processes.thread_processes import ThreadProcesses, run_together
from unit.train.steps.step_reference import NoNoise, step_settings

MIXED = DATASETS["two tables a role"]
SMALL = Training(settings=MODELS["semi-sensitive mlp"], features=MIXED, num_steps=9)

VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "no momentum": {"momentum": 0.0},
    "weight decay": {"weight_decay": 0.3},
    "parts of a batch": {"rows_at_a_time": 2},
    "users": {"user_sizes": (1, 3, 2, 1)},
    "padding": {"has_padding": True},
    "frozen public tower": {"towers": TOWERS - {"public"}},
    "common tower alone": {"towers": frozenset({"common"})},
}


@pytest.mark.parametrize("way", [REPLICATED, SHARDED])
@pytest.mark.parametrize("dataset", ["separate tables", "no sensitive features"])
@pytest.mark.parametrize("model", MODELS)
def test_two_processes_train_the_model_of_one(model: str, dataset: str, way: str) -> None:
    training = Training(settings=MODELS[model], features=DATASETS[dataset], num_steps=7)
    assert_same(train_together(training, way, 2)[0], train(training, DENSE))


@pytest.mark.parametrize("way", [REPLICATED, SHARDED])
@pytest.mark.parametrize("variant", VARIANTS)
def test_every_kind_of_batch_and_optimizer_is_shared(variant: str, way: str) -> None:
    training = dataclasses.replace(SMALL, **VARIANTS[variant])
    assert_same(train_together(training, way, 3)[0], train(training, DENSE))


@pytest.mark.parametrize("way", [REPLICATED, SHARDED])
def test_one_process_and_more_processes_than_rows_train_the_same_model(way: str) -> None:
    expected = train(SMALL, DENSE)
    for size in (1, 12):
        assert_same(train_together(SMALL, way, size)[0], expected)


def test_followers_of_replicated_updates_have_the_weights_of_the_leader() -> None:
    leader, follower = train_together(SMALL, REPLICATED, 2)
    for name, values in leader.weights.items():
        assert torch.equal(values, follower.weights[name])
    assert follower.state == {}


def test_followers_of_sharded_updates_keep_no_whole_table() -> None:
    _, follower = train_together(SMALL, SHARDED, 2)
    tables = SMALL.new_model().tables
    for name, values in follower.weights.items():
        assert (values.numel() == 0) == (name in tables)


@pytest.mark.parametrize("variant", ["plain", "no momentum", "weight decay"])
def test_a_run_goes_on_from_its_state_in_another_way(variant: str) -> None:
    training = dataclasses.replace(SMALL, **VARIANTS[variant])
    together = train_together(training, SHARDED, 3, {3: REPLICATED, 5: SHARDED, 8: SHARDED})
    assert_same(together[0], train(training, DENSE))


@pytest.mark.parametrize("way", [REPLICATED, SHARDED])
def test_the_state_of_several_processes_is_that_of_one(way: str) -> None:
    together = train_together(SMALL, way, 2)[0].state
    for name, values in train(SMALL, LAZY).state.items():
        assert together[name].shape == values.shape
        assert together[name].dtype == values.dtype
    more = train_together(SMALL, way, 2, state=together)[0].state
    assert int(more["num_steps"]) == 2 * SMALL.num_steps


@pytest.mark.parametrize("what", ["missing", "shape", "dtype"])
def test_a_wrong_state_is_refused_before_anybody_is_told(what: str) -> None:
    state = train(SMALL, LAZY).state
    key = next(name for name in state if ".table." in name)
    if what == "missing":
        del state[key]
    else:
        state[key] = state[key][1:] if what == "shape" else state[key].half()
    with pytest.raises(RunStateError, match=r"\.table\."):
        run_together(1, lambda processes: _sharded(processes).load_state(state))


def test_lazy_noise_is_independent_noise() -> None:
    def begin(processes: ThreadProcesses) -> None:
        settings = dataclasses.replace(step_settings(), mechanism=LatticeNoise())
        model = SMALL.new_model()
        ShardedStep(model, settings, SGD(learning_rate=0.1), NoNoise(), processes)  # type: ignore[arg-type]

    with pytest.raises(ConfigError, match="independent"):
        run_together(1, begin)


def _sharded(processes: ThreadProcesses) -> ShardedStep:
    sgd = SGD(learning_rate=0.1, momentum=0.9)
    return ShardedStep(SMALL.new_model(), step_settings(), sgd, NoNoise(), processes)  # type: ignore[arg-type]


MECHANISMS = [IndependentNoise(), LatticeNoise(), BandedNoise(num_bands=3)]


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=lambda noise: noise.kind)
def test_the_leader_adds_the_noise_that_one_process_adds_and_nobody_else_does(
    mechanism: StepNoise,
) -> None:
    settings = dataclasses.replace(
        step_settings(clip_norm=0.8), mechanism=mechanism, num_steps=SMALL.num_steps
    )

    def shared(processes: ThreadProcesses) -> TowerModel:
        model = SMALL.new_model()
        noise = _noise_of(mechanism, model, settings, seed=processes.rank)
        adam = Adam(learning_rate=0.1)
        updates = ReplicatedStep(model, settings, adam, noise, processes)
        updates.share()
        for step, batch in enumerate(SMALL.batches()):
            take_part(SMALL, updates, step, batch, processes)
        return model

    alone = SMALL.new_model()
    noise = _noise_of(mechanism, alone, settings, seed=0)
    updates = DenseStep(alone, settings, Adam(learning_rate=0.1), noise)
    for step, batch in enumerate(SMALL.batches()):
        SMALL.take(updates, step, batch)
    for model in run_together(2, shared):
        for name, values in alone.parameters.items():
            torch.testing.assert_close(model.parameters[name], values, rtol=0, atol=1e-6)


def _noise_of(
    mechanism: StepNoise, model: TowerModel, settings: StepSettings, seed: int
) -> GradientNoise:
    assert settings.mechanism == mechanism
    rng = SeededNoise(seed)
    return sum_noise(model, settings, TrainingNoise(rng), rng)


def test_rows_that_are_chosen_in_each_step_have_no_noise_of_sums() -> None:
    settings = dataclasses.replace(step_settings(), mechanism=SelectedRows())
    with pytest.raises(ConfigError, match="not added to sums"):
        _noise_of(SelectedRows(), SMALL.new_model(), settings, seed=0)
