"""Whole plans and runs of label projection: what they claim, refuse, keep and leave behind."""

import dataclasses
import functools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tulle.accounting.accountant import pld_epsilon, verify_plan
from tulle.data.prepared.feature import PreparedFeature
from tulle.errors import ConfigError, DataError, RunInterruptedError
from tulle.mechanisms.entropy import SeededNoise
from tulle.privacy.events import (
    Composed,
    EpsilonDelta,
    Gaussian,
    Grouped,
    Repeated,
    SwitchedGaussian,
    TruncatedPoissonSampled,
)
from tulle.privacy.plan import ColumnRoles
from tulle.privacy.units import Adjacency, Owner, Scope
from tulle.runs.charging import ReleaseCharge
from tulle.runs.folder import RunFolder
from tulle.runs.record import card_of, read_training
from tulle.runs.records import StopRequest
from tulle.train.examples import ExampleSet, planned_shape
from tulle.train.fitting import FitResult, fit
from tulle.train.methods.catalogue import method_data, method_from
from tulle.train.methods.dp_sgd import DpSgdConfig
from tulle.train.methods.label_projection.method import (
    LabelProjectionConfig,
    Projection,
    SmoothingPrior,
)
from tulle.train.methods.label_projection.projected_step import ProjectionEngine
from tulle.train.methods.method import Method
from tulle.train.methods.private_steps import check_shareable, steps_method
from tulle.train.methods.private_training import step_settings
from tulle.train.methods.randomized_labels import RandomizedLabelsConfig
from tulle.train.methods.train_plan import TrainPlan
from tulle.train.models.trained_towers import build_model
from tulle.train.run_context import NoisePlacement, Progress, RunOptions
from tulle.train.settings.models import FactorizationMachine, LogisticRegression, ModelSettings
from tulle.train.settings.optimizers import SGD, Adam
from tulle.train.settings.phases import LabelPhase, PrivatePhase
from tulle.train.settings.step_noise import BandedNoise, LatticeNoise, SelectedRows, StepNoise
from tulle.train.settings.units import ExampleLevel, RowChoice, UserAccounting, UserLevel
from tulle.train.steps.step_context import MemoryJournal, StepContext
from tulle.train.training_run import load_model
from unit.train.small_data import (
    SMALL_MLP,
    dp_sgd,
    label_projection,
    make_examples,
    make_ledger,
    make_shape,
    private_phase,
    stop_at,
)

EXAMPLES = make_examples(200)
MODELS: dict[str, ModelSettings] = {
    "logistic regression": LogisticRegression(),
    "mlp": SMALL_MLP,
    "factorization machine": FactorizationMachine(factor_dim=3),
}


@functools.cache
def plan_of(model: ModelSettings = SMALL_MLP) -> TrainPlan:
    """Eight private steps."""
    phase = private_phase(noise_multiplier=1.0, batch_size=80, epochs=1.57)
    plan = label_projection(model=model, private_phase=phase).make(make_shape(200))
    assert plan.num_private_steps == 8
    return plan


def run(plan: TrainPlan, folder: Path | None = None, **options: Any) -> FitResult:
    options = {"checkpoint_every": 3, "seed": 1} | options
    return fit(EXAMPLES, plan, options=RunOptions(folder=folder, **options))


def weights_of(result: FitResult) -> dict[str, torch.Tensor]:
    return result.model.model.parameters


def test_a_plan_claims_labels_alone_for_switched_noise() -> None:
    plan = plan_of()
    event = plan.privacy.event
    assert isinstance(event, Repeated)
    assert event.count == 8
    assert isinstance(event.event, TruncatedPoissonSampled)
    assert event.event.event == SwitchedGaussian(noise_multiplier=1.0)
    guarantee = plan.privacy.guarantee
    assert guarantee.scope is Scope.LABELS
    assert guarantee.adjacency is Adjacency.REPLACE
    assert plan.privacy.columns.sensitive == ()
    assert set(plan.privacy.columns.ignored) == {"age", "visits"}
    assert not plan.reads_sensitive
    assert plan.privacy.variants == ()
    assert verify_plan(plan.privacy)[0] == pytest.approx(guarantee.epsilon, rel=1e-9)
    (bound,) = plan.privacy.bounds
    assert bound.limit == 1.0
    assert "label" in bound.what


def test_a_target_needs_little_more_than_half_the_noise_of_dp_sgd() -> None:
    phase = private_phase(noise_multiplier=None)
    plans = [
        config.calibrate(epsilon=0.5, delta=1e-6).make(make_shape(4000))
        for config in (label_projection(private_phase=phase), dp_sgd(private_phase=phase))
    ]
    ours, theirs = plans
    assert ours.noise_multiplier is not None
    assert theirs.noise_multiplier is not None
    assert 0.45 < ours.noise_multiplier / theirs.noise_multiplier < 0.65
    spent = pld_epsilon(ours.privacy.event, 1e-6, Adjacency.REPLACE)
    assert 0.4995 <= spent <= 0.5


def test_vocabularies_of_columns_that_are_never_read_are_not_part_of_it() -> None:
    event = EpsilonDelta(epsilon=1.0, delta=1e-9)
    shape = dataclasses.replace(make_shape(200), vocabulary_event=event)
    ours, theirs = (config.make(shape) for config in (label_projection(), dp_sgd()))
    assert isinstance(ours.privacy.event, Repeated)
    assert isinstance(theirs.privacy.event, Composed)


def test_a_plan_comes_back_from_json_and_a_forged_one_does_not() -> None:
    plan = plan_of()
    text = plan.to_json()
    assert TrainPlan.from_json(text) == plan
    assert "SwitchedGaussian" in str(plan.event)
    # The same settings as DP-SGD cost more: a label turns a whole gradient round there.
    data = json.loads(text)
    data["method"] = {
        name: value for name, value in data["method"].items() if name != "projection"
    } | {"method": "dp-sgd"}
    with pytest.raises(ConfigError, match="gives only epsilon"):
        TrainPlan.from_json(json.dumps(data))


def test_settings_come_back_from_plain_data() -> None:
    config = label_projection(
        projection=Projection(
            public_batch_size=77, smoothing=0.5, prior=SmoothingPrior.HALF, max_iterations=9
        )
    )
    data = method_data(config)
    assert data["method"] == "label-projection"
    assert method_from(data) == config
    assert method_from({"method": "label-projection"}) == LabelProjectionConfig()
    with pytest.raises(ConfigError, match="smoothin"):
        method_from({"method": "label-projection", "projection": {"smoothin": 0.1}})


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"public_batch_size": 1}, "public_batch_size"),
        ({"public_batch_size": 100_000}, "public_batch_size"),
        ({"smoothing": 1.0}, "smoothing"),
        ({"smoothing": -0.1}, "smoothing"),
        ({"smoothing": float("nan")}, "smoothing"),
        ({"prior": "model"}, "prior"),
        ({"max_iterations": 0}, "max_iterations"),
        ({"max_iterations": 10**6}, "max_iterations"),
    ],
)
def test_bad_settings_are_refused_by_name(changes: dict[str, Any], name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        Projection(**changes)


@pytest.mark.parametrize("noise", [BandedNoise(), LatticeNoise(), SelectedRows()])
def test_other_noise_is_refused_with_a_way_out(noise: StepNoise) -> None:
    with pytest.raises(ConfigError, match="IndependentNoise"):
        label_projection(private_phase=private_phase(noise=noise))


def test_clipped_users_are_refused_with_a_way_out() -> None:
    unit = UserLevel(max_rows_per_user=2, accounting=UserAccounting.CLIPPED_USERS)
    with pytest.raises(ConfigError, match="SEVERAL_ROWS"):
        label_projection(unit=unit)


def test_other_things_than_a_projection_are_refused() -> None:
    with pytest.raises(ConfigError, match="projection"):
        label_projection(projection=None)


def test_several_processes_are_refused() -> None:
    with pytest.raises(ConfigError, match="one process"):
        check_shareable(plan_of())


@pytest.mark.parametrize("placement", [NoisePlacement.LAZY, NoisePlacement.DENSE])
def test_noise_is_placed_where_public_rows_are(placement: NoisePlacement) -> None:
    with pytest.raises(ConfigError, match="noise_placement"):
        run(plan_of(), noise_placement=placement)


def test_data_without_public_features_are_refused() -> None:
    shape = make_shape(200)
    sensitive = tuple(f for f in shape.features if f.role == "sensitive")
    with pytest.raises(ConfigError, match="public features"):
        label_projection().make(dataclasses.replace(shape, features=sensitive))


def test_users_are_accounted_with_all_their_rows() -> None:
    unit = UserLevel(max_rows_per_user=2, choice=RowChoice.FIRST)
    examples = make_examples(400, rows_per_user=2)
    shape = planned_shape(examples, label_projection(unit=unit))
    phase = private_phase(noise_multiplier=2.0)
    plan = label_projection(unit=unit, private_phase=phase).make(shape)
    assert isinstance(plan.privacy.event, Repeated)
    step = plan.privacy.event.event
    assert isinstance(step, TruncatedPoissonSampled)
    assert step.max_rows_per_unit == 2
    assert plan.privacy.guarantee.unit.owner is Owner.USER
    replaced = Repeated(
        event=dataclasses.replace(step, event=Gaussian(noise_multiplier=2.0)),
        count=plan.num_private_steps,
    )
    assert plan.privacy.guarantee.epsilon == pytest.approx(
        pld_epsilon(replaced, 1e-5, Adjacency.REPLACE), rel=1e-9
    )
    grouped = dataclasses.replace(unit, accounting=UserAccounting.GROUP_PRIVACY)
    event = label_projection(unit=grouped, private_phase=phase).make(shape).privacy.event
    assert isinstance(event, Grouped)
    result = fit(examples, plan, options=RunOptions(seed=2))
    assert result.plan == plan


@pytest.mark.parametrize("model", MODELS)
def test_every_model_is_moved_where_public_columns_are(model: str) -> None:
    plan = plan_of(MODELS[model])
    result = run(plan)
    initial = build_model(MODELS[model], plan.shape.features, seed=0).parameters
    for name, values in weights_of(result).items():
        is_same = torch.equal(values, initial[name])
        assert is_same == name.startswith("sensitive."), name
        assert bool(torch.isfinite(values).all())
    assert result.model.is_truncated
    assert result.noise_multiplier == 1.0


def test_sensitive_columns_do_not_matter() -> None:
    sensitive = EXAMPLES.sensitive_features
    assert sensitive is not None
    other = dataclasses.replace(EXAMPLES, sensitive_features=np.zeros_like(sensitive))
    options = RunOptions(seed=3)
    first, second = (fit(rows, plan_of(), options=options) for rows in (EXAMPLES, other))
    for name, values in weights_of(first).items():
        assert torch.equal(values, weights_of(second)[name])


def test_labels_do_matter() -> None:
    labels = EXAMPLES.labels
    assert labels is not None
    other = dataclasses.replace(EXAMPLES, labels=1 - labels)
    options = RunOptions(seed=3)
    first, second = (fit(rows, plan_of(), options=options) for rows in (EXAMPLES, other))
    assert not torch.equal(first.model.model.output_bias, second.model.model.output_bias)


def test_a_run_leaves_records_a_model_and_a_card(tmp_path: Path) -> None:
    progress: list[Progress] = []
    result = run(plan_of(), tmp_path / "run", seed=None, watch=progress.append)
    folder = RunFolder.open(tmp_path / "run")
    steps = [r for r in folder.records.read() if r["kind"] == "step"]
    assert [r["step"] for r in steps] == list(range(1, 9))
    assert all(r["loss"] is not None and 0 <= r["clipped_share"] <= 1 for r in steps)
    assert steps[-1]["epsilon"] == plan_of().privacy.guarantee.epsilon
    assert [p.step for p in progress] == list(range(1, 9))
    card = card_of(read_training(folder))
    assert card.plan == plan_of().privacy
    assert "projected" in card.plan.mechanism
    assert card.reasons == ()
    loaded = load_model(tmp_path / "run" / "model")
    assert loaded.is_truncated
    ids = torch.from_numpy(EXAMPLES.public_features).long()
    found = torch.sigmoid(loaded.model.forward(ids, None).logits)
    np.testing.assert_allclose(found.numpy(), result.model.predict_proba(EXAMPLES), rtol=1e-5)


def test_an_interrupted_run_goes_on_and_pays_once(tmp_path: Path) -> None:
    ledger = make_ledger(tmp_path)
    charge = ReleaseCharge(ledger=ledger, purpose="training")
    with pytest.raises(RunInterruptedError):
        run(plan_of(), tmp_path / "run", charge=charge, watch=stop_at(4))
    result = run(plan_of(), tmp_path / "run", charge=charge, resume=True)
    assert result.num_steps_lost == 0
    (spend,) = ledger.spends("all")
    assert spend.request.event == plan_of().privacy.event
    saved = RunFolder.open(tmp_path / "run").records.read()
    assert sum(r["kind"] == "started" for r in saved) == 2


def test_resumed_steps_have_fresh_noise(tmp_path: Path) -> None:
    whole = run(plan_of(), seed=1)
    for name in ("first", "second"):
        with pytest.raises(RunInterruptedError):
            run(plan_of(), tmp_path / name, watch=stop_at(3))
    first, second = (run(plan_of(), tmp_path / name, resume=True) for name in ("first", "second"))
    biases = [float(r.model.model.output_bias) for r in (whole, first, second)]
    assert biases[0] != biases[1]
    assert biases[1] == biases[2]


def weak_signals(num_rows: int, seed: int) -> ExampleSet:
    """Eight features of which each says little, as in ads."""
    rng = np.random.default_rng(seed)
    features = tuple(
        PreparedFeature(name=f"f{i}", role="public", num_ids=10, table=f"f{i}") for i in range(8)
    )
    ids = rng.integers(0, 10, (num_rows, 8))
    weights = np.random.default_rng(5).normal(scale=0.4, size=(8, 10))
    logits = weights[np.arange(8), ids].sum(axis=1) - 1.5
    labels = rng.random(num_rows) < 1 / (1 + np.exp(-logits))
    return ExampleSet(
        features=features,
        columns=ColumnRoles(label="y", public=tuple(f.name for f in features)),
        public_features=ids.astype(np.int32),
        sensitive_features=None,
        labels=labels.astype(np.float32),
    )


def test_with_little_epsilon_it_beats_randomized_labels_and_dp_sgd() -> None:
    train, test = weak_signals(20_000, 0), weak_signals(10_000, 1)
    model, optimizer = LogisticRegression(), Adam(learning_rate=0.05)
    # The norm of all gradients, so that none of the methods clips.
    phase = PrivatePhase(epochs=3.0, batch_size=1500, clip_norm=3.0, optimizer=optimizer)
    labels = LabelPhase(epochs=4.0, batch_size=1024, optimizer=Adam(learning_rate=0.02))
    configs: dict[str, Method] = {
        "projection": LabelProjectionConfig(
            model=model,
            private_phase=phase,
            projection=Projection(public_batch_size=256),
            unit=ExampleLevel(),
        ).calibrate(epsilon=0.5, delta=1e-6),
        "dp-sgd": DpSgdConfig(model=model, private_phase=phase, unit=ExampleLevel()).calibrate(
            epsilon=0.5, delta=1e-6
        ),
        "rr": RandomizedLabelsConfig(
            model=model, label_phase=labels, unit=ExampleLevel()
        ).calibrate(epsilon=0.5),
    }
    losses = {}
    for name, config in configs.items():
        metrics = fit(train, config, test=test, options=RunOptions(seed=1)).metrics
        assert metrics is not None
        losses[name] = metrics.auc_loss
    assert losses["projection"] < losses["dp-sgd"] - 0.01
    assert losses["projection"] < losses["rr"] - 0.01


def context() -> StepContext:
    return StepContext(
        device=torch.device("cpu"), rng=SeededNoise(0), journal=MemoryJournal(), stop=StopRequest()
    )


def test_its_steps_have_an_engine_of_their_own_and_no_other_plan_gets_it() -> None:
    plan, other = plan_of(), dp_sgd().make(make_shape(200))
    model = build_model(SMALL_MLP, plan.shape.features, seed=0)
    engine = steps_method(plan).start_steps(model, EXAMPLES, plan, step_settings(plan), context())
    assert isinstance(engine, ProjectionEngine)
    assert {id(values) for values in engine.settled} == {
        id(values) for values in model.parameters.values()
    }
    with pytest.raises(ConfigError, match="no projected steps"):
        ProjectionEngine(model, EXAMPLES, other, step_settings(other), context())


@pytest.mark.parametrize("factor", [2.0, 0.5, None])
def test_labels_that_are_no_switch_are_refused(factor: float | None) -> None:
    plan = plan_of()
    assert EXAMPLES.labels is not None
    labels = None if factor is None else EXAMPLES.labels * np.float32(factor)
    rows = dataclasses.replace(EXAMPLES, labels=labels)
    model = build_model(SMALL_MLP, plan.shape.features, seed=0)
    with pytest.raises(DataError, match="0 and 1"):
        ProjectionEngine(model, rows, plan, step_settings(plan), context())


def test_public_batches_are_read_without_sensitive_columns() -> None:
    plan = plan_of()
    model = build_model(SMALL_MLP, plan.shape.features, seed=0)
    engine = ProjectionEngine(model, EXAMPLES, plan, step_settings(plan), context())
    batch = engine._public_batch()
    assert batch.sensitive_ids is None
    assert len(batch.public_ids) == 32


def test_any_optimizer_will_do() -> None:
    phase = dataclasses.replace(
        private_phase(noise_multiplier=1.0, batch_size=80, epochs=1.57),
        optimizer=SGD(learning_rate=0.5),
    )
    result = run(label_projection(private_phase=phase).make(make_shape(200)))
    assert result.num_steps_lost == 0
