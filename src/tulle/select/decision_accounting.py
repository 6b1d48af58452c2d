"""What decisions cost, one and all that one user's device makes, and which may use private data.

Each decision is a local report. The server sees it as it is, or behind a shuffler that mixes it
with the reports of its cell. Decisions that would cost more than stated are made without private
data, by rules that follow from public data alone: a cost of 0.

A cell is a set of auctions that have the same ads to choose from, in whatever order. A shuffled
report "this ad was chosen" hides only among decisions that could have had the same result. So what
amplifies the privacy of a decision is the size of its cell, not the number of impressions: rare
sets of ads get none. Cells follow from public data (which requests came, and with which
candidates), never from what was chosen.
"""

import dataclasses
import enum
import hashlib
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from tulle.accounting.accountant import guarantee
from tulle.errors import ConfigError, DataError
from tulle.privacy import events
from tulle.privacy.fields import check_count
from tulle.privacy.guarantee import Guarantee
from tulle.privacy.units import Adjacency, Scope, Unit
from tulle.select.auctions import Auctions, BoolArray, IntArray, server_ranks
from tulle.select.mechanisms.floors import FloorMechanism
from tulle.select.mechanisms.mechanism import SelectionMechanism
from tulle.select.mechanisms.slots import SlotMechanism

AdNames = Callable[[IntArray], Iterable[Any]]
_KEY_BYTES = 16
"""Bytes of a cell's name: 128 bits, so that two sets of ads never share one by accident."""


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
    """How many personalised reports of one user a shuffle may hold."""

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


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class AuctionCells:
    """The cell of each auction. Public."""

    numbers: IntArray
    """[auctions], the number of each auction's cell, from 0."""
    num_finalists: IntArray
    """[cells], how many ads an auction of the cell has to choose from."""
    keys: npt.NDArray[np.str_]
    """[cells], a name that is the same for the same ads everywhere: 128 bits in hex."""

    @property
    def counts(self) -> IntArray:
        """[cells], auctions of each: only some of them may count as reports."""
        return np.bincount(self.numbers, minlength=len(self.keys))


@dataclasses.dataclass(frozen=True, kw_only=True)
class DecisionAccounting:
    """The cost of decisions under replace: private data change, requests stay.

    Every field is public.
    """

    mechanism: SelectionMechanism | SlotMechanism
    least_finalists: int
    """Fewest ads that a personalised decision chooses from: with fewer, a choice tells more."""
    max_decisions_per_user: int
    """Most personalised decisions of a user. All later ones show the server's winner."""
    shuffle: Shuffle | None = None
    """None: the server sees every choice with its sender."""

    def __post_init__(self) -> None:
        check_count("least_finalists", self.least_finalists, least=2)
        check_count("max_decisions_per_user", self.max_decisions_per_user)
        if self.shuffle is not None and not isinstance(self.shuffle, Shuffle):
            raise ConfigError(f"shuffle={self.shuffle!r} must be a Shuffle with a cell size.")
        if self.shuffle is not None:
            _check_shuffled(self.mechanism)

    def decision_event(self) -> events.Event:
        """What one personalised decision costs at most.

        More finalists and more reports cost less. For a report alone: the truth has a smaller
        probability. For the blanket: the derivative of its bound by the number of finalists is a
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
            # Several reports in one shuffle are no independent runs of it, so they do not compose.
            return events.Grouped(event=decision, group_size=count)
        return events.Repeated(event=decision, count=count)

    def decision_guarantee(self, delta: float) -> Guarantee:
        """Guarantee for what a device knew at one decision."""
        return _guarantee(self.decision_event(), delta, Unit.impression())

    def user_guarantee(self, delta: float) -> Guarantee:
        """Guarantee for all that a device knew at any decision of its user."""
        return _guarantee(self.user_event(), delta, Unit.user())

    def personalised(
        self,
        sizes: IntArray,
        *,
        users: IntArray | None,
        cells: AuctionCells | None = None,
        among: BoolArray | None = None,
    ) -> BoolArray:
        """[auctions], which decisions may use private data; all others show the server's winner.

        The costs above hold if this is obeyed. Call it for all decisions of a period at once: a
        further call costs the same again.

        Args:
          sizes: [auctions], how many of the best by server score are finalists, in the order of
            the requests.
          users: [auctions], who asked; None: each decision is somebody's only one.
          cells: Cells of equal finalists, for a shuffle; each batch has its own.
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
        # After the cells: a repeat that is not personalised must not use up a user's decisions.
        chosen = first_decisions(asking, self.max_decisions_per_user, among=chosen)
        # Counted last: what is not personalised is no report and hides nobody.
        return personalised(cells, self.shuffle.min_cell_size, counts_as_report=chosen)


def finalist_cells(
    auctions: Auctions, sizes: IntArray, *, ad_names: AdNames | None = None
) -> AuctionCells:
    """Puts auctions with equal sets of finalists together.

    Args:
      auctions: The public side.
      sizes: [auctions], how many of the best by server score are finalists.
      ad_names: What ads are called in every batch, where `ads` are numbers of this one; None:
        they are called by their numbers.
    """
    _check_sizes(auctions, sizes)
    is_finalist = server_ranks(auctions) < np.repeat(sizes, auctions.sizes)
    finalists = auctions.ads[is_finalist].astype("<i8")
    starts = np.cumsum(sizes) - sizes
    numbers = np.empty(len(auctions), np.int64)
    num_finalists: list[int] = []
    keys: list[str] = []
    for size in np.unique(sizes).tolist():
        rows = np.flatnonzero(sizes == size)
        # As sets: reports hide among all that had the same choice, in whatever order it was ranked.
        ads = np.sort(finalists[starts[rows, np.newaxis] + np.arange(size)], axis=1)
        sets, inverse = np.unique(ads.view(f"V{8 * size}")[:, 0], return_inverse=True)
        numbers[rows] = len(keys) + inverse
        keys += [_key(ads_of_cell.tobytes(), ad_names) for ads_of_cell in sets]
        num_finalists += [size] * len(sets)
    return AuctionCells(
        numbers=numbers,
        num_finalists=np.array(num_finalists, np.int64),
        keys=np.array(keys, dtype=f"U{2 * _KEY_BYTES}"),
    )


def personalised(
    cells: AuctionCells, min_cell_size: int, *, counts_as_report: BoolArray
) -> BoolArray:
    """[auctions], which decisions may use private data: those that count, in large cells.

    Args:
      cells: Cells of all auctions that one shuffle mixes; reports of two shuffles do not hide one
        another.
      min_cell_size: Reports that a cell needs. Fewer: the server's winner is shown.
      counts_as_report: [auctions], False for what is decided without private data anyway.
        Must follow from public data: see `first_in_cell` and `first_decisions`.
    """
    check_count("min_cell_size", min_cell_size)
    _check_rows(cells.numbers, counts_as_report=counts_as_report)
    num_reports = np.bincount(cells.numbers[counts_as_report], minlength=len(cells.keys))
    is_large = (num_reports >= min_cell_size) & (cells.num_finalists > 1)
    return counts_as_report & is_large[cells.numbers]


def first_in_cell(cells: AuctionCells, users: IntArray, *, among: BoolArray) -> BoolArray:
    """[auctions], which of `among` are a user's first in their cell.

    With these alone, a user has one report in each shuffle, and other people's reports hide it.

    Args:
      cells: Cells of all auctions.
      users: [auctions], who asked.
      among: [auctions], which may be chosen. Public.
    """
    _check_rows(cells.numbers, users=users, among=among)
    rows = np.flatnonzero(among)
    _, user_numbers = np.unique(users[rows], return_inverse=True)
    pairs = user_numbers.astype(np.int64) * len(cells.keys) + cells.numbers[rows]
    _, firsts = np.unique(pairs, return_index=True)
    is_first = np.zeros(len(users), np.bool_)
    is_first[rows[firsts]] = True
    return is_first


def first_decisions(users: IntArray, max_decisions: int, *, among: BoolArray) -> BoolArray:
    """[auctions], which of `among` are among the first `max_decisions` of their user.

    Args:
      users: [auctions], who asked, in the order of the requests.
      max_decisions: Most decisions of a user.
      among: [auctions], which may be chosen. Public.
    """
    check_count("max_decisions", max_decisions)
    _check_rows(users, among=among)
    rows = np.flatnonzero(among)
    order = rows[np.argsort(users[rows], kind="stable")]
    _, first_positions, counts = np.unique(users[order], return_index=True, return_counts=True)
    earlier = np.arange(len(order)) - np.repeat(first_positions, counts)
    is_early = np.zeros(len(users), np.bool_)
    is_early[order[earlier < max_decisions]] = True
    return is_early


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


def _key(ads: bytes, ad_names: AdNames | None) -> str:
    if ad_names is not None:
        # Lengths keep names apart that run into one another.
        names = sorted(str(name).encode() for name in ad_names(np.frombuffer(ads, "<i8")))
        ads = b"".join(len(name).to_bytes(8, "little") + name for name in names)
    return hashlib.blake2b(ads, digest_size=_KEY_BYTES).hexdigest()


def _check_sizes(auctions: Auctions, sizes: IntArray) -> None:
    if sizes.shape != (len(auctions),):
        raise ConfigError(f"sizes has shape {sizes.shape}, but needs one entry for each auction.")
    if np.any(sizes < 1) or np.any(sizes > auctions.sizes):
        raise DataError("sizes must be from 1 to the number of candidates of the auction.")


def _check_rows(like: IntArray, **columns: npt.NDArray[np.generic]) -> None:
    for name, column in columns.items():
        if column.shape != like.shape:
            raise ConfigError(f"{name} needs one entry for each of the {len(like)} auctions.")
