"""Mosaic on the command line: plans, settings files, refusals, and runs from data to report."""

import json
import os
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tulle.runs.folder import RunFolder
from tulle.train.methods.mosaic import cell_training
from tulle.train.methods.mosaic.cell_model import CellModel
from tulle.train.run_context import RunContext
from unit.cli.train_commands import SYNTH, error_of, facts_of, run

pytestmark = pytest.mark.usefixtures("folder")

MOSAIC = "--method mosaic --epsilon 3"
PLAN = f"plan {SYNTH} {MOSAIC}"
TRAIN = f"train {SYNTH} {MOSAIC}"
SETTINGS_FILE = """
method = "mosaic"
[data]
source = "synth:search"
rows = 600
[target]
epsilon = 2
[cells]
least_evidence = 5.0
num_crossed_pairs = 2
[cells.stages]
public_values = 0.4
public_pairs = 0.0
"""


def stopping(train: Callable[..., CellModel]) -> Callable[..., CellModel]:
    """Asked to stop before the first table."""

    def call(examples: Any, plan: Any, context: RunContext, *more: Any) -> CellModel:
        os.kill(os.getpid(), signal.SIGTERM)
        return train(examples, plan, context, *more)

    return call


def test_a_plan_is_one_gaussian_without_steps(capsys: pytest.CaptureFixture[str]) -> None:
    plan = facts_of(PLAN, capsys)
    assert plan["event"]["kind"] == "Gaussian"
    assert plan["event"]["replace_factor"] == 1.0
    assert plan["event"]["noise_multiplier"] == plan["settings"]["noise_multiplier"]
    assert plan["guarantee"]["epsilon"] == 3
    assert plan["guarantee"]["delta"] == 1e-7
    assert plan["guarantee"]["scope"] == "labels and sensitive columns"
    assert plan["settings"]["method"] == "mosaic"
    assert not {"steps", "sampler", "clip_norm", "model"} & plan["settings"].keys()


def test_a_plan_is_shown_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(PLAN) == 0
    lines = {line[:22].strip(): line[22:] for line in capsys.readouterr().out.splitlines()}
    assert lines["plan"] == "mosaic training"
    assert "grouped into cells" in lines["what will run"]
    assert float(lines["noise multiplier"]) > 1
    assert "steps" not in lines


def test_a_settings_file_reaches_the_plan(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "run.toml").write_text(SETTINGS_FILE)
    plan = facts_of("plan --config run.toml --quiet", capsys)
    assert '"least_evidence":5.0' in plan["settings"]["cells"]
    assert '"public_values":0.4' in plan["settings"]["cells"]
    assert plan["guarantee"]["epsilon"] == 2
    other = facts_of("plan --config run.toml --quiet --method rr", capsys)
    assert "cells" not in other["settings"]


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("least_evidence", "least_evidense", "least_evidence"),
        ("public_pairs = 0.0", "public_pairs = 0.5", "add up to"),
        ('method = "mosaic"', 'method = "mosaic"\nmodel = {kind = "mlp"}', "model"),
    ],
)
def test_a_wrong_settings_file_is_refused(
    folder: Path, old: str, new: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "run.toml").write_text(SETTINGS_FILE.replace(old, new))
    assert words in error_of("plan --config run.toml --quiet", 2, capsys)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--model lr", "--model has no meaning for method mosaic"),
        ("--epochs 4", "--epochs has no meaning for method mosaic"),
        ("--epochs 4", "leave it out, or use --method hybrid or dp-sgd."),
        ("--batch-size 9", "--batch-size has no meaning"),
        ("--clip-norm 1", "--clip-norm has no meaning"),
        ("--noise banded", "--noise has no meaning"),
        ("--label-epochs 2", "or use --method hybrid or rr."),
        ("--early-stopping", "--early-stopping has no meaning"),
        ("--split paper", "or use --method hybrid."),
        ("--smoothing 0.1", "or use --method label-projection."),
        ("--accounting paper", "--accounting has no meaning"),
        ("--max-rows-per-user 2", "--max-rows-per-user is for --unit user"),
        ("--user-accounting several-rows", "--user-accounting is for --unit user"),
        (
            "--unit user --max-rows-per-user 2",
            "--max-rows-per-user 2 has no meaning for method mosaic",
        ),
        ("--delta 0", "--delta 0.0 is out of reach"),
    ],
)
def test_options_without_a_meaning_are_refused(
    options: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert words in error_of(f"{PLAN} {options}", 2, capsys)


@pytest.mark.parametrize(
    "options", ["--checkpoint-every 3", "--device cuda", "--plan p.json --device cuda"]
)
def test_options_of_steps_are_refused_before_a_run_begins(
    folder: Path,
    options: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    command = TRAIN
    if "--plan" in options:
        assert run(f"{PLAN} --output p.json") == 0
        command = f"train {SYNTH}"
    assert "has no meaning for method mosaic" in error_of(f"{command} {options}", 2, capsys)
    assert not (folder / "runs" / "mosaic-search").exists()


def test_the_method_is_named_in_help(capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("train", "plan"):
        assert run(f"{command} --help") == 0
        assert "mosaic, hybrid" in " ".join(capsys.readouterr().out.split())


def test_a_run_trains_and_leaves_card_and_report(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    facts = facts_of(f"{TRAIN} --output runs/one --predictions p.parquet", capsys)
    assert (facts["method"], facts["model"], facts["steps"]) == ("mosaic", "cells", 0)
    assert facts["epsilon"] == 3
    assert facts["verdict"].startswith("Private release: epsilon=3")
    assert (folder / "p.parquet").exists()
    card = (folder / "runs" / "one" / "card.md").read_text()
    assert "NOT A PRIVATE RELEASE" not in card
    assert run("report runs/one") == 0
    assert "cells" in (folder / "runs" / "one" / "report.html").read_text()


def test_a_finished_plan_is_run_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(f"{PLAN} --output p.json") == 0
    capsys.readouterr()
    facts = facts_of(f"train {SYNTH} --plan p.json", capsys)
    assert (facts["method"], facts["epsilon"]) == ("mosaic", 3)


def test_progress_is_told_without_steps_of_batches(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(TRAIN.replace("--quiet", "")) == 0
    shown = capsys.readouterr().err
    assert "noise multiplier" in shown
    assert "batch size" not in shown
    assert "--unit user" not in shown
    assert "cells: step 11 of 11, level, " in shown


def test_mosaic_is_the_default(capsys: pytest.CaptureFixture[str]) -> None:
    assert facts_of(f"plan {SYNTH} --epsilon 3", capsys) == facts_of(PLAN, capsys)


def test_a_file_of_hybrid_is_named_unless_another_method_is_asked_for(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "run.toml").write_text('method = "mosaic"\n[label_phase]\nepochs = 1.0\n')
    for command in (f"plan {SYNTH} --epsilon 3", PLAN):
        error = error_of(f"{command} --config run.toml", 2, capsys)
        assert "which is of hybrid" in error
    other = facts_of(f"plan {SYNTH} --epsilon 3 --method rr --config run.toml", capsys)
    assert other["settings"]["label_epochs"] == 1


def test_a_stopped_run_pays_once_and_says_that_it_goes_on(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    budget = "--name ads --unit example --adjacency replace --epsilon 3.1 --delta 1e-7"
    assert run(f"budget create ledger.db {budget}") == 0
    command = f"{TRAIN.replace('--quiet', '')} --output runs/one --ledger ledger.db"
    with monkeypatch.context() as patch:
        patch.setattr(cell_training, "train_on_cells", stopping(cell_training.train_on_cells))
        assert run(command) == 130
    assert not (folder / "runs" / "one" / "model").exists()
    capsys.readouterr()
    assert run(f"{command} --resume") == 0
    assert "what was released before the stop is used" in capsys.readouterr().err
    assert run(f"{command} --resume") == 0
    assert "was written already, and is not made again" in capsys.readouterr().err
    # There was room for one run.
    assert run(command.replace("one", "two")) == 3
    kinds = [r["kind"] for r in RunFolder.open(folder / "runs" / "one").records.read()]
    # So few rows may end as a constant, which is then remarked.
    kept = [kind for kind in kinds if kind != "remark"]
    assert kept == ["started", "started", "model kept", "started"]


def test_files_with_figures_of_the_test_rows_are_those_that_the_page_names(folder: Path) -> None:
    page = Path(__file__).parents[3] / "docs" / "run-folders.md"
    table = re.findall(
        r"^\| (`[^|]+`) \| [^|]+ \| ([^|]+) \|$", page.read_text(), flags=re.MULTILINE
    )
    may_leave = {name: mark for names, mark in table for name in re.findall(r"`([^`]+)`", names)}
    assert run(f"{TRAIN} --output runs/tested") == 0
    assert run("report runs/tested") == 0
    run_folder = folder / "runs" / "tested"
    loss = str(json.loads((run_folder / "result.json").read_text())["metrics"]["log_loss"])
    files = [
        path for path in run_folder.iterdir() if path.suffix in {".json", ".md", ".toml", ".html"}
    ]
    exact = {path.name for path in files if loss[:8] in path.read_text()}
    assert exact >= {"result.json", "card.json", "card.md"}
    assert {may_leave[name] for name in exact} == {"if the test rows may"}


def test_a_card_has_exact_figures_of_the_test_rows_unless_nothing_is_tested(folder: Path) -> None:
    """Whether a card may leave depends on it."""
    assert run(f"{TRAIN} --output runs/tested") == 0
    tested = json.loads((folder / "runs" / "tested" / "result.json").read_text())["metrics"]
    card = json.loads((folder / "runs" / "tested" / "card.json").read_text())
    assert tested["log_loss"] in [figure["value"] for figure in card["utility"]]
    assert run(f"{TRAIN} --output runs/untested --test-fraction 0") == 0
    assert json.loads((folder / "runs" / "untested" / "card.json").read_text())["utility"] == []
    assert "Not measured." in (folder / "runs" / "untested" / "card.md").read_text()
    assert json.loads((folder / "runs" / "untested" / "result.json").read_text())["metrics"] is None
