"""Training on values: what is learnt of amounts, what it costs, and what it never does."""

import dataclasses
import functools

import numpy as np
import pytest

from tulle.errors import ConfigError, DataError
from tulle.mechanisms.entropy import SeededNoise
from tulle.train.examples import ExampleSet, TrainingRows, shape_of
from tulle.train.methods.catalogue import chosen_method
from tulle.train.methods.mosaic import cell_sums
from tulle.train.methods.mosaic.cell_model import CellModel
from tulle.train.methods.mosaic.cell_sums import PredictedRows
from tulle.train.methods.mosaic.cell_training import train_on_cells
from tulle.train.methods.mosaic.label_law import LabelLaw, law_of_labels, law_of_values
from tulle.train.methods.mosaic.method import MosaicConfig
from tulle.train.methods.mosaic.trained_cells import TrainedCells
from tulle.train.settings.units import ExampleLevel
from unit.train.methods.mosaic.test_cell_training import context
from unit.train.methods.mosaic.test_replayed_run import Recorded, check_told, followed
from unit.train.small_data import make_examples

_CLIP = 50.0


def amounts(num_rows: int, *, seed: int = 0, mean: float = 10.0) -> ExampleSet:
    """Rows of which few have an amount; how many depends on two columns, and how much on others."""
    examples = make_examples(num_rows, seed=seed)
    assert examples.labels is not None
    assert examples.sensitive_features is not None
    rng = np.random.default_rng(seed + 1_000)
    size = mean * np.exp(0.4 * (examples.public_features[:, 1] - 1.5))
    labels = examples.labels * rng.exponential(size)
    return dataclasses.replace(examples, labels=labels.astype(np.float32), num_classes=None)


def config(**settings: float) -> MosaicConfig:
    made = MosaicConfig(unit=ExampleLevel(), **{"clip": _CLIP} | settings)  # type: ignore[arg-type]
    return made.calibrate(epsilon=8.0, delta=1e-6)


def trained(examples: ExampleSet, seed: int = 0, **settings: float) -> CellModel:
    plan = config(**settings).make(shape_of(examples, TrainingRows()))
    return train_on_cells(examples, plan, context(seed))


@functools.cache
def model(rate_share: float | None) -> TrainedCells:
    examples = amounts(20_000, seed=1)
    settings = {} if rate_share is None else {"rate_share": rate_share}
    return TrainedCells.of(trained(examples, **settings), examples.features)


@pytest.mark.parametrize("rate_share", [None, 0.5])
def test_expected_values_are_learnt(rate_share: float | None) -> None:
    fitted, test = model(rate_share), amounts(20_000, seed=2)
    assert fitted.clip == _CLIP
    found = fitted.evaluate_values(test)
    assert found.r_squared > 0.2
    assert found.calibration == pytest.approx(1.0, abs=0.05)
    assert found.bidding_over_constant > 1.3
    predicted = fitted.predict(test)
    assert ((predicted > 0) & (predicted < _CLIP)).all()


def test_both_parts_of_a_value_are_learnt_where_they_differ() -> None:
    """The size of an amount depends on a column that says nothing about whether there is one."""
    heads = model(0.5).model.heads
    assert len(heads) == 2
    columns = [
        {(part.role, part.column) for table in head.tables for part in table.parts}
        for head in heads
    ]
    assert ("public", 1) in columns[1]
    assert ("sensitive", 0) in columns[0]


def test_values_that_are_tiny_against_the_clip_keep_their_level() -> None:
    examples, test = amounts(20_000, seed=1, mean=10.0), amounts(20_000, seed=2)
    # Noise on one release of the level is a quarter of it.
    found = [
        TrainedCells.of(trained(examples, seed, clip=5_000.0), examples.features)
        .evaluate_values(test)
        .calibration
        for seed in range(7)
    ]
    assert np.median(found) == pytest.approx(1.0, abs=0.25)


def test_counts_are_values() -> None:
    rng = np.random.default_rng(4)
    examples = make_examples(20_000, seed=1)
    assert examples.labels is not None
    clicks = rng.poisson(3 * examples.labels).astype(np.float32)
    counts = dataclasses.replace(examples, labels=clicks, num_classes=None)
    fitted = TrainedCells.of(trained(counts, clip=10.0), examples.features)
    assert fitted.evaluate_values(counts).r_squared > 0.25


def test_labels_of_0_and_1_are_values_of_clip_1() -> None:
    """Nothing but the room for rounding and the dispersion tells both runs apart."""
    examples = make_examples(20_000, seed=1)
    plain = MosaicConfig(unit=ExampleLevel()).calibrate(epsilon=8.0, delta=1e-6)
    plan = plain.make(shape_of(examples, TrainingRows()))
    binary = TrainedCells.of(train_on_cells(examples, plan, context()), examples.features)
    as_values = TrainedCells.of(trained(examples, clip=1.0), examples.features)
    difference = binary.predict(examples) - as_values.predict(examples)
    assert np.abs(difference).mean() < 0.03


def test_a_value_above_the_clip_counts_as_the_clip() -> None:
    examples = amounts(3_000, seed=1)
    assert examples.labels is not None
    higher = np.where(examples.labels >= _CLIP, 1e6, examples.labels).astype(np.float32)
    assert (higher != examples.labels).any()
    one, other = (
        trained(some) for some in (examples, dataclasses.replace(examples, labels=higher))
    )
    assert one.heads[0].bias == other.heads[0].bias
    assert one.scale == other.scale == _CLIP


@pytest.mark.parametrize("rate_share", [None, 0.4])
@pytest.mark.parametrize("label", [0.0, 7.0, 1e9])
def test_labels_that_are_all_the_same_give_a_model(label: float, rate_share: float | None) -> None:
    examples = make_examples(200, seed=3)
    same = dataclasses.replace(examples, labels=np.full(200, label, np.float32), num_classes=None)
    settings = {} if rate_share is None else {"rate_share": rate_share}
    fitted = TrainedCells.of(trained(same, **settings), examples.features)
    assert np.isfinite(fitted.predict(same)).all()


def replaced(examples: ExampleSet, seed: int) -> ExampleSet:
    """One row with another value and other sensitive columns; its public ones stay."""
    assert examples.labels is not None
    assert examples.sensitive_features is not None
    rng = np.random.default_rng(seed)
    labels, sensitive = examples.labels.copy(), examples.sensitive_features.copy()
    row = (
        int(rng.choice(np.flatnonzero(labels > 0))) if seed % 2 else int(rng.integers(len(labels)))
    )
    labels[row] = rng.choice([0.0, 3.0, _CLIP, 1e6])
    sensitive[row] = [rng.integers(4), rng.integers(5)]
    return dataclasses.replace(examples, labels=labels, sensitive_features=sensitive)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("rate_share", [None, 0.5])
def test_a_run_on_values_tells_neighbours_apart_by_no_more_than_one_gaussian(
    seed: int, rate_share: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    examples, settings = amounts(3_000, seed=1), {"clip": _CLIP}
    if rate_share is not None:
        settings["rate_share"] = rate_share
    check_told(
        *followed(examples, replaced(examples, seed), seed, monkeypatch, config=config(**settings))
    )


def unclipped(monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted fault: values above the clip count as what they are."""
    right = cell_sums.label_parts

    def parts(labels: np.ndarray, clip: float | None) -> np.ndarray:
        if clip is None:
            return right(labels, clip)
        return np.ldexp(np.minimum(labels / clip, 1.9), 30).astype(np.int32)

    monkeypatch.setattr(cell_sums, "label_parts", parts)


def float_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted fault: labels are floats, whose low bits no noise hides."""
    right = cell_sums.label_sums

    def sums(cells: np.ndarray, labels: np.ndarray, weights: object, num_cells: int) -> np.ndarray:
        return right(cells, labels, weights, num_cells) + labels.mean() / 2**30

    monkeypatch.setattr(cell_sums, "label_sums", sums)


@pytest.mark.parametrize("fault", [unclipped, float_labels])
def test_a_planted_fault_of_values_is_noticed(fault, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    examples = amounts(3_000, seed=1)
    assert examples.labels is not None
    row = int(np.argmax(examples.labels))
    labels = examples.labels.copy()
    labels[row] = 0
    fault(monkeypatch)
    neighbour = dataclasses.replace(examples, labels=labels)
    with pytest.raises((AssertionError, ConfigError)):
        check_told(*followed(examples, neighbour, 0, monkeypatch, config=config()))


def test_rows_that_do_not_take_part_add_nothing() -> None:
    examples = amounts(500, seed=1)
    rows = PredictedRows(examples, clip=_CLIP, positives_only=True)
    rows.add(-3_000)
    weight = np.int64(1 << 24)
    found = rows.raw_row_sums(rows.one_cell, weight, 1)
    assert examples.labels is not None
    kept = examples.select(np.flatnonzero(examples.labels > 0))
    only = PredictedRows(kept, clip=_CLIP)
    only.add(-3_000)
    assert np.array_equal(found, only.raw_row_sums(only.one_cell, weight, 1))


def test_the_law_of_values_follows_from_their_mean_and_squares() -> None:
    rng = np.random.default_rng(0)
    values = np.minimum(rng.exponential(0.05, 100_000), 1) * (rng.random(100_000) < 0.2)
    law = law_of_values(float(values.mean()), float((values**2).mean()), 0.0)
    assert law.rate == pytest.approx(values.mean())
    assert law.dispersion * law.rate * (1 - law.rate) == pytest.approx(values.var(), rel=1e-6)
    part = float((values > 0).mean())
    above = law_of_values(float(values.mean()), float((values**2).mean()), 0.0, part)
    assert above.rate == pytest.approx(values[values > 0].mean())
    assert above.dispersion * above.rate * (1 - above.rate) == pytest.approx(
        values[values > 0].var(), rel=1e-6
    )


@pytest.mark.parametrize("noise", [(-1.0, 5.0), (5.0, -3.0), (0.0, 0.0), (0.3, 0.9)])
def test_noise_leaves_a_law_that_training_can_use(noise: tuple[float, float]) -> None:
    for law in (
        law_of_values(*noise, 1e-4),
        law_of_values(*noise, 0.0, 0.01),
        law_of_labels(noise[0]),
    ):
        assert 0 < law.rate < 1
        assert 0 < law.dispersion <= 1
        assert 0 < law.table_rate <= 0.5 or law.dispersion == 1
        assert np.isfinite(law.log_odds)


def test_tables_see_labels_of_0_and_1_that_tell_as_much() -> None:
    law = LabelLaw(rate=0.02, dispersion=0.4, part=0.5)
    wanted = 0.5 * 0.02 * 0.98 / 0.4
    assert law.table_rate * (1 - law.table_rate) == pytest.approx(wanted)
    assert LabelLaw(rate=0.3).table_rate == 0.3


@pytest.mark.parametrize("clip", [0.0, -5.0, float("nan"), True])
def test_a_clip_of_no_use_is_refused(clip: float) -> None:
    with pytest.raises(ConfigError, match="clip="):
        MosaicConfig(clip=clip)


def test_parts_of_a_value_need_a_clip_and_both_a_part_of_the_budget() -> None:
    with pytest.raises(ConfigError, match="give clip="):
        MosaicConfig(rate_share=0.5)
    with pytest.raises(ConfigError, match=r"rate_share=0\.95"):
        MosaicConfig(clip=1.0, rate_share=0.95)


@pytest.mark.parametrize("method", ["dp-sgd", "hybrid", "rr", "label-projection", "nonprivate"])
def test_other_methods_refuse_values_and_say_which_one_learns_them(method: str) -> None:
    with pytest.raises(ConfigError, match=r"clip=400.*method=.mosaic"):
        chosen_method(method, epsilon=3.0, delta=None, unit=None, clip=400.0)


def test_two_clips_contradict_each_other() -> None:
    with pytest.raises(ConfigError, match="contradicts"):
        chosen_method(MosaicConfig(clip=5.0), epsilon=3.0, delta=None, unit=None, clip=400.0)
    same = chosen_method(MosaicConfig(clip=5.0), epsilon=3.0, delta=None, unit=None, clip=5.0)
    assert same.num_classes is None


def test_the_plan_and_its_bounds_name_the_clip() -> None:
    plan = config(clip=400).make(shape_of(amounts(1_000), TrainingRows())).privacy
    assert plan.settings["clip"] == 400.0
    assert "counts as 400" in plan.mechanism
    assert any("divided by 400" in bound.where for bound in plan.bounds)
    binary = MosaicConfig(unit=ExampleLevel()).calibrate(epsilon=8.0, delta=1e-6)
    plain = binary.make(shape_of(make_examples(1_000), TrainingRows())).privacy
    assert "clip" not in plain.settings
    assert any("labels are 0 or 1;" in bound.where for bound in plain.bounds)


def test_a_value_model_predicts_no_probabilities() -> None:
    fitted, examples = model(None), amounts(100)
    with pytest.raises(ConfigError, match="predict"):
        fitted.predict_proba(examples)
    with pytest.raises(ConfigError, match="evaluate_values"):
        fitted.evaluate(examples)


def test_labels_without_values_are_refused_for_values() -> None:
    examples = amounts(100)
    assert examples.labels is not None
    wrong = dataclasses.replace(examples, labels=examples.labels - 1)
    with pytest.raises(DataError, match="below 0"):
        trained(wrong)


def test_noise_of_both_parts_comes_from_one_budget() -> None:
    examples = amounts(3_000, seed=1)
    plan = config(rate_share=0.3).make(shape_of(examples, TrainingRows()))
    assert plan.noise_multiplier is not None
    shares = Recorded(plan.noise_multiplier, rng=SeededNoise(1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "tulle.train.methods.mosaic.cell_training.NoiseShares", lambda *_args, **_more: shares
        )
        train_on_cells(examples, plan, context())
    taken = [allowance for _, allowance in shares.taken]
    assert sum(taken) <= 4**shares.weight_bits
    # More than the first part may use alone.
    assert sum(taken) > 0.5 * 4**shares.weight_bits
