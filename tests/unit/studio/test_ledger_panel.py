import pathlib

import pytest

from tulle.accounting.budget import Budget
from tulle.accounting.ledger import Ledger
from tulle.errors import RunStateError
from tulle.privacy.events import Laplace
from tulle.privacy.units import Adjacency, Unit
from tulle.studio.ledger_panel import ledger_state
from unit.studio.command_answers import said_by


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
