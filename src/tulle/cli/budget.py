"""`tulle budget`: limit what may be released, and charge it to a ledger."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tulle.cli.options import OUTPUT, PRIVACY, AsJson, PanelledCommand, option
from tulle.errors import DataError, reason_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tulle.accounting.budget import BudgetState
    from tulle.privacy.events import Event

budget_app = typer.Typer(
    name="budget",
    help="Create budgets in a ledger, charge them, and show what is left.",
    no_args_is_help=True,
)

_COST = "Release"
_LedgerPath = Annotated[Path, typer.Argument(help="The ledger, one SQLite file.")]
_EventText = Annotated[
    str, option(_COST, "What the release costs: an event as JSON, or @file.json.", "--event")
]
_Purpose = Annotated[str, option(_COST, "Purpose of the release, as the budgets name it.")]
_Unit = Annotated[
    str | None,
    option(_COST, "Unit whose contribution the event bounds; default: the unit of the budgets."),
]
_At = Annotated[
    str | None,
    option(
        _COST,
        "Date (in the time zone of the budget) or time that the data are from. Needed if a budget "
        "renews.",
    ),
]
_Until = Annotated[str | None, option(_COST, "Last date or time that the data are from, included.")]


@budget_app.command(
    cls=PanelledCommand,
    epilog='Example: tulle budget create ledger.db --name ads --unit "user per week" '
    "--adjacency add-remove --epsilon 4 --delta 1e-6 --purpose measure",
)
def create(
    ledger: _LedgerPath,
    name: Annotated[str, option(PRIVACY, "Name of the budget.")],
    unit: Annotated[
        str,
        option(
            PRIVACY,
            'Unit that is protected, e.g. user; "user per week" renews each Monday, "user per '
            'month in Europe/Berlin" each month there.',
        ),
    ],
    adjacency: Annotated[
        str, option(PRIVACY, "Neighbouring data: replace, add-remove or zero-out.")
    ],
    epsilon: Annotated[
        float, option(PRIVACY, "Largest epsilon that all releases together may cost one unit.")
    ],
    delta: Annotated[
        float, option(PRIVACY, "Probability that the guarantee does not cover, e.g. 1e-6.")
    ],
    purpose: Annotated[
        str | None, option(PRIVACY, "Count releases of this purpose only; default: all.")
    ] = None,
    as_json: AsJson = False,
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
    Ledger.open_or_create(ledger).create_budget(budget)
    if as_json:
        _print_json({"ledger": ledger.name, "budget": budget.to_dict()})
    else:
        typer.echo(f"{name}: {epsilon:g} to spend for each {unit} (delta={delta:g})")


@budget_app.command(
    cls=PanelledCommand,
    epilog="Example: tulle budget show ledger.db --name ads --at 2026-01-14 --json",
)
def show(
    ledger: _LedgerPath,
    name: Annotated[str | None, option(OUTPUT, "Name of the only budget to show.")] = None,
    at: Annotated[
        str | None,
        option(
            OUTPUT,
            "Show the window of this date or time alone; default: the present one, and the latest "
            "that were charged.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show what is spent and left of each budget. Needs only the right to read the ledger."""
    from tulle.accounting.ledger import Ledger

    opened = Ledger.open_to_read(ledger)
    states = opened.states(at) if name is None else (opened.state(name, at),)
    # Who asks for one window gets that one. Else a budget whose data are of last week would look
    # unspent this week.
    charged = {
        state.budget.name: [
            other
            for other in (() if at is not None else opened.charged_states(state.budget.name))
            if other.window_bounds != state.window_bounds
        ]
        for state in states
    }
    if as_json:
        budgets = [
            state.to_dict()
            | ({} if at is not None else {"charged_windows": _facts(charged[state.budget.name])})
            for state in states
        ]
        _print_json({"ledger": ledger.name, "budgets": budgets})
        return
    for state in states:
        _print_states({}, [state, *charged[state.budget.name]], as_json=False)


@budget_app.command(
    cls=PanelledCommand,
    epilog="Example: tulle budget check ledger.db --purpose measure --at 2026-01-14 "
    """--event '{"kind": "Gaussian", "noise_multiplier": 3.5}'""",
)
def check(
    ledger: _LedgerPath,
    event: _EventText,
    purpose: _Purpose,
    unit: _Unit = None,
    at: _At = None,
    until: _Until = None,
    as_json: AsJson = False,
) -> None:
    """Tell whether a release would fit, and what would be left. Spends nothing.

    The right to read the ledger is enough.
    Exit code 3 says that it does not fit; the message names the least noise that does.
    """
    from tulle.accounting.ledger import Ledger

    states = Ledger.open_to_read(ledger).check(
        _event(event), purpose=purpose, unit=unit, at=at, until=until
    )
    _print_states({"ledger": ledger.name, "fits": True}, states, as_json=as_json)


@budget_app.command(
    cls=PanelledCommand,
    epilog="Example: tulle budget spend ledger.db --purpose measure --at 2026-01-14 "
    "--event @counts.json --note 'weekly campaign counts'",
)
def spend(
    ledger: _LedgerPath,
    event: _EventText,
    purpose: _Purpose,
    note: Annotated[str, option(_COST, "Free text, kept in the ledger.")] = "",
    unit: _Unit = None,
    at: _At = None,
    until: _Until = None,
    as_json: AsJson = False,
) -> None:
    """Charge a release that is made elsewhere, before it is made, and print what is left.

    Exit code 3 says that it does not fit and nothing was spent: do not release.
    """
    from tulle.accounting.ledger import Ledger

    done = Ledger.open(ledger).spend(
        _event(event), purpose=purpose, note=note, unit=unit, at=at, until=until
    )
    with done:
        pass
    _print_states({"ledger": ledger.name, "spend": done.id}, done.states(), as_json=as_json)


def _event(text: str) -> "Event":
    from tulle.privacy.events import event_from_json

    if not text.startswith("@"):
        return event_from_json(text)
    try:
        return event_from_json(Path(text[1:]).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(
            f"--event {text} cannot be read: {reason_of(error)}; give an event as JSON, or @ and "
            "a file that has one."
        ) from None


def _print_states(
    head: dict[str, object], states: "Iterable[BudgetState]", *, as_json: bool
) -> None:
    if as_json:
        _print_json(head | {"budgets": [state.to_dict() for state in states]})
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


def _facts(states: "Iterable[BudgetState]") -> list[dict[str, object]]:
    return [state.to_dict() for state in states]


def _print_json(data: dict[str, object]) -> None:
    typer.echo(json.dumps(data, allow_nan=False))
