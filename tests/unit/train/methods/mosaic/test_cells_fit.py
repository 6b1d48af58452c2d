"""Whole runs on cells: what they learn, what they keep, and that they pay and release once."""

import dataclasses
import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from tulle.accounting.ledger import Ledger
from tulle.accounting.refusal import SpendRefusedError
from tulle.data.schema import Schema
from tulle.errors import ConfigError, RunInterruptedError, RunStateError
from tulle.mechanisms.entropy import NoiseSource
from tulle.runs.charging import ReleaseCharge
from tulle.runs.folder import RunFolder
from tulle.runs.record import RESULT_FILE, card_of, read_training
from tulle.train import fitting
from tulle.train.classifier import Classifier
from tulle.train.examples import ExampleSet
from tulle.train.fitting import FitResult, fit
from tulle.train.methods.mosaic import cell_training
from tulle.train.methods.mosaic.cell_model import CellHead, CellModel
from tulle.train.methods.mosaic.method import MosaicConfig
from tulle.train.methods.mosaic.noise_shares import NoiseShares
from tulle.train.methods.mosaic.trained_cells import TrainedCells
from tulle.train.run_context import Progress, RunOptions
from tulle.train.settings.units import ExampleLevel
from tulle.train.training_run import MODEL_FOLDER, MODEL_KEPT, has_begun_model, load_model
from unit.train.small_data import make_examples, make_ledger, planned, stop_at

CONFIG = MosaicConfig(unit=ExampleLevel()).calibrate(epsilon=8.0, delta=1e-6)
NUM_ROWS = 4_000
TRAIN, TEST = make_examples(NUM_ROWS), make_examples(2_000, seed=1)


class CrashError(Exception):
    """The process dies here."""


def die(*_: Any, **__: Any) -> None:
    raise CrashError


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return make_ledger(tmp_path, epsilon=8.5, delta=1e-6)


def run(folder: Path | None = None, **options: Any) -> FitResult:
    return fit(
        TRAIN, planned(CONFIG, NUM_ROWS), test=TEST, options=RunOptions(folder=folder, **options)
    )


def crash_at(step: int) -> Callable[[Progress], None]:
    def watch(progress: Progress) -> None:
        if progress.step >= step:
            die()

    return watch


def only_role(examples: ExampleSet, role: str) -> ExampleSet:
    features = tuple(f for f in examples.features if f.role == role)
    if role == "public":
        return dataclasses.replace(examples, features=features, sensitive_features=None)
    none = np.zeros((examples.num_rows, 0), np.int32)
    return dataclasses.replace(examples, features=features, public_features=none)


def test_a_model_is_better_than_a_constant() -> None:
    result = run(seed=3)
    assert isinstance(result.model.model, CellModel)
    assert not result.model.is_truncated
    assert result.metrics is not None
    assert result.metrics.relative_log_likelihood > 0.3
    assert result.metrics.auc_loss < 0.15
    assert result.num_steps_lost == 0
    assert result.noise_multiplier == planned(CONFIG, NUM_ROWS).noise_multiplier


@pytest.mark.parametrize(("role", "is_truncated"), [("public", True), ("sensitive", False)])
def test_columns_of_one_role_are_enough(role: str, is_truncated: bool) -> None:
    train, test = only_role(TRAIN, role), only_role(TEST, role)
    result = fit(train, CONFIG, test=test, options=RunOptions(seed=3))
    assert result.model.is_truncated is is_truncated
    assert result.metrics is not None
    assert result.metrics.relative_log_likelihood > 0.05


def test_sensitive_columns_that_no_feature_names_do_not_matter() -> None:
    public = only_role(TRAIN, "public")
    other = dataclasses.replace(public, sensitive_features=np.zeros((NUM_ROWS, 0), np.int32))
    first, second = (fit(rows, CONFIG, options=RunOptions(seed=3)) for rows in (public, other))
    assert first.model.model.heads[0].bias == second.model.model.heads[0].bias


def test_the_noise_is_that_of_the_plan_and_its_shares_are_not_exceeded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[tuple[float, NoiseShares]] = []

    def noting(noise_multiplier: float, *, rng: NoiseSource, **more: Any) -> NoiseShares:
        shares = NoiseShares(noise_multiplier, rng=rng, **more)
        made.append((noise_multiplier, shares))
        return shares

    monkeypatch.setattr(cell_training, "NoiseShares", noting)
    result = run(seed=3)
    ((noise, shares),) = made
    assert noise == result.plan.noise_multiplier
    assert 0 <= shares.left < 0.5


def test_progress_tells_public_numbers_of_stages_alone() -> None:
    seen: list[Progress] = []
    run(seed=3, watch=seen.append)
    assert {(p.phase, p.num_steps, p.loss) for p in seen} == {("cells", 11, None)}
    assert seen[-1].step == 11
    assert seen[-1].epsilon == pytest.approx(8.0, abs=0.01)


def test_a_run_leaves_a_model_a_result_and_a_card(tmp_path: Path) -> None:
    result = run(tmp_path / "run")
    folder = RunFolder.open(tmp_path / "run")
    card = card_of(read_training(folder))
    assert card.plan == result.plan.privacy
    assert card.reasons == ()
    stored = folder.read_json(RESULT_FILE)
    assert (stored["method"], stored["steps"]) == ("mosaic", 0)
    assert stored["randomness"]["description"] == "operating-system entropy"
    loaded = load_model(tmp_path / "run" / MODEL_FOLDER)
    assert loaded.facts["plan_fingerprint"] == result.plan.privacy.fingerprint()
    assert TEST.sensitive_features is not None
    assert isinstance(loaded, TrainedCells)
    log_odds = loaded.model.log_odds(TEST.public_features, TEST.sensitive_features)
    found = 1 / (1 + np.exp(-log_odds))
    np.testing.assert_allclose(found, result.model.predict_proba(TEST), rtol=1e-12)


@pytest.mark.parametrize(
    ("watch", "error"), [(stop_at(2), RunInterruptedError), (crash_at(3), CrashError)]
)
def test_a_run_that_was_stopped_goes_on_with_what_it_released_and_pays_once(
    tmp_path: Path, ledger: Ledger, watch: Callable[[Progress], None], error: type[Exception]
) -> None:
    charge = ReleaseCharge(ledger=ledger, purpose="training")
    with pytest.raises(error):
        run(tmp_path / "run", charge=charge, watch=watch)
    assert len(ledger.spends("all")) == 1
    folder = RunFolder.open(tmp_path / "run")
    assert [record["kind"] for record in folder.records.read()] == ["started"]
    assert not (tmp_path / "run" / MODEL_FOLDER).exists()
    assert not (tmp_path / "run" / "checkpoints").exists()
    seen: list[Progress] = []
    result = run(tmp_path / "run", charge=charge, resume=True, watch=seen.append)
    assert seen[-1].step == 11
    (spend,) = ledger.spends("all")
    assert spend.request.event == result.plan.privacy.event
    # The budget has room for one run, so a second folder is refused.
    with pytest.raises(SpendRefusedError):
        run(tmp_path / "another", charge=charge)


@pytest.mark.parametrize("last", ["evaluation", "result", "end"])
def test_a_model_that_was_kept_is_never_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, last: str
) -> None:
    """Two models for the price of one would be twice the cost."""
    with monkeypatch.context() as patch:
        if last == "evaluation":
            patch.setattr(fitting.TrainedModel, "evaluate", die)
        if last == "result":
            patch.setattr(RunFolder, "write_json", die)
        if last == "end":
            run(tmp_path / "run")
        else:
            with pytest.raises(CrashError):
                run(tmp_path / "run")
    kept = load_model(tmp_path / "run" / MODEL_FOLDER).model
    monkeypatch.setattr(cell_training, "train_on_cells", die)
    result = run(tmp_path / "run", resume=True)
    assert isinstance(kept, CellModel)
    assert result.model.model.heads[0].bias == kept.heads[0].bias
    assert (tmp_path / "run" / RESULT_FILE).exists()


def test_a_model_that_was_kept_and_is_lost_or_damaged_is_not_made_again(tmp_path: Path) -> None:
    run(tmp_path / "run")
    tensors = tmp_path / "run" / MODEL_FOLDER / "model.safetensors"
    tensors.write_bytes(tensors.read_bytes()[:-1])
    with pytest.raises(RunStateError, match="is damaged"):
        run(tmp_path / "run", resume=True)
    shutil.rmtree(tensors.parent)
    with pytest.raises(RunStateError, match="is missing"):
        run(tmp_path / "run", resume=True)


def test_a_kill_between_the_model_and_its_record_is_no_second_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(tmp_path / "run")
    records = tmp_path / "run" / "records.jsonl"
    first = records.read_text().splitlines()[0]
    records.write_text(f"{first}\n")
    monkeypatch.setattr(cell_training, "train_on_cells", die)
    run(tmp_path / "run", resume=True)
    kinds = [record["kind"] for record in RunFolder.open(tmp_path / "run").records.read()]
    assert kinds == ["started", "started", "model kept"]


def hide_model(folder: Path) -> Path:
    """Takes a finished run back to where its model was written and not yet in place."""
    hidden = folder / f".{MODEL_FOLDER}.0123456789abcdef.partial"
    (folder / MODEL_FOLDER).rename(hidden)
    records = folder / "records.jsonl"
    records.write_text(records.read_text().replace(f'{{"kind": "{MODEL_KEPT}"}}\n', ""))
    return hidden


def test_a_hidden_model_that_is_not_as_it_was_written_is_no_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(tmp_path / "run")
    monkeypatch.setattr(cell_training, "train_on_cells", die)
    hidden = hide_model(tmp_path / "run")
    whole = {path: path.read_bytes() for path in hidden.iterdir()}
    for path in (hidden / "model.safetensors", hidden / "model.json"):
        for damaged in (whole[path][:1], whole[path][:-2], b"x" + whole[path][1:]):
            path.write_bytes(damaged)
            with pytest.raises(RunStateError, match="was cut off while it was written"):
                run(tmp_path / "run", resume=True)
        path.write_bytes(whole[path])
    run(tmp_path / "run", resume=True)
    assert {
        path.name: path.read_bytes() for path in (tmp_path / "run" / MODEL_FOLDER).iterdir()
    } == {path.name: content for path, content in whole.items()}
    assert not hidden.exists()


def test_a_hidden_model_of_another_plan_is_not_taken_for_the_one_that_was_paid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(tmp_path / "run")
    monkeypatch.setattr(cell_training, "train_on_cells", die)
    description = hide_model(tmp_path / "run") / "model.json"
    fingerprint = planned(CONFIG, NUM_ROWS).privacy.fingerprint()
    description.write_text(description.read_text().replace(fingerprint, fingerprint[::-1]))
    with pytest.raises(RunStateError, match="was cut off while it was written"):
        run(tmp_path / "run", resume=True)


def test_a_full_disk_is_noticed_before_a_byte_of_the_model_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "posix_fallocate", full)
        with pytest.raises(RunStateError, match="No space left on device"):
            run(tmp_path / "run")
    folder = RunFolder.open(tmp_path / "run")
    assert [record["kind"] for record in folder.records.read()] == ["started"]
    assert not has_begun_model(folder)
    run(tmp_path / "run", resume=True)


def test_a_model_that_was_whole_when_an_error_came_is_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", fail)
        with pytest.raises(RunStateError, match="Input/output error"):
            run(tmp_path / "run")
    monkeypatch.setattr(cell_training, "train_on_cells", die)
    run(tmp_path / "run", resume=True)


def test_the_ledger_is_charged_before_a_cell_is_summed(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    spends: list[int] = []

    def noting(*_: Any) -> CellModel:
        spends.append(len(ledger.spends("all")))
        return CellModel(heads=(CellHead(bias=0.0, tables=()),))

    monkeypatch.setattr(cell_training, "train_on_cells", noting)
    run(charge=ReleaseCharge(ledger=ledger, purpose="training"))
    assert spends == [1]


def test_a_plan_for_other_rows_is_refused() -> None:
    with pytest.raises(ConfigError, match="other data"):
        fit(make_examples(300), planned(CONFIG, NUM_ROWS))


def test_a_table_classifier_takes_cells() -> None:
    rng = np.random.default_rng(0)
    site, age = rng.integers(0, 6, 3_000), rng.integers(0, 4, 3_000)
    clicks = rng.random(3_000) < 1 / (1 + np.exp(-2.0 * (site - 2.5) - 2.0 * (age - 1.5)))
    table = pl.DataFrame({"click": clicks.astype(int), "site": site, "age": age})
    schema = Schema(label="click", public=("site",), sensitive=("age",))
    model = Classifier(schema, epsilon=8, delta=1e-6, seed=3).fit(table[:2_000])
    assert model.guarantee_.epsilon == 8
    assert model.predict_proba(table[2_000:]).shape == (1_000, 2)
    assert model.evaluate(table[2_000:]).relative_log_likelihood > 0.1
