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
        "click": (rng.random(2_000) < 0.1 + 0.15 * site).astype(np.int64),
        "site": [f"s{value}" for value in site],
        "age": [f"{value}0s" for value in age],
    }
    log = pl.DataFrame(table)
    tulle.Classifier(SCHEMA, epsilon=8, delta=1e-6, seed=1).fit(log).save(folder / "model")
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
