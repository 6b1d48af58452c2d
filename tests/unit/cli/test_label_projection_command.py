"""Label projection on the command line: options, settings files, refusals, and one run."""

from pathlib import Path

import pytest

from tulle.runs.folder import RunFolder
from unit.cli.train_commands import SYNTH, error_of, facts_of, run

pytestmark = pytest.mark.usefixtures("folder")

PLAN = (
    f"plan {SYNTH} --model lr --method label-projection --epsilon 2 --batch-size 100 "
    "--test-fraction 0"
)
SETTINGS_FILE = """
method = "label-projection"
[data]
source = "synth:search"
rows = 600
[target]
epsilon = 2
[model]
kind = "logistic regression"
[private_phase]
batch_size = 100
[projection]
public_batch_size = 64
prior = "half"
"""


def test_options_reach_the_plan(capsys: pytest.CaptureFixture[str]) -> None:
    chosen = "--public-batch-size 200 --smoothing 0.1 --smoothing-prior half"
    plan = facts_of(f"{PLAN} {chosen}", capsys)
    wanted = {
        "method": "label-projection",
        "public_batch_size": 200,
        "smoothing": 0.1,
        "smoothing_prior": "half",
    }
    assert wanted.items() <= plan["settings"].items()
    assert plan["guarantee"]["scope"] == "labels"
    assert plan["guarantee"]["delta"] == 1e-7
    assert plan["columns"]["sensitive"] == []


def test_a_settings_file_says_the_same(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "run.toml").write_text(SETTINGS_FILE)
    settings = facts_of("plan --config run.toml --quiet", capsys)["settings"]
    assert settings["public_batch_size"] == 64
    assert settings["smoothing_prior"] == "half"
    other = facts_of("plan --config run.toml --quiet --public-batch-size 99", capsys)["settings"]
    assert (other["public_batch_size"], other["smoothing_prior"]) == (99, "half")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--noise banded", "--noise independent"),
        ("--noise lattice", "--noise independent"),
        ("--noise selected-rows", "--noise independent"),
        ("--smoothing 1", "smoothing"),
        ("--smoothing-prior modell", "model"),
        ("--label-epochs 2", "--label-epochs"),
        ("--accounting paper", "--accounting"),
        ("--public-tower freeze", "--public-tower"),
    ],
)
def test_what_does_not_fit_is_refused(
    options: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert words in error_of(f"{PLAN} {options}", 2, capsys)


def test_its_options_are_for_it_alone(capsys: pytest.CaptureFixture[str]) -> None:
    text = f"plan {SYNTH} --method dp-sgd --epsilon 2 --smoothing 0.1"
    assert "--smoothing" in error_of(text, 2, capsys)


def test_a_run_trains_and_writes_its_card(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (
        f"train {SYNTH} --model lr --method label-projection --epsilon 2 --batch-size 100 "
        "--epochs 1 --public-batch-size 50 --output runs/one"
    )
    assert run(text) == 0, capsys.readouterr().err
    run_folder = RunFolder.open(folder / "runs" / "one")
    assert run_folder.plan.name == "label-projection training"
    card = (folder / "runs" / "one" / "card.md").read_text()
    assert "labels" in card
    assert "NOT A PRIVATE RELEASE" not in card
