import dataclasses
import itertools
import os
import random
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tulle.data.samplers.truncated_poisson import TruncatedPoisson
from tulle.errors import ConfigError, RunInterruptedError, RunStateError
from tulle.runs.folder import RunFolder
from tulle.train.fitting import FitResult, fit
from tulle.train.methods import private_training
from tulle.train.methods.method import Method
from tulle.train.methods.private_training import PrivateSteps, step_settings
from tulle.train.methods.train_plan import TrainPlan
from tulle.train.run_context import Progress, RunOptions
from tulle.train.settings.optimizers import SGD
from tulle.train.settings.phases import CosineDecay
from tulle.train.settings.units import UserAccounting, UserLevel
from tulle.train.steps.step_context import FolderJournal
from tulle.train.steps.training_noise import TrainingNoise
from unit.train.small_data import (
    dp_sgd,
    label_phase,
    make_examples,
    make_shape,
    private_phase,
    randomized_labels,
    stop_at,
    two_phase,
)

EXAMPLES = make_examples(200)
JOURNAL_CALLS = ("labels", "latest", "save", "resume_point", "begin", "end", "record")


class CrashError(Exception):
    """The process dies here."""


def plan_for(config: Method) -> TrainPlan:
    return config.make(make_shape(200))


@pytest.fixture(scope="module")
def plan() -> TrainPlan:
    """Eight private steps."""
    phase = private_phase(noise_multiplier=1.0, batch_size=80, epochs=1.57)
    found = plan_for(dp_sgd(private_phase=phase))
    assert found.num_private_steps == 8
    return found


@pytest.fixture(scope="module")
def two_phase_plan() -> TrainPlan:
    phase = private_phase(noise_multiplier=1.0, batch_size=80, epochs=1.57)
    return plan_for(two_phase(private_phase=phase, label_phase=label_phase(epochs=1.0)))


@pytest.fixture
def executed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of every private step that is taken, over all runs of a test."""
    steps: list[int] = []
    whole = CosineDecay.rate_factor

    def noting(self: CosineDecay, step: int, num_steps: int) -> float:
        steps.append(step)
        return whole(self, step, num_steps)

    monkeypatch.setattr(CosineDecay, "rate_factor", noting)
    return steps


def run(
    plan: TrainPlan, folder: Path, *, resume: bool = False, watch: Any = None, **options: Any
) -> FitResult:
    options = {"checkpoint_every": 3} | options
    return fit(
        EXAMPLES,
        plan,
        options=RunOptions(folder=folder, resume=resume, watch=watch, **options),
    )


def charged_steps(folder: Path) -> list[int]:
    """Every step that a block was begun for, once for each time, less those given back."""
    steps: list[int] = []
    for record in RunFolder.open(folder).records.read():
        if record["kind"] == "block begun":
            steps += range(record["start"], record["end"])  # type: ignore[arg-type]
        elif record["kind"] == "block ended":
            steps = [step for step in steps if step < record["end"]]  # type: ignore[operator]
    return steps


def optimizer_steps(folder: Path) -> int:
    latest = RunFolder.open(folder).checkpoints().latest()
    assert latest is not None
    (count,) = (values for name, values in latest.tensors.items() if name == "optimizer/num_steps")
    return int(count)


def check_finished(result: FitResult, plan: TrainPlan, executed: list[int]) -> None:
    assert result.folder is not None
    assert len(set(executed)) == len(executed), "a step was taken twice"
    assert charged_steps(result.folder.path) == list(range(plan.num_private_steps))
    assert set(executed) <= set(range(plan.num_private_steps))
    assert all(torch.isfinite(w).all() for w in result.model.model.parameters.values())
    assert result.folder.path_of("result.json").exists()


@pytest.fixture
def crash_at_call(monkeypatch: pytest.MonkeyPatch) -> Callable[[int | None, bool], None]:
    """Sets at which call of a journal the process dies, before or after the call is done."""
    originals = {name: getattr(FolderJournal, name) for name in JOURNAL_CALLS}

    def crash(number: int | None, after: bool) -> None:
        calls: Iterator[int] = itertools.count()

        def dying(whole: Callable[..., Any]) -> Callable[..., Any]:
            def call(*arguments: Any) -> Any:
                is_last = next(calls) == number
                if is_last and not after:
                    raise CrashError
                answer = whole(*arguments)
                if is_last:
                    raise CrashError
                return answer

            return call

        for name, whole in originals.items():
            monkeypatch.setattr(FolderJournal, name, dying(whole))

    return crash


@pytest.mark.parametrize("after", [False, True])
def test_no_step_is_taken_or_charged_twice_wherever_the_run_dies(
    tmp_path: Path,
    plan: TrainPlan,
    executed: list[int],
    crash_at_call: Callable[[int | None, bool], None],
    after: bool,
) -> None:
    for number in itertools.count():
        folder = tmp_path / f"run {number}"
        executed.clear()
        crash_at_call(number, after)
        try:
            run(plan, folder)
            break
        except CrashError:
            pass
        before = len(executed)
        crash_at_call(None, after)
        result = run(plan, folder, resume=True)
        check_finished(result, plan, executed)
        # What is lost is at most the block that was under way.
        assert len(executed) >= plan.num_private_steps - 3
        if before == 0:
            assert len(executed) in (plan.num_private_steps, plan.num_private_steps - 3)
    assert number > 15


def test_a_run_of_two_phases_dies_anywhere_and_goes_on(
    tmp_path: Path, two_phase_plan: TrainPlan, crash_at_call: Callable[[int | None, bool], None]
) -> None:
    kept: set[bytes] = set()
    for number in itertools.count():
        folder = tmp_path / f"run {number}"
        crash_at_call(number, True)
        try:
            run(two_phase_plan, folder)
            break
        except CrashError:
            pass
        has_labels = RunFolder.open(folder).has_array("randomized_labels")
        labels = RunFolder.open(folder).read_array("randomized_labels") if has_labels else None
        crash_at_call(None, True)
        run(two_phase_plan, folder, resume=True)
        again = RunFolder.open(folder).read_array("randomized_labels")
        assert charged_steps(folder) == list(range(two_phase_plan.num_private_steps))
        assert labels is None or labels.tolist() == again.tolist()
        kept.add(again.tobytes())
    assert number > 20
    # Every run has drawn labels of its own.
    assert len(kept) == number


@pytest.mark.parametrize("seed", range(3))
def test_a_run_may_die_again_and_again(
    tmp_path: Path,
    plan: TrainPlan,
    executed: list[int],
    crash_at_call: Callable[[int | None, bool], None],
    seed: int,
) -> None:
    chance = random.Random(seed)  # noqa: S311
    folder, resume = tmp_path / "run", False
    for _ in range(100):
        crash_at_call(chance.randrange(12), chance.random() < 0.5)
        try:
            result = run(plan, folder, resume=resume)
            break
        except CrashError:
            resume = True
    check_finished(result, plan, executed)


def test_an_unfinished_block_is_skipped(
    tmp_path: Path, plan: TrainPlan, executed: list[int]
) -> None:
    def die(progress: Progress) -> None:
        if progress.step == 5:
            raise CrashError

    with pytest.raises(CrashError):
        run(plan, tmp_path / "run", watch=die)
    assert executed == [0, 1, 2, 3, 4]
    result = run(plan, tmp_path / "run", resume=True)
    assert executed == [0, 1, 2, 3, 4, 6, 7]
    check_finished(result, plan, executed)
    # Steps 3 and 4 are lost with their block; the other five are in the optimizer.
    assert optimizer_steps(tmp_path / "run") == 5


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("last_step", [1, 3, 5, 8])
def test_a_stop_loses_nothing(
    tmp_path: Path, plan: TrainPlan, executed: list[int], number: int, last_step: int
) -> None:
    def stop(progress: Progress) -> None:
        if progress.step == last_step:
            os.kill(os.getpid(), number)

    folder = tmp_path / "run"
    if last_step < 8:
        with pytest.raises(RunInterruptedError, match=f"step {last_step} of phase 'private'"):
            run(plan, folder, watch=stop)
        assert executed == list(range(last_step))
        assert charged_steps(folder) == list(range(last_step))
        result = run(plan, folder, resume=True)
    else:
        result = run(plan, folder, watch=stop)
    assert executed == list(range(8))
    assert optimizer_steps(folder) == 8
    check_finished(result, plan, executed)


def test_weights_and_optimizer_go_on_from_the_checkpoint(
    tmp_path: Path, plan: TrainPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"
    with pytest.raises(RunInterruptedError):
        run(plan, folder, watch=stop_at(4))
    saved = RunFolder.open(folder).checkpoints().latest()
    loaded: dict[str, np.ndarray] = {}

    def die(*_: object) -> None:
        raise CrashError

    class Watching(private_training._PrivateTraining):
        def run(self) -> PrivateSteps:
            try:
                return super().run()
            finally:
                packed = private_training.pack(self._model, self._engine.state())
                loaded.update({name: values.numpy() for name, values in packed.items()})

    monkeypatch.setattr(FolderJournal, "begin", die)
    monkeypatch.setattr(private_training, "_PrivateTraining", Watching)
    with pytest.raises(CrashError):
        run(plan, folder, resume=True)
    assert saved is not None
    assert loaded.keys() == saved.tensors.keys()
    for name, values in saved.tensors.items():
        assert np.array_equal(values, loaded[name]), name
    assert any("mean_square" in name and values.any() for name, values in loaded.items())


@pytest.mark.parametrize("seed", [None, 7])
def test_a_resumed_run_draws_fresh_noise_and_fresh_batches(
    tmp_path: Path, plan: TrainPlan, monkeypatch: pytest.MonkeyPatch, seed: int | None
) -> None:
    noises: list[tuple[float, ...]] = []
    batches: list[tuple[int, ...]] = []
    add_to, draw = TrainingNoise.add_to, TruncatedPoisson._draw

    def noting_noise(self: TrainingNoise, values: torch.Tensor, stddev: float) -> None:
        drawn = torch.zeros_like(values)
        add_to(self, drawn, stddev)
        noises.append(tuple(drawn.flatten()[:2].tolist()))
        values += drawn

    def noting_batches(self: TruncatedPoisson, *arguments: Any) -> Iterator[Any]:
        for batch in draw(self, *arguments):
            batches.append(tuple(batch.indices[batch.weights > 0].tolist()))
            yield batch

    monkeypatch.setattr(TrainingNoise, "add_to", noting_noise)
    monkeypatch.setattr(TruncatedPoisson, "_draw", noting_batches)

    def stop(_: Progress) -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    resume = False
    for _ in range(plan.num_private_steps - 1):
        with pytest.raises(RunInterruptedError):
            run(plan, tmp_path / "run", resume=resume, watch=stop, seed=seed)
        resume = True
    run(plan, tmp_path / "run", resume=True, seed=seed)
    assert len(batches) == plan.num_private_steps
    assert len(set(noises)) == len(noises)
    assert len(set(batches)) == len(batches)


def test_a_run_that_diverges_says_so_and_stays_charged(tmp_path: Path, executed: list[int]) -> None:
    phase = private_phase(
        noise_multiplier=1.0, batch_size=80, epochs=1.57, optimizer=SGD(learning_rate=1e9)
    )
    wild = plan_for(dp_sgd(private_phase=phase))
    folder = tmp_path / "run"
    with pytest.raises(RunStateError, match=r"diverged.*What was spent stays spent"):
        run(wild, folder)
    assert executed == [0]
    assert charged_steps(folder) == [0, 1, 2]
    assert not (folder / "result.json").exists()
    with pytest.raises(RunStateError, match="diverged"):
        run(wild, folder, resume=True)
    assert executed == [0, 3]
    assert charged_steps(folder) == [0, 1, 2, 3, 4, 5]


def test_a_step_divides_by_the_public_expected_size(plan: TrainPlan) -> None:
    settings = step_settings(plan)
    assert isinstance(plan.sampler, TruncatedPoisson)
    assert settings.expected_size == plan.sampler.expected_size < 80
    assert settings.noise_stddev == pytest.approx(1.0)
    unit = UserLevel(max_rows_per_user=2, accounting=UserAccounting.CLIPPED_USERS)
    shape = make_shape(200, num_users=100)
    users = dp_sgd(unit=unit, private_phase=private_phase(noise_multiplier=1.0, batch_size=30))
    assert step_settings(users.make(shape)).expected_size == pytest.approx(30)


def test_a_plan_without_private_steps_has_no_step_settings() -> None:
    with pytest.raises(ConfigError, match="no private steps"):
        step_settings(plan_for(randomized_labels()))


def test_what_is_shown_of_a_step_is_the_noisy_loss_or_nothing(plan: TrainPlan) -> None:
    seen: list[Progress] = []
    fit(EXAMPLES, plan, options=RunOptions(watch=seen.append))
    assert [progress.step for progress in seen] == list(range(1, 9))
    assert {progress.phase for progress in seen} == {"private"}
    assert all(progress.loss is not None for progress in seen)
    spent = [progress.epsilon for progress in seen]
    assert spent == sorted(spent)  # type: ignore[type-var]
    assert spent[-1] == plan.privacy.guarantee.epsilon
    phase = private_phase(noise_multiplier=1.0, monitor_share=0.0, epochs=0.5)
    blind = plan_for(dp_sgd(private_phase=phase))
    seen.clear()
    fit(EXAMPLES, blind, options=RunOptions(watch=seen.append))
    assert all(progress.loss is None for progress in seen)


@pytest.mark.parametrize("accounting", UserAccounting)
def test_users_are_trained_on_and_resumed(tmp_path: Path, accounting: UserAccounting) -> None:
    examples = make_examples(400, rows_per_user=4)
    unit = UserLevel(max_rows_per_user=2, accounting=accounting)
    phase = private_phase(noise_multiplier=4.0, batch_size=60, epochs=2.0)
    config = dp_sgd(unit=unit, private_phase=phase)
    stops = iter([True])

    def stop(_: Progress) -> None:
        if next(stops, False):
            os.kill(os.getpid(), signal.SIGTERM)

    options = RunOptions(folder=tmp_path / "run", watch=stop)
    with pytest.raises(RunInterruptedError):
        fit(examples, config, options=options)
    result = fit(examples, config, options=dataclasses.replace(options, resume=True))
    assert charged_steps(tmp_path / "run") == list(range(result.plan.num_private_steps))
