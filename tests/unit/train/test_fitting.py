import dataclasses
import fcntl
import json
import math
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import binomtest

import tulle
from tulle.errors import ConfigError, DataError, RunStateError
from tulle.runs.folder import RunFolder
from tulle.train.examples import ExampleSet
from tulle.train.fitting import FitResult, fit, make_plan
from tulle.train.methods.method import Accounting, Method
from tulle.train.run_context import Progress, RunOptions
from tulle.train.settings.phases import LabelCorrection, PublicTower, RatioSplit
from tulle.train.settings.units import RowChoice, UserLevel
from tulle.train.steps import plain_training
from unit.train.small_data import (
    SMALL_MLP,
    dp_sgd,
    label_phase,
    make_examples,
    nonprivate,
    planned,
    private_phase,
    randomized_labels,
    two_phase,
    write_dataset,
)

EXAMPLES = make_examples(400)
TEST = make_examples(1000, seed=1)


class CrashError(Exception):
    """The process dies here."""


def die(*_: object) -> None:
    raise CrashError


def same_weights(left: FitResult, right: FitResult) -> bool:
    mine, theirs = left.model.model.parameters, right.model.model.parameters
    return mine.keys() == theirs.keys() and all(torch.equal(mine[n], theirs[n]) for n in mine)


LEARNING: dict[str, tuple[Method, float]] = {
    # The most AUC loss that counts as learnt; a constant has 0.5.
    "two-phase": (two_phase(private_phase=private_phase(noise_multiplier=0.5, epochs=8.0)), 0.25),
    "frozen": (
        two_phase(
            private_phase=private_phase(
                noise_multiplier=0.5, epochs=8.0, public_tower=PublicTower.FREEZE
            )
        ),
        0.25,
    ),
    "debiased": (
        randomized_labels(label_phase=label_phase(correction=LabelCorrection.DEBIASED)),
        0.3,
    ),
    "rr": (randomized_labels(), 0.3),
    "dp-sgd": (dp_sgd(private_phase=private_phase(noise_multiplier=0.5, epochs=8.0)), 0.3),
    "nonprivate": (nonprivate(), 0.15),
}


@pytest.mark.parametrize("name", LEARNING)
def test_every_method_learns(name: str) -> None:
    config, most = LEARNING[name]
    result = fit(EXAMPLES, config, test=TEST, options=RunOptions(seed=3))
    assert result.metrics is not None
    assert result.metrics.auc_loss < most
    assert not result.is_secure


def test_rows_that_are_there_twice_are_refused_by_private_methods() -> None:
    """Noise for one row would hide half of what such a row adds."""
    places = np.arange(400)
    assert not EXAMPLES.select(places[::-1]).has_repeated_rows
    places[17] = 3
    twice = EXAMPLES.select(places)
    assert twice.has_repeated_rows
    for name in ("two-phase", "rr", "dp-sgd"):
        with pytest.raises(DataError, match="more than once"):
            fit(twice, LEARNING[name][0], options=RunOptions(seed=0))
    assert fit(twice, LEARNING["nonprivate"][0], options=RunOptions(seed=0)).model


def test_sensitive_columns_help_where_they_are_read() -> None:
    baseline = fit(EXAMPLES, nonprivate(), test=TEST).metrics
    labels = fit(
        EXAMPLES, randomized_labels(target=None).calibrate(epsilon=20.0), test=TEST
    ).metrics
    assert baseline is not None
    assert labels is not None
    assert baseline.auc_loss < labels.auc_loss - 0.02


def test_two_phases_that_give_all_to_labels_are_randomized_labels_alone() -> None:
    labels_alone = randomized_labels(model=SMALL_MLP)
    config = two_phase(model=SMALL_MLP, split=RatioSplit(label_share=1.0))
    config = config.calibrate(epsilon=3.0, delta=1e-5)
    mine, theirs = (
        fit(EXAMPLES, planned(c), options=RunOptions(seed=11)) for c in (config, labels_alone)
    )
    assert same_weights(mine, theirs)
    assert mine.plan.privacy.event == theirs.plan.privacy.event
    assert mine.plan.privacy.guarantee == theirs.plan.privacy.guarantee
    assert mine.model.is_truncated
    assert not same_weights(mine, fit(EXAMPLES, planned(config), options=RunOptions(seed=12)))


def test_two_phases_that_give_nothing_to_labels_are_dp_sgd() -> None:
    config = two_phase(model=SMALL_MLP, split=RatioSplit(label_share=0.0))
    mine, theirs = (
        fit(EXAMPLES, planned(c), options=RunOptions(seed=11))
        for c in (config, dp_sgd(model=SMALL_MLP))
    )
    assert same_weights(mine, theirs)
    assert mine.plan.privacy.event == theirs.plan.privacy.event
    assert mine.plan.privacy.guarantee == theirs.plan.privacy.guarantee
    assert not same_weights(mine, fit(EXAMPLES, planned(config), options=RunOptions(seed=12)))


def test_labels_are_flipped_as_often_as_the_plan_says(tmp_path: Path) -> None:
    examples = make_examples(120_000)
    config = randomized_labels(label_phase=label_phase(epochs=0.001, batch_size=4096))
    options = RunOptions(folder=tmp_path / "run", seed=0)
    fit(examples, config.calibrate(epsilon=0.5), options=options)
    kept = RunFolder.open(tmp_path / "run").read_array("randomized_labels")
    flip_prob = 1 / (1 + math.exp(0.5))
    for label in (0, 1):
        true = examples.labels == label
        assert binomtest(int((kept[true] != label).sum()), int(true.sum()), flip_prob).pvalue > 1e-9
    flips = int((kept != examples.labels).sum())
    assert binomtest(flips, len(kept), 1.05 * flip_prob).pvalue < 1e-9
    assert binomtest(flips, len(kept), 0.95 * flip_prob).pvalue < 1e-9


def test_a_resumed_run_trains_on_the_labels_and_rows_of_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    examples = make_examples(400, rows_per_user=4)
    given: list[ExampleSet] = []

    def dying(_model: object, examples: ExampleSet, *_: object) -> None:
        given.append(examples)
        raise CrashError

    monkeypatch.setattr(plain_training, "train_plain", dying)
    unit = UserLevel(choice=RowChoice.RANDOM)
    for resume in (False, True, True):
        with pytest.raises(CrashError):
            fit(
                examples,
                randomized_labels(unit=unit),
                options=RunOptions(folder=tmp_path / "run", resume=resume),
            )
    first, *others = given
    for other in others:
        assert first.rows is not None
        assert first.rows.tolist() == other.rows.tolist()
        assert first.labels.tolist() == other.labels.tolist()
    # Another run chooses other rows.
    with pytest.raises(CrashError):
        fit(examples, randomized_labels(unit=unit), options=RunOptions(folder=tmp_path / "other"))
    assert first.rows.tolist() != given[-1].rows.tolist()


def test_a_finished_run_can_be_opened_again_and_trains_no_more(tmp_path: Path) -> None:
    for config in (two_phase(), randomized_labels(), nonprivate()):
        steps: list[object] = []
        options = RunOptions(folder=tmp_path / type(config).__name__, watch=steps.append)
        first = fit(EXAMPLES, planned(config), test=TEST, options=options)
        steps.clear()
        resumed = dataclasses.replace(options, resume=True)
        again = fit(EXAMPLES, planned(config), test=TEST, options=resumed)
        assert same_weights(first, again)
        assert steps == []
        assert first.metrics == again.metrics


LEAN = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("scipy", "dp_accounting", "polars", "typer", "rich"):
            raise ImportError(f"{name} is not here")
        return None

sys.meta_path.insert(0, Blocked())
from pathlib import Path
from tulle.data.prepared.dataset import PreparedDataset
from tulle.train.fitting import fit
from tulle.train.methods.train_plan import TrainPlan
from tulle.train.run_context import RunOptions

data, test, text, folder = sys.argv[1:]
plan = TrainPlan.from_json(Path(text).read_text())
options = RunOptions(folder=Path(folder))
dataset = PreparedDataset.open(data)
result = fit(dataset, plan, test=PreparedDataset.open(test), options=options)
assert not {"scipy", "dp_accounting", "polars", "typer", "rich"} & set(sys.modules)
print(f"{result.metrics.auc_loss:.4f}")
"""

LEAN_VERB = (
    LEAN.partition("from pathlib")[0]
    + """
import tulle

data, test, text, folder = sys.argv[1:]
result = tulle.train.fit(data, plan=text, test=test, output=folder)
assert not {"scipy", "dp_accounting", "polars", "typer", "rich"} & set(sys.modules)
print(f"{result.metrics.auc_loss:.4f}")
"""
)


@pytest.mark.parametrize("program", [LEAN, LEAN_VERB])
def test_a_finished_plan_trains_without_the_accountant_and_its_libraries(
    tmp_path: Path, program: str
) -> None:
    dataset = write_dataset(tmp_path / "data", EXAMPLES)
    test = write_dataset(tmp_path / "test", TEST)
    text = tmp_path / "plan.json"
    text.write_text(make_plan(dataset, two_phase()).to_json())
    command = [sys.executable, "-c", program, dataset.folder, test.folder, text, tmp_path / "run"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert 0 < float(done.stdout) < 0.5
    assert (tmp_path / "run" / "result.json").exists()
    if program is LEAN_VERB:
        # The card is made where the accountant is: the same call, going on with the finished run.
        assert not (tmp_path / "run" / "card.json").exists()
        again = tulle.train.fit(
            dataset, plan=text, test=test.folder, output=tmp_path / "run", resume=True
        )
        assert (tmp_path / "run" / "card.json").exists()
        assert f"{again.metrics.auc_loss:.4f}" == done.stdout.strip()


def test_labels_that_are_hardly_randomized_can_be_trained_on() -> None:
    result = fit(EXAMPLES, randomized_labels().calibrate(epsilon=800.0))
    assert result.plan.method.label_epsilon == 800.0


def test_a_plan_for_other_data_is_refused(tmp_path: Path) -> None:
    plan = planned(dp_sgd())
    narrow = dataclasses.replace(EXAMPLES.features[0], num_ids=60)
    for other in (
        make_examples(401),
        dataclasses.replace(EXAMPLES, features=(narrow, *EXAMPLES.features[1:])),
    ):
        with pytest.raises(ConfigError, match="made for other data"):
            fit(other, plan, options=RunOptions(folder=tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def broken(name: str, place: tuple[int, ...], value: float) -> ExampleSet:
    values = getattr(EXAMPLES, name).copy()
    values[place] = value
    return dataclasses.replace(EXAMPLES, **{name: values})


@pytest.mark.parametrize("config", [two_phase(), dp_sgd(), randomized_labels(), nonprivate()])
def test_bad_data_is_refused_before_anything_is_written(tmp_path: Path, config: Method) -> None:
    for examples, message in (
        (broken("labels", (3,), 2), "label is not 0 or 1"),
        (broken("public_features", (3, 0), 6), "'site' has an id outside"),
        (dataclasses.replace(EXAMPLES, labels=None), "no label column"),
        (EXAMPLES.select(np.arange(0)), "no training rows"),
    ):
        with pytest.raises(DataError, match=message):
            fit(examples, planned(config), options=RunOptions(folder=tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def test_test_rows_are_checked_before_anything_is_written(tmp_path: Path) -> None:
    narrow = dataclasses.replace(TEST, features=TEST.features[:3])
    for config, test, message in (
        (randomized_labels(), dataclasses.replace(TEST, labels=None), "no label column"),
        (randomized_labels(), broken("public_features", (3, 0), 6), "outside its range"),
        (nonprivate(), broken("sensitive_features", (3, 0), 4), "outside its range"),
        (randomized_labels(), narrow, "other features than the training rows"),
    ):
        with pytest.raises(DataError, match=message):
            fit(EXAMPLES, config, test=test, options=RunOptions(folder=tmp_path / "run"))
    assert not (tmp_path / "run").exists()


CHANGED: dict[str, tuple[ExampleSet, Method, int | None, str]] = {
    "labels": (broken("labels", (0,), 1 - EXAMPLES.labels[0]), two_phase(), 1, "data_fingerprint"),
    "columns": (
        broken("sensitive_features", (0, 0), (EXAMPLES.sensitive_features[0, 0] + 1) % 4),
        two_phase(),
        1,
        "data_fingerprint",
    ),
    "units": (
        dataclasses.replace(EXAMPLES, units=EXAMPLES.units + 1),
        two_phase(),
        1,
        "data_fingerprint",
    ),
    "rows": (EXAMPLES.select(np.arange(400)[::-1]), two_phase(), 1, "data_fingerprint"),
    "model": (EXAMPLES, two_phase(model=SMALL_MLP), 1, "model.kind"),
    "noise": (
        EXAMPLES,
        two_phase(private_phase=private_phase(noise_multiplier=2.0)),
        1,
        "noise_mult",
    ),
    "target": (EXAMPLES, two_phase().calibrate(epsilon=4.0, delta=1e-5), 1, "target.epsilon"),
    "seed": (EXAMPLES, two_phase(), 2, "seed"),
    "no seed": (EXAMPLES, two_phase(), None, "seed"),
}


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that died before its first step."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plain_training, "train_plain", die)
        with pytest.raises(CrashError):
            fit(EXAMPLES, planned(two_phase()), options=RunOptions(folder=folder, seed=1))
    return folder


@pytest.mark.parametrize("name", CHANGED)
def test_a_run_goes_on_only_with_what_it_was_begun_with(begun: Path, name: str) -> None:
    examples, config, seed, message = CHANGED[name]
    before = (begun / "records.jsonl").read_bytes()
    with pytest.raises(RunStateError, match=message):
        fit(examples, planned(config), options=RunOptions(folder=begun, resume=True, seed=seed))
    assert (begun / "records.jsonl").read_bytes() == before


def test_a_folder_in_use_is_refused(begun: Path) -> None:
    with (begun / "run.lock").open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(RunStateError, match="in use by another process"):
            fit(
                EXAMPLES,
                planned(two_phase()),
                options=RunOptions(folder=begun, resume=True, seed=1),
            )


def test_a_new_run_does_not_go_into_the_folder_of_another(begun: Path) -> None:
    with pytest.raises(RunStateError, match="resume=True"):
        fit(EXAMPLES, planned(two_phase()), options=RunOptions(folder=begun, seed=1))


def test_there_is_nothing_to_resume_in_an_empty_folder(tmp_path: Path) -> None:
    with pytest.raises(RunStateError, match="is no run"):
        fit(EXAMPLES, planned(two_phase()), options=RunOptions(folder=tmp_path, resume=True))
    with pytest.raises(ConfigError, match="needs the folder"):
        RunOptions(resume=True)


def test_a_reproduction_of_the_papers_says_that_it_is_one(tmp_path: Path) -> None:
    options = RunOptions(folder=tmp_path / "run")
    papers = fit(EXAMPLES, dp_sgd(accounting=Accounting.PAPER_RDP), test=TEST, options=options)
    shown = papers.record.to_dict()
    assert shown["reproduction_only"] is True
    assert "nothing sound" in shown["accounting_note"]
    assert RunFolder.open(tmp_path / "run").read_json("result.json") == shown
    assert shown["test"] == "rows that were held out"
    sound = fit(EXAMPLES, planned(dp_sgd())).record.to_dict()
    assert (sound["reproduction_only"], sound["accounting_note"]) == (False, "")
    labels = two_phase(accounting=Accounting.PAPER_RDP, split=RatioSplit(label_share=1.0))
    assert not fit(EXAMPLES, labels).record.reproduction_only


def test_results_say_what_was_spent_and_how_it_was_noised() -> None:
    options = RunOptions(test_name="others")
    result = fit(EXAMPLES, planned(two_phase()), test=TEST, options=options)
    shown = result.record.to_dict()
    assert shown["epsilon"] == result.plan.privacy.guarantee.epsilon
    assert (shown["delta"], shown["method"], shown["test"]) == (1e-5, "hybrid", "others")
    assert (shown["noise_multiplier"], shown["steps"]) == (1.0, result.plan.num_private_steps)
    assert shown["randomness"]["is_secure"] is result.is_secure is True
    assert shown["metrics"]["auc_loss"] == result.metrics.auc_loss
    baseline = fit(EXAMPLES, nonprivate()).record.to_dict()
    assert (baseline["epsilon"], baseline["metrics"], baseline["steps"]) == (None, None, 0)
    seeded = fit(EXAMPLES, planned(dp_sgd()), options=RunOptions(seed=4))
    assert not seeded.record.is_secure
    assert "seed 4" in seeded.noise_description


@pytest.mark.parametrize("wrong", ["folder", None, 3])
def test_other_things_than_data_and_configs_are_refused(wrong: object) -> None:
    examples = make_examples(80)
    with pytest.raises(ConfigError, match="must be a PreparedDataset or an ExampleSet"):
        fit(wrong, randomized_labels())  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"must be a config of tulle\.train"):
        fit(examples, wrong)  # type: ignore[arg-type]


def test_a_run_that_was_killed_while_it_exported_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def kill(*_arguments: object) -> None:
        raise KeyboardInterrupt

    examples, options = make_examples(80), RunOptions(folder=tmp_path / "run")
    with monkeypatch.context() as killing:
        killing.setattr(os, "rename", kill)
        killing.setattr(shutil, "rmtree", lambda *_arguments, **_named: None)
        with pytest.raises(KeyboardInterrupt):
            fit(examples, randomized_labels(), options=options)
    assert len([*tmp_path.glob("run/.model.*")]) == 1
    fit(examples, randomized_labels(), options=dataclasses.replace(options, resume=True))
    assert [*tmp_path.glob("run/.model.*")] == []
    assert (tmp_path / "run" / "model" / "model.json").exists()


def test_a_damaged_model_is_exported_again(tmp_path: Path) -> None:
    examples, options = make_examples(80), RunOptions(folder=tmp_path / "run")
    fit(examples, randomized_labels(), options=options)
    weights = tmp_path / "run" / "model" / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-8])
    fit(examples, randomized_labels(), options=dataclasses.replace(options, resume=True))
    assert weights.read_bytes() == whole


def test_steps_that_were_lost_are_told(tmp_path: Path) -> None:
    def interrupt(progress: Progress) -> None:
        if progress.phase == "private" and progress.step == 4:
            raise KeyboardInterrupt

    examples = make_examples(200)
    options = RunOptions(folder=tmp_path / "run", checkpoint_every=3)
    with pytest.raises(KeyboardInterrupt):
        fit(examples, dp_sgd(), options=dataclasses.replace(options, watch=interrupt))
    result = fit(examples, dp_sgd(), options=dataclasses.replace(options, resume=True))
    # The second block, steps 3 to 5, was begun and is not repeated; it may be cut by the end.
    expected = min(3, result.plan.num_private_steps - 3)
    assert result.num_steps_lost == expected > 0
    stored = json.loads((tmp_path / "run" / "result.json").read_text())
    assert stored["steps_lost"] == expected
