import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch

from tulle.errors import DataError
from tulle.train.examples import ExampleSet, bound_rows, planned_shape, shape_of, unit_ids
from tulle.train.losses import CrossEntropy
from tulle.train.models.batches import batch_of, mean_loss, predict
from tulle.train.models.trained_towers import TrainedTowers, build_model
from tulle.train.settings.units import ExampleLevel, RowChoice, UserLevel
from unit.train.small_data import (
    FEATURES,
    SMALL_MLP,
    make_examples,
    nonprivate,
    two_phase,
    write_dataset,
)

CPU = torch.device("cpu")


def test_a_prepared_dataset_gives_the_same_rows(tmp_path: Path) -> None:
    examples = make_examples(50)
    dataset = write_dataset(tmp_path / "data", examples)
    same = ExampleSet.of(dataset)
    some = ExampleSet.of(dataset, np.array([3, 3, 49]))
    assert same.fingerprint == dataset.fingerprint != ""
    assert same.features == FEATURES
    for mine, theirs in (
        (batch_of(same, np.arange(50)), batch_of(examples, np.arange(50))),
        (batch_of(some, np.arange(3)), batch_of(examples, np.array([3, 3, 49]))),
    ):
        assert torch.equal(mine.public_ids, theirs.public_ids)
        assert torch.equal(mine.sensitive_ids, theirs.sensitive_ids)
        assert torch.equal(mine.labels, theirs.labels)


def test_selections_of_selections_are_rows_of_the_whole() -> None:
    examples = make_examples(50, rows_per_user=2)
    chosen = examples.select(np.array([10, 20, 30, 20])).select(np.array([3, 0]))
    batch = batch_of(chosen, np.array([0, 1]))
    assert chosen.num_rows == 2
    assert batch.public_ids.tolist() == examples.public_features[[20, 10]].tolist()
    assert batch.sensitive_ids.tolist() == examples.sensitive_features[[20, 10]].tolist()
    assert batch.labels.tolist() == examples.labels[[20, 10]].tolist()
    assert chosen.units.tolist() == [10, 5]


def test_without_sensitive_has_public_features_and_the_labels_that_are_given() -> None:
    examples = make_examples(20).select(np.arange(10))
    labels = np.zeros(10, np.float32)
    public = examples.without_sensitive(labels)
    assert public.features == FEATURES[:3]
    assert public.sensitive_features is None
    assert public.labels is labels
    assert batch_of(public, np.array([0])).sensitive_ids is None
    assert examples.without_sensitive().labels is None


def changed(name: str, place: tuple[int, ...], value: float) -> ExampleSet:
    examples = make_examples(30)
    values = getattr(examples, name).copy()
    values[place] = value
    return dataclasses.replace(examples, **{name: values})


@pytest.mark.parametrize(
    ("examples", "message"),
    [
        (changed("labels", (7,), 2), "label is not 0 or 1"),
        (changed("labels", (7,), 0.5), "label is not 0 or 1"),
        (changed("labels", (7,), np.nan), "label is not 0 or 1"),
        (changed("public_features", (29, 1), 4), "'slot' has an id outside"),
        (changed("public_features", (0, 2), -1), "'hour' has an id outside"),
        (changed("sensitive_features", (3, 1), 5), "'visits' has an id outside"),
    ],
)
def test_values_out_of_range_are_refused(examples: ExampleSet, message: str) -> None:
    with pytest.raises(DataError, match=message):
        examples.check()


def test_columns_that_are_missing_or_too_short_are_refused() -> None:
    examples = make_examples(30)
    for changes, message in (
        ({"labels": examples.labels[:29]}, "labels must have one entry"),
        ({"units": examples.units[:29]}, "units must have one entry"),
        ({"sensitive_features": examples.sensitive_features[:29]}, "another number of rows"),
        ({"sensitive_features": None}, "'age' is named and its ids are missing"),
        ({"public_features": examples.public_features[:, :2]}, "ids of 2 features where 3"),
    ):
        with pytest.raises(DataError, match=message):
            dataclasses.replace(examples, **changes).check()
    examples.check()
    examples.without_sensitive(examples.labels).check()


def test_a_prepared_dataset_of_more_classes_is_refused(tmp_path: Path) -> None:
    dataset = write_dataset(tmp_path / "data", make_examples(10))
    head = dataclasses.replace(
        dataset.head, contents=dataclasses.replace(dataset.head.contents, num_classes=3)
    )
    with pytest.raises(DataError, match="3 classes"):
        ExampleSet.of(dataclasses.replace(dataset, head=head))


def trained(*, is_truncated: bool) -> TrainedTowers:
    model = build_model(SMALL_MLP, FEATURES, seed=3)
    return TrainedTowers(
        model=model, settings=SMALL_MLP, features=FEATURES, is_truncated=is_truncated, device=CPU
    )


def test_predictions_are_those_of_the_model_row_by_row() -> None:
    examples = make_examples(40)
    model = build_model(SMALL_MLP, FEATURES, seed=3)
    batch = batch_of(examples, np.arange(40))
    logits = model.forward(batch.public_ids, batch.sensitive_ids).logits
    chances = predict(model, examples, CPU)
    assert chances == pytest.approx(torch.sigmoid(logits.double()).numpy())
    loss = CrossEntropy().values(logits, batch.labels).double().mean()
    assert mean_loss(model, examples, CrossEntropy(), CPU) == pytest.approx(float(loss))


def test_many_rows_are_predicted_in_parts() -> None:
    examples = make_examples(70_000)
    model = build_model(SMALL_MLP, FEATURES, seed=3)
    last = examples.select(np.array([69_999]))
    assert predict(model, examples, CPU)[-1] == pytest.approx(predict(model, last, CPU)[0])


def test_a_truncated_model_ignores_sensitive_columns() -> None:
    examples = make_examples(40)
    others = dataclasses.replace(examples, sensitive_features=(examples.sensitive_features + 1) % 4)
    truncated, whole = trained(is_truncated=True), trained(is_truncated=False)
    assert (truncated.predict_proba(examples) == truncated.predict_proba(others)).all()
    assert (whole.predict_proba(examples) != whole.predict_proba(others)).any()
    assert truncated.evaluate(examples) == truncated.evaluate(others)


def test_a_model_refuses_rows_of_other_features() -> None:
    examples = make_examples(40)
    wider = dataclasses.replace(FEATURES[0], num_ids=7)
    for features in (FEATURES[:3], (wider, *FEATURES[1:]), FEATURES[::-1]):
        other = dataclasses.replace(examples, features=features)
        with pytest.raises(DataError, match="other features than the model"):
            trained(is_truncated=False).predict_proba(other)


def test_a_model_refuses_ids_out_of_range() -> None:
    with pytest.raises(DataError, match="'slot' has an id outside"):
        trained(is_truncated=True).predict_proba(changed("public_features", (29, 1), 4))


def test_rows_without_labels_are_predicted_and_not_evaluated() -> None:
    unlabelled = dataclasses.replace(make_examples(10), labels=None)
    assert trained(is_truncated=False).predict_proba(unlabelled).shape == (10,)
    with pytest.raises(DataError, match="no label column"):
        trained(is_truncated=False).evaluate(unlabelled)


@pytest.mark.parametrize("choice", RowChoice)
def test_no_user_has_more_rows_than_allowed(choice: RowChoice) -> None:
    examples = make_examples(400, rows_per_user=4)
    unit = UserLevel(max_rows_per_user=3, max_labels_per_user=1, choice=choice)
    rows = bound_rows(examples, two_phase(unit=unit), bytes(range(32)))
    for chosen, limit in ((rows.private_rows, 3), (rows.label_rows, 1)):
        counts = np.bincount(examples.units[chosen])
        assert counts.max() == limit
        assert (counts > 0).all()
    shape = shape_of(examples, rows)
    assert (shape.num_label_rows, shape.num_private_rows, shape.num_users) == (100, 300, 100)


@pytest.mark.parametrize("choice", RowChoice)
@pytest.mark.parametrize("max_rows", [1, 3, 9])
def test_a_plan_knows_how_many_rows_are_kept_without_choosing_them(
    choice: RowChoice, max_rows: int
) -> None:
    examples = make_examples(401, rows_per_user=4)
    unit = UserLevel(max_rows_per_user=max_rows, max_labels_per_user=2, choice=choice)
    for config in (two_phase(unit=unit), two_phase(), nonprivate()):
        chosen = bound_rows(examples, config, bytes(range(32)))
        assert planned_shape(examples, config) == shape_of(examples, chosen)
    without_units = dataclasses.replace(examples, units=None)
    with pytest.raises(DataError, match="unit column"):
        planned_shape(without_units, two_phase(unit=unit))


def test_random_rows_depend_on_the_key_and_their_number_does_not() -> None:
    examples = make_examples(400, rows_per_user=4)
    config = two_phase(unit=UserLevel(max_rows_per_user=2, choice=RowChoice.RANDOM))
    first, again, other = (
        bound_rows(examples, config, key) for key in (b"k" * 16, b"k" * 16, b"l" * 16)
    )
    assert (first.private_rows == again.private_rows).all()
    assert (first.private_rows != other.private_rows).any()
    assert shape_of(examples, first) == shape_of(examples, other)


def test_examples_and_baselines_use_all_rows() -> None:
    examples = make_examples(40)
    for config in (two_phase(), nonprivate()):
        rows = bound_rows(examples, config, bytes(16))
        assert rows.label_rows is rows.private_rows is None
        shape = shape_of(examples, rows)
        assert shape.num_label_rows == shape.num_private_rows == 40
        assert shape.num_users is None


def test_users_need_a_unit_column() -> None:
    examples = dataclasses.replace(make_examples(40), units=None)
    with pytest.raises(DataError, match="unit column"):
        bound_rows(examples, two_phase(unit=UserLevel()), bytes(16))


def test_units_with_a_window_are_numbered_by_user_and_window() -> None:
    examples = dataclasses.replace(
        make_examples(6),
        units=np.array([5, 5, 5, -1, -1, 7]),
        days=np.array([0, 6, 7, 13, 14, -1], np.int32),
    )
    weekly = unit_ids(examples, UserLevel(window_seconds=7 * 86_400))
    assert weekly is not None
    assert (weekly[0] == weekly[1]).all()
    assert len(set(weekly.tolist())) == 5
    some = unit_ids(examples.select(np.array([3, 4])), UserLevel(window_seconds=14 * 86_400))
    assert some is not None
    assert len(set(some.tolist())) == 2
    assert unit_ids(examples, UserLevel()) is examples.units
    assert unit_ids(examples, ExampleLevel()) is None
    # The same days by the calendar: Sunday 11 January 1970 and Monday 12 are of two weeks.
    calendar = dataclasses.replace(examples, days=np.array([10, 11, 17, 30, 31, 30], np.int32))
    by_week = unit_ids(calendar, UserLevel(calendar="week"))
    assert by_week is not None
    assert by_week[0] != by_week[1] == by_week[2]
    by_month = unit_ids(calendar, UserLevel(calendar="month"))
    assert by_month is not None
    assert by_month[0] == by_month[1] == by_month[2]
    assert by_month[3] != by_month[4]
    with pytest.raises(DataError, match=r"days without a time of day.*Europe/Berlin"):
        unit_ids(calendar, UserLevel(calendar="month in Europe/Berlin"))
    with pytest.raises(DataError, match="data have no time"):
        unit_ids(make_examples(6), UserLevel(window_seconds=60))
