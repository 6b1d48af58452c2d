"""Rows, folders and settings that predictions, exports and explanations refuse.

Each line of `REFUSALS` is one call, by its command; the same words make the call in Python. Both
must say what is wrong and the way out in their own words, and leave nothing behind.
"""

import dataclasses
import os
import resource
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import pytest

import tulle
from command_line_messages import python_words
from tulle.cli.main import run_with
from tulle.errors import ConfigError, DataError, RunStateError, TulleError
from tulle.serve import predictions
from tulle.train.fitted_model import FittedModel
from tulle.train.methods.mosaic.cell_model import CellHead, CellModel
from tulle.train.methods.mosaic.trained_cells import TrainedCells

SCHEMA = {
    "label": "sale",
    "public": ["site", "price"],
    "sensitive": ["age", "interest"],
    "kinds": {"price": "real", "age": "integer"},
}


def rows_of(num_rows: int, seed: int) -> pl.DataFrame:
    rng = np.random.default_rng(seed)
    site, age, interest = (rng.integers(0, size, num_rows) for size in (5, 60, 4))
    price = rng.integers(0, 400, num_rows) / 8
    rate = 1 / (1 + np.exp(4 - 0.8 * site - 0.04 * age))
    return pl.DataFrame(
        {
            "site": [f"s{value}" for value in site],
            "price": price,
            "age": age + 18,
            "interest": [f"i{value}" for value in interest],
            "sale": (rng.random(num_rows) < rate).astype(np.int64),
        }
    )


NEW = rows_of(300, 2).drop("sale")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run, a saved model, and rows to predict."""
    folder = tmp_path_factory.mktemp("served-inputs")
    rows_of(4_000, 1).write_parquet(folder / "log.parquet")
    tulle.train.fit(
        folder / "log.parquet", SCHEMA, epsilon=50, seed=1, output=folder / "run", test=0
    )
    tulle.load(folder / "run").save(folder / "model")
    other = {"label": "sale", "public": ["site"]}
    tulle.Classifier(other, epsilon=2, seed=2, output=folder / "other").fit(rows_of(200, 3))
    NEW.write_parquet(folder / "new.parquet")
    NEW.rename({"site": "Site"}).write_csv(folder / "renamed.csv")
    NEW.with_columns(age=pl.lit("old")).write_csv(folder / "text.csv")
    NEW.with_columns(site=pl.lit([1])).write_parquet(folder / "lists.parquet")
    NEW.select("site").write_csv(folder / "values.csv")
    (folder / "nothing.csv").write_text("")
    return folder


@pytest.fixture
def folder(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    for path in made.iterdir():
        (tmp_path / path.name).symlink_to(path)
    (tmp_path / "old.csv").write_text("precious")
    monkeypatch.chdir(tmp_path)
    before = {path.name for path in tmp_path.iterdir()}
    yield tmp_path
    assert {path.name for path in tmp_path.iterdir()} == before
    assert (tmp_path / "old.csv").read_text() == "precious"


class Refusal(NamedTuple):
    """A call, and what is said of it."""

    words: str
    code: int
    said: str
    """What both say."""
    way_out: str = ""
    """What the command says besides, in its own words."""


PREDICT, TO = "predict model", "--output scores.parquet"
EXPORT, EXPLAIN = "export model --output out", "explain model"
REFUSALS = (
    Refusal(f"{PREDICT} renamed.csv {TO}", 4, "no column 'site' (did you mean 'Site'?)"),
    Refusal(f"{PREDICT} text.csv {TO}", 4, "text.csv, row 1; correct it, or leave it empty"),
    Refusal(f"{PREDICT} lists.parquet {TO}", 4, "a value must be a number, a text or a time"),
    Refusal(f"{PREDICT} nothing.csv {TO}", 4, "nothing.csv is empty"),
    Refusal(f"{PREDICT} run {TO}", 4, "run is a folder; name the files"),
    Refusal(f"{PREDICT} nowhere.csv {TO}", 4, "nowhere.csv does not exist"),
    Refusal(f"{PREDICT} new.parquet --output old.csv", 4, "old.csv exists already"),
    Refusal(f"{PREDICT} new.parquet --output scores.txt", 2, "must end in .parquet or .csv"),
    Refusal(f"{PREDICT} new.parquet --output no/scores.csv", 2, "in no folder that exists"),
    Refusal(f"{PREDICT} new.parquet {TO} --keep sites", 4, "'sites' (did you mean 'site'?)"),
    Refusal(f"{PREDICT} new.parquet {TO} --keep row", 2, "'row' is the name of a column of"),
    Refusal(f"predict nowhere new.parquet {TO}", 4, "nowhere does not exist"),
    Refusal(f"predict values.csv new.parquet {TO}", 4, "values.csv"),
    Refusal(f"{EXPORT} --form jsn", 2, "'jsn' is unknown (did you mean 'json'?)"),
    Refusal(f"{EXPORT} --form sql", 2, "needs a dialect", "--dialect 'duckdb'"),
    Refusal(f"{EXPORT} --form json --dialect duckdb", 2, "is for", "for --form 'sql' and not for"),
    Refusal(f"{EXPORT} --form sql --dialect duckdc", 2, "did you mean 'duckdb'?"),
    Refusal(f"{EXPORT} --form sql --dialect duckdb", 2, "is hashed", "give --values with a table"),
    Refusal(f"{EXPORT} --form json --values log.parquet", 4, "as a log has", "--values has column"),
    Refusal("export model --output old.csv --form json", 4, "old.csv exists already"),
    Refusal(f"{EXPLAIN} --column sit", 2, "'sit' is not in the model (did you mean 'site'?)"),
    Refusal(f"{EXPLAIN} --column interest", 2, "has no table in the model", "--column 'interest'"),
    Refusal(f"{EXPLAIN} --part rate", 2, "which has one part", "--part 'rate'"),
    Refusal(f"{EXPLAIN} --values log.parquet", 4, "as a log has", "--values has column"),
)
ONLY_COMMANDS = (
    Refusal(f"predict model {TO}", 2, "name their files after the model"),
    Refusal(f"{PREDICT} new.parquet {TO} --values values.csv", 2, "--values is for --emit-sql"),
    Refusal("predict model new.parquet --output x --emit-sql spark", 2, "leave out the data"),
    Refusal("predict model --output x --emit-sql duckdc", 2, "--emit-sql 'duckdc' is unknown"),
    Refusal(
        "predict model --output x --emit-sql duckdb", 2, "or use `tulle export --form json`, which"
    ),
    Refusal(f"{EXPLAIN} --row {{", 2, "the row is not JSON"),
    Refusal(f'{EXPLAIN} --row {{"age":3}}', 4, "has no column 'site'; give its value, or null if"),
    Refusal(f"{EXPLAIN} --row new.parquet", 4, "more than one row; give the one row"),
    Refusal("report model", 4, "call `tulle explain model --output page.html`"),
    Refusal(f"{EXPLAIN} --output old.txt", 2, "must end in .html or .json"),
)


def call(words: str) -> object:
    """What a command calls."""
    verb, model, *others = words.split()
    given: dict[str, Any] = {}
    data = []
    for place, word in enumerate(others):
        if word.startswith("--"):
            given[word.removeprefix("--")] = others[place + 1]
        elif not place or not others[place - 1].startswith("--"):
            data.append(word)
    if verb == "predict":
        keep = [given.pop("keep")] if "keep" in given else []
        return tulle.serve.predict(model, data, keep=keep, **given)
    if verb == "export":
        return tulle.serve.export(model, given.pop("output"), **given)
    explanation = tulle.load(model).explain(given.get("values"))
    if "part" in given:
        return explanation.of(given["part"])
    return explanation.effects(given["column"])


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("refusal", [*REFUSALS, *ONLY_COMMANDS], ids=lambda one: one.words)
def test_the_command_line_refuses_it(refusal: Refusal, capsys: pytest.CaptureFixture[str]) -> None:
    words = refusal.words.split()
    assert run_with(words) == refusal.code
    shown = capsys.readouterr()
    assert refusal.said in shown.err
    assert refusal.way_out in shown.err
    assert shown.err.count("\n") == 1
    assert shown.out == ""
    assert python_words(shown.err, words) == []


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda one: one.words)
def test_python_refuses_it(refusal: Refusal) -> None:
    kinds = (ConfigError,) if refusal.code == 2 else (DataError, RunStateError)
    with pytest.raises(TulleError) as caught:
        call(refusal.words)
    assert isinstance(caught.value, kinds)
    assert refusal.said in str(caught.value)
    assert "--" not in str(caught.value)


@pytest.mark.usefixtures("folder")
def test_values_that_training_has_not_seen_are_predicted() -> None:
    rows = NEW.with_columns(
        site=pl.lit("brand new"), age=pl.lit(10**9), interest=pl.lit(None), price=-1e300
    )
    predicted = tulle.load("model").predict_proba(rows)[:, 1]
    assert np.isfinite(predicted).all()
    assert predicted == pytest.approx(tulle.load("model").predict_one(rows.row(0, named=True)))


def changed(content: bytes) -> bytes:
    place = len(content) // 2
    return content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]


DAMAGES: dict[str, Callable[[bytes], bytes | None]] = {
    "changed": changed,
    "cut": lambda content: content[: len(content) * 2 // 3],
    "empty": lambda _content: b"",
    "missing": lambda _content: None,
}


@pytest.mark.parametrize("how", DAMAGES)
@pytest.mark.parametrize(
    "name",
    [
        *(f"model/{name}" for name in ("model.json", "model.safetensors", "encoder.json")),
        *(f"model/{name}" for name in ("vocabularies.npz", "load_model.py", "card.json")),
        *("model/card.md", "run/card.json", "run/model/model.json"),
        *("run/model/model.safetensors", "run/model/encoder.json", "run/model/vocabularies.npz"),
    ],
)
def test_a_folder_with_one_damaged_file_is_refused(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, how: str
) -> None:
    whole, _, file = name.partition("/")
    shutil.copytree(made / whole, tmp_path / whole)
    path = tmp_path / whole / file
    damaged = DAMAGES[how](path.read_bytes())
    path.unlink()
    if damaged is not None:
        path.write_bytes(damaged)
    with pytest.raises(DataError) as caught:
        tulle.load(tmp_path / whole)
    # A folder without model.json is none of a model.
    assert path.name in str(caught.value) or (name, how) == ("model/model.json", "missing")
    output = tmp_path / "scores.csv"
    words = ["predict", tmp_path / whole, made / "new.parquet", "--output", output, "--quiet"]
    assert run_with(list(map(str, words))) == 4
    assert not output.exists()
    assert path.name in capsys.readouterr().err


def test_the_card_of_another_run_is_refused(made: Path, tmp_path: Path) -> None:
    shutil.copytree(made / "run", tmp_path / "run")
    shutil.copyfile(made / "other" / "card.json", tmp_path / "run" / "card.json")
    with pytest.raises(DataError, match=r"card\.json of run is that of another model"):
        tulle.load(tmp_path / "run")


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_a_full_disk_leaves_no_predictions(suffix: str, capsys: pytest.CaptureFixture[str]) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (512, hard))
    try:
        code = run_with(["predict", "model", "new.parquet", "--output", f"scores{suffix}"])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert code == 4
    assert f"scores{suffix} cannot be written" in capsys.readouterr().err


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_a_stopped_prediction_leaves_nothing(
    suffix: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    written = predictions._write

    def stopped(*given: Any) -> int:
        num_rows = written(*given)
        os.kill(os.getpid(), signal.SIGTERM)
        return num_rows

    monkeypatch.setattr(predictions, "_write", stopped)
    assert run_with(["predict", "model", "new.parquet", "--output", f"scores{suffix}"]) == 130
    assert "stopped as asked, nothing is out" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ([1, 2], "a row of type list"),
        ("site", "a row of type str"),
        ({"site": ["s1"], "age": 30, "price": 1.0, "interest": "i1"}, "of type list in column"),
        ({"site": "s1", "age": "old", "price": 1.0, "interest": "i1"}, "or leave it empty"),
        ({"Site": "s1", "age": 30}, "no column 'site' (did you mean 'Site'?)"),
    ],
)
def test_what_is_no_row_is_not_predicted(made: Path, row: Any, said: str) -> None:
    with pytest.raises(DataError) as caught:
        tulle.load(made / "model").predict_one(row)
    assert said in str(caught.value)


def test_a_model_that_ended_as_a_constant_says_so(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = FittedModel.read(made / "model")
    constant = CellModel(heads=(CellHead(bias=-1.0, tables=()),))
    model = TrainedCells.of(constant, whole.model.features)
    dataclasses.replace(whole, model=model).write(tmp_path / "constant")
    assert run_with(["explain", str(tmp_path / "constant")]) == 0
    assert "every row gets the same prediction" in capsys.readouterr().out
