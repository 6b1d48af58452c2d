"""Training on released reports, and predictions that are taken back from reports to labels."""

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from tulle.errors import ConfigError, DataError
from tulle.mechanisms.entropy import NoiseSource, SeededNoise
from tulle.mechanisms.randomized_response import (
    RandomizedResponseConfig,
    release_randomized_response,
)
from tulle.runs.folder import RunFolder
from tulle.train import label_training
from tulle.train.examples import ExampleSet
from tulle.train.fitting import fit
from tulle.train.label_training import fit_on_reports
from tulle.train.losses import ReportLoss
from tulle.train.methods.catalogue import method_data, method_from
from tulle.train.models.batches import _Resident, batch_of, mean_loss
from tulle.train.models.trained_towers import build_model
from tulle.train.run_context import RunOptions
from tulle.train.settings.models import LogisticRegression
from tulle.train.settings.optimizers import Adam
from tulle.train.settings.phases import EarlyStopping, LabelCorrection
from tulle.train.settings.units import RowChoice, UserLevel
from unit.train.small_data import (
    label_phase,
    make_examples,
    randomized_labels,
    two_phase,
    write_dataset,
)

TEST = make_examples(4000, seed=1)


def rare_examples(num_rows: int, *, seed: int) -> ExampleSet:
    """Labels of which about one in ten is 1."""
    examples = make_examples(num_rows, seed=seed)
    kept = np.random.default_rng(seed).random(num_rows) < 0.2
    return dataclasses.replace(examples, labels=examples.labels * kept.astype(np.float32))


def released(examples: ExampleSet, epsilons: np.ndarray) -> ExampleSet:
    """Reports with an epsilon for each row, as a released table has them."""
    noisy, probs = np.empty(examples.num_rows), np.empty((examples.num_rows, 2))
    for epsilon in np.unique(epsilons):
        rows = epsilons == epsilon
        config = RandomizedResponseConfig(epsilon=float(epsilon))
        labels = examples.labels[rows].astype(np.int64)
        noisy[rows] = release_randomized_response(
            labels, config, rng=SeededNoise(int(100 * epsilon))
        )
        flip = float(config.support_probs.if_not_held)
        probs[rows] = flip, 1 - flip
    return dataclasses.replace(examples, labels=noisy.astype(np.float32), report_probs=probs)


@pytest.mark.parametrize("correction", LabelCorrection)
def test_only_uncorrected_training_gets_the_chances_wrong(correction: LabelCorrection) -> None:
    reports = released(rare_examples(20_000, seed=2), np.full(20_000, 1.0))
    phase = label_phase(correction=correction, batch_size=500)
    trained = fit_on_reports(reports, LogisticRegression(), phase)
    metrics = trained.evaluate(rare_examples(4000, seed=3))
    assert metrics.auc_loss < 0.35
    if correction is LabelCorrection.NAIVE:
        assert metrics.calibration > 2
        assert metrics.relative_log_likelihood < 0
    else:
        assert metrics.calibration == pytest.approx(1, abs=0.3)
        assert metrics.relative_log_likelihood > 0.05


def test_weights_keep_noisy_rows_from_drowning_the_others() -> None:
    found = {}
    for weight_rows in (False, True):
        phase = label_phase(
            correction=LabelCorrection.DEBIASED, batch_size=500, weight_rows=weight_rows
        )
        reports = released(rare_examples(20_000, seed=2), np.tile([0.3, 3.0], 10_000))
        trained = fit_on_reports(reports, LogisticRegression(), phase)
        found[weight_rows] = trained.evaluate(rare_examples(4000, seed=3)).relative_log_likelihood
    assert found[True] > 0.05
    assert found[True] > found[False] + 0.02


def test_calibration_keeps_the_order_of_rows() -> None:
    reports = released(rare_examples(4000, seed=2), np.full(4000, 2.0))
    naive, calibrated = (
        fit_on_reports(reports, LogisticRegression(), label_phase(correction=correction))
        for correction in (LabelCorrection.NAIVE, LabelCorrection.CALIBRATED)
    )
    before, after = naive.predict_proba(TEST), calibrated.predict_proba(TEST)
    assert after == pytest.approx(calibrated.report_channel.label_probs(before))
    order = np.argsort(before, kind="stable")
    assert (np.diff(after[order]) >= 0).all()
    assert after.min() >= 0.001
    assert abs(naive.evaluate(TEST).auc_loss - calibrated.evaluate(TEST).auc_loss) < 0.05


def test_a_run_calibrates_what_it_predicts_evaluates_and_exports(tmp_path: Path) -> None:
    phase = label_phase(correction=LabelCorrection.CALIBRATED)
    config = randomized_labels(label_phase=phase).calibrate(epsilon=1.5)
    result = fit(
        make_examples(400), config, test=TEST, options=RunOptions(folder=tmp_path / "run", seed=1)
    )
    flip = 1 / (1 + np.exp(1.5))
    public = torch.from_numpy(TEST.public_features).long()
    raw = torch.sigmoid(result.model.model.forward(public, None).logits).double().numpy()
    expected = np.clip((raw - flip) / (1 - 2 * flip), 0.001, 1)
    assert result.model.predict_proba(TEST) == pytest.approx(expected, abs=1e-6)
    assert result.metrics == result.model.evaluate(TEST)
    facts = json.loads((tmp_path / "run/model/model.json").read_text())["facts"]
    assert facts["report_probs"] == pytest.approx([flip, 1 - flip])
    np.save(tmp_path / "ids.npy", TEST.public_features)
    code = (
        "import numpy, torch; from load_model import load_model;"
        "ids = torch.from_numpy(numpy.load('../../ids.npy'));"
        "numpy.save('../../out.npy', load_model('.').predict_proba(ids).numpy())"
    )
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path / "run/model", check=True)
    assert np.load(tmp_path / "out.npy") == pytest.approx(expected, abs=1e-5)


def test_other_runs_export_no_chances(tmp_path: Path) -> None:
    fit(make_examples(400), randomized_labels(), options=RunOptions(folder=tmp_path / "run"))
    facts = json.loads((tmp_path / "run/model/model.json").read_text())["facts"]
    assert set(facts) == {"plan_fingerprint"}


def test_calibration_is_refused_before_anything_is_charged_where_it_would_be_wrong(
    tmp_path: Path,
) -> None:
    phase = label_phase(correction=LabelCorrection.CALIBRATED)
    examples = make_examples(400, rows_per_user=3)
    unit = UserLevel(max_sharing_labels_per_user=2, choice=RowChoice.FIRST)
    # 400 rows of 3 leave one user with a single row, and so another chance.
    config = randomized_labels(label_phase=phase, unit=unit)
    with pytest.raises(ConfigError, match="same probabilities"):
        fit(examples, config, options=RunOptions(folder=tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def test_two_phases_cannot_be_calibrated_after_training() -> None:
    with pytest.raises(ConfigError, match="hybrid algorithm trains on"):
        two_phase(label_phase=label_phase(correction=LabelCorrection.CALIBRATED))


def memorised_logits(**changes: object) -> np.ndarray:
    """Of 60 rows with an id of their own each, after long debiased training."""
    examples = make_examples(60)
    ids = np.arange(60, dtype=np.int32)[:, None]
    feature = dataclasses.replace(examples.features[0], num_ids=60)
    alone = dataclasses.replace(
        examples, features=(feature,), public_features=ids, sensitive_features=None
    )
    phase = label_phase(correction=LabelCorrection.DEBIASED, epochs=400.0, batch_size=60, **changes)
    trained = fit_on_reports(released(alone, np.full(60, 1.0)), LogisticRegression(), phase)
    chances = trained.predict_proba(alone)
    return np.abs(np.log(chances / (1 - chances)))


REMEDIES: dict[str, tuple[dict[str, object], float]] = {
    "a bound": ({"max_logit": 3.0}, 3.5),
    # Adam moves a weight by its rate at most, so decay d holds it within 1 / d.
    "weight decay": ({"optimizer": Adam(learning_rate=0.05, weight_decay=0.5)}, 4.1),
    "early stopping": ({"early_stopping": EarlyStopping(validation_share=0.3)}, 1.5),
}


@pytest.mark.parametrize("name", REMEDIES)
def test_a_memorising_run_diverges_without_a_remedy_and_stays_with_one(name: str) -> None:
    settings, most = REMEDIES[name]
    assert memorised_logits().max() > 8
    assert memorised_logits(**settings).max() < most


def test_the_loss_of_rows_held_back_is_the_debiased_one() -> None:
    reports = released(make_examples(40), np.tile([0.5, 2.0], 20))
    model = build_model(LogisticRegression(), reports.features, seed=0)
    model.output_bias.fill_(0.7)
    reports = reports.without_sensitive(reports.labels)
    loss = ReportLoss(correction=LabelCorrection.DEBIASED)
    flips = 1 / (1 + np.exp(np.tile([0.5, 2.0], 20)))
    targets = (reports.labels - flips) / (1 - 2 * flips)
    expected = np.mean(np.log1p(np.exp(0.7)) - targets * 0.7)
    assert mean_loss(model, reports, loss, torch.device("cpu")) == pytest.approx(expected, rel=1e-5)


def test_rows_on_a_device_bring_their_chances() -> None:
    reports = released(make_examples(6), np.array([1.0, 1, 2, 2, 3, 3])).select(
        np.arange(5, -1, -1)
    )
    source = _Resident(reports, torch.device("cpu"))
    places = np.array([4, 0])
    assert (source.batch(places).report_probs.numpy() == reports.report_probs[places]).all()
    gathered = batch_of(reports, places).report_probs
    assert (gathered.numpy() == reports.report_probs[places]).all()


def test_reports_are_not_taken_for_labels(tmp_path: Path) -> None:
    reports = released(make_examples(400), np.full(400, 1.0))
    with pytest.raises(DataError, match="fit_on_reports"):
        fit(reports, randomized_labels())
    with pytest.raises(DataError, match="evaluate_on_reports"):
        fit(make_examples(400), randomized_labels(), test=reports)
    trained = fit_on_reports(reports, LogisticRegression(), label_phase())
    with pytest.raises(DataError, match="evaluate_on_reports"):
        trained.evaluate(reports)
    with pytest.raises(ConfigError, match="device='gpu' is unknown"):
        fit_on_reports(reports, LogisticRegression(), label_phase(), device="gpu")
    with pytest.raises(ConfigError, match="report_probs"):
        fit_on_reports(make_examples(400), LogisticRegression(), label_phase())
    with pytest.raises(ConfigError, match="report_probs"):
        fit_on_reports(
            ExampleSet.of(write_dataset(tmp_path / "data", make_examples(30))),
            LogisticRegression(),
            label_phase(),
        )


@pytest.mark.parametrize(
    ("probs", "error"),
    [
        (np.full((3, 2), 0.5), DataError),
        (np.full(4, 0.5), DataError),
        (np.tile([0.6, 0.4], (4, 1)), ConfigError),
        (np.tile([0.4, np.nan], (4, 1)), ConfigError),
    ],
)
def test_chances_that_are_none_are_refused(probs: np.ndarray, error: type[Exception]) -> None:
    reports = dataclasses.replace(make_examples(4), report_probs=probs)
    with pytest.raises(error, match=r"report_probs|prob_if_negative"):
        fit_on_reports(reports, LogisticRegression(), label_phase())


def test_settings_of_one_loss_are_refused_for_another() -> None:
    for changes in ({"max_logit": 3.0}, {"weight_rows": True}):
        label_phase(correction=LabelCorrection.DEBIASED, **changes)
        for correction in set(LabelCorrection) - {LabelCorrection.DEBIASED}:
            with pytest.raises(ConfigError, match="of the debiased loss"):
                label_phase(correction=correction, **changes)
    with pytest.raises(ConfigError, match="weight_rows"):
        label_phase(correction=LabelCorrection.DEBIASED, weight_rows="yes")


@pytest.mark.parametrize("correction", LabelCorrection)
def test_settings_survive_as_plain_data(correction: LabelCorrection) -> None:
    is_debiased = correction is LabelCorrection.DEBIASED
    phase = label_phase(
        correction=correction, max_logit=6.0 if is_debiased else None, weight_rows=is_debiased
    )
    unit = UserLevel(max_sharing_labels_per_user=2, choice=RowChoice.FIRST)
    config = randomized_labels(label_phase=phase, unit=unit)
    data = json.loads(json.dumps(method_data(config)))
    assert method_from(data) == config
    assert data["label_phase"].get("max_logit") == phase.max_logit


def test_kept_labels_are_what_the_mechanism_drew_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[tuple[RandomizedResponseConfig, np.ndarray]] = []

    def seen(raw: np.ndarray, config: RandomizedResponseConfig, *, rng: NoiseSource) -> np.ndarray:
        drawn.append((config, release_randomized_response(raw, config, rng=rng)))
        return drawn[-1][1]

    monkeypatch.setattr(label_training, "release_randomized_response", seen)
    fit(make_examples(400), randomized_labels(), options=RunOptions(folder=tmp_path / "run"))
    kept = RunFolder.open(tmp_path / "run").read_array("randomized_labels")
    ((config, reports),) = drawn
    assert config == RandomizedResponseConfig(epsilon=3.0)
    assert (kept == reports).all()
