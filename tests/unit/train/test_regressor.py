"""A regressor over tables: clip, predictions, figures, folders, and the manners of scikit-learn."""

import copy
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import tulle
from tulle.errors import ConfigError, DataError
from tulle.train import MosaicConfig
from tulle.train.estimator_errors import NotFittedError

SCHEMA = {"label": "amount", "public": ["site"], "sensitive": ["age"]}
EXPECTED = {("s0", "a0"): 1.0, ("s3", "a2"): 20.0}


def table(num_rows: int = 6_000, seed: int = 0) -> pl.DataFrame:
    """Amounts whose expected value goes from 1 to 20."""
    rng = np.random.default_rng(seed)
    site, age = rng.integers(0, 4, num_rows), rng.integers(0, 3, num_rows)
    means = np.exp(site * np.log(5) / 3 + age * np.log(4) / 2)
    amounts = np.where(rng.random(num_rows) < 0.2, rng.exponential(5 * means), 0.0)
    columns: dict[str, Any] = {
        "amount": amounts,
        "site": [f"s{value}" for value in site],
        "age": [f"a{value}" for value in age],
    }
    return pl.DataFrame(columns)


@pytest.fixture(scope="module")
def fitted() -> tulle.Regressor:
    return tulle.Regressor(SCHEMA, clip=200, epsilon=8, delta=1e-6, seed=1).fit(table())


def test_expected_values_are_predicted(fitted: tulle.Regressor) -> None:
    for (site, age), expected in EXPECTED.items():
        rows = pl.DataFrame({"site": [site], "age": [age]})
        assert fitted.predict(rows)[0] == pytest.approx(expected, rel=0.35)
        assert fitted.predict_one({"site": site, "age": age}) == pytest.approx(
            fitted.predict(rows)[0]
        )


def test_figures_are_those_of_values(fitted: tulle.Regressor) -> None:
    test = table(seed=1)
    found = fitted.evaluate(test)
    assert found.r_squared == fitted.score(test) > 0.03
    assert found.calibration == pytest.approx(1.0, abs=0.1)
    clipped = np.minimum(test["amount"].to_numpy(), 200)
    wrong = clipped - fitted.predict(test)
    assert found.mean_squared_error == pytest.approx(float((wrong**2).mean()), rel=1e-5)


def test_labels_may_come_apart_from_rows() -> None:
    rows = table(2_000)
    model = tulle.Regressor(clip=200, epsilon=8, delta=1e-6, seed=1)
    model.fit(rows.drop("amount"), rows["amount"])
    assert model.score(rows.drop("amount"), rows["amount"]) == model.score(
        rows.drop("amount"), rows["amount"].to_numpy()
    )


def test_a_saved_regressor_is_read_as_one(fitted: tulle.Regressor, tmp_path: Path) -> None:
    rows = table(50, seed=2)
    fitted.save(tmp_path / "model")
    for loaded in (
        tulle.load(tmp_path / "model"),
        tulle.Regressor.load(tmp_path / "model"),
        pickle.loads(pickle.dumps(fitted)),  # noqa: S301 - it was made in the line above
        copy.deepcopy(fitted),
    ):
        assert isinstance(loaded, tulle.Regressor)
        assert loaded.clip == 200
        assert np.array_equal(loaded.predict(rows), fitted.predict(rows))
    with pytest.raises(DataError, match=r"predicts values.*Regressor"):
        tulle.Classifier.load(tmp_path / "model")


def test_a_saved_classifier_is_no_regressor(tmp_path: Path) -> None:
    rows = table(2_000).with_columns(amount=(pl.col("amount") > 0).cast(pl.Int64))
    tulle.Classifier(SCHEMA, epsilon=8, delta=1e-6, seed=1).fit(rows).save(tmp_path / "model")
    assert isinstance(tulle.load(tmp_path / "model"), tulle.Classifier)
    with pytest.raises(DataError, match="predicts probabilities"):
        tulle.Regressor.load(tmp_path / "model")


def test_the_card_names_the_clip(fitted: tulle.Regressor) -> None:
    assert fitted.card_.plan.settings["clip"] == 200.0
    assert "counts as 200" in fitted.card_.plan.mechanism
    assert fitted.guarantee_.epsilon == 8


def test_a_clip_is_needed() -> None:
    with pytest.raises(ConfigError, match=r"clip is missing.*clip=400.*Classifier"):
        tulle.Regressor(SCHEMA, epsilon=3).fit(table(50))
    own = tulle.Regressor(SCHEMA, method=MosaicConfig(clip=200), epsilon=3, seed=1)
    assert own.fit(table(500)).card_.plan.settings["clip"] == 200.0


@pytest.mark.parametrize("clip", [0, -3.0, float("nan"), float("inf"), True])
def test_a_clip_of_no_use_is_refused(clip: float) -> None:
    with pytest.raises(ConfigError, match="clip"):
        tulle.Regressor(SCHEMA, clip=clip, epsilon=3)


def test_methods_that_learn_no_values_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"clip=9.*dp-sgd.*mosaic"):
        tulle.Regressor(SCHEMA, clip=9, epsilon=3, method="dp-sgd")


@pytest.mark.parametrize("label", [-1.0, float("nan"), float("inf"), None])
def test_labels_that_are_no_values_are_refused(label: float | None) -> None:
    rows = table(50)
    wrong = rows.with_columns(
        amount=pl.Series([label, *rows["amount"].to_list()[1:]], dtype=pl.Float64)
    )
    with pytest.raises(DataError, match="from 0"):
        tulle.Regressor(SCHEMA, clip=9, epsilon=3).fit(wrong)
    with pytest.raises(DataError, match="from 0"):
        tulle.Regressor(clip=9, epsilon=3).fit(wrong.drop("amount"), wrong["amount"])


def test_values_without_a_clip_say_how_they_are_learnt() -> None:
    with pytest.raises(DataError, match="clip=400"):
        tulle.Classifier(SCHEMA, epsilon=3).fit(table(50))


def test_nothing_is_known_before_a_fit() -> None:
    model = tulle.Regressor(SCHEMA, clip=9, epsilon=3)
    with pytest.raises(NotFittedError):
        model.predict(table(5))
    assert model.get_params()["clip"] == 9
    assert model.set_params(clip=10).clip == 10


def test_scikit_learn_takes_it_for_a_regressor() -> None:
    sklearn = pytest.importorskip("sklearn")
    from sklearn.model_selection import cross_val_score

    model = tulle.Regressor(clip=200, epsilon=8, delta=1e-6, seed=1)
    assert sklearn.base.is_regressor(model)
    assert sklearn.base.clone(model).clip == 200
    rows = table(1_500)
    features = np.stack([rows["site"].str.slice(1).cast(int), rows["age"].str.slice(1).cast(int)])
    found = cross_val_score(model, features.T, rows["amount"].to_numpy(), cv=2)
    assert np.isfinite(found).all()
