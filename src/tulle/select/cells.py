"""Cells: auctions that have the same ads to choose from, in whatever order.

A shuffled report "this ad was chosen" hides only among decisions that could have had the same
result. So what amplifies the privacy of a decision is the size of its cell, not the number of
impressions: rare sets of ads get none. Cells follow from public data (which requests came, and
with which candidates), never from what was chosen.
"""

import dataclasses
import hashlib
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from tulle.errors import ConfigError, DataError
from tulle.privacy.fields import check_count
from tulle.select.auctions import Auctions, BoolArray, IntArray
from tulle.select.server_ranks import server_ranks

AdNames = Callable[[IntArray], Iterable[Any]]

_KEY_BYTES = 16


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Cells:
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


def finalist_cells(
    auctions: Auctions, sizes: IntArray, *, ad_names: AdNames | None = None
) -> Cells:
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
        ads = np.sort(finalists[starts[rows, np.newaxis] + np.arange(size)], axis=1)
        sets, inverse = np.unique(ads.view(f"V{8 * size}")[:, 0], return_inverse=True)
        numbers[rows] = len(keys) + inverse
        keys += [_key(ads_of_cell.tobytes(), ad_names) for ads_of_cell in sets]
        num_finalists += [size] * len(sets)
    return Cells(
        numbers=numbers,
        num_finalists=np.array(num_finalists, np.int64),
        keys=np.array(keys, dtype=f"U{2 * _KEY_BYTES}"),
    )


def personalised(cells: Cells, min_cell_size: int, *, counts_as_report: BoolArray) -> BoolArray:
    """[auctions], which decisions may use private data: those that count, in large cells.

    Args:
      cells: Of all auctions that one shuffle mixes; reports of two do not hide one another.
      min_cell_size: Reports that a cell needs. Fewer: the server's winner is shown.
      counts_as_report: [auctions], False for what is decided without private data anyway.
        Must follow from public data: see `first_in_cell` and `first_decisions`.
    """
    check_count("min_cell_size", min_cell_size)
    _check_rows(cells.numbers, counts_as_report=counts_as_report)
    num_reports = np.bincount(cells.numbers[counts_as_report], minlength=len(cells.keys))
    is_large = (num_reports >= min_cell_size) & (cells.num_finalists > 1)
    return counts_as_report & is_large[cells.numbers]


def first_in_cell(cells: Cells, users: IntArray, *, among: BoolArray) -> BoolArray:
    """[auctions], which of `among` are a user's first in their cell.

    With these alone, a user has one report in each shuffle, and other people's reports hide it.
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
    """[auctions], which of `among` are among the first `max_decisions` of their user."""
    check_count("max_decisions", max_decisions)
    _check_rows(users, among=among)
    rows = np.flatnonzero(among)
    order = rows[np.argsort(users[rows], kind="stable")]
    _, first_positions, counts = np.unique(users[order], return_index=True, return_counts=True)
    earlier = np.arange(len(order)) - np.repeat(first_positions, counts)
    is_early = np.zeros(len(users), np.bool_)
    is_early[order[earlier < max_decisions]] = True
    return is_early


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
