import dataclasses
import inspect
import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import tulle
from tulle.accounting.budget import Budget
from tulle.accounting.ledger import Ledger
from tulle.data.features.column_features import HashedFeature, VocabularyFeature
from tulle.data.features.feature_plan import FeaturePlan, hash_all
from tulle.data.formats.public import SEARCH
from tulle.data.schema import Schema
from tulle.errors import ConfigError, DataError, RunStateError
from tulle.privacy.units import Adjacency, Unit
from tulle.train.classifier import Classifier
from tulle.train.estimator_errors import NotFittedError
from tulle.train.methods.dp_sgd import DpSgdConfig
from tulle.train.methods.mosaic.method import MosaicConfig
from tulle.train.settings.units import ExampleLevel, UserLevel
from unit.train.small_data import (
    SMALL_MLP,
    dp_sgd,
    nonprivate,
    private_phase,
    randomized_labels,
    two_phase,
)

SCHEMA = Schema(label="click", public=("site", "slot"), sensitive=("age",), unit="user")
SALT = bytes(range(16))
HASHING = hash_all(SCHEMA, 64, 32, salt=SALT)
LEARNING = two_phase(private_phase=private_phase(noise_multiplier=0.5, epochs=8.0))


def columns(num_rows: int = 400, *, seed: int = 0) -> dict[str, list[Any]]:
    """Clicks that depend on site and age; values of several kinds, some missing."""
    rng = np.random.default_rng(seed)
    site, age, slot = (rng.integers(0, size, num_rows) for size in (6, 4, 3))
    logits = 2.0 * (site - 2.5) + 2.0 * (age - 1.5)
    clicks = rng.random(num_rows) < 1 / (1 + np.exp(-logits))
    return {
        "click": clicks.astype(int).tolist(),
        "site": [f"sité {value}" for value in site],
        "slot": [None if value == 0 else int(value) for value in slot],
        "age": [f"{value}0s" for value in age],
        "user": [f"user {row // 2}" for row in range(num_rows)],
    }


def train_table() -> pl.DataFrame:
    return pl.DataFrame(columns())


def held_out_table() -> pl.DataFrame:
    return pl.DataFrame(columns(1000, seed=1))


def classifier(**changes: Any) -> Classifier:
    settings = {"method": LEARNING, "features": HASHING, "seed": 5}
    return Classifier(SCHEMA, **(settings | changes))


def pandas_table(data: dict[str, list[Any]]) -> pd.DataFrame:
    # Without the type, gaps would turn whole numbers into floats, which are other values.
    return pd.DataFrame(data).astype({"slot": "Int64"})


TABLES: dict[str, Callable[[dict[str, list[Any]]], object]] = {
    "polars": pl.DataFrame,
    "pandas": pandas_table,
    "arrow": pa.table,
}


@pytest.fixture(scope="module")
def fitted() -> Classifier:
    return classifier().fit(train_table())


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    made = Ledger.create(tmp_path / "ledger.db")
    made.create_budget(
        Budget(
            name="rows", unit=Unit.example(), adjacency=Adjacency.REPLACE, epsilon=50.0, delta=0.01
        )
    )
    return made


@pytest.mark.parametrize("kind", TABLES)
def test_every_kind_of_table_gives_the_same_predictions(kind: str, fitted: Classifier) -> None:
    make_table = TABLES[kind]
    model = classifier().fit(make_table(columns()))
    expected = fitted.predict_proba(held_out_table())
    np.testing.assert_array_equal(model.predict_proba(make_table(columns(1000, seed=1))), expected)


def test_batches_fit_a_table_of_few_rows() -> None:
    method = DpSgdConfig(model=SMALL_MLP, unit=ExampleLevel())
    model = classifier(method=method, epsilon=3, delta=1e-5).fit(pl.DataFrame(columns(3_000)))
    assert model.plan_.private_phase is not None
    assert model.plan_.private_phase.batch_size == 750


def test_another_seed_gives_another_model(fitted: Classifier) -> None:
    other = classifier(seed=6).fit(train_table())
    expected = fitted.predict_proba(held_out_table())
    assert not np.array_equal(other.predict_proba(held_out_table()), expected)


def test_it_learns_and_says_how_well(fitted: Classifier) -> None:
    metrics = fitted.evaluate(held_out_table())
    assert metrics.auc_loss < 0.25
    assert metrics.num_rows == 1000
    # Rows whose labels are turned round are ranked the wrong way.
    turned = held_out_table().with_columns(click=1 - pl.col("click"))
    assert fitted.evaluate(turned).auc_loss == pytest.approx(1 - metrics.auc_loss)


def test_predictions_are_as_scikit_learn_has_them(fitted: Classifier) -> None:
    chances = fitted.predict_proba(held_out_table())
    assert chances.shape == (1000, 2)
    assert chances.sum(axis=1) == pytest.approx(1)
    assert fitted.classes_.tolist() == [0, 1]
    labels = fitted.predict(held_out_table())
    assert set(labels.tolist()) == {0, 1}
    np.testing.assert_array_equal(labels, fitted.classes_[chances.argmax(axis=1)])
    clicks = held_out_table()["click"].to_numpy()
    assert chances[clicks == 1, 1].mean() > chances[clicks == 0, 1].mean()


def test_predictions_need_the_columns_of_features_alone(fitted: Classifier) -> None:
    table = held_out_table()
    bare = table.select("age", "slot", "site")
    np.testing.assert_array_equal(fitted.predict_proba(bare), fitted.predict_proba(table))
    assert fitted.predict_proba(bare.head(0)).shape == (0, 2)
    with pytest.raises(DataError, match="'age' is not in the data"):
        fitted.predict_proba(bare.drop("age"))


def test_columns_without_a_role_are_never_looked_at(fitted: Classifier) -> None:
    class Untouchable:
        def __getattribute__(self, name: str) -> object:
            raise AssertionError(name)

    table = pandas_table(columns())
    table["note"] = pd.Series([Untouchable()] * len(table), dtype=object)
    model = classifier().fit(table)
    expected = fitted.predict_proba(held_out_table())
    np.testing.assert_array_equal(model.predict_proba(held_out_table()), expected)


def test_the_guarantee_is_what_was_asked_for(fitted: Classifier) -> None:
    assert fitted.plan_.noise_multiplier == 0.5
    assert (
        fitted.guarantee_ == fitted.plan_.privacy.guarantee == fitted.result_.plan.privacy.guarantee
    )
    labels_alone = randomized_labels(target=None)
    model = classifier(method=labels_alone, epsilon=2.0).fit(train_table())
    assert (model.guarantee_.epsilon, model.guarantee_.delta) == (2.0, 0.0)
    assert model.guarantee_.unit == Unit.example()


def test_by_default_mosaic_trains_and_needs_no_settings() -> None:
    schema = dataclasses.replace(SCHEMA, unit=None)
    model = Classifier(schema, epsilon=3, delta=1e-5).fit(train_table())
    rows = MosaicConfig(unit=ExampleLevel())
    assert model.plan_.method == rows.calibrate(epsilon=3, delta=1e-5)
    assert (model.guarantee_.epsilon, model.guarantee_.delta) == (3, 1e-5)
    assert model.result_.is_secure


def test_the_default_learns_from_public_and_sensitive_columns() -> None:
    rows = MosaicConfig(unit=ExampleLevel())
    model = classifier(method=rows, epsilon=3, delta=1e-5).fit(pl.DataFrame(columns(4000)))
    chances = model.predict_proba(held_out_table())[:, 1]
    assert np.all((chances > 0) & (chances < 1))
    # Without sensitive columns it is 0.2 at best.
    assert model.evaluate(held_out_table()).auc_loss < 0.14


def test_who_names_users_gets_their_guarantee_unless_rows_are_asked_for() -> None:
    settings = {"method": "rr", "epsilon": 3.0, "features": None}
    assert classifier(**settings).fit(train_table()).guarantee_.unit == Unit.user()
    by_row = classifier(unit="example", **settings).fit(train_table())
    assert by_row.guarantee_.unit == Unit.example()
    rows = Classifier(dataclasses.replace(SCHEMA, unit=None), **settings).fit(train_table())
    assert rows.guarantee_.unit == Unit.example()


def test_a_unit_is_said_in_words_or_by_its_column() -> None:
    users = classifier(method="rr", epsilon=2.0, unit="user", features=None).fit(train_table())
    assert users.guarantee_.unit == Unit.user()
    same = classifier(method="rr", epsilon=2.0, unit="user", features=None).fit(train_table())
    expected = users.predict_proba(held_out_table())
    np.testing.assert_array_equal(same.predict_proba(held_out_table()), expected)
    for wrong in ("usr", "usr per 7 days", "site"):
        with pytest.raises(ConfigError, match=f"unit='{wrong}' is unknown"):
            classifier(method="rr", epsilon=2.0, unit=wrong)
    with pytest.raises(ConfigError, match="contradicts the settings of method rr"):
        classifier(method=randomized_labels(unit=UserLevel()), unit="example")


def test_a_misspelt_unit_is_answered_before_the_method_is_asked_for_users() -> None:
    message = r"unit='usr' is unknown \(did you mean 'user'\?\)"
    for verb in (tulle.train.plan, tulle.train.fit):
        with pytest.raises(ConfigError, match=message):
            verb(train_table(), SCHEMA, epsilon=3, method="mosaic", unit="usr")
    with pytest.raises(ConfigError, match=message):
        classifier(method="mosaic", epsilon=3, delta=1e-5, unit="usr")


def test_a_baseline_has_no_unit_to_choose() -> None:
    assert classifier(method=nonprivate()).schema.unit == "user"


def test_a_user_can_be_the_unit() -> None:
    config = randomized_labels(unit=UserLevel(max_rows_per_user=2))
    model = classifier(method=config).fit(train_table())
    assert model.guarantee_.unit == Unit.user()
    assert model.plan_.shape.num_users == 200


def test_an_unfitted_classifier_says_so() -> None:
    model = classifier()
    for use in (
        lambda: model.predict_proba(held_out_table()),
        lambda: model.predict(held_out_table()),
        lambda: model.evaluate(held_out_table()),
        lambda: model.guarantee_,
        lambda: model.encoder_,
        lambda: model.classes_,
    ):
        with pytest.raises(NotFittedError, match=r"call fit\(rows\) first"):
            use()
    assert issubclass(NotFittedError, RunStateError)
    assert not hasattr(model, "plan_")
    assert not model.__sklearn_is_fitted__()


@pytest.mark.parametrize("label", [2, None, "maybe", 0.5])
def test_a_label_that_is_not_0_or_1_costs_nothing(ledger: Ledger, label: object) -> None:
    clicks = pl.Series("click", [label] * 400)
    model = classifier(method=randomized_labels(), ledger=ledger, seed=None)
    with pytest.raises(
        DataError, match="'click' of role label is neither a whole number"
    ) as caught:
        model.fit(train_table().with_columns(clicks))
    assert "maybe" not in str(caught.value)
    assert ledger.spends("rows") == ()
    model.fit(train_table())
    assert len(ledger.spends("rows")) == 1


def test_tables_that_cannot_be_used_are_named(fitted: Classifier) -> None:
    for broken, message in (
        (train_table().drop("age"), "'age'"),
        (train_table().drop("click"), "'click'"),
        (train_table().head(0), "no rows"),
        ({1, 2}, "a table of type set cannot be read"),
    ):
        with pytest.raises(DataError, match=message):
            classifier().fit(broken)
        with pytest.raises(DataError, match=message):
            fitted.evaluate(broken)
    with pytest.raises(ConfigError, match="schema has no label"):
        Classifier(Schema(label=None, public=("site",), sensitive=("age",)), method=LEARNING).fit(
            train_table()
        )


def test_a_fit_that_fails_leaves_the_fit_before(fitted: Classifier) -> None:
    before = fitted.result_
    with pytest.raises(DataError):
        fitted.fit(train_table().head(0))
    assert fitted.result_ is before


def test_arguments_come_back_as_they_were_given(fitted: Classifier) -> None:
    params = fitted.get_params()
    assert params["method"] is LEARNING
    copies = (Classifier(**params), fitted.__sklearn_clone__())
    for copy in copies:
        assert not hasattr(copy, "plan_")
        assert all(copy.get_params(deep=False)[name] is value for name, value in params.items())
    named = inspect.signature(Classifier).parameters
    assert list(params) == list(named)


def test_arguments_can_be_changed_for_the_next_fit() -> None:
    model = classifier()
    assert model.set_params(method=randomized_labels(target=None), epsilon=1.0) is model
    assert model.fit(train_table()).guarantee_.epsilon == 1.0
    with pytest.raises(ConfigError, match="did you mean 'epsilon'"):
        model.set_params(epsilom=2.0)
    with pytest.raises(ConfigError, match="has its target already"):
        model.set_params(method=LEARNING)
    assert model.get_params()["epsilon"] == 1.0
    assert model.get_params()["method"] != LEARNING


CONTRADICTIONS = {
    "no target": ({"method": dp_sgd(target=None)}, "needs an epsilon"),
    "nothing": ({"method": "mosaic"}, "needs an epsilon"),
    "no such method": ({"method": "mosaik", "epsilon": 1.0}, "did you mean 'mosaic'"),
    "two targets": ({"epsilon": 1.0, "delta": 1e-6}, "has its target already"),
    "private baseline": ({"method": nonprivate(), "epsilon": 1.0}, "has no guarantee"),
    "negative": (
        {"method": "mosaic", "unit": "example", "epsilon": -1.0, "delta": 1e-6},
        "must be > 0",
    ),
    "model as config": ({"method": SMALL_MLP}, "must be one of 'mosaic'"),
    "values": (
        {"method": {"method": "mosaic", "clip": 5.0}, "epsilon": 1.0},
        "use tulle.Regressor",
    ),
    "wrong features": ({"features": 64}, "must be a FeaturePlan"),
}


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_arguments_that_contradict_each_other_are_refused_at_once(name: str) -> None:
    changes, message = CONTRADICTIONS[name]
    with pytest.raises(ConfigError, match=message):
        classifier(**changes)
    with pytest.raises(ConfigError, match="must be a Schema"):
        Classifier(7, epsilon=1, delta=1e-6)  # type: ignore[arg-type]


def plan_with_vocabulary(column: str) -> FeaturePlan:
    return FeaturePlan(
        schema=SCHEMA,
        features=tuple(
            VocabularyFeature(column=name, min_count=30)
            if name == column
            else HashedFeature(column=name, num_bins=32)
            for name in SCHEMA.features
        ),
        salt=bytes(16),
    )


def test_vocabularies_of_public_columns_are_counted() -> None:
    model = classifier(features=plan_with_vocabulary("site")).fit(train_table())
    assert model.encoder_.vocabularies.num_kept == {"site": 6}
    assert model.encoder_.vocabulary_event is None
    assert model.evaluate(held_out_table()).auc_loss < 0.25


def test_vocabularies_of_sensitive_columns_need_another_way() -> None:
    with pytest.raises(ConfigError, match=r"'age' is sensitive.*VocabularyPayment"):
        classifier(features=plan_with_vocabulary("age")).fit(train_table())
    with pytest.raises(ConfigError, match="another schema"):
        Classifier(SEARCH.schema, method=LEARNING, features=plan_with_vocabulary("site"))


def test_a_protected_column_of_a_known_log_is_not_public_by_mistake() -> None:
    schema = Schema(
        label="Sale",
        public=(*SEARCH.schema.public, "audience_id"),
        sensitive=("device_type", "user_id"),
    )
    with pytest.raises(ConfigError, match="'audience_id' is public in the schema"):
        Classifier(schema, method=LEARNING)
    Classifier(schema, method=LEARNING, allow_public=("audience_id",))


def test_randomized_labels_never_ask_for_sensitive_columns() -> None:
    model = classifier(method=randomized_labels()).fit(train_table())
    chances = model.predict_proba(held_out_table().drop("age"))
    np.testing.assert_array_equal(chances, model.predict_proba(held_out_table()))
    assert model.evaluate(held_out_table()).auc_loss < 0.4


def test_a_baseline_promises_nothing() -> None:
    model = classifier(method=nonprivate()).fit(train_table())
    assert model.guarantee_.epsilon == math.inf
    assert model.evaluate(held_out_table()).auc_loss < 0.15


def test_a_run_folder_and_a_ledger_are_used(tmp_path: Path, ledger: Ledger) -> None:
    kept: dict[str, Any] = {"output": tmp_path / "run", "features": None, "seed": None}
    first = classifier(**kept, ledger=ledger).fit(train_table())
    assert (tmp_path / "run" / "result.json").exists()
    with pytest.raises(RunStateError):
        classifier(**kept, ledger=ledger).fit(train_table())
    assert len(ledger.spends("rows")) == 1
    again = classifier(**kept, resume=True).fit(train_table())
    expected = first.predict_proba(held_out_table())
    np.testing.assert_array_equal(again.predict_proba(held_out_table()), expected)


@pytest.mark.parametrize("method", ["mosaic", "rr", "dp-sgd", "nonprivate"])
def test_a_model_that_is_saved_and_loaded_predicts_the_same(method: str, tmp_path: Path) -> None:
    target = {} if method == "nonprivate" else {"epsilon": 3.0, "unit": "example"}
    made = classifier(method=method, features=None, output=tmp_path / "run", **target)
    made.fit(train_table())
    made.save(tmp_path / "model")
    expected = made.predict_proba(held_out_table())
    held_out_table().drop("click", "user").write_parquet(tmp_path / "new.parquet")
    for folder in ("model", "run"):
        loaded = tulle.load(tmp_path / folder)
        assert isinstance(loaded, Classifier)
        assert loaded.card_.verdict == made.card_.verdict
        assert loaded.guarantee_ == made.guarantee_
        np.testing.assert_array_equal(loaded.predict_proba(held_out_table()), expected)
        np.testing.assert_array_equal(loaded.predict_proba(tmp_path / "new.parquet"), expected)
    names = {path.name for path in (tmp_path / "model").iterdir()}
    assert names == {
        *("model.json", "model.safetensors", "load_model.py"),
        *("encoder.json", "vocabularies.npz", "card.json", "card.md"),
    }


def test_what_is_no_saved_model_is_refused(tmp_path: Path, fitted: Classifier) -> None:
    with pytest.raises(DataError, match="nothing that tulle has saved"):
        tulle.load(tmp_path)
    fitted.save(tmp_path / "model")
    with pytest.raises(RunStateError, match="exists already"):
        fitted.save(tmp_path / "model")
    encoder = tmp_path / "model" / "encoder.json"
    encoder.write_text(encoder.read_text().replace('"num_bins": 64', '"num_bins": 65'))
    with pytest.raises(DataError, match=r"encoder\.json was cut or changed"):
        tulle.load(tmp_path / "model")
    encoder.unlink()
    with pytest.raises(DataError, match=r"encoder.json: No such file"):
        tulle.load(tmp_path / "model")
    (tmp_path / "model" / "card.json").unlink()


LEAN = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "polars":
            raise ImportError("polars is not here")
        return None

sys.meta_path.insert(0, Blocked())
import tulle

assert "Classifier" in tulle.train.__all__
assert tulle.train.HybridConfig().model is not None
try:
    tulle.train.Classifier
except ImportError as error:
    print(error)
"""


def test_training_is_imported_without_polars_and_tables_are_not() -> None:
    done = subprocess.run([sys.executable, "-c", LEAN], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "polars is not here\n"


def test_the_package_offers_the_classifier_by_name() -> None:
    assert tulle.Classifier is tulle.train.Classifier is Classifier
    with pytest.raises(AttributeError, match="'Clasifier'"):
        tulle.train.Clasifier  # noqa: B018
