"""`tulle predict` and `tulle export` beside the calls in Python that they make."""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import tulle
from end_to_end.test_same_words import command

SCHEMA = {"label": "click", "public": ["site"], "sensitive": ["age"]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("served")
    rng = np.random.default_rng(2)
    site, age = rng.integers(0, 5, 2_000), rng.integers(0, 3, 2_000)
    table: dict[str, Any] = {
        "click": (rng.random(2_000) < 0.05 + 0.1 * site + 0.2 * age).astype(np.int64),
        "site": [f"s{value}" for value in site],
        "age": [f"{value}0s" for value in age],
    }
    log = pl.DataFrame(table)
    tulle.Classifier(SCHEMA, epsilon=8, delta=1e-6, seed=1).fit(log).save(folder / "model")
    log.select("site", "age").unique().write_csv(folder / "catalogue.csv")
    log.drop("click").head(300).with_row_index("id").write_csv(folder / "new.csv")
    return folder


def test_predict(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    by_command, by_call = tmp_path / "command.csv", tmp_path / "call.csv"
    model, new = folder / "model", folder / "new.csv"
    words = ["predict", model, new, "--keep", "id", "--output", by_command, "--quiet"]
    shown = command(capsys, *words)
    written = tulle.serve.predict(model, new, keep=["id"], output=by_call)
    assert by_command.read_bytes() == by_call.read_bytes()
    assert shown["columns"] == list(written.columns) == ["row", "id", "probability"]
    assert shown["rows"] == written.num_rows == 300
    assert pl.read_csv(by_call)["probability"].n_unique() > 3


def files_of(path: Path) -> dict[str, bytes]:
    if path.is_file():
        return {"": path.read_bytes()}
    inner = [one for one in path.rglob("*") if one.is_file()]
    return {str(one.relative_to(path)): one.read_bytes() for one in inner}


@pytest.mark.parametrize("form", ["json", "onnx", "sql"])
def test_export(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], form: str
) -> None:
    model, values = folder / "model", folder / "catalogue.csv"
    given = {"dialect": "snowflake", "rows": "shop.public.clicks"} if form == "sql" else {}
    words = ["export", model, "--form", form, "--values", values, "--output", tmp_path / "command"]
    shown = command(capsys, *words, *(word for key in given for word in (f"--{key}", given[key])))
    made = tulle.serve.export(model, tmp_path / "call", form=form, values=values, **given)
    assert files_of(tmp_path / "command") == files_of(tmp_path / "call")
    assert shown["form"] == made.form == form
    assert shown["columns"] == list(made.columns) == ["site", "age"]
    assert shown["mapped"] == list(made.mapped) == ([] if form == "json" else ["site", "age"])
    if form == "sql":
        words = ["predict", model, "--emit-sql", "snowflake", "--values", values]
        command(capsys, *words, "--output", tmp_path / "emitted")
        again = files_of(tmp_path / "emitted")["score.sql"].replace(
            b'"new_rows"', b'"shop"."public"."clicks"'
        )
        assert again == files_of(tmp_path / "call")["score.sql"]


def test_train_and_predict_values(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A clip makes the label a value, on either side."""
    rng = np.random.default_rng(4)
    site, age = rng.integers(0, 5, 2_000), rng.integers(0, 3, 2_000)
    amounts = rng.exponential(2.0 * 2.0 ** (site + age)).round(2)
    log = pl.DataFrame({"amount": amounts, "site": site, "age": age}).cast(
        {"site": pl.String, "age": pl.String}
    )
    log.write_csv(tmp_path / "log.csv")
    columns = ["--label", "amount", "--public", "site", "--sensitive", "age"]
    given = ["--clip", 100, "--epsilon", 8, "--seed", 3, "--quiet"]
    by_command, by_call = tmp_path / "command", tmp_path / "call"
    words = ["train", tmp_path / "log.csv", *columns, *given, "--output", by_command]
    shown = command(capsys, *words)
    schema = SCHEMA | {"label": "amount"}
    result = tulle.train.fit(
        tmp_path / "log.csv", schema, clip=100, epsilon=8, seed=3, output=by_call
    )
    assert (by_command / "plan.json").read_bytes() == (by_call / "plan.json").read_bytes()
    assert result.value_metrics is not None
    assert shown["clip"] == result.model.clip == 100.0
    assert shown["mean_squared_error"] == result.value_metrics.mean_squared_error
    scores = tmp_path / "scores.parquet"
    shown = command(capsys, "predict", by_command, tmp_path / "log.csv", "--output", scores)
    assert shown["columns"] == ["row", "value"]
    loaded = tulle.load(by_call)
    assert isinstance(loaded, tulle.Regressor)
    assert pl.read_parquet(scores)["value"].to_numpy() == pytest.approx(loaded.predict(log))


def test_train_and_predict_classes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Names of classes make the label one of them, on either side."""
    rng = np.random.default_rng(4)
    site, age = rng.integers(0, 5, 2_000), rng.integers(0, 3, 2_000)
    names = np.array(["none", "cart", "sale"])
    actions = names[np.where(rng.random(2_000) < 0.5, 0, (site + age) % 3)]
    log = pl.DataFrame({"action": actions, "site": site, "age": age}).cast(
        {"site": pl.String, "age": pl.String}
    )
    log.write_csv(tmp_path / "log.csv")
    columns = ["--label", "action", "--public", "site", "--sensitive", "age"]
    given = ["--classes", "none,cart,sale", "--epsilon", 8, "--seed", 3, "--quiet"]
    by_command, by_call = tmp_path / "command", tmp_path / "call"
    words = ["train", tmp_path / "log.csv", *columns, *given, "--output", by_command]
    shown = command(capsys, *words)
    schema = SCHEMA | {"label": "action"}
    result = tulle.train.fit(
        *(tmp_path / "log.csv", schema),
        classes=names.tolist(),
        epsilon=8,
        seed=3,
        output=by_call,
    )
    assert (by_command / "plan.json").read_bytes() == (by_call / "plan.json").read_bytes()
    assert result.class_metrics is not None
    assert shown["classes"] == list(result.model.classes or ()) == names.tolist()
    assert shown["log_loss"] == result.class_metrics.log_loss
    scores = tmp_path / "scores.parquet"
    shown = command(capsys, "predict", by_command, tmp_path / "log.csv", "--output", scores)
    assert shown["columns"] == ["row", *(f"probability_{name}" for name in names)]
    loaded = tulle.load(by_call)
    assert isinstance(loaded, tulle.Classifier)
    of_classes = [f"probability_{name}" for name in loaded.classes_]
    found = pl.read_parquet(scores).select(of_classes).to_numpy()
    assert found == pytest.approx(loaded.predict_proba(log))
