"""Classes: names that are given, labels that are none of them, predictions, figures, folders."""

import copy
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from sklearn.metrics import get_scorer

import tulle
from tulle.data import prepare
from tulle.errors import ConfigError, DataError
from tulle.quality import ClassMetrics
from tulle.train import MosaicConfig
from tulle.train.methods.mosaic.label_parts import MOST_CLASSES

SCHEMA = {"label": "action", "public": ["site"], "sensitive": ["age"]}
CLASSES = ["none", "cart", "sale"]


def table(num_rows: int = 5_000, seed: int = 0) -> pl.DataFrame:
    """Actions whose probabilities depend on both columns."""
    rng = np.random.default_rng(seed)
    site, age = rng.integers(0, 4, num_rows), rng.integers(0, 3, num_rows)
    odds = np.stack([np.full(num_rows, 4.0), 0.5 * 2.0**site, 3.0**age / 4], axis=1)
    chances = odds / odds.sum(axis=1, keepdims=True)
    action = (rng.random((num_rows, 1)) > chances.cumsum(axis=1)).sum(axis=1)
    columns: dict[str, Any] = {
        "action": [CLASSES[number] for number in action],
        "site": [f"s{value}" for value in site],
        "age": [f"a{value}" for value in age],
    }
    return pl.DataFrame(columns)


def classifier(**more: Any) -> tulle.Classifier:
    given: dict[str, Any] = {"epsilon": 8, "delta": 1e-6, "seed": 1, "classes": CLASSES} | more
    return tulle.Classifier(SCHEMA, **given)


@pytest.fixture(scope="module")
def fitted() -> tulle.Classifier:
    return classifier().fit(table())


def test_each_class_has_its_probability(fitted: tulle.Classifier) -> None:
    rows = pl.DataFrame({"site": ["s0", "s3", "s0"], "age": ["a0", "a0", "a2"]})
    expected = np.array([[4, 0.5, 0.25], [4, 4, 0.25], [4, 0.5, 2.25]])
    assert fitted.classes_.tolist() == sorted(CLASSES)
    found = fitted.predict_proba(rows)[:, [fitted.classes_.tolist().index(one) for one in CLASSES]]
    assert found.shape == (3, 3)
    assert found.sum(axis=1) == pytest.approx(1)
    assert found == pytest.approx(expected / expected.sum(axis=1, keepdims=True), abs=0.08)
    assert fitted.predict(rows).tolist()[0] == "none"
    one = fitted.predict_one({"site": "s3", "age": "a0"})
    assert isinstance(one, dict)
    assert list(one) == CLASSES
    assert list(one.values()) == pytest.approx(found[1])


def test_measures_of_scikit_learn_take_the_columns_for_what_they_are(
    fitted: tulle.Classifier,
) -> None:
    test = table(seed=1)
    found = get_scorer("neg_log_loss")(fitted, test.drop("action"), test["action"].to_list())
    own = fitted.evaluate(test)
    assert isinstance(own, ClassMetrics)
    assert -found == pytest.approx(own.log_loss)


def test_figures_are_those_of_classes(fitted: tulle.Classifier) -> None:
    test = table(seed=1)
    found = fitted.evaluate(test)
    assert isinstance(found, ClassMetrics)
    hits = fitted.predict(test) == test["action"].to_numpy()
    assert found.accuracy == fitted.score(test) == hits.mean()
    assert found.normalised_cross_entropy < 0.98
    assert [one.name for one in found.classes] == CLASSES
    assert fitted.score(test.drop("action"), test["action"]) == found.accuracy


def test_labels_may_come_apart_from_rows_and_be_whole_numbers() -> None:
    rows = table(3_000)
    numbers = rows["action"].replace_strict(CLASSES, [7, 10, -2])
    model = tulle.Classifier(classes=[7, 10, -2], epsilon=8, delta=1e-6, seed=1)
    model.fit(rows.drop("action"), numbers)
    assert model.classes_.tolist() == [-2, 7, 10]
    assert set(model.predict(rows.drop("action")).tolist()) <= {7, 10, -2}
    accuracy = (model.predict(rows.drop("action")) == numbers.to_numpy()).mean()
    assert model.score(rows.drop("action"), numbers.to_numpy()) == accuracy > 0.5
    assert model.score(rows.drop("action"), numbers.to_numpy().astype(float)) == accuracy


def test_a_saved_classifier_of_classes_is_read_as_one(
    fitted: tulle.Classifier, tmp_path: Path
) -> None:
    rows = table(50, seed=2)
    fitted.save(tmp_path / "model")
    for loaded in (
        tulle.load(tmp_path / "model"),
        pickle.loads(pickle.dumps(fitted)),  # noqa: S301 - it was made in the line above
        copy.deepcopy(fitted),
    ):
        assert isinstance(loaded, tulle.Classifier)
        assert loaded.classes_.tolist() == sorted(CLASSES)
        assert np.array_equal(loaded.predict_proba(rows), fitted.predict_proba(rows))
        assert loaded.score(table(seed=1)) == fitted.score(table(seed=1))


def test_plan_and_card_say_what_classes_cost(fitted: tulle.Classifier) -> None:
    words = fitted.plan_.privacy
    assert words.settings["classes"] == '["none","cart","sale"]'
    assert "Each of the 3 classes has tables of its own" in words.mechanism
    (bound,) = [one for one in words.bounds if "shares of the tables of classes" in one.what]
    assert bound.limit == 2
    assert "0.309" in bound.where
    assert any("never read from the labels" in one.evidence for one in words.assumptions)
    plain = MosaicConfig().calibrate(epsilon=8, delta=1e-6).make(fitted.plan_.shape).privacy
    assert plain.guarantee == words.guarantee
    assert not any("classes" in one.what for one in plain.bounds)


def test_a_class_that_never_occurs_gets_little_probability() -> None:
    model = classifier(classes=[*CLASSES, "refund"]).fit(table())
    found = model.predict_proba(table(200, seed=3))
    assert found.shape == (200, 4)
    assert (found[:, model.classes_.tolist().index("refund")] < 0.02).all()
    assert (found > 0).all()


def test_two_named_classes_are_labels_of_0_and_1() -> None:
    rows = table(3_000).with_columns(
        pl.when(pl.col("action") == "sale")
        .then(pl.lit("sale"))
        .otherwise(pl.lit("none"))
        .alias("action")
    )
    flags = rows.with_columns((pl.col("action") == "sale").cast(pl.Int8).alias("action"))
    named = classifier(classes=["none", "sale"]).fit(rows)
    plain = classifier(classes=None).fit(flags)
    assert np.allclose(named.predict_proba(rows), plain.predict_proba(flags), atol=1e-12)


def test_a_label_that_is_no_class_is_refused_without_its_value(tmp_path: Path) -> None:
    rows = table(100).with_columns(
        pl.when(pl.int_range(pl.len()) == 7)
        .then(pl.lit("gift-9"))
        .otherwise("action")
        .alias("action")
    )
    rows.write_csv(tmp_path / "log.csv")
    cases: list[tuple[object, object]] = [
        (rows, None),
        (tmp_path / "log.csv", None),
        (rows.drop("action"), rows["action"]),
    ]
    for data, labels in cases:
        with pytest.raises((DataError, ValueError), match="none of the classes") as caught:
            classifier().fit(data, labels)
        assert "gift" not in str(caught.value)
    missing = rows.with_columns(pl.lit(None, pl.String).alias("action"))
    with pytest.raises((DataError, ValueError), match="none of the classes"):
        classifier().fit(missing)


def test_classes_are_never_read_from_labels() -> None:
    rows = table(300)
    with pytest.raises((DataError, ValueError), match="classes=") as caught:
        classifier(classes=None).fit(rows.drop("action"), rows["action"])
    assert "cart" not in str(caught.value).replace("'cart'", "")
    with pytest.raises((DataError, ValueError), match="neither a whole number"):
        classifier(classes=None).fit(rows)


@pytest.mark.parametrize(
    ("classes", "problem"),
    [
        ([], "has no name"),
        (["only"], "has one name"),
        (["a", "b", "a"], "'a' twice"),
        (["a", ""], "has ''"),
        (["a", " b"], "without blanks"),
        (["a", 1.5], "1.5"),
        (["a", True], "True"),
        ("none,sale", "must be a list"),
        ([*map(str, range(MOST_CLASSES + 1))], f"at most {MOST_CLASSES}"),
    ],
)
def test_names_that_labels_cannot_be_told_apart_by_are_refused(
    classes: object, problem: str
) -> None:
    with pytest.raises((ConfigError, ValueError), match=problem):
        classifier(classes=classes)


@pytest.mark.parametrize("method", ["hybrid", "rr", "dp-sgd", "label-projection", "nonprivate"])
def test_other_methods_refuse_classes_by_name(method: str) -> None:
    epsilon = None if method == "nonprivate" else 3
    with pytest.raises(ConfigError, match=f"method {method}.*mosaic"):
        tulle.train.plan(table(20), SCHEMA, method=method, epsilon=epsilon, classes=CLASSES)


def test_classes_are_said_once_and_not_beside_a_clip() -> None:
    config = MosaicConfig(classes=("none", "sale"))
    with pytest.raises(ConfigError, match="contradicts"):
        tulle.train.plan(table(20), SCHEMA, method=config, epsilon=3, classes=CLASSES)
    with pytest.raises(ConfigError, match="labels that are values"):
        MosaicConfig(classes=("none", "sale"), clip=3.0)
    plan = tulle.train.plan(table(20), SCHEMA, epsilon=3, classes=CLASSES)
    with pytest.raises(ConfigError, match="classes"):
        tulle.train.fit(table(20), SCHEMA, plan=plan, classes=CLASSES)


def test_prepared_data_have_the_numbers_of_classes(tmp_path: Path) -> None:
    rows = table(2_000)
    numbers = rows["action"].replace_strict(CLASSES, [0, 1, 2])
    rows.with_columns(numbers.alias("action")).write_csv(tmp_path / "log.csv")
    made = prepare(tmp_path / "log.csv", SCHEMA, output=tmp_path / "prepared", num_classes=3)
    given: dict[str, Any] = {"epsilon": 8, "delta": 1e-6, "seed": 1}
    result = tulle.train.fit(made.dataset, classes=CLASSES, **given)
    assert result.class_metrics is not None
    assert result.model.classes == tuple(CLASSES)
    with pytest.raises(DataError, match=r"have 3 classes.*classes="):
        tulle.train.fit(made.dataset, **given)
    with pytest.raises(DataError, match="4 are named"):
        tulle.train.fit(made.dataset, classes=["a", "b", "c", "d"], **given)


def test_a_baseline_is_refused_before_anything_is_read_of_it(tmp_path: Path) -> None:
    given: dict[str, Any] = {"epsilon": 8, "seed": 1, "output": tmp_path / "run"}
    tulle.train.fit(table(500), SCHEMA, classes=CLASSES, **given)
    given["output"] = tmp_path / "other"
    with pytest.raises(ConfigError, match="labels are classes"):
        tulle.train.fit(table(500), SCHEMA, classes=CLASSES, baseline=tmp_path / "run", **given)
    assert not (tmp_path / "other").exists()


def test_a_model_of_classes_explains_each_of_them(fitted: tulle.Classifier) -> None:
    explanation = fitted.explain()
    assert explanation.parts == tuple(CLASSES)
    effects = {row["site"]: row["effect"] for row in explanation.of("cart").effects("site")}
    assert effects["s3"] > effects["s0"] + 0.5 if "s3" in effects else len(effects) >= 4
