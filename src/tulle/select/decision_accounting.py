"""What decisions cost: one, and all that one user's device makes.

Each decision is a local report. The server sees it as it is, or behind a shuffler that mixes it
with the reports of its cell. Decisions that would cost more than stated are made without private
data, by rules that follow from public data alone: a cost of 0.
"""

import dataclasses
import enum

import numpy as np

from tulle.accounting.accountant import guarantee
from tulle.errors import ConfigError
from tulle.privacy import events
from tulle.privacy.fields import check_count
from tulle.privacy.guarantee import Guarantee
from tulle.privacy.units import Adjacency, Scope, TrustModel, Unit
from tulle.select.auctions import BoolArray, IntArray
from tulle.select.cells import (
    Cells,
    first_decisions,
    first_in_cell,
    personalised,
)
from tulle.select.floors.floor_mechanism import FloorMechanism
from tulle.select.mechanism import SelectionMechanism
from tulle.select.slots import SlotMechanism


class UserReports(enum.Enum):
    """How many personalised reports of one user a shuffle may hold."""

    ONE_PER_CELL = "one per cell"
    """Every report of a user is in a shuffle of its own: their costs compose."""
    SEVERAL_PER_CELL = "several per cell"
    """Reports of a user hide one another too: the cost is by group privacy."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Shuffle:
    """A shuffler that is trusted not to link: it mixes the reports of each cell.

    It passes on a cell when `min_cell_size` personalised reports have come, and drops it
    otherwise: a device that stays silent hides nobody.
    """

    min_cell_size: int
    """Reports in the smallest cell of equal finalists. It is not the number of impressions."""
    user_reports: UserReports = UserReports.ONE_PER_CELL

    def __post_init__(self) -> None:
        if self.min_cell_size is None:
            raise ConfigError(
                "min_cell_size=None must be given: a report hides only among decisions with the "
                "same finalists, so the number of impressions says nothing. Count cells with "
                "finalist_cells()."
            )
        check_count("min_cell_size", self.min_cell_size)
        if not isinstance(self.user_reports, UserReports):
            raise ConfigError(f"user_reports={self.user_reports!r} must be UserReports.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class DecisionAccounting:
    """The cost of decisions under replace: private data change, requests stay.

    Every field is public.
    """

    mechanism: SelectionMechanism | SlotMechanism
    least_finalists: int
    """Fewest ads that a personalised decision chooses from: with fewer, a choice tells more."""
    max_decisions_per_user: int
    """Personalised ones. All later ones show the server's winner."""
    shuffle: Shuffle | None = None
    """None: the server sees every choice with its sender."""

    def __post_init__(self) -> None:
        check_count("least_finalists", self.least_finalists, least=2)
        check_count("max_decisions_per_user", self.max_decisions_per_user)
        if self.shuffle is not None and not isinstance(self.shuffle, Shuffle):
            raise ConfigError(f"shuffle={self.shuffle!r} must be a Shuffle with a cell size.")
        if self.shuffle is not None:
            _check_shuffled(self.mechanism)

    @property
    def trust_model(self) -> TrustModel:
        """Whom users must trust."""
        return TrustModel.LOCAL if self.shuffle is None else TrustModel.SHUFFLE

    def decision_event(self) -> events.Event:
        """What one personalised decision costs at most.

        More finalists and more reports cost less. For a report alone: the truth has a smaller
        chance. For the blanket: the derivative of its bound by the number of finalists is a
        negative multiple of E[f(S+a) + f(S+b) + (e^epsilon - 1) f(S) - (e^epsilon + 1) f(S+r)]
        with a + b = (e^epsilon + 1) r (see accounting.shuffle_profile), f convex (Jensen); and
        the positive part of a mean falls with the number of its independent terms.
        """
        local = self.mechanism.event(self.least_finalists)
        if self.shuffle is None:
            return local
        return events.Shuffled(event=local, num_reports=self.shuffle.min_cell_size)

    def user_event(self) -> events.Event:
        """What all decisions of one user cost together."""
        decision, count = self.decision_event(), self.max_decisions_per_user
        if self.shuffle is not None and self.shuffle.user_reports is UserReports.SEVERAL_PER_CELL:
            return events.Grouped(event=decision, group_size=count)
        return events.Repeated(event=decision, count=count)

    def decision_guarantee(self, delta: float) -> Guarantee:
        """For what a device knew at one decision."""
        return _guarantee(self.decision_event(), delta, Unit.impression())

    def user_guarantee(self, delta: float) -> Guarantee:
        """For all that a device knew at any decision of its user."""
        return _guarantee(self.user_event(), delta, Unit.user())

    def personalised(
        self,
        sizes: IntArray,
        *,
        users: IntArray | None,
        cells: Cells | None = None,
        among: BoolArray | None = None,
    ) -> BoolArray:
        """[auctions], which decisions may use private data; all others show the server's winner.

        The costs above hold if this is obeyed. Call it for all decisions of a period at once: a
        further call costs the same again.

        Args:
          sizes: [auctions], how many of the best by server score are finalists, in the order of
            the requests.
          users: [auctions], who asked; None: each decision is somebody's only one.
          cells: Of equal finalists, for a shuffle; of each batch on its own if there are several.
          among: [auctions], False where users did not agree; None: all did. Public.

        Privacy:
          Follows from public data: who asked, with which candidates. Nothing is released.
        """
        chosen = enough_finalists(sizes, self.least_finalists)
        if among is not None:
            chosen &= among
        asking = np.arange(len(sizes)) if users is None else users
        if self.shuffle is None:
            return first_decisions(asking, self.max_decisions_per_user, among=chosen)
        if cells is None:
            raise ConfigError("cells=None with a shuffle: count them with finalist_cells().")
        if self.shuffle.user_reports is UserReports.ONE_PER_CELL:
            chosen = first_in_cell(cells, asking, among=chosen)
        chosen = first_decisions(asking, self.max_decisions_per_user, among=chosen)
        # Counted last: what is not personalised is no report and hides nobody.
        return personalised(cells, self.shuffle.min_cell_size, counts_as_report=chosen)


def enough_finalists(sizes: IntArray, least_finalists: int) -> BoolArray:
    """[auctions], whether a choice among so many costs no more than among `least_finalists`.

    An auction with a single finalist costs nothing: it is never personalised.
    """
    check_count("least_finalists", least_finalists, least=2)
    return np.asarray(sizes >= least_finalists)


def _check_shuffled(mechanism: SelectionMechanism | SlotMechanism) -> None:
    # Another mechanism may have the event of a randomized response that is worse on its own.
    # That it is worse in a shuffle too is not proven: there the others' reports change as well.
    if not isinstance(mechanism, FloorMechanism) or mechanism.num_boosted != 1:
        raise ConfigError(
            f"mechanism={mechanism.name!r} can't be shuffled here: the blanket bound is proven for "
            "randomized response, FloorMechanism with num_boosted=1. Use that, or shuffle=None."
        )


def _guarantee(event: events.Event, delta: float, unit: Unit) -> Guarantee:
    return guarantee(
        event,
        delta=delta,
        unit=unit,
        adjacency=Adjacency.REPLACE,
        scope=Scope.SENSITIVE_COLUMNS,
    )
