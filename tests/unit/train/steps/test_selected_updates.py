"""Updates of selected rows: other rows stay as they are, and a run goes on from its state."""

import dataclasses
from typing import Any

import pytest
import torch
from torch import Tensor

from tulle.errors import RunStateError
from tulle.mechanisms.entropy import SeededNoise
from tulle.train.models.batches import ExampleBatch
from tulle.train.models.tower_model import TowerModel
from tulle.train.models.trained_towers import build_model
from tulle.train.settings.models import LogisticRegression
from tulle.train.settings.optimizers import SGD, Adam, Optimizer, RMSprop, Yogi
from tulle.train.settings.step_noise import SelectedRows
from tulle.train.steps.host import ModelStep
from tulle.train.steps.places import host_step
from tulle.train.steps.private_step import Monitored
from tulle.train.steps.selected import RowCounts, RowSelector, SelectedStep
from tulle.train.steps.training_noise import TrainingNoise
from unit.train.models.test_tower_model import DATASETS, MODELS, feature
from unit.train.steps.step_reference import Case, make_case, step_settings, user_units

MIXED = DATASETS["two tables a role"]
OPTIMIZERS: dict[str, Optimizer] = {
    "adam": Adam(learning_rate=0.1),
    "adam with decay": Adam(learning_rate=0.1, weight_decay=0.3),
    "rmsprop": RMSprop(learning_rate=0.1),
    "yogi": Yogi(learning_rate=0.1),
    "sgd": SGD(learning_rate=0.1),
    "sgd without momentum": SGD(learning_rate=0.1, momentum=0.0),
}
SETTINGS = dataclasses.replace(
    step_settings(clip_norm=0.5, noise_multiplier=0.3),
    mechanism=SelectedRows(selection_share=0.3, threshold=1.0),
)


def start(model: TowerModel, optimizer: Optimizer, seed: int = 1) -> SelectedStep:
    rng = SeededNoise(seed)
    return SelectedStep(model, SETTINGS, optimizer, TrainingNoise(rng), rng)


def take(updates: ModelStep, case: Case, rate: float = 0.1) -> Monitored | None:
    return updates.take(case.batch, torch.ones(len(case.labels)), None, rate)


@pytest.fixture
def selections(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Tensor]]:
    """What is selected, step after step."""
    seen: list[dict[str, Tensor]] = []
    right = RowSelector.select

    def noting(self: RowSelector, counted: list[RowCounts]) -> dict[str, Tensor]:
        seen.append(right(self, counted))
        return seen[-1]

    monkeypatch.setattr(RowSelector, "select", noting)
    return seen


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_only_selected_rows_change_in_weights_and_state(
    optimizer: str, selections: list[dict[str, Tensor]]
) -> None:
    case = make_case(MODELS["semi-sensitive mlp"], MIXED)
    updates = start(case.model, OPTIMIZERS[optimizer])
    for _ in range(4):
        before = {name: values.clone() for name, values in case.model.parameters.items()}
        old_state = {name: values.clone() for name, values in updates.state().items()}
        take(updates, case)
        for name, rows in selections[-1].items():
            is_selected = torch.zeros(len(before[name]), dtype=torch.bool)
            is_selected[rows] = True
            assert 0 < is_selected.sum() < len(is_selected)
            now = case.model.parameters[name]
            assert torch.equal(now[~is_selected], before[name][~is_selected])
            assert (now != before[name])[is_selected].all()
            for key, values in updates.state().items():
                if key.endswith(f".{name}"):
                    assert torch.equal(values[~is_selected], old_state[key][~is_selected])
                    assert (values != old_state[key])[is_selected].all()
        for name in case.model.parameters.keys() - case.model.tables:
            assert (case.model.parameters[name] != before[name]).all()


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_run_goes_on_from_its_state(optimizer: str) -> None:
    cases = [make_case(MODELS["factorization machine"], MIXED) for _ in range(2)]
    settings = OPTIMIZERS[optimizer]
    first = start(cases[0].model, settings)
    for _ in range(3):
        take(first, cases[0])
    saved = {name: values.clone() for name, values in first.state().items()}
    for name, values in cases[0].model.parameters.items():
        cases[1].model.parameters[name].copy_(values)
    # Both go on with the noise of a new process.
    resumed, straight = (start(case.model, settings, seed=9) for case in reversed(cases))
    resumed.load_state(saved)
    straight.load_state(first.state())
    for _ in range(3):
        take(resumed, cases[1])
        take(straight, cases[0])
    for name, values in cases[0].model.parameters.items():
        assert torch.equal(values, cases[1].model.parameters[name])
    for name, values in straight.state().items():
        assert torch.equal(values, resumed.state()[name])
    assert int(resumed.state()["num_steps"]) == 6


def test_the_state_of_another_optimizer_is_refused() -> None:
    case = make_case(MODELS["logistic regression"], MIXED)
    state = start(case.model, OPTIMIZERS["sgd"]).state()
    with pytest.raises(RunStateError, match="optimizer state"):
        start(case.model, OPTIMIZERS["adam"]).load_state(state)


def test_parameters_outside_tables_are_watched_in_every_step() -> None:
    case = make_case(MODELS["semi-sensitive mlp"], MIXED)
    settled = start(case.model, OPTIMIZERS["adam"]).settled
    outside = case.model.parameters.keys() - case.model.tables
    assert {id(values) for values in settled} == {
        id(case.model.parameters[name]) for name in outside
    }


def test_users_are_taken_too() -> None:
    case = make_case(MODELS["semi-sensitive mlp"], MIXED)
    updates = start(case.model, OPTIMIZERS["adam"])
    units = user_units([4, 2, 3])
    monitored = updates.take(case.batch, units.weights, units, 0.1)
    assert monitored is not None
    assert int(updates.state()["num_steps"]) == 1


def test_frequent_rows_are_learned_under_adam() -> None:
    """10,000 rows, of which a few are read often: their weights find the labels."""
    features = [feature("a", "public", 10_000), feature("b", "sensitive", 10_000)]
    model = build_model(LogisticRegression(), features, seed=0)
    rng = SeededNoise(4)
    settings = dataclasses.replace(
        step_settings(clip_norm=1.0, noise_multiplier=1.0, monitor_share=0.0),
        expected_size=512.0,
        mechanism=SelectedRows(selection_share=0.2, threshold=4.0),
    )
    optimizer = Adam(learning_rate=0.1)
    updates = SelectedStep(model, settings, optimizer, TrainingNoise(rng), rng)
    draws = torch.Generator().manual_seed(2)
    for _ in range(60):
        ids = torch.randint(6, (512, 2), generator=draws)
        labels = (ids[:, 0] % 2).float()
        batch = ExampleBatch(public_ids=ids[:, :1], sensitive_ids=ids[:, 1:], labels=labels)
        updates.take(batch, torch.ones(512), None, 0.1)
    weights = model.parameters["public.table.0"][:, 0]
    learned = weights[:6].reshape(3, 2)
    assert (learned[:, 1] - learned[:, 0] > 2).all()
    # At 4 standard deviations a row that nobody reads is selected in 0.2% of such runs.
    initial = build_model(LogisticRegression(), features, seed=0).parameters["public.table.0"][:, 0]
    assert (weights[6:] != initial[6:]).double().mean() < 0.01


def test_a_plan_with_selected_rows_starts_these_updates() -> None:
    case = make_case(MODELS["semi-sensitive mlp"], MIXED)
    rng = SeededNoise(1)
    optimizer = OPTIMIZERS["adam"]
    updates = host_step(case.model, SETTINGS, optimizer, TrainingNoise(rng), rng=rng)
    assert isinstance(updates, SelectedStep)
    assert "fixed seed 1" in updates.noise_description
    assert take(updates, case) is not None


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("sizes", [None, [4, 2, 3]], ids=["rows", "users"])
def test_rows_are_selected_on_a_gpu_too(sizes: list[int] | None) -> None:
    case = make_case(MODELS["semi-sensitive mlp"], MIXED)
    model = build_model(MODELS["semi-sensitive mlp"], MIXED, seed=1, device="cuda")
    units = None if sizes is None else on_gpu(user_units(sizes))
    batch = on_gpu(case.batch)
    updates = start(model, OPTIMIZERS["adam"])
    before = model.parameters["public.table.0"].clone()
    updates.take(batch, torch.ones(9, device="cuda"), units, 0.1)
    has_changed = (model.parameters["public.table.0"] != before).any(1)
    assert 0 < int(has_changed.sum()) < len(has_changed)


def on_gpu(tensors: Any) -> Any:
    moved = {
        field.name: value.cuda()
        for field in dataclasses.fields(tensors)
        if isinstance(value := getattr(tensors, field.name), Tensor)
    }
    return dataclasses.replace(tensors, **moved)
