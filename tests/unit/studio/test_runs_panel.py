import pathlib

import pytest

from tulle.report.card_file import write_card
from tulle.studio.runs_panel import finished_runs, stored_report
from unit.report.html.sample_releases import small_card


def make_run(folder: pathlib.Path, *, report: str | None = None) -> pathlib.Path:
    folder.mkdir(parents=True)
    write_card(folder, small_card())
    if report is not None:
        (folder / "report.html").write_text(report)
    return folder


def test_finished_runs_are_listed_with_the_first_line_of_their_card(tmp_path: pathlib.Path) -> None:
    make_run(tmp_path / "monday", report="<p>page</p>")
    make_run(tmp_path / "tuesday")
    (tmp_path / "unfinished").mkdir()
    (tmp_path / "card.json").write_text("{}")
    found = finished_runs(tmp_path).runs
    assert [(run.name, run.has_report) for run in found] == [("monday", True), ("tuesday", False)]
    assert found[0].verdict == small_card().verdict
    assert found[0].is_private == (not small_card().reasons)
    assert found[1].command == f"tulle report {tmp_path / 'tuesday'}"


def test_a_card_that_cannot_be_read_is_said_and_not_private(tmp_path: pathlib.Path) -> None:
    (make_run(tmp_path / "broken") / "card.json").write_text('{"verdict": "Private release"}')
    (run,) = finished_runs(tmp_path).runs
    assert "cannot be read as a card" in run.verdict
    assert not run.is_private


def test_the_stored_page_of_a_run_is_given_as_it_is(tmp_path: pathlib.Path) -> None:
    make_run(tmp_path / "runs" / "a b", report="<p>page</p>")
    assert stored_report(tmp_path / "runs", "a b") == b"<p>page</p>"
    assert stored_report(None, "a b") is None


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../outside", "inside/deeper", "/etc", "%2e%2e", "..\\outside", "\0"]
)
def test_no_name_leads_out_of_the_folder_or_deeper(tmp_path: pathlib.Path, name: str) -> None:
    make_run(tmp_path / "outside", report="secret")
    make_run(tmp_path / "runs" / "inside" / "deeper", report="secret")
    make_run(tmp_path / "runs" / "other", report="page")
    assert stored_report(tmp_path / "runs", name) is None


def test_links_are_not_followed(tmp_path: pathlib.Path) -> None:
    outside = make_run(tmp_path / "outside", report="secret")
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "linked").symlink_to(outside)
    run = make_run(tmp_path / "runs" / "run")
    (run / "report.html").symlink_to(outside / "report.html")
    assert [run.name for run in finished_runs(tmp_path / "runs").runs] == ["run"]
    assert stored_report(tmp_path / "runs", "linked") is None
    assert stored_report(tmp_path / "runs", "run") is None
