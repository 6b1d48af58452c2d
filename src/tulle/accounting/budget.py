"""A limit on what may be released about one unit, and how much of it is gone.

A budget renews with the time window of its unit, and only with it: a budget
for "user per week" limits each week of a user's data on its own, and one for
"user" never renews, because renewing it would weaken what was promised.
"""

import dataclasses
import math
from datetime import datetime
from fractions import Fraction

from tulle.accounting.spans import Span, datetime_of
from tulle.errors import ConfigError
from tulle.privacy.codec import plain_data
from tulle.privacy.events import Composed, Event
from tulle.privacy.fields import check_choice, check_delta, check_epsilon, text_if_infinite
from tulle.privacy.units import Adjacency, Unit

_TOLERANCE = 1e-12
"""Relative excess over a budget that is rounding. Totals are summed anew from all events, so it
cannot pile up."""
_MAX_WINDOW_SECONDS = 100 * 366 * 86_400
"""A longer window than a century is meant as none."""
_MAX_WINDOWS_PER_SPEND = 4096
"""Each window is weighed on its own, so that a spend of more would take minutes."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Budget:
    """The most that the spends of a purpose may cost one unit."""

    name: str
    unit: Unit
    adjacency: Adjacency
    epsilon: float
    delta: float
    purpose: str | None = None
    """The purpose whose spends count; None counts the spends of every purpose."""

    def __post_init__(self) -> None:
        # "user per 7 days" and "replace" are as good as the objects that they name.
        if isinstance(self.unit, str):
            object.__setattr__(self, "unit", Unit.parse(self.unit))
        adjacency = check_choice("adjacency", self.adjacency, Adjacency)
        object.__setattr__(self, "adjacency", adjacency)
        check_name("name", self.name)
        if self.purpose is not None:
            check_name("purpose", self.purpose)
        check_epsilon(self.epsilon)
        check_delta(self.delta)
        windows = self.unit.windows
        if windows is not None and (windows.seconds or 0) > _MAX_WINDOW_SECONDS:
            raise ConfigError(
                f"unit='{self.unit}' has a window of over a century; use '{self.unit.owner.value}'."
            )

    def to_dict(self) -> dict[str, object]:
        """Plain data."""
        return plain_data(self, every_field=True)

    @property
    def renews(self) -> bool:
        """True if every window of the unit has a budget of its own."""
        return self.unit.windows is not None

    def counts(self, purpose: str) -> bool:
        """True if spends of this purpose count against the budget."""
        return self.purpose is None or self.purpose == purpose

    def windows(self, span: "Span | None") -> range:
        """The numbers of all windows that the span touches; only 0 if it never renews."""
        cut = self.unit.windows
        if cut is None:
            return range(1)
        if span is None:
            raise ConfigError(
                f"budget {self.name!r} renews for each {self.unit}, and nothing says which of its "
                "windows to charge; say with at=… (and until=…) which time the data are from."
            )
        windows = range(cut.number(span.first_micros), cut.number(span.last_micros) + 1)
        if len(windows) > _MAX_WINDOWS_PER_SPEND:
            raise ConfigError(
                f"at..until touches {len(windows)} windows of budget {self.name!r}, at most "
                f"{_MAX_WINDOWS_PER_SPEND} are allowed; release shorter spans one by one."
            )
        return windows

    def window_bounds(self, window: int) -> tuple[datetime, datetime] | None:
        """Start (included) and end (excluded) of a window, UTC; None if it never renews."""
        cut = self.unit.windows
        if cut is None:
            return None
        return datetime_of(cut.begin(window)), datetime_of(cut.begin(window + 1))

    def covers_cost(self, event: Event) -> bool:
        """True if the event, on its own, costs no more than this budget."""
        # Exact sums first: ten spends of a tenth fill a budget, which a sum of floats may exceed.
        pure = _pure_epsilon(event, self.adjacency)
        if pure is not None and pure <= Fraction(self.epsilon) * (1 + Fraction(_TOLERANCE)):
            return True
        return self.cost(event) <= self.epsilon * (1 + _TOLERANCE)

    def cost(self, event: Event) -> float:
        """The epsilon of the event at the delta of this budget; math.inf if there is none."""
        from tulle.accounting.event_rules import as_float

        pure = _pure_epsilon(event, self.adjacency)
        if pure is not None and (self.delta == 0 or pure == 0):
            return as_float(pure)
        curve_epsilon = _curve_epsilon(event, self.adjacency, self.delta)
        return curve_epsilon if pure is None else min(as_float(pure), curve_epsilon)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Account:
    """One budget in one window, with all that was spent there."""

    budget: Budget
    window: int
    spent: Composed
    num_spends: int
    num_open: int

    def after(self, event: Event) -> "Account":
        """The account as it would be with one more spend."""
        return dataclasses.replace(
            self, spent=Composed((*self.spent.events, event)), num_spends=self.num_spends + 1
        )

    def fits(self, event: Event) -> bool:
        """True if one more spend keeps the total within the budget."""
        # The total is composed anew: what is left is no number that a spend could be held against.
        return self.budget.covers_cost(self.after(event).spent)

    def state(self) -> "BudgetState":
        """What is spent and left, in numbers."""
        return BudgetState(
            budget=self.budget,
            window_bounds=self.budget.window_bounds(self.window),
            spent_epsilon=self.budget.cost(self.spent),
            num_spends=self.num_spends,
            num_open=self.num_open,
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class BudgetState:
    """How much of a budget is gone in one window."""

    budget: Budget
    window_bounds: tuple[datetime, datetime] | None
    """Start (included) and end (excluded) in UTC; None for a budget that never renews."""
    spent_epsilon: float
    """Epsilon of all spends together, at the delta of the budget."""
    num_spends: int
    num_open: int
    """Spends not marked released or failed: running, or left by a crash. They count."""

    @property
    def left_epsilon(self) -> float:
        """A spend with delta=0 of at most this epsilon always fits.

        Others may fit although they cost more alone, because noise composes well.
        """
        left = self.budget.epsilon - self.spent_epsilon
        # What rounding leaves of a budget that is used up is nothing to spend.
        return left if left > self.budget.epsilon * _TOLERANCE else 0.0

    def to_dict(self) -> dict[str, object]:
        """Plain data; a spent epsilon without limit is the text "Infinity"."""
        start, end = self.window_bounds or (None, None)
        return self.budget.to_dict() | {
            "window_start": None if start is None else start.isoformat(),
            "window_end": None if end is None else end.isoformat(),
            "spent_epsilon": text_if_infinite(self.spent_epsilon),
            "left_epsilon": self.left_epsilon,
            "num_spends": self.num_spends,
            "num_open": self.num_open,
        }


def check_name(name: str, value: object) -> None:
    """Refuses a name or purpose that is empty, padded or not printable."""
    if not isinstance(value, str) or not value.isprintable() or value.strip() != value or not value:
        raise ConfigError(
            f"{name}={value!r} must be printable text without spaces around it, e.g. 'measurement'."
        )


def _pure_epsilon(event: Event, adjacency: Adjacency) -> Fraction | None:
    # The accountant loads scipy, and a ledger that is opened or shown to be empty needs none.
    from tulle.accounting.event_rules import pure_epsilon

    return pure_epsilon(event, adjacency)


def _curve_epsilon(event: Event, adjacency: Adjacency, delta: float) -> float:
    from tulle.accounting.accountant import privacy_curve

    curve = privacy_curve(event, adjacency)
    try:
        return curve.epsilon(delta)
    except ConfigError:
        if delta > 0:
            raise
        return math.inf  # a composition that has no epsilon without a delta
