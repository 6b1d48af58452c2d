import os
import pathlib

import pytest

from tulle.accounting.budget import Budget
from tulle.accounting.ledger import Ledger
from tulle.errors import RunStateError
from tulle.privacy.events import Laplace
from tulle.privacy.units import Adjacency, Unit
from tulle.runs.card import write_card
from tulle.studio.serving import StudioConfig
from tulle.studio.stored import finished_runs, ledger_state, stored_report
from unit.report.html.sample_releases import small_card
from unit.studio.command_answers import said_by
from unit.studio.running_studio import get_data, running


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


@pytest.mark.parametrize(
    "name", [b"not-utf-8-\xff", b"two\nlines", b"\x15erased", "\u202etfel".encode()]
)
def test_a_name_that_does_not_print_is_left_out_and_spoils_no_other(
    tmp_path: pathlib.Path, name: bytes
) -> None:
    make_run(tmp_path / "fine", report="page")
    make_run(tmp_path / os.fsdecode(name), report="page")
    with running(StudioConfig(runs=tmp_path)) as studio:
        found = get_data(studio, "/api/runs")
    assert [run["name"] for run in found["runs"]] == ["fine"]


def test_a_card_with_an_endless_number_spoils_no_other(tmp_path: pathlib.Path) -> None:
    make_run(tmp_path / "fine")
    (make_run(tmp_path / "long") / "card.json").write_text('{"format": ' + "9" * 5000 + "}")
    fine, long = finished_runs(tmp_path).runs
    assert fine.is_private
    assert "a number too long to read" in long.verdict


def test_a_command_does_not_take_a_name_for_an_option(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    make_run(pathlib.Path("--help"))
    (run,) = finished_runs(pathlib.Path()).runs
    assert run.command == "tulle report ./--help"


def test_links_are_not_followed(tmp_path: pathlib.Path) -> None:
    outside = make_run(tmp_path / "outside", report="secret")
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "linked").symlink_to(outside)
    run = make_run(tmp_path / "runs" / "run")
    (run / "report.html").symlink_to(outside / "report.html")
    assert [run.name for run in finished_runs(tmp_path / "runs").runs] == ["run"]
    assert stored_report(tmp_path / "runs", "linked") is None
    assert stored_report(tmp_path / "runs", "run") is None


def make_ledger(path: pathlib.Path) -> Ledger:
    ledger = Ledger.create(path)
    for name, unit, purpose in (("ads", "user per 7 days", "measure"), ("all", "user", None)):
        ledger.create_budget(
            Budget(
                name=name,
                unit=Unit.parse(unit),
                adjacency=Adjacency.ADD_OR_REMOVE,
                epsilon=4.0,
                delta=1e-6,
                purpose=purpose,
            )
        )
    with ledger.spend(Laplace(noise_multiplier=2.0), purpose="train", unit=Unit.parse("user")):
        pass
    return ledger


def test_budgets_stand_as_the_command_says(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_ledger(tmp_path / "ledger.db")
    state = ledger_state(tmp_path / "ledger.db")
    said = said_by(state.commands[0], capsys)["budgets"]
    shown = ("name", "purpose", "unit", "epsilon", "spent_epsilon", "left_epsilon", "num_spends")
    assert [[getattr(row, name) for name in shown] for row in state.budgets] == [
        [row[name] for name in shown] for row in said
    ]
    assert [row.spent_epsilon for row in state.budgets] == [0.0, pytest.approx(0.5, abs=1e-5)]
    assert [None if row.window is None else list(row.window) for row in state.budgets] == [
        [said[0]["window_start"], said[0]["window_end"]],
        None,
    ]


def test_windows_that_were_charged_stand_below_the_present_one(tmp_path: pathlib.Path) -> None:
    ledger = make_ledger(tmp_path / "ledger.db")
    with ledger.spend(
        Laplace(noise_multiplier=2.0), purpose="measure", unit="user", at="2026-01-14"
    ):
        pass
    rows = ledger_state(tmp_path / "ledger.db").budgets
    assert [row.name for row in rows] == ["ads", "ads", "all"]
    assert [row.num_spends for row in rows] == [0, 1, 2]
    assert rows[1].window == ("2026-01-08T00:00:00+00:00", "2026-01-15T00:00:00+00:00")


def test_the_command_does_not_take_the_name_of_a_ledger_for_an_option(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    make_ledger(pathlib.Path("-ledger.db"))
    (command,) = ledger_state(pathlib.Path("-ledger.db")).commands
    assert len(said_by(command, capsys)["budgets"]) == 2


def test_looking_at_a_ledger_changes_nothing_in_it(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "ledger.db"
    make_ledger(path)
    before = path.read_bytes()
    ledger_state(path)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["ledger.db"]


def test_without_a_ledger_there_is_nothing_to_show() -> None:
    assert ledger_state(None).name is None


def test_a_ledger_that_is_not_there_is_an_error(tmp_path: pathlib.Path) -> None:
    with pytest.raises(RunStateError, match=r"ledger\.db does not exist"):
        ledger_state(tmp_path / "ledger.db")
