"""`tulle budget`: limit what may be released, and keep the books."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tulle.cli.time_spans import span_of
from tulle.errors import ConfigError, reason_of
from tulle.privacy.fields import text_if_infinite

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tulle.accounting.budget import Budget, BudgetState
    from tulle.accounting.ledger import Ledger
    from tulle.privacy.events import Event
    from tulle.privacy.units import Unit

budget_app = typer.Typer(
    name="budget", help="Limit what may be released, and keep the books.", no_args_is_help=True
)

_LedgerPath = Annotated[Path, typer.Argument(help="The ledger, one SQLite file.")]
_EventText = Annotated[
    str, typer.Option("--event", help="What the release costs: an event as JSON, or @file.json.")
]
_Purpose = Annotated[str, typer.Option(help="What the release is for, as the budgets name it.")]
_Unit = Annotated[
    str | None,
    typer.Option(help="Whose contribution the event bounds; default: the unit of the budgets."),
]
_At = Annotated[
    str | None,
    typer.Option(help="When the data are from: a date or a time (UTC). Needed if a budget renews."),
]
_Until = Annotated[str | None, typer.Option(help="Last date or time the data are from, included.")]
_AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@budget_app.command(
    epilog='Example: tulle budget create ledger.db --name ads --unit "user per 7 days" '
    "--adjacency add-remove --epsilon 4 --delta 1e-6 --purpose measure"
)
def create(
    ledger: _LedgerPath,
    name: Annotated[str, typer.Option(help="A name for the budget.")],
    unit: Annotated[str, typer.Option(help='Who is protected; "user per 7 days" renews weekly.')],
    adjacency: Annotated[str, typer.Option(help="replace, add-remove or zero-out.")],
    epsilon: Annotated[float, typer.Option(help="The most that one unit may lose.")],
    delta: Annotated[float, typer.Option(help="At this chance of losing more.")],
    purpose: Annotated[
        str | None, typer.Option(help="Count spends of this purpose only; default: all.")
    ] = None,
    as_json: _AsJson = False,
) -> None:
    """Add a budget to a ledger, and make the ledger if there is none.

    A budget can't be changed afterwards, and must come before what it counts.
    """
    from tulle.accounting.budget import Budget
    from tulle.accounting.ledger import Ledger
    from tulle.privacy.units import Adjacency, Unit

    budget = Budget(
        name=name,
        unit=Unit.parse(unit),
        adjacency=Adjacency.parse(adjacency),
        epsilon=epsilon,
        delta=delta,
        purpose=purpose,
    )
    opened = Ledger.open(ledger) if ledger.exists() else Ledger.create(ledger)
    opened.create_budget(budget)
    if as_json:
        _print_json({"ledger": ledger.name, "budget": _budget_data(budget)})
    else:
        typer.echo(f"{name}: {epsilon:g} to spend for each {unit} (delta={delta:g})")


@budget_app.command(epilog="Example: tulle budget show ledger.db --name ads --at 2026-01-14 --json")
def show(
    ledger: _LedgerPath,
    name: Annotated[str | None, typer.Option(help="Show this budget only.")] = None,
    at: Annotated[
        str | None, typer.Option(help="Show the window of this date or time (UTC); default: now.")
    ] = None,
    as_json: _AsJson = False,
) -> None:
    """Show what is spent and left of each budget. Needs only the right to read the ledger."""
    opened = _open_to_read(ledger)
    names = [budget.name for budget in opened.budgets()] if name is None else [name]
    start, _ = span_of(at, None)
    _print_states({"ledger": ledger.name}, [opened.state(n, start) for n in names], as_json=as_json)


@budget_app.command(
    epilog="Example: tulle budget check ledger.db --purpose measure --at 2026-01-14 "
    """--event '{"kind": "Gaussian", "noise_multiplier": 3.5}'"""
)
def check(
    ledger: _LedgerPath,
    event: _EventText,
    purpose: _Purpose,
    unit: _Unit = None,
    at: _At = None,
    until: _Until = None,
    as_json: _AsJson = False,
) -> None:
    """Tell whether a release would fit, and what would be left. Spends nothing.

    The right to read the ledger is enough.
    Exit code 3 says that it does not fit; the message names the least noise that does.
    """
    start, end = span_of(at, until)
    states = _open_to_read(ledger).check(
        _event(event), purpose=purpose, unit=_unit(unit), at=start, until=end
    )
    _print_states({"ledger": ledger.name, "fits": True}, states, as_json=as_json)


@budget_app.command(
    epilog="Example: tulle budget spend ledger.db --purpose measure --at 2026-01-14 "
    "--event @counts.json --note 'weekly campaign counts'"
)
def spend(
    ledger: _LedgerPath,
    event: _EventText,
    purpose: _Purpose,
    note: Annotated[str, typer.Option(help="Free text, kept in the ledger.")] = "",
    unit: _Unit = None,
    at: _At = None,
    until: _Until = None,
    as_json: _AsJson = False,
) -> None:
    """Put a release on the books before it is made elsewhere, and print what is left.

    Exit code 3 says that it does not fit and nothing was spent: do not release.
    """
    from tulle.accounting.ledger import Ledger

    start, end = span_of(at, until)
    done = Ledger.open(ledger).spend(
        _event(event), purpose=purpose, note=note, unit=_unit(unit), at=start, until=end
    )
    with done:
        pass
    _print_states({"ledger": ledger.name, "spend": done.id}, done.states(), as_json=as_json)


def _open_to_read(path: Path) -> "Ledger":
    from tulle.accounting.ledger import Ledger

    return Ledger.open_to_read(path)


def _event(text: str) -> "Event":
    from tulle.privacy.event_json import event_from_json

    if not text.startswith("@"):
        return event_from_json(text)
    try:
        return event_from_json(Path(text[1:]).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"--event {text} cannot be read: {reason_of(error)}; give an event as JSON, or @ and "
            "a file that has one."
        ) from None


def _unit(text: str | None) -> "Unit | None":
    from tulle.privacy.units import Unit

    return None if text is None else Unit.parse(text)


def _print_states(
    head: dict[str, object], states: "Iterable[BudgetState]", *, as_json: bool
) -> None:
    if as_json:
        _print_json(head | {"budgets": [_state_data(state) for state in states]})
        return
    for state in states:
        budget = state.budget
        facts = [str(budget.unit), budget.adjacency.value, f"delta={budget.delta:g}"]
        facts += [] if budget.purpose is None else [f"for {budget.purpose}"]
        if state.window_bounds is not None:
            facts.append(" to ".join(f"{bound:%Y-%m-%dT%H:%MZ}" for bound in state.window_bounds))
        facts.append(f"spends: {state.num_spends}, open: {state.num_open}")
        typer.echo(
            f"{budget.name}: {state.spent_epsilon:.4g} of {budget.epsilon:.4g} spent, "
            f"{state.left_epsilon:.4g} left ({', '.join(facts)})"
        )


def _state_data(state: "BudgetState") -> dict[str, object]:
    start, end = state.window_bounds or (None, None)
    return _budget_data(state.budget) | {
        "window_start": None if start is None else start.isoformat(),
        "window_end": None if end is None else end.isoformat(),
        "spent_epsilon": text_if_infinite(state.spent_epsilon),
        "left_epsilon": state.left_epsilon,
        "num_spends": state.num_spends,
        "num_open": state.num_open,
    }


def _budget_data(budget: "Budget") -> dict[str, object]:
    return {
        "name": budget.name,
        "unit": str(budget.unit),
        "adjacency": budget.adjacency.value,
        "epsilon": budget.epsilon,
        "delta": budget.delta,
        "purpose": budget.purpose,
    }


def _print_json(data: dict[str, object]) -> None:
    typer.echo(json.dumps(data, allow_nan=False))
