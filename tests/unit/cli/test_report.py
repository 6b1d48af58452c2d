"""`tulle report` writes a page and says where it is."""

import json
from pathlib import Path
from typing import Any

import pytest
import typer

from tulle.cli.report import REPORT_EPILOG
from tulle.cli.report import report as report_command
from tulle.errors import ConfigError, DataError
from unit.report.html.sample_releases import (
    KINDS,
    measure_record,
    metrics,
    selection_plan,
    write_releases,
    write_run,
)


def report(*arguments: object) -> Any:
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    app.command(epilog=REPORT_EPILOG)(report_command)
    return app([str(argument) for argument in arguments], standalone_mode=False)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_release_gets_a_page_and_markdown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    path = write_releases(tmp_path)[kind]
    if kind == "labels":
        path.write_bytes(b"pages never read the table")
    report(path, "--json")
    facts = json.loads(capsys.readouterr().out)
    assert Path(facts["report"]).read_text().startswith("<!DOCTYPE html>")
    assert Path(facts["markdown"]).read_text().startswith("# ")
    assert facts["figures"] > 0
    assert facts["verdict"]


def test_a_page_is_written_again_with_the_same_bytes(tmp_path: Path) -> None:
    write_run(tmp_path / "run")
    files = [tmp_path / "run" / name for name in ("report.html", "report.md", "card.json")]
    report(tmp_path / "run")
    before = [file.read_bytes() for file in files]
    report(tmp_path / "run")
    assert [file.read_bytes() for file in files] == before


def test_a_comparison_goes_where_it_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_run(tmp_path / "run")
    write_run(tmp_path / "raw", method="nonprivate", metrics=metrics(0.2))
    output = tmp_path / "new" / "compared.html"
    report(tmp_path / "run", "--baseline", tmp_path / "raw", "--output", output)
    shown = capsys.readouterr().out
    assert "NOT A PRIVATE RELEASE" in shown
    assert str(output) in shown
    assert "+25.0%" in output.read_text()
    assert not (tmp_path / "run/report.html").exists()


def test_a_comparison_with_raw_rows_never_replaces_a_private_page(tmp_path: Path) -> None:
    write_run(tmp_path / "run")
    write_run(tmp_path / "raw", method="nonprivate", metrics=metrics(0.2))
    report(tmp_path / "run")
    before = (tmp_path / "run/report.html").read_bytes()
    report(tmp_path / "run", "--baseline", tmp_path / "raw")
    assert (tmp_path / "run/report.html").read_bytes() == before
    assert "NOT A PRIVATE RELEASE" in (tmp_path / "run/report-with-baseline.html").read_text()


def test_other_private_runs_are_shown_beside(tmp_path: Path) -> None:
    write_run(tmp_path / "a")
    write_run(tmp_path / "b", epsilon=0.5, metrics=metrics(0.4))
    report(tmp_path / "a", "--compare", tmp_path / "b")
    assert "b (hybrid, epsilon 0.5)" in (tmp_path / "a/report.html").read_text()


def test_a_missing_card_is_written(tmp_path: Path) -> None:
    (tmp_path / "measurement.json").write_text(measure_record().to_json())
    report(tmp_path / "measurement.json")
    for name in ("report.html", "report.md", "card.json", "card.md"):
        assert (tmp_path / name).exists()


def test_a_missing_path_and_a_wrong_output_lead_to_the_fix(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="does not exist; name a run folder"):
        report(tmp_path / "none")
    (tmp_path / "plan.json").write_text(json.dumps(selection_plan()))
    with pytest.raises(ConfigError, match=r"must end in \.html"):
        report(tmp_path / "plan.json", "--output", tmp_path / "page.txt")


def test_help_has_examples(capsys: pytest.CaptureFixture[str]) -> None:
    report("--help")
    shown = " ".join(capsys.readouterr().out.split())
    assert "Example: tulle report runs/monday" in shown
    assert "--baseline" in shown
