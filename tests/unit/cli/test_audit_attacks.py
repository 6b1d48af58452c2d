"""`tulle audit attacks`: results, plots, and mistakes that are explained."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tulle.cli.audit import audit_app as app
from tulle.errors import ConfigError, RunStateError

ATTACKS = ["reconstruction", "differencing", "linkage", "membership"]


def run(text: str) -> str:
    """What the command prints; its errors come through."""
    result = CliRunner().invoke(app, ["attacks", *text.split()], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_all_attacks_print_and_write_their_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    printed = run("--output found --quiet")
    for name in ATTACKS:
        assert f"{name}: " in printed
        facts = json.loads(Path(f"found/{name}.json").read_text())
        assert facts["attack"] == name
        assert facts["privacy"].startswith("not a private release")
        assert "<svg" in Path(f"found/{name}.svg").read_text()[:500]
    assert len(list(Path("found").iterdir())) == 2 * len(ATTACKS)
    assert "not a private release" in printed
    assert "nan" not in printed
    # A folder that exists is not touched.
    with pytest.raises(RunStateError, match="exists already"):
        run("linkage --output found")


def test_json_is_what_the_file_says_and_the_seed_decides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    printed = run("linkage --json --output found --seed 3 --quiet")
    facts = json.loads(printed)
    assert list(facts) == ["linkage"]
    assert facts["linkage"] == json.loads(Path("found/linkage.json").read_text())
    assert facts["linkage"]["config"]["seed"] == 3
    assert printed == run("linkage --json --seed 3 --quiet")
    assert printed != run("linkage --json --seed 4 --quiet")


def test_progress_is_on_stderr_and_can_be_left_out() -> None:
    loud = CliRunner().invoke(app, ["attacks", "linkage", "--json"])
    assert "linkage (" in loud.stderr
    assert json.loads(loud.stdout)
    assert CliRunner().invoke(app, ["attacks", "linkage", "--json", "--quiet"]).stderr == ""


def test_nothing_is_written_without_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert "by area, age band, device, day" in run("linkage --quiet")
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_attack_is_explained(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"did you mean 'linkage'\?.*use one of reconstruction"):
        run(f"linkgae --output {tmp_path}/new")
    assert not (tmp_path / "new").exists()


def test_the_help_has_an_example() -> None:
    assert "tulle audit attacks --output attacks" in run("--help")
