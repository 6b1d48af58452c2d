"""Experiments that train: on tiny logs they give every figure that their claims are about."""

import contextlib
import dataclasses
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tulle.data.synth import shapes
from tulle.data.synth.write_logs import write_log
from tulle.errors import DataError
from tulle.lab.reproduction import label_runs, training_runs
from tulle.lab.reproduction.experiments import EXPERIMENTS, TRAINED
from tulle.lab.reproduction.log_rows import (
    LogKind,
    LogRows,
    MinCounts,
    log_rows,
    paper_log,
    public_attribution_log,
)
from tulle.lab.reproduction.private_training import (
    PrivateTraining,
    TrainingSize,
    at_chance,
    relative_loss,
)
from tulle.lab.reproduction.published import judge, published_target
from tulle.lab.reproduction.reproducing import ReproductionScale, ReproductionSettings
from tulle.privacy.events import Composed, Gaussian
from tulle.privacy.units import Owner
from tulle.quality.metrics import QualityMetrics, evaluate_predictions
from tulle.train import MLP, UserLevel

NUM_ROWS = 3_000
TINY = TrainingSize(private_epochs=1.0, private_batch=512, plain_batch=512)
MODEL = MLP(embedding_dim=2, public_hidden=(4,), common_hidden=(4,))


def tiny(kind: LogKind) -> LogKind:
    return dataclasses.replace(
        kind, reduced_rows=NUM_ROWS, paper_rows=NUM_ROWS, public_bins=50, sensitive_bins=50
    )


@pytest.fixture
def rows() -> Iterator[LogRows]:
    with log_rows(tiny(paper_log("attribution", is_paper=False)), ReproductionSettings()) as found:
        yield found


@pytest.fixture
def _untrained(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiny logs, and figures without training: what is looked at is which figures there are."""
    drawn = np.random.default_rng(5)

    def tiny_rows(
        kind: LogKind, settings: ReproductionSettings, *, by_user: bool = False
    ) -> object:
        return log_rows(tiny(kind), settings, by_user=by_user)

    def metrics(*_: object) -> QualityMetrics:
        return evaluate_predictions(np.arange(400) % 2, drawn.random(400))

    for module in (label_runs, training_runs):
        monkeypatch.setattr(module, "log_rows", tiny_rows)
    monkeypatch.setattr(PrivateTraining, "_run", metrics)
    for name in ("baseline", "on_reports"):
        monkeypatch.setattr(label_runs._LabelTraining, name, metrics)


@pytest.mark.usefixtures("_untrained")
@pytest.mark.parametrize("scale", list(ReproductionScale), ids=lambda scale: scale.value)
@pytest.mark.parametrize("name", list(TRAINED))
def test_a_run_has_every_figure_that_its_claims_need(name: str, scale: ReproductionScale) -> None:
    found = EXPERIMENTS[name](ReproductionSettings(scale=scale))
    for claim in published_target(name).claims:
        assert claim.names <= set(found.figures) | set(found.missing), claim.text
        assert "this run has no figure" not in judge(claim, found).reason
    assert "synthetic" in found.setting
    # At the size of the paper, every published figure but those of other data has its own.
    if scale is ReproductionScale.PAPER:
        named = {figure.name for figure in published_target(name).figures}
        assert named <= set(found.figures) | set(found.missing)


def test_users_are_protected_together_on_users_that_are_not_tested_with() -> None:
    kind = tiny(paper_log("attribution", is_paper=False))
    with log_rows(kind, ReproductionSettings(), by_user=True) as found:
        assert found.test.units is not None
        assert not set(found.owners()) & set(found.test.units)
        training = PrivateTraining(
            rows=found,
            settings=ReproductionSettings(),
            model=MODEL,
            size=TINY,
            unit=UserLevel(max_rows_per_user=2),
        )
        assert 0 < training.dp_sgd(5.0).auc_loss < 1


def test_reports_are_trained_on_with_either_loss(rows: LogRows) -> None:
    training = label_runs._LabelTraining(rows=rows, settings=ReproductionSettings(), model=MODEL)
    response, single = label_runs._capped(1.0, 1), label_runs.rows_of(rows, Owner.EXAMPLE)
    naive, debiased = (
        training.on_reports(response, single, is_on, 0.01) for is_on in (False, True)
    )
    # Reports are conversions a quarter of the time; only the debiased loss makes up for it.
    assert abs(debiased.calibration - 1) < abs(naive.calibration - 1)
    assert training.baseline(0.01).num_rows == rows.test.num_rows


def test_training_and_test_rows_are_apart_and_follow_the_seed() -> None:
    kind = tiny(paper_log("attribution", is_paper=False))
    labels = []
    for seed in (1, 1, 2):
        with log_rows(kind, ReproductionSettings(seed=seed)) as found:
            assert found.train.rows is not None
            assert found.test.rows is not None
            assert not set(found.train.rows) & set(found.test.rows)
            assert found.train.num_rows + found.test.num_rows == NUM_ROWS
            labels.append(found.raw_labels().copy())
    assert np.array_equal(labels[0], labels[1])
    assert not np.array_equal(labels[0], labels[2])


def test_a_copy_of_the_log_is_read_and_cut_to_the_scale(tmp_path: Path) -> None:
    path = tmp_path / "attribution.tsv.gz"
    write_log(shapes.ATTRIBUTION, path, num_rows=NUM_ROWS + 500, seed=1)
    kind = tiny(public_attribution_log())
    with log_rows(kind, ReproductionSettings(data=path)) as found:
        assert found.train.num_rows + found.test.num_rows == NUM_ROWS
        assert found.described().startswith("attribution.tsv.gz")
    few = tmp_path / "few.tsv"
    write_log(shapes.ATTRIBUTION, few, num_rows=200, seed=1)
    with (
        pytest.raises(DataError, match="fewer than 1,000"),
        log_rows(kind, ReproductionSettings(data=few)),
    ):
        pass


def test_units_group_the_rows_as_ids_say(rows: LogRows) -> None:
    owners, campaigns = rows.owners(), rows.public_ids("campaign")
    assert rows.train.num_rows == len(owners) == len(campaigns)
    users = label_runs.rows_of(rows, Owner.USER)
    assert len(users.grouped.lengths) == len(np.unique(owners))
    pairs = label_runs.rows_of(rows, Owner.USER_ADVERTISER)
    assert len(pairs.grouped.lengths) == len(np.unique(np.stack([owners, campaigns]), axis=1).T)
    single = label_runs.rows_of(rows, Owner.EXAMPLE)
    assert len(single.grouped.lengths) == rows.train.num_rows


def test_labels_are_noised_at_the_stated_rate(rows: LogRows) -> None:
    epsilon = 1.0
    training = label_runs._LabelTraining(rows=rows, settings=ReproductionSettings(), model=MODEL)
    noisy = training._noisy(label_runs._capped(epsilon, 1), label_runs.rows_of(rows, Owner.EXAMPLE))
    flipped = np.mean(noisy.labels != rows.raw_labels())
    prob = 1 / (1 + np.e**epsilon)
    # Six standard errors: a false alarm of 2e-9 over seeds, and half of epsilon is far beyond.
    error = 6 * np.sqrt(prob * (1 - prob) / rows.train.num_rows)
    assert abs(flipped - prob) < error
    assert abs(flipped - 1 / (1 + np.e ** (epsilon / 2))) > error


def test_methods_see_the_columns_that_are_theirs(rows: LogRows) -> None:
    training = PrivateTraining(rows=rows, settings=ReproductionSettings(), model=MODEL, size=TINY)
    # Without sensitive columns randomized labels train as before: they never read them.
    blind = dataclasses.replace(
        rows, train=dataclasses.replace(rows.train, sensitive_features=None)
    )
    same = dataclasses.replace(training, rows=blind).randomized_labels(3.0)
    assert same.auc_loss == training.randomized_labels(3.0).auc_loss
    baseline = training.without_privacy()
    assert relative_loss(baseline, baseline).value == 0
    assert training.two_phase(3.0).auc_loss != training.dp_sgd(3.0).auc_loss


def test_relative_losses_are_in_per_cent_of_the_baseline(rows: LogRows) -> None:
    training = PrivateTraining(rows=rows, settings=ReproductionSettings(), model=MODEL, size=TINY)
    baseline = training.without_privacy()
    worse = dataclasses.replace(
        baseline, auc_loss=1.25 * baseline.auc_loss, auc_loss_standard_error=baseline.auc_loss / 50
    )
    figure = relative_loss(worse, baseline)
    assert figure.value == pytest.approx(25)
    assert figure.error == pytest.approx(2)


def test_a_model_that_learned_nothing_is_not_compared() -> None:
    labels, drawn = np.arange(4000) % 2, np.random.default_rng(1)
    coin = evaluate_predictions(labels, drawn.random(4000))
    model = evaluate_predictions(labels, 0.3 * labels + 0.7 * drawn.random(4000))
    assert list(at_chance({"coin": coin, "model": model})) == ["coin"]


def test_frequent_values_are_counted_with_noise_that_models_pay_for() -> None:
    kind = tiny(paper_log("display", is_paper=False))
    sizes = {}
    for threshold in (256, 1024):
        counted = dataclasses.replace(kind, min_counts=MinCounts(public=16, sensitive=threshold))
        with log_rows(counted, ReproductionSettings()) as found:
            event = found.train.vocabulary_event
            assert isinstance(event, Composed)
            assert any(isinstance(part, Gaussian) for part in event.events)
            sizes[threshold] = (found.num_ids("public"), found.num_ids("sensitive"))
    assert sizes[256][0] == sizes[1024][0]
    assert sizes[256][1] > sizes[1024][1]
    with log_rows(kind, ReproductionSettings()) as found:
        assert found.train.vocabulary_event is None
        assert found.num_ids("sensitive") == kind.sensitive_bins


def test_hashes_have_as_many_ids_as_the_values_that_were_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[LogKind] = []
    counted: list[tuple[int, int]] = []

    @contextlib.contextmanager
    def watched(kind: LogKind, settings: ReproductionSettings) -> Iterator[LogRows]:
        asked.append(kind)
        small = dataclasses.replace(kind, reduced_rows=NUM_ROWS)
        with log_rows(small, settings) as found:
            counted.append((found.num_ids("public"), found.num_ids("sensitive")))
            yield found

    labels = np.arange(400) % 2
    learned = evaluate_predictions(labels, 0.3 * labels + 0.7 * np.linspace(0, 1, 400))
    monkeypatch.setattr(training_runs, "log_rows", watched)
    monkeypatch.setattr(PrivateTraining, "_run", lambda *_: learned)
    found = EXPERIMENTS["adkdd24-fig5"](ReproductionSettings())
    thresholds = [kind.min_counts and kind.min_counts.sensitive for kind in asked]
    assert thresholds == [256, None, 1024, None]
    assert {kind.min_counts and kind.min_counts.public for kind in asked} == {16}
    assert counted[0] == counted[1] != counted[2] == counted[3]
    assert found.figures["sensitive ids, threshold 256"].value == counted[0][1]
    assert not found.missing


@pytest.mark.parametrize("is_learned", [True, False])
def test_the_best_share_is_not_named_where_a_model_learned_nothing(
    is_learned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    labels, drawn = np.arange(40_000) % 2, np.random.default_rng(1).random(40_000)
    shares = (0.0, 0.25, 0.5, 1.0)
    signals = dict(zip(shares, (0.1 if is_learned else 0.0, 0.3, 0.5, 0.2), strict=True))

    def with_share(_: object, __: float, share: float) -> QualityMetrics:
        return evaluate_predictions(labels, signals[share] * labels + (1 - signals[share]) * drawn)

    def tiny_rows(kind: LogKind, settings: ReproductionSettings) -> object:
        return log_rows(tiny(kind), settings)

    monkeypatch.setattr(training_runs, "_with_share", with_share)
    monkeypatch.setattr(training_runs, "log_rows", tiny_rows)
    found = EXPERIMENTS["adkdd24-fig3"](ReproductionSettings())
    name = "best share, epsilon 4"
    if is_learned:
        assert found.figures[name].value == 0.5
    else:
        assert name not in found.figures
        assert "share 0, epsilon 4: so few rows" in found.missing[name]
