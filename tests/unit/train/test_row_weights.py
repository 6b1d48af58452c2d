"""A public column that says how much each row counts: from the schema to the rows of a run."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import tulle
from tulle.cli.main import run_with
from tulle.data.formats.public import SEARCH
from tulle.data.row_arrays import RowArrays
from tulle.data.schema import Kind, Schema
from tulle.errors import ConfigError, DataError
from tulle.privacy.plan import ColumnRoles
from tulle.privacy.units import Scope
from tulle.train.examples import ExampleSet, relative_weights
from tulle.train.methods.method import Method
from unit.train.small_data import (
    dp_sgd,
    label_projection,
    make_examples,
    make_shape,
    nonprivate,
    randomized_labels,
    two_phase,
)

SCHEMA = Schema(label="sale", public=("shop",), sensitive=("age",), weight="w")


def table(weights: object, num_rows: int = 40) -> pl.DataFrame:
    rng = np.random.default_rng(0)
    return pl.DataFrame(
        {
            "sale": rng.integers(0, 2, num_rows),
            "shop": rng.integers(0, 3, num_rows),
            "age": rng.integers(0, 4, num_rows),
            "w": weights,
        }
    )


def raw_weights(values: list[object]) -> list[float]:
    arrays = RowArrays(schema=SCHEMA, num_classes=2, salt=bytes(16))
    made = arrays.make(table(values, len(values)), lambda row: f"row {row}")
    assert made["weights"].dtype == np.float32
    return made["weights"].tolist()


def test_weights_are_numbers_from_0() -> None:
    assert SCHEMA.kind("w") is Kind.REAL
    assert raw_weights([0, 1, 250]) == [0, 1, 250]
    assert raw_weights(["0.5", "2"]) == [0.5, 2]
    for wrong, message in (
        ([1.0, -0.5], "'w' of role weight is below 0 or infinite in row 1"),
        ([1.0, np.inf], "'w' of role weight is below 0 or infinite in row 1"),
        ([None, 1.0], "'w' has nulls, the first in row 0; every row needs a weight, 0 for one"),
        ([1.0, np.nan], "'w' has nulls"),
        (["1", "many"], "'w' holds no number in row 1"),
    ):
        with pytest.raises(DataError, match=message) as error:
            raw_weights(wrong)
        assert "many" not in str(error.value)


def test_weights_count_against_the_largest() -> None:
    found = relative_weights(np.array([1, 4, 0, 2], np.float32))
    assert found is not None
    assert found.tolist() == [0.25, 1, 0, 0.5]
    assert relative_weights(None) is None
    tiny = np.array([1e-30, 3e38], np.float32)
    assert (relative_weights(tiny) <= 1).all()
    with pytest.raises(DataError, match="weights of all rows are zero"):
        relative_weights(np.zeros(3, np.float32))


def test_a_schema_without_weights_is_written_as_ever() -> None:
    plain = SCHEMA.without_weight()
    assert "weight" not in plain.to_dict()
    assert SCHEMA.to_dict() == plain.to_dict() | {"weight": "w"}
    assert Schema.from_dict(json.loads(json.dumps(SCHEMA.to_dict()))) == SCHEMA
    counted = Schema(label="sale", sensitive=("age",), weight="w", kinds={"w": "integer"})
    assert counted.without_weight() == Schema(label="sale", sensitive=("age",))


def test_weights_are_public() -> None:
    whole = ColumnRoles(label="sale", sensitive=("age",))
    assert whole.scope is Scope.WHOLE_ROWS
    weighted = dataclasses.replace(whole, weight="w")
    assert weighted.scope is Scope.LABELS_AND_SENSITIVE_COLUMNS
    with pytest.raises(ConfigError, match="column 'age' has the roles"):
        dataclasses.replace(whole, weight="age")
    # Nobody makes a protected column of a known log public by calling it a weight.
    roles = dataclasses.replace(SEARCH.schema, label=None, weight="Sale")
    with pytest.raises(ConfigError, match="'Sale' is public in the schema"):
        tulle.Classifier(roles, epsilon=1, delta=1e-6)


def test_weights_follow_their_rows() -> None:
    weights = np.linspace(0, 1, 20, dtype=np.float32)
    examples = dataclasses.replace(make_examples(20), weights=weights)
    chosen = examples.select(np.array([3, 19])).select(np.array([1]))
    assert chosen.weights.tolist() == [1]
    assert examples.without_sensitive().weights is weights
    for wrong, message in (
        (weights[1:], "weights must have one entry for each row"),
        (weights * 2, "a weight is not from 0 to 1"),
        (weights - 0.5, "a weight is not from 0 to 1"),
        (weights * np.nan, "a weight is not from 0 to 1"),
    ):
        with pytest.raises(DataError, match=message):
            dataclasses.replace(examples, weights=wrong).check()


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_prepared_dataset_keeps_weights(ending: str, tmp_path: Path) -> None:
    rows, path = table(np.arange(40) % 5), tmp_path / f"log.{ending}"
    rows.write_csv(path) if ending == "csv" else rows.write_parquet(path)
    prepared = tulle.data.prepare(path, SCHEMA, output=tmp_path / "data").dataset
    assert prepared.weights.tolist() == rows["w"].to_list()
    examples = ExampleSet.of(prepared)
    assert examples.weights.tolist() == [one / 4 for one in (np.arange(40) % 5).astype(np.float32)]
    assert examples.columns.weight == "w"
    described = {column.name: column for column in tulle.data.describe(tmp_path / "data").columns}
    assert described["w"].role == "weight"
    assert not described["w"].num_distinct.must_not_be_released


ALL_ALIKE = {
    "hybrid": two_phase(),
    "rr": randomized_labels(),
    "dp-sgd": dp_sgd(),
    "label-projection": label_projection(),
    "nonprivate": nonprivate(),
}


def rows_of_two_minds(num_rows: int = 2000) -> pl.DataFrame:
    """Heavy rows have label 1 in shop 0 alone, light ones in shop 1 alone."""
    rng = np.random.default_rng(1)
    shop, is_heavy = rng.integers(0, 2, num_rows), rng.random(num_rows) < 0.5
    return pl.DataFrame(
        {
            "sale": ((shop == 0) == is_heavy).astype(int),
            "shop": shop,
            "age": rng.integers(0, 3, num_rows),
            "w": np.where(is_heavy, 30.0, 3.0),
        }
    )


def mosaic(schema: Schema = SCHEMA, **changes: object) -> tulle.Classifier:
    return tulle.Classifier(schema, **({"epsilon": 8, "delta": 1e-6, "seed": 4} | changes))


@pytest.fixture(scope="module")
def fitted() -> tulle.Classifier:
    return mosaic().fit(rows_of_two_minds())


def test_heavy_rows_decide(fitted: tulle.Classifier) -> None:
    rows = rows_of_two_minds()
    rates = fitted.predict_proba(pl.DataFrame({"shop": [0, 1], "age": [0, 0]}))[:, 1]
    assert rates[0] > 0.8
    assert rates[1] < 0.2
    alike = mosaic(SCHEMA.without_weight()).fit(rows).predict_proba(rows)[:, 1]
    assert ((alike > 0.4) & (alike < 0.6)).all()


def test_weights_may_come_apart_from_their_rows() -> None:
    rows = rows_of_two_minds()
    schema, apart = SCHEMA.without_weight(), rows.drop("w")
    named = mosaic(dataclasses.replace(schema, weight="sample_weight"))
    expected = named.fit(rows.rename({"w": "sample_weight"})).predict_proba(rows)
    features = tulle.data.default_features(schema, num_rows=len(rows), salt=bytes(16))
    for weights in (rows["w"], rows["w"].to_numpy() / 4, rows["w"].to_list()):
        model = mosaic(schema).fit(apart, sample_weight=weights)
        np.testing.assert_array_equal(model.predict_proba(rows), expected)
        assert model.schema is schema
    both = mosaic(schema).fit(apart.drop("sale"), rows["sale"], rows["w"])
    np.testing.assert_array_equal(both.predict_proba(rows), expected)
    is_new = rows["w"] == rows["w"].max()
    by_flags = mosaic(schema).fit(apart, sample_weight=is_new).predict_proba(rows)
    by_numbers = mosaic(schema).fit(apart, sample_weight=is_new.cast(int)).predict_proba(rows)
    np.testing.assert_array_equal(by_flags, by_numbers)
    hashed = mosaic(schema, features=features).fit(apart, sample_weight=rows["w"])
    assert hashed.card_.plan.columns.weight == "sample_weight"
    for model, X, message in (
        (mosaic(), rows, "column 'w' of the schema has weights too"),
        (named, rows, "column 'sample_weight' of the schema has weights too"),
        (mosaic(schema), apart[1:], "X and sample_weight have different numbers of rows"),
        (mosaic(schema), "rows.csv", "sample_weight is given, and X are files"),
        (mosaic(schema, method="rr", delta=0), apart, "for method rr every row counts once"),
    ):
        with pytest.raises((ConfigError, DataError), match=message) as error:
            model.fit(X, sample_weight=rows["w"])
        assert isinstance(error.value, ValueError)
    for wrong in (-rows["w"], rows["w"] / 0, rows["w"] * 0):
        with pytest.raises(ValueError, match=r"role weight is below 0|all rows are zero"):
            mosaic(schema).fit(apart, sample_weight=wrong)


def test_a_row_of_weight_0_changes_no_sum() -> None:
    rows = rows_of_two_minds().with_columns(w=pl.when(pl.col("w") > 10).then(1).otherwise(0))
    turned = rows.with_columns(
        sale=pl.when(pl.col("w") == 0).then(1 - pl.col("sale")).otherwise(pl.col("sale")),
        age=pl.when(pl.col("w") == 0).then(0).otherwise(pl.col("age")),
    )
    assert not turned.equals(rows)
    first, second = mosaic().fit(rows), mosaic().fit(turned)
    np.testing.assert_array_equal(first.predict_proba(rows), second.predict_proba(rows))


def test_plan_and_card_say_that_rows_have_weights(fitted: tulle.Classifier, tmp_path: Path) -> None:
    plan = fitted.card_.plan
    assert plan.columns.weight == "w"
    assert plan.settings["row_weights"] == "w, over the largest"
    assert any("column w lets one row count for" in bound.what for bound in plan.bounds)
    assert "Rows count as column w says, which is public" in plan.mechanism
    fitted.save(tmp_path / "model")
    card = (tmp_path / "model" / "card.md").read_text()
    assert "How much each row counts in training, which column w says." in card
    loaded = tulle.load(tmp_path / "model")
    assert isinstance(loaded, tulle.Classifier)
    bare = rows_of_two_minds().drop("w")
    np.testing.assert_array_equal(loaded.predict_proba(bare), fitted.predict_proba(bare))
    # Every row that is evaluated counts once.
    assert loaded.evaluate(bare) == fitted.evaluate(rows_of_two_minds())
    unweighted = mosaic(SCHEMA.without_weight()).fit(rows_of_two_minds()).card_.plan
    assert "row_weights" not in unweighted.settings
    assert "weight" not in unweighted.columns.to_dict()


def test_the_command_line_trains_on_weighted_rows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows_of_two_minds().write_csv(tmp_path / "log.csv")
    schema = 'label = "sale"\npublic = ["shop"]\nsensitive = ["age"]\nweight = "w"\n'
    (tmp_path / "schema.toml").write_text(schema)
    words = ["train", tmp_path / "log.csv", "--schema", tmp_path / "schema.toml", "--epsilon", "8"]
    more = ["--test-fraction", "0", "--cache", tmp_path / "cache", "--output", tmp_path / "run"]
    assert run_with([*map(str, [*words, *more]), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["row_weights"] == "w"
    model = tulle.load(tmp_path / "run")
    assert isinstance(model, tulle.Classifier)
    rates = model.predict_proba(pl.DataFrame({"shop": [0, 1], "age": [0, 0]}))[:, 1]
    assert rates[0] > 0.8 > 0.2 > rates[1]


@pytest.mark.parametrize("kind", ALL_ALIKE)
def test_methods_to_which_every_row_counts_once_refuse_weights(kind: str) -> None:
    method: Method = ALL_ALIKE[kind]
    shape = make_shape()
    weighted = dataclasses.replace(shape, columns=dataclasses.replace(shape.columns, weight="w"))
    with pytest.raises(ConfigError, match=f"'w' says how much each row counts.*method {kind}.*use"):
        method.make(weighted)
    assert method.make(shape).method == method.fitted_to(shape)
