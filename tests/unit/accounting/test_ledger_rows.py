"""Which spends count in which window, to the microsecond.

The model that the ledger is held against knows nothing of SQL and window numbers: it cuts time at
edges that are counted from 1970 and asks whether two spans of time touch the same piece.
"""

import dataclasses
import itertools
import sqlite3
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tulle.accounting.budget import Budget
from tulle.accounting.ledger import Ledger
from tulle.errors import BudgetExceededError
from tulle.privacy.events import EpsilonDelta
from tulle.privacy.units import Adjacency, Unit

MICRO = timedelta(microseconds=1)
WHOLE = EpsilonDelta(epsilon=1.0)
TENTH = EpsilonDelta(epsilon=0.1)
THURSDAY = datetime(2026, 1, 15, tzinfo=UTC)
"""Day 20468 = 7 * 2924 of the epoch: windows of days, weeks and hours all begin here."""
DAYS = timedelta(days=1)

Moments = tuple[datetime, datetime]


def make_budget(unit: str, adjacency: Adjacency = Adjacency.ADD_OR_REMOVE) -> Budget:
    return Budget(name=unit, unit=Unit.parse(unit), adjacency=adjacency, epsilon=1.0, delta=0.0)


def make_ledger(folder: Path, *budgets: Budget) -> Ledger:
    ledger = Ledger.create(folder / "ledger.db")
    for budget in budgets:
        ledger.create_budget(budget)
    return ledger


def edge_of_a_window(length: timedelta, near: datetime) -> datetime:
    """The first moment of the window that holds `near`."""
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    return near - (near - epoch) % length


def spans_at_the_edges(length: timedelta, near: datetime) -> list[Moments]:
    """Every span between the last and the first microseconds of three neighbouring windows."""
    edge = edge_of_a_window(length, near)
    moments = (edge - MICRO, edge, edge + length - MICRO, edge + length)
    return list(itertools.combinations_with_replacement(moments, 2))


def pieces(span: Moments, length: timedelta) -> set[datetime]:
    """First moments of the windows that a span touches, found by walking through it."""
    first, last = span
    found, edge = set(), edge_of_a_window(length, first)
    while edge <= last:
        found.add(edge)
        edge += length
    return found


def fits(ledger: Ledger, span: Moments, unit: Unit | None = None) -> bool:
    try:
        ledger.check(TENTH, purpose="counts", unit=unit, at=span[0], until=span[1])
    except BudgetExceededError:
        return False
    return True


@pytest.mark.parametrize(
    ("unit", "near", "adjacency"),
    [
        ("user per 1 day", THURSDAY, Adjacency.ADD_OR_REMOVE),
        ("user per 7 days", THURSDAY, Adjacency.ADD_OR_REMOVE),
        ("user per 7 days", THURSDAY, Adjacency.REPLACE),
        ("user per 12 hours", THURSDAY, Adjacency.REPLACE),
        ("user x advertiser per 30 days", THURSDAY, Adjacency.ADD_OR_REMOVE),
        ("user per 1 second", THURSDAY, Adjacency.ADD_OR_REMOVE),
        ("user per 7 days", datetime(1970, 1, 1, tzinfo=UTC), Adjacency.ADD_OR_REMOVE),
        ("user per 7 days", datetime(1969, 6, 1, tzinfo=UTC), Adjacency.REPLACE),
    ],
)
def test_a_full_window_refuses_from_its_first_to_its_last_microsecond_and_no_other(
    unit: str, near: datetime, adjacency: Adjacency, tmp_path: Path
) -> None:
    windows = Unit.parse(unit).windows
    assert windows is not None
    length = timedelta(seconds=windows.seconds or 0)
    spans = spans_at_the_edges(length, near)
    for number, taken in enumerate(spans):
        folder = tmp_path / str(number)
        folder.mkdir()
        ledger = make_ledger(folder, make_budget(unit, adjacency))
        ledger.spend(WHOLE, purpose="counts", at=taken[0], until=taken[1])
        answers = {span: fits(ledger, span) for span in spans}
        right = {span: not pieces(span, length) & pieces(taken, length) for span in spans}
        assert answers == right, f"after a spend of {taken}"


@pytest.mark.parametrize("taken", spans_at_the_edges(7 * DAYS, THURSDAY))
def test_the_lines_and_the_state_of_a_window_are_those_of_its_microseconds(
    taken: Moments, tmp_path: Path
) -> None:
    ledger = make_ledger(tmp_path, make_budget("user per 7 days"))
    ledger.spend(TENTH, purpose="counts", at=taken[0], until=taken[1])
    touched = pieces(taken, 7 * DAYS)
    for weeks in range(-3, 5):
        first = THURSDAY + 7 * weeks * DAYS
        number = (first - datetime(1970, 1, 1, tzinfo=UTC)) // (7 * DAYS)
        is_touched = int(first in touched)
        assert len(ledger.spends("user per 7 days", number)) == is_touched
        for moment in (first, first + 7 * DAYS - MICRO):
            assert ledger.state("user per 7 days", moment).num_spends == is_touched


def test_a_span_of_windows_is_charged_what_each_holds_and_not_what_the_next_holds(
    tmp_path: Path,
) -> None:
    ledger = make_ledger(tmp_path, make_budget("user per 7 days"))
    week = 7 * DAYS
    ledger.spend(TENTH, purpose="counts", at=THURSDAY, until=THURSDAY + 2 * week - MICRO)
    ledger.spend(TENTH, purpose="counts", at=THURSDAY + week, until=THURSDAY + 2 * week - MICRO)
    states = ledger.check(
        TENTH, purpose="counts", at=THURSDAY - MICRO, until=THURSDAY + 3 * week - MICRO
    )
    assert [state.num_spends for state in states] == [1, 2, 3, 1]


def test_many_small_spends_at_both_ends_of_a_window_add_up(tmp_path: Path) -> None:
    ledger = make_ledger(tmp_path, make_budget("user per 7 days"))
    ends = (THURSDAY, THURSDAY + 7 * DAYS - MICRO)
    for at in ends * 5:
        ledger.spend(TENTH, purpose="counts", at=at)
    for at in ends:
        with pytest.raises(BudgetExceededError):
            ledger.spend(TENTH, purpose="counts", at=at)
    for at in (THURSDAY - MICRO, THURSDAY + 7 * DAYS):
        ledger.spend(TENTH, purpose="counts", at=at)


@pytest.mark.parametrize("charged_unit", [None, Unit.user(), Unit.user(days=7)])
def test_each_of_several_budgets_counts_in_its_own_windows(
    charged_unit: Unit | None, tmp_path: Path
) -> None:
    """The unit that an event bounds may be larger than a window; that moves no window."""
    units = ("user per 1 day", "user per 7 days")
    budgets = [make_budget(unit, Adjacency.REPLACE) for unit in units]
    ledger = make_ledger(tmp_path, *budgets)
    taken = (THURSDAY, THURSDAY + DAYS - MICRO)
    ledger.spend(WHOLE, purpose="counts", unit=charged_unit, at=taken[0], until=taken[1])
    edges = (THURSDAY, THURSDAY + DAYS, THURSDAY + 7 * DAYS)
    moments = [moment for edge in edges for moment in (edge - MICRO, edge)]
    for unit, counts in zip(units, ([0, 1, 1, 0, 0, 0], [0, 1, 1, 1, 1, 0]), strict=True):
        assert [ledger.state(unit, at).num_spends for at in moments] == counts
    for at, is_free in ((THURSDAY + 7 * DAYS - MICRO, False), (THURSDAY + 7 * DAYS, True)):
        assert fits(ledger, (at, at), charged_unit) is is_free


@pytest.mark.parametrize("charged_unit", [None, Unit.user()])
def test_a_budget_without_a_window_counts_every_moment(
    charged_unit: Unit | None, tmp_path: Path
) -> None:
    weekly = dataclasses.replace(make_budget("user per 7 days"), epsilon=9.0)
    ledger = make_ledger(tmp_path, weekly, make_budget("user"))
    half = EpsilonDelta(epsilon=0.5)
    for at in (THURSDAY - MICRO, THURSDAY):
        ledger.spend(half, purpose="counts", unit=charged_unit, at=at)
    assert not fits(ledger, (THURSDAY + 70 * DAYS, THURSDAY + 70 * DAYS), charged_unit)
    assert ledger.state("user").num_spends == 2


def test_a_spend_without_a_time_counts_in_every_window(tmp_path: Path) -> None:
    ledger = make_ledger(tmp_path, make_budget("user per 7 days"))
    ledger.spend(WHOLE, purpose="counts", at=THURSDAY)
    connection = sqlite3.connect(ledger.path, isolation_level=None)
    connection.execute(
        "INSERT INTO spends (event, purpose, status, recorded_at) SELECT event, purpose, status, "
        "recorded_at FROM spends"
    )
    connection.close()
    for weeks, count in ((-99, 1), (0, 2), (99, 1)):
        at = THURSDAY + 7 * weeks * DAYS
        assert ledger.state("user per 7 days", at).num_spends == count
        assert not fits(ledger, (at, at))
