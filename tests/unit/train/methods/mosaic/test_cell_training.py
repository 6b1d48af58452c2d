"""Training of a model of cells: what it learns, what it spends, what it never looks at."""

import dataclasses
import math

import numpy as np
import pytest
from numpy.typing import NDArray

from tulle.errors import ConfigError, DataError, RunInterruptedError
from tulle.mechanisms.entropy import SeededNoise
from tulle.privacy.codec import plain_data, settings_from
from tulle.quality.metrics import evaluate_predictions
from tulle.runs.records import StopRequest
from tulle.train.examples import ExampleSet, TrainingRows, shape_of
from tulle.train.methods.dp_sgd import DpSgdConfig
from tulle.train.methods.mosaic import cell_training
from tulle.train.methods.mosaic.cell_model import CellModel
from tulle.train.methods.mosaic.cell_sums import RowColumns
from tulle.train.methods.mosaic.cell_training import train_on_cells
from tulle.train.methods.mosaic.method import (
    CellSettings,
    MosaicConfig,
    ScreeningParts,
    StageShares,
)
from tulle.train.methods.mosaic.noise_shares import NoiseShares
from tulle.train.methods.mosaic.trained_cells import TrainedCells
from tulle.train.run_context import Progress, RunContext
from tulle.train.settings.phases import PrivatePhase
from tulle.train.settings.units import ExampleLevel
from unit.train.small_data import FEATURES, SCHEMA, make_examples


def context(seed: int = 0, stop: StopRequest | None = None, watch: object = None) -> RunContext:
    return RunContext(
        rng=SeededNoise(seed),
        stop=stop or StopRequest(),
        watch=watch,  # type: ignore[arg-type]
    )


def trained(examples: ExampleSet, epsilon: float = 8.0, seed: int = 0) -> CellModel:
    config = MosaicConfig(unit=ExampleLevel()).calibrate(epsilon=epsilon, delta=1e-6)
    plan = config.make(shape_of(examples, TrainingRows()))
    return train_on_cells(examples, plan, context(seed))


def predict(model: CellModel, examples: ExampleSet) -> NDArray[np.float64]:
    return TrainedCells.of(model, examples.features).predict_proba(examples)


def auc_loss(model: CellModel, test: ExampleSet) -> float:
    assert test.labels is not None
    probabilities = predict(model, test)
    return evaluate_predictions(test.labels, probabilities).auc_loss


def test_it_learns_public_and_sensitive_columns() -> None:
    model = trained(make_examples(20_000, seed=1))
    test = make_examples(5_000, seed=2)
    assert model.reads_sensitive
    assert auc_loss(model, test) < 0.08


def test_predictions_are_right_on_average() -> None:
    model = trained(make_examples(20_000, seed=1))
    test = make_examples(20_000, seed=2)
    assert test.labels is not None
    assert predict(model, test).mean() == pytest.approx(test.labels.mean(), abs=0.02)


def test_less_privacy_is_better() -> None:
    examples, test = make_examples(3_000, seed=1), make_examples(5_000, seed=2)
    losses = [auc_loss(trained(examples, epsilon), test) for epsilon in (0.05, 8.0)]
    assert losses[1] < losses[0] - 0.05


def test_labels_that_follow_nothing_leave_a_constant() -> None:
    examples = make_examples(4_000, seed=1)
    rng = np.random.default_rng(5)
    labels = (rng.random(4_000) < 0.2).astype(np.float32)
    model = trained(dataclasses.replace(examples, labels=labels), epsilon=1.0)
    assert 1 / (1 + math.exp(-model.heads[0].bias)) == pytest.approx(0.2, abs=0.05)
    assert all(np.abs(table.weights).max() < 0.3 for table in model.tables)


def test_data_without_sensitive_columns_keep_labels_alone_private() -> None:
    examples = make_examples(5_000, seed=1)
    public = dataclasses.replace(
        examples.without_sensitive(examples.labels),
        columns=dataclasses.replace(SCHEMA.roles, sensitive=()),
    )
    model = trained(public)
    assert not model.reads_sensitive
    assert model.tables


def test_data_without_public_columns_are_trained_on() -> None:
    examples = make_examples(5_000, seed=1)
    sensitive = dataclasses.replace(
        examples,
        features=tuple(feature for feature in FEATURES if feature.role == "sensitive"),
        public_features=np.empty((5_000, 0), np.int32),
        columns=dataclasses.replace(SCHEMA.roles, public=()),
    )
    model = trained(sensitive)
    assert {part.role for table in model.tables for part in table.parts} == {"sensitive"}


@pytest.mark.parametrize("num_rows", [1, 2, 30])
@pytest.mark.parametrize("label", [0, 1])
def test_tiny_data_and_constant_labels_give_a_model(num_rows: int, label: int) -> None:
    examples = make_examples(num_rows, seed=3)
    examples = dataclasses.replace(examples, labels=np.full(num_rows, label, np.float32))
    chances = predict(trained(examples), examples)
    assert np.isfinite(chances).all()


@pytest.mark.parametrize("epsilon", [0.5, 1_000.0])
def test_a_column_that_decides_the_label_leaves_no_gaps(epsilon: float) -> None:
    examples = make_examples(20_000, seed=3)
    labels = (examples.public_features[:, 0] == 1).astype(np.float32)
    sensitive = np.stack([labels, 1 - labels], axis=1).astype(np.int32)
    decided = dataclasses.replace(examples, labels=labels, sensitive_features=sensitive)
    model = trained(decided, epsilon)
    assert np.isfinite(predict(model, decided)).all()
    assert auc_loss(model, decided) < 0.01


def test_all_that_is_released_has_its_share(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is left and the sensitivity at every release: labels alone count 1, rows sqrt(2)."""
    sensitivities: list[float] = []
    left: list[float] = []

    class Noted(NoiseShares):
        def _noisy(self, raw: np.ndarray, sensitivity: float) -> np.ndarray:
            sensitivities.append(sensitivity)
            left.append(self.left)
            return super()._noisy(raw, sensitivity)

    monkeypatch.setattr(cell_training, "NoiseShares", Noted)
    trained(make_examples(5_000, seed=1))
    assert 0 <= left[-1] < 0.05
    assert left == sorted(left, reverse=True)
    first_row = sensitivities.index(math.sqrt(2))
    assert set(sensitivities[:first_row]) == {1.0}
    assert set(sensitivities[first_row:]) == {math.sqrt(2)}


@pytest.mark.parametrize("level_share", [0.003 + 0.0007 * step for step in range(0, 40, 4)])
def test_something_is_left_for_the_level_if_the_last_stage_spends_all(level_share: float) -> None:
    settings = CellSettings(
        stages=StageShares(
            public_values=0.3,
            public_pairs=0.1,
            sensitive_values=0.6,
            sensitive_pairs=0.0,
            triples=0.0,
        ),
        screening=ScreeningParts(sensitive_values=1.0),
        most_screening_shares=(0.5, 0.5, 0.5),
        level_share=level_share,
    )
    examples = make_examples(3_000, seed=1)
    config = MosaicConfig(cells=settings, unit=ExampleLevel()).calibrate(epsilon=8.0, delta=1e-6)
    plan = config.make(shape_of(examples, TrainingRows()))
    assert train_on_cells(examples, plan, context()).tables


@pytest.mark.parametrize("label", [math.nan, 2.0, 0.5, -1.0])
def test_labels_that_would_show_through_noise_are_refused(label: float) -> None:
    examples = make_examples(100, seed=1)
    assert examples.labels is not None
    labels = examples.labels.copy()
    labels[7] = label
    with pytest.raises(DataError, match="not 0 or 1"):
        trained(dataclasses.replace(examples, labels=labels))


def test_sensitive_columns_are_not_read_while_sums_have_the_noise_of_labels(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    examples = make_examples(2_000, seed=1)
    reads: list[str] = []
    original = RowColumns.ids

    def noting(self: RowColumns, role: str, column: int) -> np.ndarray:
        reads.append(role)
        return original(self, role, column)

    released: list[tuple[float, bool]] = []

    class Noted(NoiseShares):
        def _noisy(self, raw: np.ndarray, sensitivity: float) -> np.ndarray:
            released.append((sensitivity, "sensitive" in reads))
            return super()._noisy(raw, sensitivity)

    monkeypatch.setattr(RowColumns, "ids", noting)
    monkeypatch.setattr(cell_training, "NoiseShares", Noted)
    trained(examples)
    assert not any(was_read for sensitivity, was_read in released if sensitivity == 1.0)
    assert any(was_read for sensitivity, was_read in released if sensitivity > 1.0)


def test_what_the_model_is_made_of_does_not_tell_which_values_occur() -> None:
    """Every value of a small sensitive column has its own place, whether a row has it or not."""
    examples = make_examples(5_000, seed=1)
    assert examples.sensitive_features is not None
    fewer = examples.sensitive_features.copy()
    fewer[fewer[:, 0] == 3, 0] = 2
    model = trained(dataclasses.replace(examples, sensitive_features=fewer))
    ages = [
        part.size
        for table in model.tables
        for part in table.parts
        if (part.role, part.column) == ("sensitive", 0)
    ]
    assert ages
    assert set(ages) == {5}


def test_progress_tells_stages_alone() -> None:
    seen: list[Progress] = []
    examples = make_examples(2_000, seed=1)
    plan = (
        MosaicConfig(unit=ExampleLevel())
        .calibrate(epsilon=3.0, delta=1e-6)
        .make(shape_of(examples, TrainingRows()))
    )
    train_on_cells(examples, plan, context(watch=seen.append))
    steps = [progress.step for progress in seen]
    # Two rounds of five stages and the last level; a round without a table is left out.
    assert steps == sorted(set(steps))
    assert steps[-1] == 11 == seen[0].num_steps
    assert len(steps) >= 4
    assert all(progress.loss is None for progress in seen)
    spent = [progress.epsilon for progress in seen]
    assert 0 < spent[0] < spent[-1] <= 3.0
    assert spent == sorted(spent)
    assert seen[0].about == "public values, 3 tables"
    assert seen[-1].about == "level"


def test_it_stops_when_asked() -> None:
    stop = StopRequest()
    examples = make_examples(2_000, seed=1)
    plan = (
        MosaicConfig(unit=ExampleLevel())
        .calibrate(epsilon=3.0, delta=1e-6)
        .make(shape_of(examples, TrainingRows()))
    )

    def ask(_progress: Progress) -> None:
        stop.requested = True

    with pytest.raises(RunInterruptedError, match="cells"):
        train_on_cells(examples, plan, context(stop=stop, watch=ask))


@pytest.mark.parametrize("wrong", [-1, "the number of ids"])
@pytest.mark.parametrize("role", ["public", "sensitive"])
def test_an_id_that_its_feature_does_not_have_is_refused_by_the_training_itself(
    role: str, wrong: int | str
) -> None:
    examples = make_examples(500, seed=1)
    plan = (
        MosaicConfig(unit=ExampleLevel())
        .calibrate(epsilon=3.0, delta=1e-6)
        .make(shape_of(examples, TrainingRows()))
    )
    feature = next(feature for feature in examples.features if feature.role == role)
    value = feature.num_ids if isinstance(wrong, str) else wrong
    ids = np.array(getattr(examples, f"{role}_features"))
    ids[7, 0] = value
    changed = dataclasses.replace(examples, **{f"{role}_features": ids})
    with pytest.raises(DataError, match=f"{feature.name!r} has an id outside") as error:
        train_on_cells(changed, plan, context())
    assert str(value) not in str(error.value)


def test_a_plan_of_another_method_is_refused() -> None:
    examples = make_examples(500, seed=1)
    config = DpSgdConfig(private_phase=PrivatePhase(batch_size=100), unit=ExampleLevel()).calibrate(
        epsilon=3.0, delta=1e-6
    )
    plan = config.make(shape_of(examples, TrainingRows()))
    with pytest.raises(ConfigError, match="not of training on cells"):
        train_on_cells(examples, plan, context())


def test_settings_are_read_back() -> None:
    settings = CellSettings(
        stages=StageShares(public_values=0.4, public_pairs=0.0),
        screening=ScreeningParts(triples=0.9),
        heredity=(0.5, 0.5),
    )
    assert settings_from(CellSettings, plain_data(settings), what="cells") == settings
    assert settings_from(CellSettings, {}, what="cells") == CellSettings()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"least_evidense": 3}, "least_evidence"),
        ({"level_share": 0}, "level_share"),
        ({"expected_spreads": [1, 2]}, "expected_spreads"),
        ({"expected_spreads": "wide"}, "expected_spreads"),
        ({"stages": {"triples": 0.9}}, "add up"),
        ({"stages": {"triples": -0.1}}, "triples"),
        ({"screening": {"triples": 1.1}}, "triples"),
        ({"screening": {"refined": 0.5}}, "refined"),
        ({"heredity": [1]}, "heredity"),
        ({"heredity": [1, 1e200]}, "heredity"),
        ({"level_share": 0.3, "count_share": 0.4}, "leave too little"),
        ({"most_screening_shares": [0.1, 0.1, 0.9]}, "most_screening_shares"),
        ({"max_cells_per_table": 1}, "max_cells_per_table"),
        ({"row_steps": -1}, "row_steps"),
        ({"row_steps": 11}, "row_steps"),
    ],
)
def test_wrong_settings_are_refused(data: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        settings_from(CellSettings, data, what="cells")
