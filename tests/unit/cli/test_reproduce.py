"""`tulle reproduce`: lists targets, prints ours beside the published figures, writes a folder."""

import json
from pathlib import Path

import pytest
import typer

from tulle.cli.reproduce import reproduce
from tulle.errors import ConfigError, DataError, RunInterruptedError, RunStateError
from tulle.lab.reproduction import experiments, market_runs
from tulle.lab.reproduction.published import published_targets

APP = typer.Typer()
APP.command()(reproduce)


def run(arguments: str) -> None:
    APP(arguments.split(), standalone_mode=False)


@pytest.fixture(autouse=True)
def _small_markets(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(market_runs, "_NUM_AUCTIONS", 200)


def test_without_a_target_all_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    run("")
    shown = capsys.readouterr().out
    for target in published_targets():
        assert target.name in shown
        assert target.document in shown
    run("--json")
    rows = json.loads(capsys.readouterr().out)
    assert [row["target"] for row in rows] == [target.name for target in published_targets()]
    assert all(row["claims"] for row in rows)


def test_a_target_prints_figures_and_a_verdict_for_each_claim(
    capsys: pytest.CaptureFixture[str],
) -> None:
    run("apple-fig4")
    shown = capsys.readouterr()
    assert "published" in shown.out
    assert "best gamma, click rate" in shown.out
    assert "claims: " in shown.out
    assert "Not a private release" in shown.out
    assert "sweep gamma" in shown.err


def test_json_and_the_folder_say_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    run("apple-fig4 --json --quiet --seed 3 --output results/fig4")
    shown = capsys.readouterr()
    facts = json.loads(shown.out)
    assert shown.err == ""
    assert facts["seed"] == 3
    assert facts["scale"] == "reduced"
    assert len(facts["claims"]) == 6
    assert json.loads(Path("results/fig4/reproduction.json").read_text()) == facts
    assert Path("results/fig4/reproduction.md").read_text().startswith("# apple-fig4")
    with pytest.raises(RunStateError, match="exists already"):
        run("apple-fig4 --output results/fig4")


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ("apple-fig33", ConfigError, "apple-fig3"),
        ("apple-fig4 --scale papper", ConfigError, "paper"),
        ("apple-fig4 --data nowhere.parquet", DataError, "not there"),
        ("apple-fig10 --data .", DataError, "Leave out"),
    ],
)
def test_a_mistake_leads_to_the_fix(arguments: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        run(f"{arguments} --quiet")


def test_an_interruption_says_that_nothing_can_be_gone_on_with(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def stop(_: object) -> None:
        raise RunInterruptedError("run the same command with --resume to go on.")

    monkeypatch.setitem(experiments.EXPERIMENTS, "apple-fig4", stop)  # type: ignore[arg-type]
    with pytest.raises(RunInterruptedError, match="keeps nothing on the way"):
        run("apple-fig4 --output found")
    assert list(tmp_path.iterdir()) == []
