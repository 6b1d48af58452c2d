"""Budgets and spends as rows of a ledger, read back or refused, never skipped."""

import dataclasses
import enum
import sqlite3
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from tulle.accounting.budget import Account, Budget, Span, check_name
from tulle.errors import ConfigError, RunStateError
from tulle.privacy.event_json import event_from_json, event_to_json
from tulle.privacy.events import Composed, Event, Repeated
from tulle.privacy.fields import check_text
from tulle.privacy.units import Adjacency, Unit

# A spend without a time touches every window.
_COUNTED = """
    (:purpose IS NULL OR purpose = :purpose) AND
    (:first IS NULL OR first_micros IS NULL OR (first_micros <= :last AND last_micros >= :first))
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
    if cursor.lastrowid is None:
        raise RunStateError("the ledger gave no number to the spend; release nothing.")
    return cursor.lastrowid


def finish_spend(
    connection: sqlite3.Connection,
    spend_id: int,
    status: SpendStatus,
    released_as: str | None = None,
) -> None:
    """Marks an open spend as released or failed, and may say what was released."""
    if released_as is not None:
        check_text("released_as", released_as)
    update = "UPDATE spends SET status = ?, finished_at = ?"
    values: tuple[object, ...] = (status.value, _now())
    if released_as is not None:
        update, values = f"{update}, released_as = ?", (*values, released_as)
    cursor = connection.execute(
        f"{update} WHERE id = ? AND status = ?",
        (*values, spend_id, SpendStatus.OPEN.value),
    )
    if cursor.rowcount != 1:
        raise RunStateError(f"spend {spend_id} is not open any more; another process ended it.")


def is_open(connection: sqlite3.Connection, spend_id: int, note: str) -> bool:
    """True if the spend of that number and note is open."""
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
    return tuple(_budget(connection, row) for row in rows)


def read_spends(
    connection: sqlite3.Connection, budget: Budget, window: int | None
) -> tuple[Spend, ...]:
    """The spends of a budget, in one window or in all, oldest first."""
    first, last = _reach(budget, None if window is None else range(window, window + 1))
    rows = connection.execute(
        _SPENDS_QUERY,
        {"purpose": budget.purpose, "first": first, "last": last},
    )
    return tuple(_spend(connection, row) for row in rows)


def read_accounts(
    connection: sqlite3.Connection, budget: Budget, windows: range
) -> tuple[Account, ...]:
    """What was spent of a budget in each of the windows."""
    first, last = _reach(budget, windows)
    rows = connection.execute(
        _ACCOUNTS_QUERY,
        {
            "purpose": budget.purpose,
            "first": first,
            "last": last,
            "renews": budget.window_micros is not None,
        },
    )
    counts = {window: Counter[str]() for window in windows}
    num_open = Counter[int]()
    for event_text, first_micros, last_micros, count, count_open in rows:
        for window in _shared_windows(budget, windows, first_micros, last_micros):
            counts[window][event_text] += count
            num_open[window] += count_open
    events = {text: _event(connection, text) for texts in counts.values() for text in texts}
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


def _reach(budget: Budget, windows: range | None) -> tuple[int | None, int | None]:
    length = budget.window_micros
    if length is None or windows is None:
        return None, None
    return windows.start * length, windows.stop * length - 1


def _shared_windows(
    budget: Budget, windows: range, first_micros: int | None, last_micros: int | None
) -> Iterator[int]:
    if first_micros is None or last_micros is None or budget.window_micros is None:
        return iter(windows)
    first, last = first_micros // budget.window_micros, last_micros // budget.window_micros
    return iter(range(max(first, windows.start), min(last + 1, windows.stop)))


def _budget(
    connection: sqlite3.Connection, row: tuple[str, str, str, float, float, str | None]
) -> Budget:
    name, unit, adjacency, epsilon, delta, purpose = row
    try:
        return Budget(
            name=name,
            unit=Unit.parse(unit),
            adjacency=Adjacency.parse(adjacency),
            epsilon=epsilon,
            delta=delta,
            purpose=purpose,
        )
    except ConfigError as error:
        raise RunStateError(
            f"{_file_name(connection)} holds a budget that this tulle cannot read: {error} "
            "Upgrade tulle; without the budget spends would go unlimited."
        ) from error


def _spend(connection: sqlite3.Connection, row: tuple[object, ...]) -> Spend:
    spend_id, event, purpose, note, unit, first, last, status, recorded_at, finished_at, out = row
    return Spend(
        id=int(str(spend_id)),
        request=SpendRequest(
            event=_event(connection, str(event)),
            purpose=str(purpose),
            note=str(note),
            unit=None if unit is None else Unit.parse(str(unit)),
            span=None if first is None else Span(int(str(first)), int(str(last))),
        ),
        status=SpendStatus(str(status)),
        recorded_at=datetime.fromisoformat(str(recorded_at)),
        finished_at=None if finished_at is None else datetime.fromisoformat(str(finished_at)),
        released_as=None if out is None else str(out),
    )


def _event(connection: sqlite3.Connection, text: str) -> Event:
    try:
        return event_from_json(text)
    except ConfigError as error:
        raise RunStateError(
            f"{_file_name(connection)} holds a spend that this tulle cannot read: {error} "
            "Upgrade tulle; without the spend too little would be counted."
        ) from error


def _file_name(connection: sqlite3.Connection) -> str:
    (_, _, path) = connection.execute("PRAGMA database_list").fetchone()
    return Path(path).name


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds")
