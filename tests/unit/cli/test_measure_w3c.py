"""`tulle measure w3c-conformance`: what it prints, and its exit code."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from tulle.cli.measure_simulate import w3c_conformance
from tulle.errors import DataError

CASES = Path(__file__).parents[1] / "measure" / "w3c" / "cases"
app = typer.Typer()
app.command()(w3c_conformance)


@pytest.fixture
def wrong(tmp_path: Path) -> Path:
    """A folder of two cases, of which one expects what does not happen."""
    for name in ("CONFIG.json", "lifetimes.json", "rounded-credit.json"):
        shutil.copy(CASES / name, tmp_path)
    text = (tmp_path / "lifetimes.json").read_text()
    assert "[1, 1, 0, 0]" in text
    (tmp_path / "lifetimes.json").write_text(text.replace("[1, 1, 0, 0]", "[0, 2, 0, 0]"))
    return tmp_path


def test_cases_that_pass_are_listed() -> None:
    result = CliRunner().invoke(app, [str(CASES)])
    assert result.exit_code == 0
    assert "passed  lifetimes\n" in result.stdout
    assert result.stdout.endswith("6 passed, 0 failed\n")


def test_a_failed_case_is_told_and_sets_the_exit_code(wrong: Path) -> None:
    result = CliRunner().invoke(app, [str(wrong)])
    assert result.exit_code == 1
    assert result.stdout.splitlines() == [
        "FAILED  lifetimes",
        "        at 86401 s: expected [0, 2, 0, 0], got [1, 1, 0, 0]",
        "passed  rounded-credit",
        "1 passed, 1 failed",
    ]


def test_json_has_every_case(wrong: Path) -> None:
    result = CliRunner().invoke(app, [str(wrong), "--json"])
    assert result.exit_code == 1
    facts = json.loads(result.stdout)
    assert (facts["num_passed"], facts["num_failed"]) == (1, 1)
    assert [case["passed"] for case in facts["cases"]] == [False, True]


def test_a_folder_without_cases_is_an_error(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, [str(tmp_path)])
    assert isinstance(result.exception, DataError)


def test_the_command_loads_nothing_heavy() -> None:
    code = (
        "import sys, tulle.cli.measure_simulate;"
        "print([m for m in ('numpy', 'polars', 'tulle.measure.w3c') if m in sys.modules])"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout == "[]\n"
