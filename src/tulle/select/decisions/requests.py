"""Which decisions are personalised. Public data alone say so: who asked, and for which ads.

A decision is personalised if its user agreed, has not had too many, has enough finalists to
choose from and, behind a shuffler, shares them with enough other decisions. All others get the
server's winner, and their private scores are not used.
"""

import dataclasses
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tulle.errors import DataError
from tulle.select.auctions import Auctions, BoolArray, IntArray
from tulle.select.decision_accounting import AuctionCells, finalist_cells
from tulle.select.files.auction_blocks import AuctionBlock, read_blocks
from tulle.select.files.auction_files import AuctionColumns
from tulle.select.mechanisms.shortlists import finalist_sizes
from tulle.select.selection_config import Consent, DecidingMechanism, SelectionConfig


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Requests:
    """All auctions of a file that have an eligible ad, in its order. Public."""

    is_personalised: BoolArray
    """[auctions], which decisions use private scores."""
    users: IntArray | None
    """[auctions], a number for each user; None if decisions are protected one by one."""
    cells: AuctionCells | None
    """Cells of equal finalists; None without a shuffler."""
    num_without_ad: int
    """Auctions of the file in which no ad reaches the reserve."""


def read_requests(path: Path, columns: AuctionColumns, config: SelectionConfig) -> Requests:
    """Looks at the public columns of all auctions.

    Args:
      path: The file of auctions.
      columns: Names of its columns.
      config: The selection.

    Raises:
      DataError: The file has no column that the selection needs, or cannot be read.
    """
    reserve = config.pricing.reserve
    return personalised_requests(
        config, read_blocks(path, columns, reserve=reserve, with_device=False)
    )


def personalised_requests(config: SelectionConfig, blocks: Iterable[AuctionBlock]) -> Requests:
    """Which decisions of all blocks are personalised."""
    is_by_user = config.privacy.is_by_user
    sizes, users, consents = _Parts(), _Users(), _Parts()
    cells = None if config.privacy.shuffle is None else _CellNumbers()
    num_without_ad = 0
    for block in blocks:
        num_without_ad += len(block.rows) - len(block.auctions)
        found = shortlist_sizes(config.mechanism, block.auctions)
        sizes.add(found)
        consents.add(_consents(block, config))
        if is_by_user:
            users.add(_users(block))
        if cells is not None:
            cells.add(finalist_cells(block.auctions, found, ad_names=block.ad_names))
    all_cells = None if cells is None else cells.joined()
    all_users = users.joined() if is_by_user else None
    is_personalised = config.accounting.personalised(
        sizes.joined(np.int64), users=all_users, cells=all_cells, among=consents.joined(np.bool_)
    )
    return Requests(
        is_personalised=is_personalised,
        users=all_users,
        cells=all_cells,
        num_without_ad=num_without_ad,
    )


def shortlist_sizes(mechanism: DecidingMechanism, auctions: Auctions) -> IntArray:
    """[auctions], how many of the best by server score a mechanism chooses from."""
    return finalist_sizes(auctions, mechanism.shortlist)


def _consents(block: AuctionBlock, config: SelectionConfig) -> BoolArray:
    if config.privacy.consent is Consent.EVERYONE:
        if block.rows.consents is not None and not block.rows.consents.all():
            raise DataError(
                '[privacy] consent = "everyone", but the auctions have a column of consent that '
                'says otherwise for some; set consent = "column", which shows them the server\'s '
                "winner."
            )
        return np.ones(len(block.kept), np.bool_)
    if block.rows.consents is None:
        raise DataError(
            "the auctions have no column 'consent', which says who agreed to personalised ads; "
            'name it with --consent-column; or, if all did, set [privacy] consent = "everyone", '
            "for a plan --consent everyone."
        )
    return block.rows.consents[block.kept]


def _users(block: AuctionBlock) -> npt.NDArray[Any]:
    if block.rows.users is None:
        raise DataError(
            "the auctions have no column 'user_id', which [privacy] unit = \"user\" needs; name it "
            'with --user-column, or protect each decision with unit = "impression".'
        )
    return block.rows.users[block.kept]


class _Parts:
    """Arrays of blocks, put together in the end."""

    def __init__(self) -> None:
        self._parts: list[npt.NDArray[Any]] = []

    def add(self, part: npt.NDArray[Any]) -> None:
        self._parts.append(part)

    def joined(self, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        return np.concatenate([np.empty(0, dtype), *self._parts]).astype(dtype, copy=False)


class _Users:
    """A number for each user, whatever ids are."""

    def __init__(self) -> None:
        self._numbers: dict[Any, int] = {}
        self._parts = _Parts()

    def add(self, users: npt.NDArray[Any]) -> None:
        names, inverse = np.unique(users, return_inverse=True)
        codes = [self._numbers.setdefault(name, len(self._numbers)) for name in names.tolist()]
        self._parts.add(np.array(codes, np.int64)[inverse])

    def joined(self) -> IntArray:
        return self._parts.joined(np.int64)


class _CellNumbers:
    """Cells of all blocks under one numbering."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._num_finalists: list[int] = []
        self._parts = _Parts()

    def add(self, cells: AuctionCells) -> None:
        codes = []
        for key, num in zip(cells.keys.tolist(), cells.num_finalists.tolist(), strict=True):
            if key not in self._numbers:
                self._numbers[key] = len(self._numbers)
                self._num_finalists.append(num)
            codes.append(self._numbers[key])
        self._parts.add(np.array(codes, np.int64)[cells.numbers])

    def joined(self) -> AuctionCells:
        return AuctionCells(
            numbers=self._parts.joined(np.int64),
            num_finalists=np.array(self._num_finalists, np.int64),
            keys=np.array(list(self._numbers), dtype="U32"),
        )
