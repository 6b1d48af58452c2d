"""What is stored: finished runs in one folder, and the budgets of a ledger.

A name from a request is only ever compared with the names in the folder, so it leads nowhere
else. Links are left out: what they lead to may lie elsewhere. So are names with signs that do not
print: nobody could read them, and in a terminal they would be keys.
"""

import dataclasses
from pathlib import Path

from tulle.accounting.budget import BudgetState
from tulle.accounting.ledger import Ledger
from tulle.atomic_files import reporting_disk_errors
from tulle.errors import DataError
from tulle.privacy.fields import null_if_infinite
from tulle.report.verbs import report_path
from tulle.runs.card import read_card
from tulle.studio.panel import command_line, path_word

_CARD = "card.json"


@dataclasses.dataclass(frozen=True, kw_only=True)
class FinishedRun:
    """A run that has a card."""

    name: str
    verdict: str
    """The first line of the card, or why it cannot be read."""
    is_private: bool
    has_report: bool
    command: str
    """Writes the report, or writes it anew."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunList:
    """All finished runs, by name."""

    folder: str | None
    """Folder of the runs; None if the studio was started without one."""
    runs: tuple[FinishedRun, ...]


def finished_runs(folder: Path | None) -> RunList:
    """The runs directly below a folder that have a card.

    Raises:
      RunStateError: The folder cannot be read.
    """
    if folder is None:
        return RunList(folder=None, runs=())
    runs = tuple(_finished(path) for path in _run_folders(folder))
    return RunList(folder=folder.name or str(folder), runs=runs)


def stored_report(folder: Path | None, name: str) -> bytes | None:
    """The page of a run as it was written; None if there is none.

    Raises:
      RunStateError: The folder or the page cannot be read.
    """
    if folder is None:
        return None
    with reporting_disk_errors(folder):
        for path in _run_folders(folder):
            page = report_path(path)
            if path.name == name and _is_plain_file(page):
                return page.read_bytes()
    return None


def _run_folders(folder: Path) -> list[Path]:
    with reporting_disk_errors(folder):
        return [
            path
            for path in sorted(folder.iterdir())
            if path.name.isprintable()
            and path.is_dir()
            and not path.is_symlink()
            and _is_plain_file(path / _CARD)
        ]


def _is_plain_file(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


def _finished(path: Path) -> FinishedRun:
    try:
        card = read_card(path / _CARD)
        verdict, is_private = card.verdict, not card.reasons
    except DataError as error:
        verdict, is_private = str(error), False
    return FinishedRun(
        name=path.name,
        verdict=verdict,
        is_private=is_private,
        has_report=_is_plain_file(report_path(path)),
        command=command_line(("report", path_word(path)), {}),
    )


_BUSY_TIMEOUT_S = 5.0
"""Seconds to wait for a ledger that somebody else writes to."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class BudgetRow:
    """One budget in its present window, or in an earlier one that was charged."""

    name: str
    purpose: str | None
    """Purpose of the spends that count; None if it counts every purpose."""
    unit: str
    adjacency: str
    epsilon: float
    delta: float
    spent_epsilon: float | None
    """Epsilon spent so far; None if no finite epsilon holds any more."""
    left_epsilon: float
    num_spends: int
    num_open: int
    window: tuple[str, str] | None
    """First and last moment, UTC; None for a budget that never renews."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class LedgerState:
    """All budgets of a ledger."""

    name: str | None
    """Name of the ledger; None if the studio was started without one."""
    budgets: tuple[BudgetRow, ...]
    commands: tuple[str, ...]


def ledger_state(path: Path | None) -> LedgerState:
    """How every budget stands now. Writes nothing, and leaves an older ledger as it is.

    Raises:
      RunStateError: The file is no ledger, or cannot be read.
    """
    if path is None:
        return LedgerState(name=None, budgets=(), commands=())
    ledger = Ledger.open_to_read(path, busy_timeout_s=_BUSY_TIMEOUT_S)
    states = [state for budget in ledger.budgets() for state in _standing(ledger, budget.name)]
    return LedgerState(
        name=path.name,
        budgets=tuple(_row(state) for state in states),
        commands=(command_line(("budget", "show", path_word(path)), {}),),
    )


def _standing(ledger: Ledger, name: str) -> list[BudgetState]:
    """The present window, and the latest that were charged: data are mostly of last week."""
    present = ledger.state(name)
    charged = ledger.charged_states(name)
    return [present, *(s for s in charged if s.window_bounds != present.window_bounds)]


def _row(state: BudgetState) -> BudgetRow:
    budget, bounds = state.budget, state.window_bounds
    return BudgetRow(
        name=budget.name,
        purpose=budget.purpose,
        unit=str(budget.unit),
        adjacency=budget.adjacency.value,
        epsilon=budget.epsilon,
        delta=budget.delta,
        spent_epsilon=null_if_infinite(state.spent_epsilon),
        left_epsilon=state.left_epsilon,
        num_spends=state.num_spends,
        num_open=state.num_open,
        window=None if bounds is None else (bounds[0].isoformat(), bounds[1].isoformat()),
    )
