"""Auctions of a file that ask for a decision, and which of them are personalised.

Public data alone say so: who asked, and for which ads. Ads below the reserve do not take part.
A decision is personalised if its user agreed, has not had too many, has enough finalists to
choose from and, behind a shuffler, shares them with enough other decisions. All others get the
server's winner, and their private scores are not used.
"""

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tulle.errors import DataError
from tulle.select.auctions import (
    Auctions,
    BoolArray,
    DeviceClicks,
    Eligible,
    FloatArray,
    IntArray,
    above_reserve,
    keep_candidates,
)
from tulle.select.decision_accounting import AuctionCells, finalist_cells
from tulle.select.files.auction_files import AuctionColumns, AuctionRows, read_auctions
from tulle.select.files.whole_auctions import IdArray
from tulle.select.mechanisms.shortlists import finalist_sizes
from tulle.select.selection_config import Consent, DecidingMechanism, SelectionConfig

_OF_AUCTIONS = ("auction_ids", "users", "consents")
_OF_CANDIDATES = ("ads", "bids", "server_click_probs", "device_click_probs")
"""Fields of rows by what they have one entry for."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class AuctionBlock:
    """Some auctions of a file, and which of their ads take part."""

    rows: AuctionRows
    eligible: Eligible

    @property
    def auctions(self) -> Auctions:
        """Auctions that have an eligible ad."""
        return self.eligible.auctions

    @property
    def kept(self) -> IntArray:
        """[auctions], the place of each in the arrays of `rows` about auctions."""
        return self.eligible.kept_auctions

    @property
    def ad_names(self) -> Callable[[IntArray], IdArray] | None:
        """What ads are called in every file, if `auctions` has numbers of this one."""
        return None if self.rows.ad_codes is None else self.rows.original_ads

    def raw_scores(self) -> FloatArray:
        """[candidates], what each is worth by private data. Sensitive."""
        return self.device_clicks().scores(self.auctions)

    def device_clicks(self) -> DeviceClicks:
        """What devices predict for the candidates. Sensitive."""
        probs = self.rows.device_click_probs
        if probs is None:
            raise DataError("the auctions were read without predictions of devices.")
        return DeviceClicks(click_probs=probs[self.eligible.kept_candidates])


def read_blocks(
    path: Path, columns: AuctionColumns, *, reserve: float, with_device: bool
) -> Iterator[AuctionBlock]:
    """Streams a file.

    Args:
      path: The file of auctions.
      columns: Names of its columns.
      reserve: Ads with a lower server score do not take part.
      with_device: Whether predictions of devices are read at all.
    """
    for rows in read_auctions(path, columns, with_device=with_device):
        yield _block(rows, reserve)


def read_whole_batch(
    path: Path, columns: AuctionColumns, *, reserve: float, with_device: bool
) -> AuctionBlock:
    """All auctions of a file as one block, in memory.

    Args:
      path: The file of auctions.
      columns: Names of its columns.
      reserve: Ads with a lower server score do not take part.
      with_device: Whether predictions of devices are read at all.
    """
    parts = list(read_auctions(path, columns, with_device=with_device))
    return _block(_joined_rows(parts), reserve)


def first_auctions(
    path: Path,
    columns: AuctionColumns,
    *,
    num_auctions: int,
    reserve: float,
    with_device: bool,
) -> AuctionBlock:
    """The first auctions of a file in memory; no more of it is read than they need.

    With predictions of devices only of people who agreed, where a column says who did.

    Args:
      path: The file of auctions.
      columns: Names of its columns.
      num_auctions: Most auctions that are read.
      reserve: Ads with a lower server score do not take part.
      with_device: Whether predictions of devices are read at all.
    """
    parts: list[AuctionRows] = []
    num_found = 0
    for rows in read_auctions(path, columns, with_device=with_device):
        parts.append(rows)
        num_found += len(rows)
        if num_found >= num_auctions:
            break
    rows = _first_rows(_joined_rows(parts), num_auctions)
    return _block(rows, reserve, agreed=rows.consents if with_device else None)


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
    has_cells = config.privacy.shuffle is not None
    sizes: list[IntArray] = []
    consents: list[BoolArray] = []
    users: list[IntArray] = []
    cells: list[IntArray] = []
    user_numbers: dict[Any, int] = {}
    cell_numbers: dict[Any, int] = {}
    cell_sizes: list[int] = []
    num_without_ad = 0
    for block in blocks:
        num_without_ad += len(block.rows) - len(block.auctions)
        sizes.append(shortlist_sizes(config.mechanism, block.auctions))
        consents.append(_consents(block, config))
        if is_by_user:
            names, inverse = np.unique(_users(block), return_inverse=True)
            users.append(_numbered(names, user_numbers)[inverse])
        if has_cells:
            found = finalist_cells(block.auctions, sizes[-1], ad_names=block.ad_names)
            codes = _numbered(found.keys, cell_numbers)
            cell_sizes += found.num_finalists[codes >= len(cell_sizes)].tolist()
            cells.append(codes[found.numbers])
    all_cells = None
    if has_cells:
        all_cells = AuctionCells(
            numbers=_joined(cells, np.int64),
            num_finalists=np.array(cell_sizes, np.int64),
            keys=np.array(list(cell_numbers), dtype="U32"),
        )
    all_users = _joined(users, np.int64) if is_by_user else None
    is_personalised = config.accounting.personalised(
        _joined(sizes, np.int64),
        users=all_users,
        cells=all_cells,
        among=_joined(consents, np.bool_),
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


def _block(rows: AuctionRows, reserve: float, *, agreed: BoolArray | None = None) -> AuctionBlock:
    auctions = Auctions(
        offsets=rows.offsets,
        ads=rows.ads,
        bids=rows.bids,
        server_click_probs=rows.server_click_probs,
    )
    if agreed is None:
        return AuctionBlock(rows=rows, eligible=above_reserve(auctions, reserve))
    is_kept = (auctions.server_scores >= reserve) & np.repeat(agreed, auctions.sizes)
    return AuctionBlock(rows=rows, eligible=keep_candidates(auctions, is_kept))


def _joined_rows(parts: list[AuctionRows]) -> AuctionRows:
    joined: dict[str, Any] = {
        name: np.concatenate([getattr(part, name) for part in parts])
        for name in (*_OF_AUCTIONS, *_OF_CANDIDATES)
        if getattr(parts[0], name) is not None
    }
    sizes = np.concatenate([np.diff(part.offsets) for part in parts])
    return dataclasses.replace(parts[0], offsets=np.append(0, np.cumsum(sizes)), **joined)


def _first_rows(rows: AuctionRows, num_auctions: int) -> AuctionRows:
    num_kept = min(num_auctions, len(rows))
    num_candidates = int(rows.offsets[num_kept])
    kept: dict[str, Any] = {"offsets": rows.offsets[: num_kept + 1]}
    for names, num in ((_OF_AUCTIONS, num_kept), (_OF_CANDIDATES, num_candidates)):
        for name in names:
            if getattr(rows, name) is not None:
                kept[name] = getattr(rows, name)[:num]
    return dataclasses.replace(rows, **kept)


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


def _numbered(names: npt.NDArray[Any], numbers: dict[Any, int]) -> IntArray:
    """The number of each name; new ones get the next numbers."""
    codes = [numbers.setdefault(name, len(numbers)) for name in names.tolist()]
    return np.array(codes, np.int64)


def _joined(parts: Iterable[npt.NDArray[Any]], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    return np.concatenate([np.empty(0, dtype), *parts]).astype(dtype, copy=False)
