"""The noise of private steps on the command line and in settings files."""

import re
from pathlib import Path

import pytest

from tulle.train.methods.catalogue import METHODS
from unit.cli.train_commands import SYNTH, error_of, facts_of, run

pytestmark = pytest.mark.usefixtures("folder")

PLAN = f"plan {SYNTH} --model lr --method dp-sgd --epsilon 5 --test-fraction 0"
SETTINGS_FILE = """
method = "dp-sgd"
[data]
source = "synth:search"
rows = 600
test_fraction = 0
[target]
epsilon = 5
[model]
kind = "logistic regression"
[private_phase.noise]
kind = "banded"
num_bands = 4
"""


def test_banded_noise_gets_bands_groups_and_batches_that_fit(
    capsys: pytest.CaptureFixture[str],
) -> None:
    settings = facts_of(f"{PLAN} --noise banded --bands 5", capsys)["settings"]
    wanted = {"noise": "banded", "num_bands": 5, "num_groups": 5, "expected_batch_size": 30}
    assert wanted.items() <= settings.items()
    assert facts_of(f"{PLAN} --noise banded", capsys)["settings"]["num_bands"] == 16


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ("", {"noise": "independent"}),
        ("--noise independent", {"noise": "independent"}),
        ("--noise lattice", {"noise": "lattice", "lattice_bits": 24}),
        ("--noise lattice --lattice-bits 30", {"lattice_bits": 30}),
        ("--noise selected-rows", {"noise": "selected rows", "selection_threshold": 3.0}),
        (
            "--noise selected-rows --selection-share 0.2 --selection-threshold 2",
            {"selection_share": 0.2, "selection_threshold": 2.0},
        ),
    ],
)
def test_every_noise_can_be_asked_for(
    options: str, wanted: dict[str, object], capsys: pytest.CaptureFixture[str]
) -> None:
    settings = facts_of(f"{PLAN} {options}", capsys)["settings"]
    assert wanted.items() <= settings.items()


@pytest.mark.parametrize(
    ("options", "noise", "num_bands"),
    [
        ("", "banded", 4),
        ("--bands 3", "banded", 3),
        ("--noise banded", "banded", 4),
        ("--noise lattice", "lattice", None),
    ],
)
def test_options_win_over_the_settings_file(
    options: str,
    noise: str,
    num_bands: int | None,
    folder: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (folder / "run.toml").write_text(SETTINGS_FILE)
    settings = facts_of(f"plan --config run.toml --quiet {options}", capsys)["settings"]
    assert (settings["noise"], settings.get("num_bands")) == (noise, num_bands)


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ("--method hybrid --epsilon 1 --noise bandet", "did you mean 'banded'?"),
        (
            "--method hybrid --epsilon 1 --bands 4",
            "--bands is for --noise banded, not for independent",
        ),
        (
            "--method hybrid --epsilon 1 --noise lattice --bands 4",
            "--bands is for --noise banded",
        ),
        (
            "--method hybrid --epsilon 1 --noise banded --selection-share 0.1",
            "is for --noise selected-rows",
        ),
        (
            "--method hybrid --epsilon 1 --noise lattice --lattice-bits 4",
            "--lattice-bits 4 must be from 16 to 32",
        ),
        ("--method hybrid --epsilon 1 --noise banded --unit user", "protects single examples"),
        (
            "--method hybrid --epsilon 1 --noise banded --accounting paper",
            "needs --accounting replace",
        ),
        (
            "--method hybrid --epsilon 1 --noise banded --batch-size 100",
            "times --bands 16 must be <=",
        ),
        ("--method hybrid --epsilon 1 --noise banded --epochs 0.1", "number of private steps"),
        ("--method rr --epsilon 1 --noise banded", "--noise has no meaning for method rr"),
        ("--epsilon 1 --noise lattice", "--noise has no meaning for method mosaic"),
        ("--method nonprivate --bands 2", "--bands has no meaning for method nonprivate"),
    ],
)
def test_wrong_options_say_what_is_wrong(
    options: str, what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert what in error_of(f"plan {SYNTH} {options}", 2, capsys)


def test_sharp_edges_names_the_methods_that_take_noise_on_a_lattice() -> None:
    page = (Path(__file__).parents[3] / "docs" / "sharp-edges.md").read_text()
    entry = page.partition("**Training noise in floats.**")[2].partition("\n- **")[0]
    taking = {
        method
        for method in (method.kind for method in METHODS)
        if run(f"plan {SYNTH} --epsilon 1 --method {method} --noise lattice") == 0
    }
    assert set(re.findall(r"--method\s+([\w-]+)", entry)) == taking
    assert "mosaic" not in taking


def test_a_noise_that_is_no_table_is_named(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "run.toml").write_text('method = "dp-sgd"\n[private_phase]\nnoise = "banded"\n')
    error = error_of(f"plan {SYNTH} --epsilon 1 --config run.toml --bands 4", 2, capsys)
    assert "private_phase.noise='banded' must be a table" in error


def test_help_has_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("train --help") == 0
    assert "banded --bands 16" in " ".join(capsys.readouterr().out.split())
