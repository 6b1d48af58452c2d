"""One process leads, the others follow: whole runs, with threads for processes."""

import contextlib
import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tulle.errors import ConfigError, DataError, RunInterruptedError, RunStateError
from tulle.mechanisms.entropy import SeededNoise
from tulle.runs.folder import RunFolder
from tulle.runs.record import card_of, read_training
from tulle.runs.records import StopRequest
from tulle.train import fitting
from tulle.train.examples import ExampleSet
from tulle.train.fitting import FitResult, fit
from tulle.train.methods.method import Accounting, Method
from tulle.train.methods.private_training import follow_fit
from tulle.train.models.tower_model import TowerModel
from tulle.train.run_context import NoisePlacement, Progress, RunOptions
from tulle.train.settings.models import TOWERS
from tulle.train.settings.optimizers import SGD, Adam
from tulle.train.settings.step_noise import (
    BandedNoise,
    IndependentNoise,
    LatticeNoise,
    SelectedRows,
    StepNoise,
)
from tulle.train.settings.units import UserAccounting, UserLevel
from tulle.train.steps import places
from tulle.train.steps.gradient_noise import GradientNoise
from tulle.train.steps.host import DenseStep
from tulle.train.steps.places import sum_noise
from tulle.train.steps.processes import shared_steps
from tulle.train.steps.processes.processes import Message, MessageKind, Opening, hear, tell
from tulle.train.steps.processes.sharded import ShardedStep
from tulle.train.steps.processes.shared_steps import ReplicatedStep
from tulle.train.steps.step_settings import StepSettings
from tulle.train.steps.training_noise import TrainingNoise
from unit.train.models.test_tower_model import DATASETS, MODELS
from unit.train.small_data import (
    SMALL_MLP,
    dp_sgd,
    make_examples,
    planned,
    private_phase,
    randomized_labels,
    two_phase,
)
from unit.train.steps.noiseless_updates import DENSE, LAZY, Training, assert_same, train
from unit.train.steps.processes.noiseless_processes import (
    REPLICATED,
    SHARDED,
    take_part,
    train_together,
)
from unit.train.steps.processes.thread_processes import ThreadProcesses, run_together
from unit.train.steps.step_reference import NoNoise, step_settings

EXAMPLES = make_examples(400)
TEST = make_examples(1000, seed=1)
SGD_PHASE = private_phase(noise_multiplier=1.0, optimizer=SGD(learning_rate=0.5, momentum=0.9))
CONFIGS: dict[str, Method] = {
    "sharded": dp_sgd(model=SMALL_MLP, private_phase=SGD_PHASE),
    "replicated": dp_sgd(model=SMALL_MLP),
    "two-phase": two_phase(model=SMALL_MLP, private_phase=SGD_PHASE),
}


def fit_together(
    config: Any,
    size: int = 2,
    *,
    data: ExampleSet = EXAMPLES,
    follower_data: ExampleSet | None = None,
    pass_errors: bool = False,
    **options: Any,
) -> list[Any]:
    """What each process ends with: a result, None, or an error."""

    def run(processes: ThreadProcesses) -> FitResult | None:
        if processes.rank:
            return follow_fit(follower_data or data, processes)
        return fit(data, config, test=TEST, options=RunOptions(processes=processes, **options))

    return run_together(size, run, pass_errors=pass_errors)


@pytest.mark.parametrize("name", CONFIGS)
def test_a_run_of_two_processes_learns(name: str) -> None:
    config = dataclasses.replace(
        CONFIGS[name],
        private_phase=dataclasses.replace(
            CONFIGS[name].private_phase,  # type: ignore[union-attr]
            noise_multiplier=0.5,
            epochs=8.0,
        ),
    )
    result, nothing = fit_together(config, seed=3)
    assert nothing is None
    assert result.metrics.auc_loss < 0.3
    assert result.num_steps_lost == 0


@pytest.mark.parametrize("name", ["sharded", "replicated"])
def test_plan_and_card_do_not_know_the_number_of_processes(name: str, tmp_path: Path) -> None:
    plan = planned(CONFIGS[name])
    together, _ = fit_together(plan, seed=1, folder=tmp_path / "two")
    alone = fit(EXAMPLES, plan, test=TEST, options=RunOptions(seed=1, folder=tmp_path / "one"))
    assert together.plan == alone.plan
    cards = [
        card_of(read_training(RunFolder.open(tmp_path / name))).to_dict() for name in ("one", "two")
    ]
    assert _but_quality_and_time(cards[0]) == _but_quality_and_time(cards[1])


def test_a_run_with_a_seed_can_be_repeated_and_each_process_has_a_key_of_its_own() -> None:
    one, same, other = (
        fit_together(planned(CONFIGS["sharded"]), seed=seed)[0] for seed in (5, 5, 6)
    )
    assert _weights(one).equal(_weights(same))
    assert not _weights(one).equal(_weights(other))


def test_secret_keys_are_drawn_where_they_are_used() -> None:
    first, second = (fit_together(planned(CONFIGS["sharded"]))[0] for _ in range(2))
    assert first.is_secure
    assert not _weights(first).equal(_weights(second))


def test_no_two_processes_have_one_key(monkeypatch: pytest.MonkeyPatch) -> None:
    words: list[bytes] = []
    real = places.TrainingNoise

    def noted(rng: Any) -> Any:
        words.append(rng.words(4).tobytes())
        return real(rng)

    monkeypatch.setattr(places, "TrainingNoise", noted)
    fit_together(planned(CONFIGS["sharded"]), size=3, seed=2)
    assert len(set(words)) == len(words) == 3


USER_LEVELS = {
    "several rows": UserLevel(max_rows_per_user=2),
    "clipped users": UserLevel(max_rows_per_user=3, accounting=UserAccounting.CLIPPED_USERS),
}


@pytest.mark.parametrize("level", USER_LEVELS)
def test_followers_draw_from_the_rows_that_were_chosen_for_users(level: str) -> None:
    data = make_examples(400, rows_per_user=4)
    phase = private_phase(noise_multiplier=0.5, batch_size=40, epochs=3.0)
    config = dp_sgd(private_phase=phase, unit=USER_LEVELS[level])
    result, _ = fit_together(config, data=data)
    assert result.num_steps_lost == 0


@pytest.mark.parametrize("noise", [LatticeNoise(), BandedNoise(num_bands=4)])
def test_every_noise_of_sums_is_shared(noise: StepNoise) -> None:
    phase = private_phase(noise_multiplier=1.0, noise=noise, batch_size=50)
    result, _ = fit_together(planned(dp_sgd(model=SMALL_MLP, private_phase=phase)), seed=1)
    assert result.num_steps_lost == 0


def test_poisson_batches_of_reproductions_are_shared() -> None:
    config = dp_sgd(accounting=Accounting.PAPER_RDP).calibrate(epsilon=5.0, delta=1e-5)
    assert fit_together(config, seed=1)[0].num_steps_lost == 0


@pytest.mark.parametrize(("before", "after"), [(1, 2), (2, 1), (2, 3)])
@pytest.mark.parametrize("name", ["sharded", "replicated"])
def test_a_run_goes_on_with_another_number_of_processes(
    name: str, before: int, after: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    plan, stop = planned(CONFIGS[name]), StopRequest()

    def watch(progress: Progress) -> None:
        stop.requested = progress.step == 5

    monkeypatch.setattr(fitting, "stop_signals", lambda: contextlib.nullcontext(stop))
    stopped, *_ = fit_together(plan, before, pass_errors=True, folder=tmp_path / "run", watch=watch)
    assert isinstance(stopped, RunInterruptedError)
    monkeypatch.undo()
    result, *_ = fit_together(plan, after, folder=tmp_path / "run", resume=True)
    assert result.num_steps_lost == 0


def test_an_error_of_the_leader_ends_all(tmp_path: Path) -> None:
    class BoomError(Exception):
        pass

    def boom(_progress: Progress) -> None:
        raise BoomError

    leader, follower = fit_together(
        planned(CONFIGS["sharded"]), pass_errors=True, watch=boom, folder=tmp_path / "run"
    )
    assert isinstance(leader, BoomError)
    assert follower is None


@pytest.mark.parametrize("bad", [0, 1])
def test_an_error_within_a_step_of_one_process_ends_all(
    bad: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    real, taken = shared_steps.RankSteps.take, [0, 0]

    def take(self: Any, rate: float) -> Any:
        rank = self._batches._processes.rank
        taken[rank] += 1
        if rank == bad and taken[rank] == 4:
            raise DataError("row secret is broken.")
        return real(self, rate)

    monkeypatch.setattr(shared_steps.RankSteps, "take", take)
    plan = planned(CONFIGS["sharded"])
    ended = fit_together(plan, pass_errors=True, folder=tmp_path / "run", checkpoint_every=2)
    assert isinstance(ended[bad], DataError)
    assert isinstance(ended[1 - bad], RunStateError)
    assert f"process {bad} of 2 failed with DataError: row secret" in str(ended[1 - bad])
    monkeypatch.undo()
    result = fit(EXAMPLES, plan, options=RunOptions(folder=tmp_path / "run", resume=True))
    assert 1 <= result.num_steps_lost <= 2


def test_words_of_unknown_errors_stay_in_their_process(monkeypatch: pytest.MonkeyPatch) -> None:
    def take(self: Any, rate: float) -> Any:
        if self._batches._processes.rank == 1:
            raise ValueError("user 4711 clicked")
        return real(self, rate)

    real = shared_steps.RankSteps.take
    monkeypatch.setattr(shared_steps.RankSteps, "take", take)
    leader, _ = fit_together(planned(CONFIGS["sharded"]), pass_errors=True)
    assert "ValueError" in str(leader)
    assert "4711" not in str(leader)


def test_followers_with_other_rows_are_refused() -> None:
    leader, follower = fit_together(
        planned(CONFIGS["sharded"]), follower_data=make_examples(400, seed=9), pass_errors=True
    )
    assert isinstance(follower, DataError)
    assert "same data" in str(leader)


def test_a_run_that_is_refused_lets_its_followers_go() -> None:
    leader, follower = fit_together("no config", pass_errors=True)
    assert isinstance(leader, ConfigError)
    assert follower is None


def test_runs_without_private_steps_are_refused() -> None:
    leader, follower = fit_together(randomized_labels(), pass_errors=True)
    assert isinstance(leader, ConfigError)
    assert "one process" in str(leader)
    assert follower is None


def test_rows_that_are_chosen_in_each_step_are_refused_before_anything_is_charged(
    tmp_path: Path,
) -> None:
    config = dp_sgd(private_phase=private_phase(noise_multiplier=1.0, noise=SelectedRows()))
    leader, follower = fit_together(planned(config), pass_errors=True, folder=tmp_path / "run")
    assert isinstance(leader, ConfigError)
    assert "SelectedRows" in str(leader)
    assert follower is None
    assert not (tmp_path / "run").exists()


def test_every_process_has_its_place() -> None:
    def wrong(processes: ThreadProcesses) -> None:
        if processes.rank == 0:
            follow_fit(EXAMPLES, processes)
        else:
            RunOptions(processes=processes)

    first, second = run_together(2, wrong, pass_errors=True)
    assert "rank 0 leads" in str(first)
    assert "follow_fit" in str(second)


def test_who_asks_a_follower_to_stop_stops_the_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    real = shared_steps.RankSteps.take

    def take(self: Any, rate: float) -> Any:
        if self._batches._processes.rank == 1:
            self._batches._stop.requested = True
        return real(self, rate)

    monkeypatch.setattr(shared_steps.RankSteps, "take", take)
    plan = planned(CONFIGS["sharded"])
    leader, follower = fit_together(plan, pass_errors=True, folder=tmp_path / "run")
    assert isinstance(leader, RunInterruptedError)
    assert follower is None


@pytest.mark.parametrize("rows", [None, np.array([3, 1, 2])])
def test_an_opening_arrives_as_it_was_sent(rows: Any) -> None:
    opening = Opening(
        plan=planned(CONFIGS["two-phase"]).to_json(),
        placement=NoisePlacement.DENSE,
        rows=rows,
        fingerprint="f",
        seeds=(1, 2**64 - 1),
    )

    def send(processes: ThreadProcesses) -> Opening | None:
        if processes.rank == 0:
            return opening.send(processes)
        return Opening.of_message(hear(processes))

    (_, came) = run_together(2, send)
    assert isinstance(came, Opening)
    for field in ("plan", "placement", "fingerprint", "seeds"):
        assert getattr(came, field) == getattr(opening, field)
    assert (came.rows is None) == (rows is None)
    assert rows is None or np.array_equal(came.rows, rows)


def test_numbers_in_messages_are_exact() -> None:
    numbers = [0.1, 1 / 3, 1e-300, float(2**53 - 1)]

    def talk(processes: ThreadProcesses) -> list[float]:
        if processes.rank == 0:
            for number in numbers:
                tell(processes, Message(kind=MessageKind.TAKE, number=number))
            return numbers
        return [hear(processes).number for _ in numbers]

    assert run_together(2, talk) == [numbers, numbers]


def _weights(result: FitResult) -> torch.Tensor:
    return torch.cat([values.flatten() for values in result.model.model.parameters.values()])


def _but_quality_and_time(card: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in card.items() if key not in ("utility", "provenance")}


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
