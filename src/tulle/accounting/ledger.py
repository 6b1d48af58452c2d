"""What was spent, on disk before anything is released.

A ledger is one SQLite file that several processes may use at once. A spend is
written and made durable before the release it pays for, in the same transaction
that checked every budget it counts against: two processes can never both take
the last of a budget, and a crash can only leave too much charged.
"""

import dataclasses
import functools
import math
import sqlite3
import warnings
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType

from tulle.accounting import ledger_file, ledger_rows
from tulle.accounting.budget import Account, Budget, BudgetState
from tulle.accounting.ledger_rows import Spend, SpendRequest, SpendStatus
from tulle.accounting.refusal import SpendRefusedError, explain_refusal
from tulle.accounting.spans import Moment, Span, says_zone, span_of, zone_of_days
from tulle.errors import ConfigError, RunStateError
from tulle.privacy.events import EpsilonDelta, Event, all_events, event_to_json
from tulle.privacy.time_zones import UTC_ZONE
from tulle.privacy.units import Adjacency, Unit


class OpenSpend:
    """A spend that is in the ledger while its release is under way.

    Leaving the block marks it released, or failed if an error left it; both
    stay spent. It pays for one release, so it can be entered once.
    """

    def __init__(
        self,
        spend_id: int,
        accounts: tuple[Account, ...],
        finish: Callable[[SpendStatus, str | None], None],
    ) -> None:
        self.id = spend_id
        self._accounts = accounts
        self._finish = finish
        self._is_entered = False

    def states(self) -> tuple[BudgetState, ...]:
        """How every budget and window that was charged stood after this spend."""
        return tuple(account.state() for account in self._accounts)

    def mark_released(self, *, released_as: str) -> None:
        """Marks it as released, for a release that is put in place right after.

        Without a `with` block a spend stays open until then: it counts, nothing of its
        release is out, and `Ledger.reopen` lets a later try have it.

        Args:
          released_as: What is released, e.g. the hash of a file. Not sensitive: it is shown.

        Raises:
          RunStateError: The spend is not open any more.
        """
        self._enter_once()
        self._finish(SpendStatus.RELEASED, released_as)

    def __enter__(self) -> "OpenSpend":
        self._enter_once()
        return self

    def _enter_once(self) -> None:
        if self._is_entered:
            raise RunStateError(
                f"spend {self.id} already paid for a release; call Ledger.spend() for each one."
            )
        self._is_entered = True

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            status = SpendStatus.RELEASED if error_type is None else SpendStatus.FAILED
            self._finish(status, None)
        except RunStateError as problem:
            # Open counts as spent, so privacy holds and the release need not be lost.
            warnings.warn(
                f"spend {self.id} stays open in the ledger: {problem}", RuntimeWarning, stacklevel=2
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ledger:
    """A ledger file. Holds no connection: safe across threads, forks and pickling."""

    path: Path
    busy_timeout_s: float = 60.0
    """How long to wait for other processes that write."""
    is_read_only: bool = False
    """True: nothing is written, neither to the file nor beside it, and nothing can be spent."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", Path(self.path).absolute())
        if not 0 < self.busy_timeout_s < math.inf:
            raise ConfigError(
                f"busy_timeout_s={self.busy_timeout_s} must be > 0 and finite; choose e.g. 60."
            )

    @classmethod
    def create(cls, path: str | Path, *, busy_timeout_s: float = 60.0) -> "Ledger":
        """Makes a new ledger without budgets. Refuses a path that exists."""
        ledger = cls(path=Path(path), busy_timeout_s=busy_timeout_s)
        ledger_file.create_ledger_file(ledger.path)
        return ledger

    @classmethod
    def open(cls, path: str | Path, *, busy_timeout_s: float = 60.0) -> "Ledger":
        """Opens a whole ledger and brings one of an older tulle up to date."""
        ledger = cls(path=Path(path), busy_timeout_s=busy_timeout_s)
        ledger_file.inspect_ledger_file(ledger.path, busy_timeout_s)
        return ledger

    @classmethod
    def open_or_create(cls, path: str | Path, *, busy_timeout_s: float = 60.0) -> "Ledger":
        """Opens the ledger at a path, and makes a new one if nothing is there."""
        make = cls.open if Path(path).exists() else cls.create
        return make(path, busy_timeout_s=busy_timeout_s)

    @classmethod
    def open_to_read(cls, path: str | Path, *, busy_timeout_s: float = 60.0) -> "Ledger":
        """Opens a whole ledger without the right to write it, or without the wish to.

        An older ledger is read as it is and not brought up to date.
        """
        ledger = cls(path=Path(path), busy_timeout_s=busy_timeout_s, is_read_only=True)
        ledger.budgets()
        return ledger

    def create_budget(self, budget: Budget) -> None:
        """Adds a budget. It can never be changed, and must come before what it counts."""
        with self._writing() as connection:
            for other in ledger_rows.read_budgets(connection):
                if other.name == budget.name:
                    raise ConfigError(
                        f"budget name={budget.name!r} exists with epsilon={other.epsilon:g}, "
                        f"delta={other.delta:g} and cannot be changed: raising it would weaken "
                        "what was promised. Choose another name, or start a new ledger."
                    )
            # A budget that begins late would promise a total that was exceeded before it existed.
            if ledger_rows.read_spends(connection, budget, None):
                raise ConfigError(
                    f"budget name={budget.name!r} comes after spends that it would count; "
                    "create budgets before spending, or start a new ledger."
                )
            ledger_rows.insert_budget(connection, budget)

    def budgets(self) -> tuple[Budget, ...]:
        """All budgets in the order of their creation."""
        with self._reading() as connection:
            return ledger_rows.read_budgets(connection)

    def budget(self, name: str) -> Budget:
        """The budget of that name."""
        return _named(self.budgets(), name)

    def spends(self, budget: str, window: int | None = None) -> tuple[Spend, ...]:
        """The spends that count against a budget, in one window or in all, oldest first."""
        with self._reading() as connection:
            named = _named(ledger_rows.read_budgets(connection), budget)
            return ledger_rows.read_spends(connection, named, window)

    def state(self, budget: str, at: Moment | None = None) -> BudgetState:
        """What is spent and left of a budget, in the window of `at` (by default: now)."""
        moment = datetime.now(UTC) if at is None else at
        with self._reading() as connection:
            named = _named(ledger_rows.read_budgets(connection), budget)
            zone = zone_of_days([named.unit], None, at=moment, until=None)
            # The window in which a day begins, as a day may have several.
            first = moment if isinstance(moment, datetime) else span_of(moment, None, zone=zone)[0]
            windows = named.windows(Span.of(first, None))
            (account,) = ledger_rows.read_accounts(connection, named, windows)
        return account.state()

    def states(self, at: Moment | None = None) -> tuple[BudgetState, ...]:
        """What is spent and left of every budget, in the window of `at` (by default: now)."""
        return tuple(self.state(budget.name, at) for budget in self.budgets())

    def charged_states(self, budget: str, most: int = 12) -> tuple[BudgetState, ...]:
        """What is spent in the windows that spends were charged to, the latest first.

        Args:
          budget: Name of the budget.
          most: Most windows to look at. None are named for a budget that never renews.
        """
        with self._reading() as connection:
            named = _named(ledger_rows.read_budgets(connection), budget)
            accounts = ledger_rows.read_charged_accounts(connection, named, most)
        return tuple(account.state() for account in accounts)

    def time_zone(
        self, purpose: str, unit: Unit | str | None, *, at: Moment | None, until: Moment | None
    ) -> str:
        """The time zone whose days `at` and `until` mean in spends of a purpose.

        Args:
          purpose: The purpose of the spend.
          unit: Its unit, which decides where no budget of the purpose renews.
          at: When the data are from.
          until: Last moment or day of the data.

        Raises:
          ConfigError: Budgets of the purpose have days of several zones, and a day is given.
        """
        if says_zone(at) and says_zone(until):
            return UTC_ZONE
        counted = [budget.unit for budget in self.budgets() if budget.counts(purpose)]
        return zone_of_days(counted, _unit(unit), at=at, until=until)

    def check(
        self,
        event: Event,
        *,
        purpose: str,
        unit: Unit | str | None = None,
        at: Moment | None = None,
        until: Moment | None = None,
    ) -> tuple[BudgetState, ...]:
        """How every budget and window would stand after a spend. Writes nothing.

        Args:
          event, purpose, unit, at, until: As for `spend`.

        Raises:
          SpendRefusedError: It would not fit.
        """
        zone = self.time_zone(purpose, unit, at=at, until=until)
        request = SpendRequest(
            event=event, purpose=purpose, unit=_unit(unit), span=Span.of(at, until, zone=zone)
        )
        with self._reading() as connection:
            accounts = _accounts(connection, request)
        if (refusing := _refusing(accounts, event)) is not None:
            raise SpendRefusedError(explain_refusal(event, _distinct(accounts), refusing))
        return tuple(account.after(event).state() for account in accounts)

    def spend(
        self,
        event: Event,
        *,
        purpose: str,
        note: str = "",
        unit: Unit | str | None = None,
        at: Moment | None = None,
        until: Moment | None = None,
    ) -> OpenSpend:
        """Takes the cost of one release from every budget that counts it, or refuses.

        The spend is on disk when this returns, also without a `with` block.

        Args:
          event: What the release costs.
          purpose: Why, in the words of the budgets; matched exactly.
          note: Free text for readers of the ledger. Not sensitive: it is shown.
          unit: The unit whose largest contribution the event speaks of, also as text.
            It must cover that of every budget charged. None: it is the same as theirs,
            which then must not differ, but for windows that hold all the data.
          at: When the data are from (not when they are released): a time with a time
            zone, or a day of the zone of the budgets. Needed where a charged budget renews.
          until: Last moment or day the data are from, included. Every window from `at`
            to `until` is charged.

        Raises:
          SpendRefusedError: It does not fit. Nothing was written.
        """
        zone = self.time_zone(purpose, unit, at=at, until=until)
        span = Span.of(at, until, zone=zone)
        request = SpendRequest(event=event, purpose=purpose, note=note, unit=_unit(unit), span=span)
        event_to_json(event)  # refused before the ledger is locked
        with self._writing() as connection:
            # Weighed and written under one lock: between the two nobody else can take what is left.
            accounts = _accounts(connection, request)
            refusing = _refusing(accounts, event)
            if refusing is None:
                spend_id = ledger_rows.insert_spend(connection, request)
        # Outside of the lock, as the least noise that would fit takes long to find.
        if refusing is not None:
            raise SpendRefusedError(explain_refusal(event, _distinct(accounts), refusing))
        charged = tuple(account.after(event) for account in accounts)
        return OpenSpend(spend_id, charged, functools.partial(self._finish, spend_id))

    def reopen(self, spend_id: int, *, note: str) -> OpenSpend:
        """Takes up an open spend whose release never got out, in place of paying again.

        Whoever calls it must know that no other process is at work on that release, and that
        the first try marked nothing released and put nothing in place.

        Args:
          spend_id: Number of the spend.
          note: What its note says. Another spend is not taken up by mistake.

        Raises:
          RunStateError: The spend is not open, or is another one.
        """
        with self._reading() as connection:
            is_right = ledger_rows.is_open(connection, spend_id, note)
        if not is_right:
            raise RunStateError(
                f"spend {spend_id} is not open, so its release may be out; call Ledger.spend()."
            )
        return OpenSpend(spend_id, (), functools.partial(self._finish, spend_id))

    def _reading(self) -> AbstractContextManager[sqlite3.Connection]:
        read = ledger_file.reading_a_copy if self.is_read_only else ledger_file.reading
        return read(self.path, self.busy_timeout_s)

    def _writing(self) -> AbstractContextManager[sqlite3.Connection]:
        if self.is_read_only:
            raise ConfigError(
                f"is_read_only=True: {self.path.name} was opened to be read; to spend, open it "
                "with Ledger.open()."
            )
        return ledger_file.writing(self.path, self.busy_timeout_s)

    def _finish(self, spend_id: int, status: SpendStatus, released_as: str | None) -> None:
        with self._writing() as connection:
            ledger_rows.finish_spend(connection, spend_id, status, released_as)


def _accounts(connection: sqlite3.Connection, request: SpendRequest) -> tuple[Account, ...]:
    budgets = ledger_rows.read_budgets(connection)
    charged = [budget for budget in budgets if budget.counts(request.purpose)]
    if not charged:
        known = ", ".join(sorted({repr(b.purpose) for b in budgets})) or "none: there is no budget"
        raise ConfigError(
            f"purpose={request.purpose!r} is counted by no budget (purposes: {known}); nothing "
            "may be released uncharged. Use one of them, or create a budget for it."
        )
    _check_speaks_to_all(request, charged)
    for budget in charged:
        if request.unit is not None and not request.unit.covers(budget.unit):
            raise ConfigError(
                f"unit='{request.unit}' does not cover unit '{budget.unit}' of budget "
                f"{budget.name!r}; bound what each '{budget.unit}' contributes instead."
                f"{_advice_on_windows(request.unit, budget.unit)}"
            )
        _check_smaller_unit(request, budget)
    return tuple(
        account
        for budget in charged
        for account in ledger_rows.read_accounts(connection, budget, budget.windows(request.span))
    )


def _advice_on_windows(unit: Unit, budget_unit: Unit) -> str:
    if unit.windows is None or not Unit(unit.owner).covers(Unit(budget_unit.owner)):
        return ""
    return (
        f" Windows that begin at other moments cut these in two; name the same windows in both, or "
        f"release with unit '{unit.owner.value}' and at..until in one window of the budget."
    )


def _check_smaller_unit(request: SpendRequest, budget: Budget) -> None:
    """Refuses to charge a part of a unit what the whole costs where rows come and go.

    Taking one impression from a user who has others does not remove the user: it replaces
    what the user contributes, which costs up to twice as much. Replacing rows of a part is
    replacing rows of the whole, so under replace nothing changes.
    """
    unit = request.unit
    is_same = unit is not None and unit.covers(budget.unit) and budget.unit.covers(unit)
    if unit is None or is_same or budget.adjacency is Adjacency.REPLACE:
        return
    # In data of one window the owner in it and the owner in all are the same.
    is_same_there = unit.owner is budget.unit.owner and len(budget.windows(request.span)) == 1
    if not is_same_there:
        raise ConfigError(
            f"unit='{unit}' is larger than unit '{budget.unit}' of budget {budget.name!r}, which "
            f"counts under {budget.adjacency.value}: rows of a part that come or go replace what "
            "the whole contributes, and cost more. Charge a budget of the same unit, or one with "
            "adjacency replace."
        )


def _check_speaks_to_all(request: SpendRequest, charged: list[Budget]) -> None:
    """Refuses an event that can be true of some of the charged budgets only."""
    units = sorted({str(budget.unit) for budget in charged})
    # Data of one window are bounded alike for an owner in it and for the owner in all.
    is_one_window = all(len(budget.windows(request.span)) == 1 for budget in charged)
    has_one_owner = len({budget.unit.owner for budget in charged}) == 1
    if request.unit is None and len(units) > 1 and not (has_one_owner and is_one_window):
        raise ConfigError(
            f"unit=None is unclear: the budgets of purpose={request.purpose!r} have the units "
            f"{', '.join(map(repr, units))}; say with unit=… whose contribution the event bounds."
        )
    adjacencies = sorted({budget.adjacency.value for budget in charged})
    if len(adjacencies) > 1 and _states_an_epsilon(request.event):
        raise ConfigError(
            "EpsilonDelta holds under one adjacency, but the budgets of "
            f"purpose={request.purpose!r} count under {', '.join(adjacencies)}; spend the event "
            "of the mechanism itself, e.g. Laplace."
        )


def _states_an_epsilon(event: Event) -> bool:
    # With epsilon=0 it is the probability of a leak, which mechanisms give for every adjacency.
    return any(isinstance(part, EpsilonDelta) and part.epsilon > 0 for part in all_events(event))


def _refusing(accounts: Iterable[Account], event: Event) -> Account | None:
    return next((account for account in _distinct(accounts) if not account.fits(event)), None)


def _distinct(accounts: Iterable[Account]) -> tuple[Account, ...]:
    """Windows with equal spends are weighed once."""
    return tuple({(account.budget, account.spent): account for account in accounts}.values())


def _unit(unit: Unit | str | None) -> Unit | None:
    return Unit.parse(unit) if isinstance(unit, str) else unit


def _named(budgets: Iterable[Budget], name: str) -> Budget:
    by_name = {budget.name: budget for budget in budgets}
    if name not in by_name:
        known = ", ".join(map(repr, by_name)) or "none"
        raise ConfigError(f"budget name={name!r} does not exist; existing: {known}.")
    return by_name[name]
