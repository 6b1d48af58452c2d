import dataclasses
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tulle.accounting.budget import Budget
from tulle.accounting.ledger import Ledger
from tulle.accounting.ledger_rows import Spend, SpendStatus
from tulle.accounting.refusal import SpendRefusedError
from tulle.errors import ConfigError, DataError, RunStateError
from tulle.privacy.events import Gaussian, NonPrivate
from tulle.privacy.units import Adjacency, Unit
from tulle.runs.charging import ReleaseCharge
from tulle.runs.folder import RunFolder
from tulle.runs.records import Records
from tulle.train import fitting, label_training, training_run
from tulle.train.examples import ExampleSet
from tulle.train.fitting import fit
from tulle.train.methods import private_training
from tulle.train.methods.method import Method
from tulle.train.run_context import RunOptions
from tulle.train.settings.optimizers import SGD
from tulle.train.steps import plain_training
from tulle.train.steps.step_context import FolderJournal
from unit.train.small_data import (
    SMALL_MLP,
    dp_sgd,
    label_phase,
    make_examples,
    make_shape,
    nonprivate,
    planned,
    private_phase,
    randomized_labels,
    two_phase,
)

EXAMPLES = make_examples(200)


class CrashError(Exception):
    """The process dies here."""


def die(*_: Any, **__: Any) -> None:
    raise CrashError


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return make_ledger(tmp_path / "ledger.db")


def make_ledger(
    path: Path,
    *,
    epsilon: float = 50.0,
    unit: Unit | None = None,
    adjacency: Adjacency = Adjacency.REPLACE,
) -> Ledger:
    ledger = Ledger.create(path)
    for purpose in ("training", None):
        ledger.create_budget(
            Budget(
                name=f"for {purpose}",
                unit=unit or Unit.example(),
                adjacency=adjacency,
                epsilon=epsilon,
                delta=1e-3,
                purpose=purpose,
            )
        )
    return ledger


def spends(ledger: Ledger) -> tuple[Spend, ...]:
    assert ledger.spends("for training") == ledger.spends("for None")
    return ledger.spends("for training")


def options(ledger: Ledger, folder: Path | None, **changes: Any) -> RunOptions:
    return RunOptions(
        folder=folder, charge=ReleaseCharge(ledger=ledger, purpose="training"), **changes
    )


@pytest.mark.parametrize("config", [two_phase(), dp_sgd(), randomized_labels()])
def test_a_run_is_charged_once_with_its_event(
    tmp_path: Path, ledger: Ledger, config: Method
) -> None:
    result = fit(EXAMPLES, planned(config, 200), options=options(ledger, tmp_path / "run"))
    (spend,) = spends(ledger)
    assert spend.request.event == result.plan.privacy.event
    assert spend.request.unit == Unit.example()
    assert spend.status is SpendStatus.RELEASED
    fit(EXAMPLES, planned(config, 200), options=options(ledger, tmp_path / "run", resume=True))
    assert len(spends(ledger)) == 1
    fit(EXAMPLES, planned(config, 200), options=options(ledger, tmp_path / "another"))
    assert len(spends(ledger)) == 2


def test_a_run_without_a_folder_is_charged_each_time(ledger: Ledger) -> None:
    for number in (1, 2):
        fit(EXAMPLES, randomized_labels(), options=options(ledger, None))
        assert len(spends(ledger)) == number


def test_vocabularies_are_not_charged_again(ledger: Ledger) -> None:
    vocabulary = Gaussian(noise_multiplier=9.0)
    shape = dataclasses.replace(make_shape(200), vocabulary_event=vocabulary)
    plan = two_phase().make(shape)
    assert "9.0" in plan.privacy.to_json()
    assert plan.charged_event == planned(two_phase(), 200).privacy.event
    examples = dataclasses.replace(EXAMPLES, vocabulary_event=vocabulary)
    fit(examples, plan, options=options(ledger, None))
    assert spends(ledger)[0].request.event == plan.charged_event


def test_the_ledger_is_charged_before_labels_are_drawn_and_steps_are_taken(
    tmp_path: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []

    def noting(module: object, name: str) -> None:
        whole = getattr(module, name)

        def call(*arguments: Any, **options: Any) -> Any:
            order.append(f"{name} after {len(spends(ledger))} spends")
            return whole(*arguments, **options)

        monkeypatch.setattr(module, name, call)

    noting(label_training.LabelReports, "draw")
    noting(fitting, "charge_run")
    noting(plain_training, "train_plain")
    noting(private_training, "train_privately")
    fit(EXAMPLES, planned(two_phase(), 200), options=options(ledger, tmp_path / "run"))
    assert order == [
        "charge_run after 0 spends",
        "draw after 1 spends",
        "train_plain after 1 spends",
        "train_privately after 1 spends",
    ]


def test_a_run_that_is_refused_leaves_no_folder_and_costs_nothing(tmp_path: Path) -> None:
    ledger = make_ledger(tmp_path / "small.db", epsilon=1.0)
    folder = tmp_path / "run"
    with pytest.raises(SpendRefusedError):
        fit(EXAMPLES, randomized_labels(), options=options(ledger, folder))
    assert spends(ledger) == ()
    assert not folder.exists()


def test_a_run_that_is_refused_after_its_folder_was_made_can_go_on_where_there_is_budget(
    tmp_path: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process may take the budget between the check and the spend."""
    small = make_ledger(tmp_path / "small.db", epsilon=1.0)
    monkeypatch.setattr(fitting, "check_charge", lambda *_: None)
    folder = tmp_path / "run"
    for resume in (False, True):
        with pytest.raises(SpendRefusedError):
            fit(EXAMPLES, randomized_labels(), options=options(small, folder, resume=resume))
    opened = RunFolder.open(folder)
    assert not opened.has_array("randomized_labels")
    assert opened.records.read() == []
    assert opened.checkpoints().latest() is None
    assert not opened.path_of("result.json").exists()
    assert not opened.path_of("model").exists()
    fit(EXAMPLES, randomized_labels(), options=options(ledger, folder, resume=True))
    assert len(spends(ledger)) == 1


Break = Callable[[pytest.MonkeyPatch], None]
MOMENTS: dict[str, Break] = {
    "before the spend is marked": lambda patch: patch.setattr(Ledger, "_finish", die),
    "before the first record": lambda patch: patch.setattr(Records, "append", die),
    "before labels are kept": lambda patch: patch.setattr(FolderJournal, "labels", die),
    "before the phase of labels": lambda patch: patch.setattr(plain_training, "train_plain", die),
    "before the first step": lambda patch: patch.setattr(FolderJournal, "begin", die),
    "before the results": lambda patch: patch.setattr(training_run.TrainingRun, "write_model", die),
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_crash_after_the_spend_does_not_charge_twice(
    tmp_path: Path, ledger: Ledger, moment: str
) -> None:
    plan = planned(two_phase(), 200)
    for resume in (False, True):
        with pytest.MonkeyPatch.context() as patch:
            MOMENTS[moment](patch)
            if moment == "before the spend is marked" and resume:
                break
            with pytest.raises(CrashError):
                fit(EXAMPLES, plan, options=options(ledger, tmp_path / "run", resume=resume))
        assert len(spends(ledger)) == 1
    fit(EXAMPLES, plan, options=options(ledger, tmp_path / "run", resume=True))
    assert len(spends(ledger)) == 1


def test_a_crash_before_the_spend_charges_nothing_until_the_run_goes_on(
    tmp_path: Path, ledger: Ledger
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fitting, "charge_run", die)
        with pytest.raises(CrashError):
            fit(EXAMPLES, planned(two_phase(), 200), options=options(ledger, tmp_path / "run"))
    assert spends(ledger) == ()
    fit(EXAMPLES, planned(two_phase(), 200), options=options(ledger, tmp_path / "run", resume=True))
    assert len(spends(ledger)) == 1


WILD: dict[str, Method] = {
    "labels": two_phase(
        model=SMALL_MLP, label_phase=label_phase(epochs=20.0, optimizer=SGD(learning_rate=1e30))
    ),
    "private": dp_sgd(
        private_phase=private_phase(noise_multiplier=1.0, optimizer=SGD(learning_rate=1e9))
    ),
}


@pytest.mark.parametrize("name", WILD)
def test_a_run_that_diverges_is_charged_once(tmp_path: Path, ledger: Ledger, name: str) -> None:
    plan = planned(WILD[name], 200)
    for resume in (False, True, True):
        with pytest.raises(RunStateError, match="learning rate"):
            fit(EXAMPLES, plan, options=options(ledger, tmp_path / "run", resume=resume))
        assert len(spends(ledger)) == 1
    assert not (tmp_path / "run" / "result.json").exists()


def test_bad_data_and_bad_settings_cost_nothing(tmp_path: Path, ledger: Ledger) -> None:
    bad = dataclasses.replace(EXAMPLES, labels=EXAMPLES.labels + 1)
    with pytest.raises(DataError):
        fit(bad, planned(two_phase(), 200), options=options(ledger, tmp_path / "run"))
    with pytest.raises(ConfigError):
        fit(EXAMPLES, two_phase(target=None), options=options(ledger, tmp_path / "run"))
    with pytest.raises(RunStateError):
        fit(EXAMPLES, planned(two_phase(), 200), options=options(ledger, tmp_path))
    assert spends(ledger) == ()


def test_a_run_that_protects_examples_is_not_charged_to_a_budget_of_users(tmp_path: Path) -> None:
    users = make_ledger(tmp_path / "users.db", unit=Unit.user())
    with pytest.raises(ConfigError, match="does not cover unit"):
        fit(EXAMPLES, planned(two_phase(), 200), options=options(users, None))
    assert spends(users) == ()


@pytest.mark.parametrize("adjacency", [Adjacency.ADD_OR_REMOVE, Adjacency.ZERO_OUT])
def test_a_budget_under_another_adjacency_is_refused(tmp_path: Path, adjacency: Adjacency) -> None:
    other = make_ledger(tmp_path / "other.db", adjacency=adjacency)
    for folder in (None, tmp_path / "run"):
        with pytest.raises(ConfigError, match="a training run protects under replace"):
            fit(EXAMPLES, planned(two_phase(), 200), options=options(other, folder))
    assert spends(other) == ()
    assert not (tmp_path / "run").exists()


def test_a_baseline_cannot_be_charged(tmp_path: Path, ledger: Ledger) -> None:
    for folder in (None, tmp_path / "run"):
        with pytest.raises(ConfigError, match="cannot be charged"):
            fit(EXAMPLES, nonprivate(), options=options(ledger, folder))
    assert not (tmp_path / "run").exists()
    assert nonprivate().make(make_shape(200)).charged_event == NonPrivate()


def dated(first_day: int, last_day: int) -> ExampleSet:
    """Rows of some days since 1970."""
    days = np.linspace(first_day, last_day, EXAMPLES.num_rows).astype(np.int32)
    return dataclasses.replace(EXAMPLES, days=days)


class TestTime:
    """A budget that renews is charged in every window of the training rows."""

    SPAN = (datetime(1970, 1, 2, tzinfo=UTC), datetime(1970, 1, 3, 23, 59, 59, tzinfo=UTC))

    @pytest.fixture
    def daily(self, tmp_path: Path) -> Ledger:
        return make_ledger(tmp_path / "daily.db", epsilon=50.0, unit=Unit.example(days=1))

    def options(self, ledger: Ledger, folder: Path | None, **changes: Any) -> RunOptions:
        at, until = self.SPAN
        charge = ReleaseCharge(ledger=ledger, purpose="training", at=at, until=until)
        return RunOptions(folder=folder, charge=charge, **changes)

    def test_every_window_of_the_rows_is_charged(self, tmp_path: Path, daily: Ledger) -> None:
        fit(dated(1, 2), randomized_labels(), options=self.options(daily, tmp_path / "run"))
        for day, is_charged in ((1, False), (2, True), (3, True), (4, False)):
            left = daily.state("for training", datetime(1970, 1, day, tzinfo=UTC)).left_epsilon
            assert (left < 50.0) == is_charged

    @pytest.mark.parametrize("days", [(0, 2), (1, 3)])
    @pytest.mark.parametrize("is_kept", [True, False])
    def test_rows_of_another_time_cost_nothing(
        self, tmp_path: Path, daily: Ledger, days: tuple[int, int], is_kept: bool
    ) -> None:
        folder = tmp_path / "run" if is_kept else None
        with pytest.raises(ConfigError, match="times outside of at"):
            fit(dated(*days), randomized_labels(), options=self.options(daily, folder))
        assert spends(daily) == ()
        assert not (tmp_path / "run").exists()

    def test_rows_without_a_time_cannot_say_that_they_are_of_one(
        self, tmp_path: Path, daily: Ledger
    ) -> None:
        with pytest.raises(ConfigError, match="have no time to hold it against"):
            fit(EXAMPLES, randomized_labels(), options=self.options(daily, tmp_path / "run"))
        assert spends(daily) == ()

    def test_a_run_that_goes_on_unpaid_is_held_to_its_time_too(
        self, tmp_path: Path, daily: Ledger
    ) -> None:
        folder = tmp_path / "run"
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(fitting, "charge_run", die)
            patch.setattr(fitting, "check_charge", lambda *_: None)
            with pytest.raises(CrashError):
                fit(dated(0, 9), randomized_labels(), options=self.options(daily, folder))
        with pytest.raises(ConfigError, match="times outside of at"):
            fit(dated(0, 9), randomized_labels(), options=self.options(daily, folder, resume=True))
        assert spends(daily) == ()


def test_a_run_that_an_earlier_version_paid_is_not_charged_again(
    tmp_path: Path, ledger: Ledger
) -> None:
    plan = randomized_labels().make(make_shape(200))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fitting, "charge_run", die)
        with pytest.raises(CrashError):
            fit(EXAMPLES, plan, options=options(ledger, tmp_path / "run"))
    note = f"training run {RunFolder.open(tmp_path / 'run').run_id}"
    with ledger.spend(plan.charged_event, purpose="training", note=note, unit=Unit.example()):
        pass
    fit(EXAMPLES, plan, options=options(ledger, tmp_path / "run", resume=True))
    assert len(spends(ledger)) == 1
