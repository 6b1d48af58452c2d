"""What is spent and left of each budget, by the function behind `tulle budget show`."""

import dataclasses
from pathlib import Path

from tulle.accounting.budget import BudgetState
from tulle.accounting.ledger import Ledger
from tulle.privacy.fields import null_if_infinite
from tulle.studio.panel import command_line, path_word

_BUSY_TIMEOUT_S = 5.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class BudgetRow:
    """One budget in its present window."""

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
    states = [ledger.state(budget.name) for budget in ledger.budgets()]
    return LedgerState(
        name=path.name,
        budgets=tuple(_row(state) for state in states),
        commands=(command_line(("budget", "show", path_word(path)), {}),),
    )


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
