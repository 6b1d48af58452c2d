"""`tulle select evaluate`: a noisy estimate with a card, paid once."""

import json
from pathlib import Path

import polars as pl
import pytest

from tulle.accounting.ledger import Ledger
from unit.cli.select_files import facts_of, fill_folder, select, write_settings

EVALUATE = (
    "evaluate selection.toml auctions.parquet choices.parquet --clicks clicks.csv --target "
    "target.toml --epsilon 1"
)


@pytest.fixture
def folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Path:
    fill_folder(tmp_path, monkeypatch)
    assert select("decide selection.toml auctions.parquet --out choices.parquet --quiet") == 0
    pl.read_parquet("choices.parquet")[::4].select("auction_id").write_csv("clicks.csv")
    write_settings(Path("target.toml"), mechanism="num_finalists = 2")
    capsys.readouterr()
    return tmp_path


@pytest.mark.usefixtures("folder")
def test_an_estimate_comes_with_record_and_card(capsys: pytest.CaptureFixture[str]) -> None:
    assert select(f"{EVALUATE} --out value.json --json") == 0
    facts = facts_of(capsys)
    numbers = json.loads(Path("value.json").read_text())
    assert {name: facts[name] for name in numbers} == numbers
    assert 0 <= facts["interval"][0] < facts["interval"][1] <= 1
    assert facts["noise_stddev"] > 0
    assert facts["target"] == "randomized response, top 2, epsilon 1"
    assert facts["verdict"].startswith("Private release: epsilon=1, delta=0")
    assert json.loads(Path("value.card.json").read_text())["is_private"]
    record = json.loads(Path("value.release.json").read_text())
    assert record["num_decisions"] == facts["num_decisions"]


@pytest.mark.usefixtures("folder")
def test_text_shows_estimate_and_interval(capsys: pytest.CaptureFixture[str]) -> None:
    assert select(f"{EVALUATE} --out value.json --seed 3 --estimator inverse-propensity") == 0
    shown = capsys.readouterr().out
    numbers = json.loads(Path("value.json").read_text())
    low, high = numbers["interval"]
    value = numbers["clicks_per_decision"]
    assert f"clicks a decision   {value:.5g} (low {low:.5g}, high {high:.5g})" in shown
    assert "NOT A PRIVATE RELEASE" in shown


@pytest.mark.usefixtures("folder")
def test_a_cut_weight_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert select(f"{EVALUATE} --out value.json --max-weight 1.5") == 0
    assert "cut: the estimate is biased" in capsys.readouterr().out
    assert json.loads(Path("value.json").read_text())["is_weight_cut"] is True


def test_the_same_command_returns_the_stored_estimate(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paid = f"{EVALUATE} --out value.json --ledger ledger.db"
    assert select(f"{paid} --json") == 0
    first = facts_of(capsys)
    assert select(f"{paid} --json") == 0
    second = facts_of(capsys)
    assert second == first | {"stored_before": True}
    assert len(Ledger.open(folder / "ledger.db").spends("all")) == 1
    assert select(f"{EVALUATE} --out other.json --ledger ledger.db --again") == 3
    assert not (folder / "other.json").exists()


@pytest.mark.parametrize(
    ("options", "code", "problem"),
    [
        ("--out value.csv", 2, "must end in .json"),
        ("--out value.json --estimator magic", 2, "--estimator"),
        ("--out value.json --confidence 1.5", 2, "confidence"),
        ("--out value.json --clicks none.csv", 4, "none.csv"),
        ("--out value.json --target none.toml", 4, "none.toml does not exist"),
        ("--out value.json --target slots.toml", 2, "target has several slots"),
        ("--out value.json --epsilon 0", 2, "epsilon"),
        ("--out value.json --max-weight 0", 2, "--max-weight 0"),
    ],
)
@pytest.mark.usefixtures("folder")
def test_mistakes_are_explained(
    capsys: pytest.CaptureFixture[str], options: str, code: int, problem: str
) -> None:
    write_settings(Path("slots.toml"), mechanism="num_slots = 2")
    assert select(f"{EVALUATE} {options}") == code
    shown = capsys.readouterr()
    assert problem in shown.err
    assert shown.out == ""
    assert not Path("value.json").exists()


@pytest.mark.usefixtures("folder")
def test_shuffled_decisions_and_longer_lists_are_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    write_settings(Path("shuffled.toml"), privacy="min_cell_size = 3\ndelta = 1e-6", rule="posted")
    command = EVALUATE.replace("selection.toml", "shuffled.toml")
    assert select(f"{command} --out value.json") == 2
    assert "not linked to auctions" in capsys.readouterr().err
    command = EVALUATE.replace("target.toml", "x").replace("selection.toml", "target.toml")
    assert select(f"{command.replace('--target x', '--target selection.toml')} --out v.json") != 0
    assert not Path("v.json").exists()
