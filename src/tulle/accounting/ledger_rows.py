"""Budgets and spends as rows of a ledger, read back or refused, never skipped."""

import contextlib
import dataclasses
import enum
import sqlite3
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TypeVar

from tulle.accounting.budget import Account, Budget, check_name
from tulle.accounting.ledger_file import UnreadableRowError
from tulle.accounting.spans import Span
from tulle.errors import ConfigError, RunStateError
from tulle.privacy.events import Composed, Event, Repeated, event_from_json, event_to_json
from tulle.privacy.fields import check_text
from tulle.privacy.units import Adjacency, Unit

_Value = TypeVar("_Value")

# A spend without a time touches every window, and so does one whose time is damaged: left out,
# it would not be counted; read, it is refused.
_COUNTED = """
    (:purpose IS NULL OR purpose = :purpose) AND
    (:first IS NULL OR (first_micros <= :last AND last_micros >= :first)
     OR typeof(first_micros) <> 'integer' OR typeof(last_micros) <> 'integer'
     OR first_micros > last_micros)
"""
_SPENDS_QUERY = f"""
    SELECT id, event, purpose, note, unit, first_micros, last_micros, status, recorded_at,
           finished_at, released_as
    FROM spends WHERE {_COUNTED} ORDER BY id
"""  # noqa: S608, fixed text
_ACCOUNTS_QUERY = f"""
    SELECT event, iif(:renews, first_micros, NULL), iif(:renews, last_micros, NULL),
           count(*), sum(status = 'open')
    FROM spends WHERE {_COUNTED} GROUP BY 1, 2, 3
"""  # noqa: S608, fixed text


class SpendStatus(enum.StrEnum):
    """How a spend ended. It counts in every case."""

    OPEN = "open"
    """The release is under way, or its process died."""
    RELEASED = "released"
    FAILED = "failed"
    """The release ended with an error; something may have got out."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class SpendRequest:
    """What a release will cost, why, and for which data."""

    event: Event
    purpose: str
    note: str = ""
    unit: Unit | None = None
    """The unit whose largest contribution the event speaks of; None: that of each budget."""
    span: Span | None = None

    def __post_init__(self) -> None:
        check_name("purpose", self.purpose)
        if not isinstance(self.event, Event):
            raise ConfigError(f"event={self.event!r} must be an event of tulle.privacy.events.")
        if self.note != "":
            check_text("note", self.note)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Spend:
    """One line of the ledger."""

    id: int
    request: SpendRequest
    status: SpendStatus
    recorded_at: datetime
    finished_at: datetime | None
    released_as: str | None = None
    """What was released, where somebody said it, e.g. the hash of a file."""


def insert_budget(connection: sqlite3.Connection, budget: Budget) -> None:
    """Adds a budget that does not exist yet."""
    connection.execute(
        "INSERT INTO budgets (name, unit, adjacency, epsilon, delta, purpose, created_at) "
        "VALUES (?, ?, ?, ?, ?, ?, ?)",
        (
            budget.name,
            str(budget.unit),
            budget.adjacency.value,
            budget.epsilon,
            budget.delta,
            budget.purpose,
            _now(),
        ),
    )


def insert_spend(connection: sqlite3.Connection, request: SpendRequest) -> int:
    """Adds an open spend and returns its number."""
    cursor = connection.execute(
        "INSERT INTO spends "
        "(event, purpose, first_micros, last_micros, status, recorded_at, note, unit) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (
            event_to_json(request.event),
            request.purpose,
            None if request.span is None else request.span.first_micros,
            None if request.span is None else request.span.last_micros,
            SpendStatus.OPEN.value,
            _now(),
            request.note,
            None if request.unit is None else str(request.unit),
        ),
    )
    # Without its number a spend could never be marked, so nothing may rest on it.
    if cursor.lastrowid is None:
        raise RunStateError("the ledger gave no number to the spend; release nothing.")
    return cursor.lastrowid


def finish_spend(
    connection: sqlite3.Connection,
    spend_id: int,
    status: SpendStatus,
    released_as: str | None = None,
) -> None:
    """Marks an open spend as released or failed, and may say what was released.

    Args:
      connection: A transaction that writes.
      spend_id: Number of the spend.
      status: How it ended.
      released_as: What was released, e.g. the hash of a file.

    Raises:
      RunStateError: The spend is not open any more.
    """
    if released_as is not None:
        check_text("released_as", released_as)
    update = "UPDATE spends SET status = ?, finished_at = ?"
    values: tuple[object, ...] = (status.value, _now())
    if released_as is not None:
        update, values = f"{update}, released_as = ?", (*values, released_as)
    # Only an open spend ends: of two processes that took up the same one, the second fails here
    # and must not put its draw in place.
    cursor = connection.execute(
        f"{update} WHERE id = ? AND status = ?",
        (*values, spend_id, SpendStatus.OPEN.value),
    )
    if cursor.rowcount != 1:
        raise RunStateError(f"spend {spend_id} is not open any more; another process ended it.")


def is_open(connection: sqlite3.Connection, spend_id: int, note: str) -> bool:
    """True if the spend of that number and note is open.

    Args:
      connection: A transaction.
      spend_id: Number of the spend.
      note: What its note says.
    """
    row = connection.execute(
        "SELECT 1 FROM spends WHERE id = ? AND note = ? AND status = ?",
        (spend_id, note, SpendStatus.OPEN.value),
    ).fetchone()
    return row is not None


def read_budgets(connection: sqlite3.Connection) -> tuple[Budget, ...]:
    """All budgets in the order of their creation."""
    rows = connection.execute(
        "SELECT name, unit, adjacency, epsilon, delta, purpose FROM budgets ORDER BY rowid"
    )
    return tuple(_budget(row) for row in rows)


def read_spends(
    connection: sqlite3.Connection, budget: Budget, window: int | None
) -> tuple[Spend, ...]:
    """The spends of a budget, in one window or in all, oldest first.

    Args:
      connection: A transaction.
      budget: The budget.
      window: Number of the window; None: all of them.
    """
    first, last = _reach(budget, None if window is None else range(window, window + 1))
    rows = connection.execute(
        _SPENDS_QUERY,
        {"purpose": budget.purpose, "first": first, "last": last},
    )
    return tuple(_spend(row) for row in rows)


def read_accounts(
    connection: sqlite3.Connection, budget: Budget, windows: range
) -> tuple[Account, ...]:
    """What was spent of a budget in each of the windows.

    Args:
      connection: A transaction.
      budget: The budget.
      windows: Numbers of the windows.
    """
    first, last = _reach(budget, windows)
    rows = connection.execute(
        _ACCOUNTS_QUERY,
        {
            "purpose": budget.purpose,
            "first": first,
            "last": last,
            "renews": budget.renews,
        },
    )
    counts = {window: Counter[str]() for window in windows}
    num_open = Counter[int]()
    for event_text, first_micros, last_micros, count, count_open in rows:
        with _reading_a("spend"):
            text, span = _is(str, event_text), _span(first_micros, last_micros)
            group_open = _is(int, count_open)
        for window in _shared_windows(budget, windows, span):
            counts[window][text] += count
            num_open[window] += group_open
    with _reading_a("spend"):
        events = {text: event_from_json(text) for texts in counts.values() for text in texts}
    return tuple(
        Account(
            budget=budget,
            window=window,
            spent=Composed(
                # Composed keeps equal spends apart: they may be about different labels.
                tuple(
                    Repeated(event=Composed((events[text],)), count=n)
                    for text, n in sorted(texts.items())
                )
            ),
            num_spends=texts.total(),
            num_open=num_open[window],
        )
        for window, texts in counts.items()
    )


def read_charged_accounts(
    connection: sqlite3.Connection, budget: Budget, most: int
) -> tuple[Account, ...]:
    """What was spent in the latest windows that a spend with a time was charged to.

    Args:
      connection: A transaction.
      budget: The budget; one that never renews has no windows to name.
      most: Most windows.
    """
    if not budget.renews:
        return ()
    rows = connection.execute(
        f"SELECT DISTINCT first_micros, last_micros FROM spends WHERE {_COUNTED}",  # noqa: S608
        {"purpose": budget.purpose, "first": None, "last": None},
    )
    windows: set[int] = set()
    for first_micros, last_micros in rows:
        with _reading_a("spend"):
            span = _span(first_micros, last_micros)
        # A spend without a time counts in every window, and so names none.
        windows |= set() if span is None else set(budget.windows(span))
    latest = sorted(windows, reverse=True)[:most]
    found = (read_accounts(connection, budget, range(number, number + 1)) for number in latest)
    return tuple(account for accounts in found for account in accounts)


def _reach(budget: Budget, windows: range | None) -> tuple[int | None, int | None]:
    cut = budget.unit.windows
    if cut is None or windows is None:
        return None, None
    return cut.begin(windows.start), cut.begin(windows.stop) - 1


def _shared_windows(budget: Budget, windows: range, span: Span | None) -> Iterator[int]:
    cut = budget.unit.windows
    # Data of an unknown time may lie in any window, so all of them pay.
    if span is None or cut is None:
        return iter(windows)
    first, last = cut.number(span.first_micros), cut.number(span.last_micros)
    return iter(range(max(first, windows.start), min(last + 1, windows.stop)))


def _budget(row: tuple[object, ...]) -> Budget:
    name, unit, adjacency, epsilon, delta, purpose = row
    with _reading_a("budget"):
        return Budget(
            name=_is(str, name),
            unit=Unit.parse(_is(str, unit)),
            adjacency=Adjacency.parse(_is(str, adjacency)),
            epsilon=_is(float, epsilon),
            delta=_is(float, delta),
            purpose=_is_or_none(str, purpose),
        )


def _spend(row: tuple[object, ...]) -> Spend:
    spend_id, event, purpose, note, unit, first, last, status, recorded_at, finished_at, out = row
    with _reading_a("spend"):
        unit_text = _is_or_none(str, unit)
        finished_text = _is_or_none(str, finished_at)
        return Spend(
            id=_is(int, spend_id),
            request=SpendRequest(
                event=event_from_json(_is(str, event)),
                purpose=_is(str, purpose),
                note=_is(str, note),
                unit=None if unit_text is None else Unit.parse(unit_text),
                span=_span(first, last),
            ),
            status=SpendStatus(_is(str, status)),
            recorded_at=datetime.fromisoformat(_is(str, recorded_at)),
            finished_at=None if finished_text is None else datetime.fromisoformat(finished_text),
            released_as=_is_or_none(str, out),
        )


def _span(first_micros: object, last_micros: object) -> Span | None:
    if first_micros is None and last_micros is None:
        return None
    span = Span(_is(int, first_micros), _is(int, last_micros))
    if span.last_micros < span.first_micros:
        raise ValueError("a span that ends before it begins would touch no window")
    return span


@contextlib.contextmanager
def _reading_a(kind: str) -> Iterator[None]:
    """Turns whatever is wrong with a row into an error: skipped, it would not be counted."""
    try:
        yield
    except ConfigError as error:
        raise UnreadableRowError(
            f"holds a {kind} that this tulle cannot read: {error} Upgrade tulle, or restore the "
            f"file from a backup; without the {kind} too much could be spent."
        ) from error
    except ValueError as error:
        raise UnreadableRowError(
            f"is damaged: it holds a {kind} that nobody wrote. Restore the file from a backup; "
            "starting a new one instead would forget what was spent."
        ) from error


def _is(kind: type[_Value], value: object) -> _Value:
    """The value itself. SQLite stores any type in any column, and so does a flipped bit."""
    if not isinstance(value, kind):
        raise ValueError(f"a {type(value).__name__} in place of a {kind.__name__}")
    return value


def _is_or_none(kind: type[_Value], value: object) -> _Value | None:
    return None if value is None else _is(kind, value)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds")
