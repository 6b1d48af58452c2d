"""Files that version 0.1.0 wrote: later versions read them, or refuse them by name with a way out.

The folder `0.1.0` was written by the commands of that version on small synthetic logs and is never
written again.
"""

import json
import shutil
from pathlib import Path

import pytest

from tulle.cli.main import run_with

_OLD = Path(__file__).parent / "0.1.0"
_METHODS = ("hybrid", "two-phase", "rr", "dp-sgd", "label-projection", "nonprivate")


@pytest.fixture
def old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the corpus to work in, since commands may write beside what they read."""
    shutil.copytree(_OLD, tmp_path / "old")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "old"


@pytest.mark.parametrize("method", _METHODS)
def test_a_run_folder_is_reported_on(
    method: str, old: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_with(["report", str(old / "runs" / method)]) == 0, capsys.readouterr().err
    printed = capsys.readouterr().out
    stored = json.loads((old / "runs" / method / "card.json").read_text(encoding="utf-8"))
    assert stored["verdict"][:30] in " ".join(printed.split())
    assert (old / "runs" / method / "report.html").exists()


@pytest.mark.parametrize("method", [name for name in _METHODS if name != "nonprivate"])
def test_a_finished_plan_is_trained(
    method: str, old: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = str(old / "plans" / f"{method}.json")
    where = [str(old / "prepared"), "--output", "again"]
    code = run_with(["train", *where, "--plan", plan, "--quiet", "--json"])
    assert code == 0, capsys.readouterr().err
    promised = json.loads(Path(plan).read_text(encoding="utf-8"))["plan"]["guarantee"]
    assert json.loads(capsys.readouterr().out)["epsilon"] == promised["epsilon"]


def test_a_ledger_keeps_what_was_spent(old: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_with(["budget", "show", str(old / "ledger.db"), "--at", "2026-01-14"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("users: 0 of 3 spent") for line in lines)
    assert any(line.startswith("weekly: 0.5 of 1 spent") for line in lines)


@pytest.mark.parametrize("place", ["measurement", "labels/noisy.parquet", "select/choices.parquet"])
def test_a_release_is_reported_on(
    place: str, old: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_with(["report", str(old / place)]) == 0, capsys.readouterr().err
    assert "Private release" in capsys.readouterr().out


def test_a_selection_bills_stored_choices(old: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [str(old / "select" / name) for name in ("selection.toml", "auctions.parquet")]
    assert run_with(["select", "bill", *files, str(old / "select" / "choices.parquet")]) == 0, (
        capsys.readouterr().err
    )
    assert capsys.readouterr().out
