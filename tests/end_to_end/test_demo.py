import json
import pathlib
import subprocess
import sys

import pytest

from tulle.accounting.ledger import Ledger
from tulle.cli.main import run_with
from tulle.report.card_file import read_card


def test_demo_releases_refuses_and_writes_a_card(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    assert run_with(["demo", "--output", str(folder), "--json", "--quiet"]) == 0
    captured = capsys.readouterr()
    facts = json.loads(captured.out)
    assert captured.err == ""
    assert len(facts["noisy_counts"]) == 4
    assert "has 0.4 of 1 left" in facts["refusal"]
    assert read_card(folder / "card.json").verdict == facts["verdict"]
    assert facts["verdict"].startswith("Private release: epsilon=0.6")
    # The refused release left no trace: one spend, and it is marked released.
    (spend,) = Ledger.open(folder / "ledger.db").spends("weekly")
    assert spend.status.value == "released"


def test_demo_runs_again_beside_its_first_run(tmp_path: pathlib.Path) -> None:
    for _ in range(2):
        assert run_with(["demo", "--output", str(tmp_path / "run"), "--quiet"]) == 0
    assert (tmp_path / "run" / "card.md").exists()
    assert (tmp_path / "run-2" / "card.md").exists()


def test_demo_shows_where_the_card_is(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_with(["demo", "--output", str(tmp_path / "run")]) == 0
    captured = capsys.readouterr()
    assert str(tmp_path / "run" / "card.md") in captured.out
    assert "4/4" in captured.err


def test_the_example_runs(tmp_path: pathlib.Path) -> None:
    script = pathlib.Path(__file__).parents[2] / "examples" / "weekly_conversions.py"
    command = [sys.executable, str(script), str(tmp_path / "run")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "Private release: epsilon=1" in done.stdout
    assert (tmp_path / "run" / "card.json").exists()
