"""`tulle train --from` and `tulle plan --from` beside the calls in Python that they make."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

import tulle
from end_to_end.test_same_words import command
from tulle.cli.main import run_with

SCHEMA = {"label": "click", "public": ["site"], "sensitive": ["age"]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("nights")
    for day in range(2):
        rng = np.random.default_rng(day)
        site, age = rng.integers(0, 5, 2_000), rng.integers(0, 3, 2_000)
        pl.DataFrame(
            {
                "click": (rng.random(2_000) < 0.05 + 0.1 * site + 0.2 * age).astype(np.int64),
                "site": [f"s{value}" for value in site],
                "age": [f"{value}0s" for value in age],
            }
        ).write_csv(folder / f"{day}.csv")
    tulle.train.fit(folder / "0.csv", SCHEMA, epsilon=8, seed=1, output=folder / "model")
    return folder


def test_train(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    by_command, by_call = tmp_path / "command", tmp_path / "call"
    words = [folder / "1.csv", "--from", folder / "model", "--keep-evidence", 0.5, "--epsilon", 1]
    shown = command(capsys, "train", *words, "--seed", 3, "--quiet", "--output", by_command)
    given = {"from_model": folder / "model", "keep_evidence": 0.5, "epsilon": 1}
    result = tulle.train.fit(folder / "1.csv", **given, seed=3, output=by_call)
    assert (by_command / "plan.json").read_bytes() == (by_call / "plan.json").read_bytes()
    tensors = "model/model.safetensors"
    assert (by_command / tensors).read_bytes() == (by_call / tensors).read_bytes()
    assert shown["starts_from"] == result.plan.privacy.settings["starts_from"]
    assert shown["keep_evidence"] == 0.5
    assert shown["verdict"] == result.card.verdict
    planned = command(capsys, "plan", *words, "--quiet")
    assert planned == tulle.train.plan(folder / "1.csv", **given).privacy.to_dict()


def test_refusals_have_their_exit_codes(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ledger = tulle.Ledger.create(tmp_path / "ledger.db")
    ledger.create_budget(
        tulle.Budget(name="day", unit="example", adjacency="replace", epsilon=0.5, delta=1e-7)
    )
    words = ["train", folder / "1.csv", "--from", folder / "model", "--quiet"]
    paid = [*words, "--epsilon", 1, "--ledger", tmp_path / "ledger.db", "--purpose", "training"]
    for code, told, given in (
        (3, "this release needs", paid),
        (2, "or give --from", [*words[:2], "--keep-evidence", 0.5, "--label", "click"]),
        (2, "predicts probabilities, and --clip 3", [*words, "--clip", 3, "--epsilon", 1]),
        (4, "no exported model", [*words[:3], tmp_path, "--epsilon", 1]),
    ):
        assert run_with([*map(str, given), "--output", str(tmp_path / "run")]) == code
        assert told in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
