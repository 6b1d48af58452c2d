import pathlib
import re
import subprocess
import sys

import pytest

from tulle.accounting.ledger import Ledger
from tulle.runs.card import read_card

EXAMPLES = pathlib.Path(__file__).parents[2] / "examples"
SCRIPTS = sorted(EXAMPLES.glob("*.py"))
MOST_LINES = 79


def run(script: str, *arguments: str) -> str:
    command = [sys.executable, str(EXAMPLES / script), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def auc_loss_in(text: str) -> float:
    found = re.search(r"AUC loss (0\.\d+)", text)
    assert found is not None, text
    return float(found[1])


@pytest.mark.parametrize(
    "name", ["release_labels.py", "select_ads.py", "three_lines.py", "train_mosaic.py"]
)
def test_an_example_needs_three_imports_at_most(name: str) -> None:
    lines = (EXAMPLES / name).read_text().splitlines()
    assert len([line for line in lines if line.startswith(("import ", "from "))]) <= 3


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_an_example_is_short_and_is_run_here(script: pathlib.Path) -> None:
    assert len(script.read_text().splitlines()) <= MOST_LINES
    assert f'run("{script.name}"' in pathlib.Path(__file__).read_text()


def test_three_lines_train_a_private_model() -> None:
    text = run("three_lines.py")
    assert auc_loss_in(text) < 0.45
    assert "epsilon=3, delta=1e-07 (example, replace, labels and sensitive columns)" in text


def test_a_prepared_dataset_is_trained_on_under_a_budget(tmp_path: pathlib.Path) -> None:
    text = run("train_mosaic.py", str(tmp_path / "out"))
    assert auc_loss_in(text) < 0.45
    card = read_card(tmp_path / "out" / "run" / "card.json")
    assert card.verdict in text
    assert card.verdict.startswith("Private release: epsilon=3, delta=1e-07")
    ledger = Ledger.open(tmp_path / "out" / "ledger.db")
    (spend,) = ledger.spends("rows")
    assert spend.request.event == card.plan.event
    assert 0 <= ledger.state("rows").left_epsilon < 0.01


def test_labels_are_released_once_under_a_budget(tmp_path: pathlib.Path) -> None:
    text = run("release_labels.py", str(tmp_path / "out"))
    assert "noisy.parquet: drawn" in text
    assert "copy.parquet: found" in text
    card = read_card(tmp_path / "out" / "copy.card.json")
    assert card.verdict in text
    assert card.verdict.startswith("Private release: epsilon=2, delta=0 for the labels of one user")
    (spend,) = Ledger.open(tmp_path / "out" / "ledger.db").spends("labels")
    assert spend.status == "released"


def test_campaigns_are_measured_once_under_a_budget(tmp_path: pathlib.Path) -> None:
    text = run("measure_campaigns.py", str(tmp_path / "out"))
    assert "\nmeasured\nfound again, nothing spent\n" in text
    card = read_card(tmp_path / "out" / "card.json")
    assert card.verdict in text
    assert card.verdict.startswith("Private release: epsilon=2, delta=0 for one user")
    (spend,) = Ledger.open(tmp_path / "out" / "ledger.db").spends("measurement")
    assert spend.request.event == card.plan.event


def test_ads_are_selected_once_under_a_budget_and_billed(tmp_path: pathlib.Path) -> None:
    text = run("select_ads.py", str(tmp_path / "out"))
    assert "keeps 39% of the gain" in text
    assert re.findall(r"stored: (\w+)", text) == ["False", "True"]
    assert "5000 impressions" in text
    card = read_card(tmp_path / "out" / "choices.card.json")
    assert card.verdict.startswith("Private release: epsilon=2, delta=0")
    (spend,) = Ledger.open(tmp_path / "out" / "ledger.db").spends("ads")
    assert spend.request.event == card.plan.event


def test_two_weeks_of_counts_are_paid_from_two_windows(tmp_path: pathlib.Path) -> None:
    text = run("weekly_conversions.py", str(tmp_path / "out"))
    assert len(re.findall(r"2026-01-\d\d: \[", text)) == 2
    for week in ("2026-01-05", "2026-01-12"):
        card = read_card(tmp_path / "out" / week / "card.json")
        assert card.verdict in text
        assert card.verdict.startswith("Private release: epsilon=1, delta=0 for one user within")
    spends = Ledger.open(tmp_path / "out" / "ledger.db").spends("ads")
    assert [spend.status for spend in spends] == ["released", "released"]
