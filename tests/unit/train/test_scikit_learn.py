"""What scikit-learn expects of an estimator, and where a private one must differ."""

import copy
import io
import pickle
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils import estimator_checks

import tulle
from tulle.accounting.budget import Budget
from tulle.accounting.ledger import Ledger
from tulle.accounting.refusal import SpendRefusedError
from tulle.data.schema import Schema
from tulle.errors import ConfigError, DataError
from tulle.privacy.units import Adjacency, Scope, Unit
from tulle.train.classifier import Classifier

SCHEMA = Schema(label="sale", public=("shop",), sensitive=("age",), kinds={"age": "real"})
FOLDS = 3
DOCS = Path(__file__).parents[3] / "docs" / "scikit-learn.md"

# What `check_estimator` asks for and a private classifier refuses. The page of the docs shows this.
CANNOT_HOLD = {
    "check_parameters_default_constructible": "epsilon has no default: whoever trains says it",
    "check_do_not_raise_errors_in_init_or_set_params": (
        "arguments that contradict each other are refused at once, before data are at hand"
    ),
    "check_classifiers_classes": "labels are 0 and 1: which other labels occur is protected",
    "check_estimators_dtypes": "its labels are 1 and 2: which other labels occur is protected",
    "check_classifier_data_not_an_array": (
        "its labels are 1 and 2: which other labels occur is protected"
    ),
    "check_sample_weights_pandas_series": (
        "its labels are 1 and 2: which other labels occur is protected"
    ),
    "check_sample_weights_not_an_array": (
        "its labels are 1 and 2: which other labels occur is protected"
    ),
    "check_sample_weights_shape": "its labels are 1 and 2: which other labels occur is protected",
    "check_sample_weights_not_overwritten": (
        "its labels are 1 and 2: which other labels occur is protected"
    ),
    "check_supervised_y_2d": "a column of labels is taken as labels, without a warning",
}
# On its 15 rows both models may end as the same constant, and then it holds all the same.
NEED_NOT_HOLD = {
    "check_sample_weight_equivalence_on_dense_data": (
        "a row of weight 2 is one row of twice the weight of others, and not two rows"
    ),
}
OF_LABELS = [name for name, reason in CANNOT_HOLD.items() if "labels occur" in reason]


def columns(num_rows: int = 600, *, seed: int = 0) -> dict[str, list[Any]]:
    rng = np.random.default_rng(seed)
    shop, age = rng.integers(0, 4, num_rows), rng.choice([3, 5, 30, 70], num_rows)
    sales = rng.random(num_rows) < 1 / (1 + np.exp(-2.0 * (shop - 1.5) - 6.0 * (age < 8)))
    return {
        "sale": sales.astype(int).tolist(),
        "shop": [f"shop {value}" for value in shop],
        "age": age.astype(float).tolist(),
    }


def table(num_rows: int = 600, *, seed: int = 0) -> pl.DataFrame:
    return pl.DataFrame(columns(num_rows, seed=seed))


def classifier(schema: Schema | None = SCHEMA, **changes: Any) -> Classifier:
    return Classifier(schema, **({"epsilon": 8, "delta": 1e-6, "seed": 3} | changes))


@pytest.fixture(scope="module")
def fitted() -> Classifier:
    return classifier().fit(table())


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    made = Ledger.create(tmp_path / "ledger.db")
    row = Budget(
        name="rows", unit=Unit.example(), adjacency=Adjacency.REPLACE, epsilon=3.0, delta=1e-4
    )
    made.create_budget(row)
    return made


def failed_checks(estimator: Classifier) -> dict[str, str]:
    """Names of the checks that fail, with what they say."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = estimator_checks.check_estimator(estimator, on_fail=None, on_skip=None)
    return {
        one["check_name"]: f"{type(one['exception']).__name__}: {one['exception']}"
        for one in results
        if one["status"] == "failed"
    }


def test_every_check_of_scikit_learn_holds_but_those_that_cannot() -> None:
    # One of the checks fits a single row, which is refused unless a constant will do.
    found = failed_checks(Classifier(epsilon=1000, delta=1e-6, seed=1, allow_constant=True))
    assert found.keys() - NEED_NOT_HOLD.keys() == CANNOT_HOLD.keys(), found


class WithNamesOfLabels(Classifier):
    """Takes the two labels that occur for 0 and 1, which a private classifier must not."""

    def fit(self, X: object, y: object = None, sample_weight: object = None) -> "WithNamesOfLabels":
        names = np.unique(np.asarray(y))
        vars(self)["names_"] = names
        return super().fit(X, np.asarray(y) == names[-1], sample_weight)

    @property
    def classes_(self) -> Any:
        return vars(self)["names_"]

    def predict(self, X: object) -> Any:
        return self.classes_[super().predict(X)]


@pytest.mark.filterwarnings("ignore")
def test_nothing_but_the_names_of_labels_stands_between_some_checks() -> None:
    model = WithNamesOfLabels(epsilon=1000, delta=1e-6, seed=1)
    for name in OF_LABELS:
        getattr(estimator_checks, name)("Classifier", model)


def test_the_docs_name_every_check_that_cannot_hold() -> None:
    page = DOCS.read_text()
    for name, reason in (CANNOT_HOLD | NEED_NOT_HOLD).items():
        assert f"| `{name}` | {reason} |" in page


ROWS: dict[str, Callable[[dict[str, list[Any]]], Any]] = {
    "polars": pl.DataFrame,
    "pandas": pd.DataFrame,
    "arrow": pa.table,
}
LABELS: dict[str, Callable[[list[int]], Any]] = {
    "list": list,
    "array": np.array,
    "column": lambda labels: np.array(labels)[:, None],
    "polars": pl.Series,
    "pandas": pd.Series,
    "arrow": pa.array,
    "truth values": lambda labels: np.array(labels) == 1,
    "words": lambda labels: ["yes" if label else "no" for label in labels],
}


@pytest.mark.parametrize(
    ("rows", "labels"), [*zip(ROWS, LABELS, strict=False), *(("polars", one) for one in LABELS)]
)
def test_labels_may_come_apart_from_their_rows(rows: str, labels: str, fitted: Classifier) -> None:
    data = columns()
    y = LABELS[labels](data.pop("sale"))
    model = classifier().fit(ROWS[rows](data), y)
    expected = fitted.predict_proba(table(seed=1))
    np.testing.assert_array_equal(model.predict_proba(table(seed=1)), expected)
    held_out = columns(seed=1)
    score = model.score(ROWS[rows]({"shop": held_out["shop"], "age": held_out["age"]}), y)
    assert score == fitted.score(pl.DataFrame(held_out | {"sale": columns()["sale"]}))


def test_columns_of_an_array_are_numbered() -> None:
    schema = Schema(label="sale", public=("x0",), sensitive=("x1",), kinds={"x1": "real"})
    data = columns()
    names = {"shop": "x0", "age": "x1"}
    named = classifier(schema).fit(table().rename(names))
    rows = np.array([data["shop"], data["age"]], dtype=object).T
    same = classifier(schema).fit(rows, data["sale"])
    for X in (rows, rows.tolist(), pd.DataFrame(rows)):
        np.testing.assert_array_equal(
            same.predict_proba(X), named.predict_proba(table().rename(names))
        )
    assert same.feature_names_in_.tolist() == ["x0", "x1"]
    with pytest.raises(ValueError, match="X has 1 features, but Classifier is expecting 2"):
        same.predict(rows[:, :1])
    with pytest.raises(ValueError, match="X has 3 features, but Classifier is expecting 2"):
        same.predict(np.hstack([rows, rows[:, :1]]))


def test_everything_is_protected_if_nothing_is_said_about_columns() -> None:
    data = columns()
    model = classifier(None).fit(pl.DataFrame(data).drop("sale"), data["sale"])
    assert model.guarantee_.scope is Scope.WHOLE_ROWS
    assert model.card_.plan.columns.sensitive == ("shop", "age")
    assert model.card_.plan.columns.label == "y"
    assert model.schema is None
    with pytest.raises(ValueError, match="requires y to be passed"):
        classifier(None).fit(pl.DataFrame(data))
    with pytest.raises(ValueError, match="X has a column 'y'"):
        classifier(None).fit(pl.DataFrame({"y": data["age"]}), data["sale"])
    with pytest.raises(ValueError, match="schema=None is for tables and arrays"):
        classifier(None).fit("clicks.csv", data["sale"])


def test_names_of_features_are_those_that_a_prediction_needs(fitted: Classifier) -> None:
    assert fitted.feature_names_in_.tolist() == ["shop", "age"]
    assert fitted.n_features_in_ == 2
    swapped = table().select("age", "shop")
    np.testing.assert_array_equal(fitted.predict(swapped), fitted.predict(table()))
    alone = classifier(method="rr", epsilon=3, delta=0).fit(table())
    assert alone.feature_names_in_.tolist() == ["shop"]


def test_the_score_ranks_rows_and_is_no_accuracy(fitted: Classifier) -> None:
    held_out = table(2000, seed=1)
    assert fitted.score(held_out) == 1 - fitted.evaluate(held_out).auc_loss > 0.7
    turned = 1 - held_out["sale"]
    assert fitted.score(held_out.drop("sale"), turned) == pytest.approx(1 - fitted.score(held_out))


def test_what_is_wrong_with_rows_and_labels_is_said_before_anything_is_spent(
    ledger: Ledger,
) -> None:
    rows, labels = table().drop("sale"), table()["sale"]
    model = classifier(seed=None, epsilon=2, ledger=ledger)
    for X, y, message in (
        (rows, labels[1:], "X and y have different numbers of rows"),
        (rows, labels + 1, "neither 0 nor 1 nor true"),
        (rows, labels * 0.5, "neither 0 nor 1 nor true"),
        (rows, ["maybe"] * len(rows), "neither 0 nor 1 nor true"),
        (rows, np.ones((600, 2)), "y of type ndarray is no single column"),
        (table(), labels, "X has the label column 'sale', and y is given too"),
        (rows.drop("age"), labels, "the table has no column 'age'"),
        (rows.head(0), labels[:0], "no rows"),
        (np.ones(3), labels, "Reshape your data"),
        ("clicks.csv", labels, "y is given, and X are files"),
        ([[1.0], [1.0, 2.0]], labels, "rows of different lengths"),
        (np.ones((600, 2)), labels, "X has no column 'shop' nor any other"),
    ):
        with pytest.raises(DataError, match=message) as refused:
            model.fit(X, y)
        assert isinstance(refused.value, ValueError)
        assert "maybe" not in str(refused.value)
    with pytest.raises(ConfigError, match="the schema has no label"):
        classifier(Schema(label=None, sensitive=("shop",))).fit(rows, labels)
    assert ledger.spends("rows") == ()


def test_labels_of_one_kind_are_trained_on_like_others() -> None:
    # A refusal would tell that no row has the other label.
    model = classifier().fit(table().drop("sale"), np.zeros(600))
    assert not model.predict(table()).any()
    with pytest.raises(DataError, match="all labels are 0"):
        model.score(table().drop("sale"), np.zeros(600))


def test_refusals_are_what_scikit_learn_catches(fitted: Classifier) -> None:
    with pytest.raises(ValueError, match="'age' is not in the data"):
        fitted.predict(table().drop("age"))
    with pytest.raises(ValueError, match="needs an epsilon"):
        Classifier(SCHEMA)
    with pytest.raises(NotFittedError, match="not fitted") as error:
        classifier().predict(table())
    assert isinstance(error.value, tulle.train.estimator_errors.NotFittedError)


def test_pipelines_carry_rows_to_the_classifier(fitted: Classifier) -> None:
    rows, labels = table().drop("sale"), table()["sale"]
    pipeline = make_pipeline(FunctionTransformer(lambda X: X.select("age", "shop")), classifier())
    pipeline.fit(rows, labels)
    held_out = table(seed=1)
    np.testing.assert_array_equal(pipeline.predict_proba(held_out), fitted.predict_proba(held_out))
    assert pipeline.score(held_out, held_out["sale"]) == fitted.score(held_out)
    assert pipeline.set_params(classifier__epsilon=2)[-1].epsilon == 2


def test_each_fold_is_charged_and_folds_add_up(ledger: Ledger) -> None:
    model = classifier(seed=None, epsilon=2, ledger=ledger)
    scores = cross_val_score(model, table().drop("sale"), table()["sale"], cv=FOLDS)
    assert ((scores >= 0) & (scores <= 1)).all()
    assert len(ledger.spends("rows")) == FOLDS
    # Three fits of epsilon 2 and delta 1e-6 add up to epsilon 2.8 at delta 1e-4, four to 3.3.
    with pytest.raises(SpendRefusedError):
        cross_val_score(model, table(), cv=FOLDS, error_score="raise")
    assert len(ledger.spends("rows")) == FOLDS


def test_weights_are_divided_among_folds() -> None:
    rows, labels = table().drop("sale"), table()["sale"]
    weights = np.linspace(0.5, 1, len(rows))
    found = cross_val_score(
        classifier(), rows, labels, cv=2, params={"sample_weight": weights}, error_score="raise"
    )
    assert (found > 0.6).all()


def test_a_search_fits_every_candidate_on_every_fold_and_once_more(tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path / "search.db")
    budget = Budget(
        name="rows", unit=Unit.example(), adjacency=Adjacency.REPLACE, epsilon=100, delta=1e-3
    )
    ledger.create_budget(budget)
    search = GridSearchCV(
        classifier(seed=None, ledger=ledger.path), {"epsilon": [1.0, 8.0]}, cv=2, n_jobs=1
    )
    search.fit(table().drop("sale"), table()["sale"])
    assert len(ledger.spends("rows")) == 2 * 2 + 1
    assert search.best_estimator_.guarantee_.epsilon == search.best_params_["epsilon"]
    # What is said of the winner is its own fit; all five add up in the ledger.
    assert search.score(table(seed=1).drop("sale"), table(seed=1)["sale"]) > 0.6


def pickled(model: Classifier) -> Classifier:
    copied: Classifier = pickle.loads(pickle.dumps(model))  # noqa: S301
    return copied


def stored(model: Classifier) -> Classifier:
    content = io.BytesIO()
    joblib.dump(model, content)
    copied: Classifier = joblib.load(content)
    return copied


@pytest.mark.parametrize("make_copy", [pickled, stored, copy.deepcopy])
def test_a_copy_predicts_the_same(
    make_copy: Callable[[Classifier], Classifier], fitted: Classifier, tmp_path: Path
) -> None:
    made = make_copy(fitted)
    expected = fitted.predict_proba(table(seed=1))
    np.testing.assert_array_equal(made.predict_proba(table(seed=1)), expected)
    assert made.guarantee_ == fitted.guarantee_
    assert made.get_params() == fitted.get_params()
    made.save(tmp_path / "model")
    loaded = tulle.load(tmp_path / "model")
    assert isinstance(loaded, Classifier)
    np.testing.assert_array_equal(make_copy(loaded).predict_proba(table(seed=1)), expected)
    unfitted = make_copy(classifier())
    assert not unfitted.__sklearn_is_fitted__()
    np.testing.assert_array_equal(unfitted.fit(table()).predict_proba(table(seed=1)), expected)


def test_a_pickle_holds_what_is_saved_and_no_rows(fitted: Classifier, tmp_path: Path) -> None:
    fitted.save(tmp_path / "model")
    state = fitted.__getstate__()
    saved = {path.name: path.read_bytes() for path in (tmp_path / "model").iterdir()}
    assert state["files"] == saved
    assert state.keys() == {"arguments", "files"}
    with pytest.raises(tulle.train.estimator_errors.NotFittedError, match="was loaded"):
        _ = pickled(fitted).result_


def test_a_pickled_ledger_is_the_same_ledger(ledger: Ledger) -> None:
    for given in (ledger, ledger.path):
        made = pickled(classifier(seed=None, epsilon=1, ledger=given))
        made.fit(table())
    assert len(ledger.spends("rows")) == 2


def test_a_clone_has_the_same_arguments_and_no_fit(fitted: Classifier) -> None:
    twin = clone(fitted)
    assert twin.get_params() == fitted.get_params()
    assert not twin.__sklearn_is_fitted__()
