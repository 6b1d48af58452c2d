"""Blocks of a file as auctions, after what public data drop: ads below the reserve."""

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

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
from tulle.select.files.auction_files import AuctionColumns, AuctionRows, read_auctions
from tulle.select.files.whole_auctions import IdArray

_OF_AUCTIONS = ("auction_ids", "users", "consents")
_OF_CANDIDATES = ("ads", "bids", "server_click_probs", "device_click_probs")


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
    return _block(_joined(parts), reserve)


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
    rows = _first_rows(_joined(parts), num_auctions)
    return _block(rows, reserve, agreed=rows.consents if with_device else None)


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


def _joined(parts: list[AuctionRows]) -> AuctionRows:
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
