import contextlib
import io
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
from typing import Any

import pytest

from tulle.cli.main import run_with
from tulle.runs.card import read_card
from tulle.runs.folder import RunFolder
from tulle.runs.record import read_training
from waiting import HANG_S

METHODS = ["nonprivate", "rr", "dp-sgd", "mosaic"]
SMALL = ["--quick", "--rows", "3000"]


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the demo says as JSON about few rows."""
    folder = tmp_path_factory.mktemp("demo") / "run"
    shown, said = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(shown), contextlib.redirect_stderr(said):
        assert run_with(["demo", *SMALL, "--json", "--quiet", "--output", str(folder)]) == 0
    assert said.getvalue() == ""
    found: dict[str, Any] = json.loads(shown.getvalue())
    return found


def test_demo_trains_four_methods_and_spends_what_it_says(facts: dict[str, Any]) -> None:
    rows = facts["rows"]
    assert [row["method"] for row in rows] == METHODS
    assert [row["epsilon"] for row in rows] == [None, 3.0, 3.0, 3.0]
    assert [row["delta"] for row in rows] == [0.0, 0.0, 1e-7, 1e-7]
    assert facts["train_rows"] + facts["test_rows"] == 3000
    assert pathlib.Path(facts["log"]).exists()


def test_the_releases_of_the_demo_are_private_but_for_the_baseline(facts: dict[str, Any]) -> None:
    for row in facts["rows"]:
        card = read_card(pathlib.Path(row["card"]))
        assert card.verdict == row["verdict"]
        assert card.to_dict()["claim"]["sentence"] == row["claim"]
        is_private = card.verdict.startswith("Private release: epsilon=3")
        assert is_private == (row["method"] != "nonprivate")


def test_the_figures_of_the_demo_are_those_of_its_runs(facts: dict[str, Any]) -> None:
    rows = facts["rows"]
    for row in rows:
        metrics = read_training(RunFolder.open(row["run"])).metrics
        for name in ("auc_loss", "log_loss"):
            assert row[name] == metrics[name]
        assert metrics["num_rows"] == facts["test_rows"]
        relative = 100 * (row["auc_loss"] / rows[0]["auc_loss"] - 1)
        assert row["relative_auc_loss"] == pytest.approx(relative)
    for row in rows[1:]:
        # A baseline is raw: what it tells is in the table, not on the card of a private run.
        card = read_card(pathlib.Path(row["card"]))
        assert all(figure.baseline is None for figure in card.utility)


def test_the_other_jobs_are_done_and_on_one_page(facts: dict[str, Any]) -> None:
    folder = pathlib.Path(facts["folder"])
    cards = {
        "noisy-labels.card.json": "for the labels of one example",
        "campaign/card.json": "for one user (add-remove)",
        "auction/choices.card.json": "for the sensitive columns of one impression",
    }
    page = pathlib.Path(facts["report"])
    text = " ".join(page.read_text(encoding="utf-8").split())
    for name, who in cards.items():
        verdict = read_card(folder / name).verdict
        assert verdict.startswith("Private release: epsilon=3")
        assert who in verdict
        assert verdict in text
    assert read_card(folder / "mosaic" / "card.json").verdict in text
    assert "NOT A PRIVATE RELEASE" not in text
    assert text.count("<svg") >= 10
    assert not (folder / "nonprivate" / "report.html").exists()


def test_demo_shows_table_claim_and_paths_and_runs_beside_an_earlier_one(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "run").mkdir()
    assert run_with(["demo", *SMALL, "--output", str(tmp_path / "run")]) == 0
    shown = capsys.readouterr()
    folder = tmp_path / "run-2"
    claim = json.loads((folder / "mosaic" / "card.json").read_text())["claim"]["sentence"]
    assert " ".join(claim.split()) in " ".join(shown.out.split())
    assert len(shown.out.splitlines()) < 30
    table = shown.out.partition("\nmethod ")[2].splitlines()
    assert table[0].split("  ")[-1].strip() == "seconds"
    assert [line.split()[0] for line in table[1:5]] == METHODS
    for method in METHODS:
        assert f"{folder / method}, card {folder / method / 'card.md'}" in shown.out
        assert f"{method} plan: " in shown.err
    for name in ("noisy-labels.parquet", "campaign", "auction/choices.parquet", "report.html"):
        assert f" {folder / name}\n" in shown.out
    assert "private: step 1 of" in shown.err
    assert not list((tmp_path / "run").iterdir())


@pytest.mark.long("runs the whole demo twice; each job repeats with a seed in make test")
def test_a_seed_makes_the_demo_repeatable_and_not_private(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["demo", *SMALL, "--seed", "7", "--json", "--quiet"]
    found = []
    for _ in range(2):
        assert run_with([*command, "--output", str(tmp_path / "run")]) == 0
        facts = json.loads(capsys.readouterr().out)
        assert "NOT A PRIVATE RELEASE" in pathlib.Path(facts["report"]).read_text(encoding="utf-8")
        found.append(facts["rows"])
    for row, other in zip(*found, strict=True):
        assert row["verdict"].startswith("NOT A PRIVATE RELEASE")
        assert row["auc_loss"] == pytest.approx(other["auc_loss"], abs=1e-4)
        assert row["run"] != other["run"]


@pytest.mark.long("the demo at the size of --quick; make test runs it on fewer rows")
def test_the_quick_demo_shows_what_the_methods_are_for(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["demo", "--quick", "--seed", "0", "--json", "--quiet"]
    assert run_with([*command, "--output", str(tmp_path / "run")]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    auc_losses = {row["method"]: row["auc_loss"] for row in rows}
    assert min(auc_losses, key=lambda method: auc_losses[method]) == "nonprivate"
    assert auc_losses["mosaic"] < auc_losses["dp-sgd"]
    assert max(auc_losses.values()) < 0.45


@pytest.mark.long("runs into a demo again and again; interrupted commands are in make test")
@pytest.mark.parametrize("begun", ["search.parquet", "dp-sgd/run.json"])
def test_an_interrupted_demo_says_so(begun: str, tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "run"
    # The command as users call it: under `python -m`, Python ends by the signal itself if the key
    # came while a module ran generated code, as every dataclass does.
    command = [pathlib.Path(sys.executable).with_name("tulle"), "demo", "--quick", "--quiet"]
    process = subprocess.Popen(
        [*command, "--output", str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    while process.poll() is None and not (folder / begun).exists():
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    shown, message = process.communicate(timeout=HANG_S)
    assert process.returncode == 130
    assert shown == ""
    (line,) = message.splitlines()
    assert line.startswith(("error: stopped as asked", "error: interrupted"))
    assert not (folder / "mosaic").exists()


def test_a_folder_that_cannot_be_made_is_an_error(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    assert run_with(["demo", "--quick", "--output", str(tmp_path / "file" / "run")]) == 4
    assert "cannot be made" in capsys.readouterr().err
