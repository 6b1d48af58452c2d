import dataclasses
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from tulle.errors import RunInterruptedError, RunStateError
from tulle.mechanisms.entropy import SeededNoise
from tulle.runs.records import StopRequest
from tulle.train.fitting import fit
from tulle.train.losses import CrossEntropy
from tulle.train.methods.method import Method
from tulle.train.models.tower_model import TowerModel
from tulle.train.models.trained_towers import build_model
from tulle.train.run_context import Progress, RunOptions
from tulle.train.settings.models import LogisticRegression
from tulle.train.settings.optimizers import SGD
from tulle.train.settings.phases import EarlyStopping, PlainPhase
from tulle.train.steps import plain_training
from tulle.train.steps.plain_training import PlainTask, train_plain
from tulle.train.steps.step_context import MemoryJournal, StepContext
from unit.train.small_data import (
    FEATURES,
    SMALL_MLP,
    label_phase,
    make_examples,
    nonprivate,
    plain_phase,
    randomized_labels,
)

EXAMPLES = make_examples(320)


class CrashError(Exception):
    """The process dies here."""


def context(**changes: object) -> StepContext:
    usual = StepContext(
        device=torch.device("cpu"),
        rng=SeededNoise(0),
        journal=MemoryJournal(),
        stop=StopRequest(),
    )
    return dataclasses.replace(usual, **changes)


def task(phase: PlainPhase) -> PlainTask:
    return PlainTask(name="plain", phase=phase, loss=CrossEntropy(), order_seed=0, epsilon=None)


def weights(model: TowerModel) -> dict[str, torch.Tensor]:
    return {name: values.clone() for name, values in model.parameters.items()}


def are_equal(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> bool:
    return left.keys() == right.keys() and all(torch.equal(left[n], right[n]) for n in left)


def crash_at(step: int) -> Callable[[Progress], None]:
    def watch(progress: Progress) -> None:
        if progress.step == step:
            raise CrashError

    return watch


def test_a_step_of_sgd_is_the_mean_gradient_of_its_batch() -> None:
    model = build_model(LogisticRegression(), FEATURES, seed=0)
    phase = PlainPhase(epochs=1.0, batch_size=320, optimizer=SGD(learning_rate=0.5, momentum=0.0))
    train_plain(model, EXAMPLES, task(phase), context())
    # At zero weights each row's gradient of the bias is 1/2 - label.
    expected = 0.5 * (EXAMPLES.labels.mean() - 0.5)
    assert float(model.parameters["common.bias"]) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(
    ("losses", "patience", "best", "num_epochs"),
    [
        ([0.9, 0.5, 0.6, 0.7, 0.1, 0.1], 2, 2, 4),
        ([0.9, 0.95, 0.1, 0.1, 0.1, 0.1], 1, 1, 2),
        ([0.9, 0.95, 0.5, 0.4, 0.6, 0.7], 2, 4, 6),
        ([0.9, 0.8, 0.7, 0.6, 0.5, 0.4], 1, 6, 6),
        ([0.9, float("nan"), 0.1, 0.1, 0.1, 0.1], 1, 1, 2),
    ],
)
def test_early_stopping_ends_the_phase_and_keeps_the_best_weights(
    monkeypatch: pytest.MonkeyPatch,
    losses: list[float],
    patience: int,
    best: int,
    num_epochs: int,
) -> None:
    seen: list[dict[str, torch.Tensor]] = []
    left: Iterator[float] = iter(losses)

    def scripted(model: TowerModel, *_: object) -> float:
        seen.append(weights(model))
        return next(left)

    monkeypatch.setattr(plain_training, "mean_loss", scripted)
    stopping = EarlyStopping(validation_share=0.2, patience=patience)
    model = build_model(LogisticRegression(), FEATURES, seed=0)
    train_plain(model, EXAMPLES, task(plain_phase(early_stopping=stopping)), context())
    assert len(seen) == num_epochs
    assert are_equal(weights(model), seen[best - 1])
    assert not are_equal(seen[0], seen[1])


def test_rows_that_are_held_back_are_not_trained_on(monkeypatch: pytest.MonkeyPatch) -> None:
    trained: list[int] = []
    held: list[int] = []

    def remember(examples: object, *rest: object) -> object:
        trained.extend(examples.rows.tolist())  # type: ignore[attr-defined]
        return source(examples, *rest)  # type: ignore[arg-type]

    def look(_model: object, examples: object, *_: object) -> float:
        held[:] = examples.rows.tolist()  # type: ignore[attr-defined]
        return 0.5

    source = plain_training.batch_source
    monkeypatch.setattr(plain_training, "batch_source", remember)
    monkeypatch.setattr(plain_training, "mean_loss", look)
    stopping = EarlyStopping(validation_share=0.25)
    model = build_model(LogisticRegression(), FEATURES, seed=0)
    train_plain(model, EXAMPLES, task(plain_phase(early_stopping=stopping)), context())
    assert 40 < len(held) < 120
    assert sorted(trained + held) == list(range(320))


def test_a_share_that_holds_back_nothing_is_refused() -> None:
    stopping = EarlyStopping(validation_share=1e-9)
    model = build_model(LogisticRegression(), FEATURES, seed=0)
    with pytest.raises(RunStateError, match="leaves no rows"):
        train_plain(model, EXAMPLES, task(plain_phase(early_stopping=stopping)), context())


RESUMED: dict[str, Method] = {
    "labels": randomized_labels(model=SMALL_MLP),
    "labels, early stopping": randomized_labels(
        model=SMALL_MLP,
        label_phase=label_phase(
            epochs=5.0, early_stopping=EarlyStopping(validation_share=0.3, patience=2)
        ),
    ),
    "baseline": nonprivate(model=SMALL_MLP),
}


@pytest.mark.parametrize("name", RESUMED)
def test_a_phase_without_noise_goes_on_exactly_where_it_was(tmp_path: Path, name: str) -> None:
    plan = RESUMED[name].make(fit(EXAMPLES, RESUMED[name]).plan.shape)
    steps: list[int] = []

    def run(folder: str, **options: object) -> dict[str, torch.Tensor]:
        chosen = RunOptions(folder=tmp_path / folder, seed=5, checkpoint_every=3, **options)
        return weights(fit(EXAMPLES, plan, options=chosen).model.model)

    whole = run("whole", watch=lambda progress: steps.append(progress.step))
    assert len(steps) > 10
    # Every second step: checkpoints come every third, so these are before, at and after some.
    for crash in steps[::2]:
        with pytest.raises(CrashError):
            run(f"crash {crash}", watch=crash_at(crash))
        again: list[Progress] = []
        resumed = run(f"crash {crash}", resume=True, watch=again.append)
        assert are_equal(resumed, whole)
        # It went on from the last checkpoint, not from the beginning.
        assert not again or again[0].step == (crash - 1) // 3 * 3 + 1


def test_a_stop_in_between_loses_no_step(tmp_path: Path) -> None:
    plan = randomized_labels().make(fit(EXAMPLES, randomized_labels()).plan.shape)
    steps: list[int] = []

    def stop_at_seven(progress: Progress) -> None:
        steps.append(progress.step)
        if progress.step == 7:
            os.kill(os.getpid(), signal.SIGTERM)

    options = RunOptions(folder=tmp_path / "run", checkpoint_every=5, watch=stop_at_seven)
    with pytest.raises(RunInterruptedError, match="--resume"):
        fit(EXAMPLES, plan, options=options)
    result = fit(EXAMPLES, plan, options=dataclasses.replace(options, resume=True))
    assert steps == list(range(1, 21))
    assert result.folder is not None
    assert result.folder.path_of("result.json").exists()


def test_weights_that_are_no_number_are_found_though_no_loss_shows_them() -> None:
    model = build_model(LogisticRegression(), FEATURES, seed=0)
    model.parameters["public.table.0"][0] = float("inf")
    rows = np.flatnonzero(EXAMPLES.public_features[:, 0] != 0)
    with pytest.raises(RunStateError, match="lower the learning rate"):
        train_plain(model, EXAMPLES.select(rows), task(plain_phase()), context())


def test_a_loss_that_is_no_number_ends_the_phase(tmp_path: Path) -> None:
    phase = label_phase(optimizer=SGD(learning_rate=1e30), epochs=20.0)
    options = RunOptions(folder=tmp_path / "run", seed=0)
    for resume in (False, True):
        with pytest.raises(RunStateError, match="learning rate"):
            fit(
                EXAMPLES,
                randomized_labels(model=SMALL_MLP, label_phase=phase),
                options=dataclasses.replace(options, resume=resume),
            )
    assert not (tmp_path / "run" / "result.json").exists()
    assert not (tmp_path / "run" / "model").exists()
