"""Choices that were drawn: the record beside their file, and their auctions found again.

`choices.parquet` comes with `choices.release.json`: the plan, the settings in plain data, counts
of decisions that public data gave, and a hash of the file. Everything in it is public.
"""

import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import polars as pl

from tulle.data.source_files import has_sha256
from tulle.errors import ConfigError, DataError
from tulle.runs.record import TableRecord
from tulle.runs.release_files import read_record, record_path
from tulle.select.auctions import BoolArray, IntArray
from tulle.select.billing.bill import Choices
from tulle.select.decisions.requests import AuctionBlock
from tulle.select.files.choice_files import read_choices, read_clicks
from tulle.select.selection_config import SelectionConfig
from tulle.select.settings import parse_settings

IdArray = npt.NDArray[Any]
_FIRST_FORMAT, _WITH_TYPES = "tulle selection 1", "tulle selection 2"


@dataclasses.dataclass(frozen=True, kw_only=True)
class SelectionRecord(TableRecord):
    """A release of choices. Every field is public information."""

    what: ClassVar[str] = "selection record"
    formats: ClassVar[tuple[str, ...]] = (_FIRST_FORMAT, _WITH_TYPES)
    keys: ClassVar[tuple[str, ...]] = (
        *("plan", "settings", "num_requests", "num_without_ad", "num_personalised", "columns"),
        *("types", "table", "table_sha256", "randomness", "is_secure", "format"),
    )

    settings: str
    """The settings file of the selection, as text."""
    num_requests: int
    """Auctions with an eligible ad."""
    num_without_ad: int
    """Auctions in which no ad reaches the reserve."""
    num_personalised: int
    """Number of auctions whose private scores were used."""
    types: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """What each column holds, "integer" or "text": a text file does not say whether 00 is a number.
    Empty in records of version 0.1, whose ids are then read as text."""

    @classmethod
    def read_fields(cls, data: object) -> dict[str, Any]:
        """The values of the fields that a file gives, also one of an earlier version."""
        if isinstance(data, dict) and data.get("format") == _FIRST_FORMAT:
            data = data | {"types": {}}
        return super().read_fields(data)

    def frame(self, path: Path | None, name: str | None = None) -> pl.DataFrame:
        """The released choices or counts, in the types that were written.

        Args:
          path: Where the release was written.
          name: Name of the table; may be left out.
        """
        from tulle.select.files.choice_files import read_released

        if name not in (None, self.table):
            raise ConfigError(f"there is no table {name!r}; there is {self.table!r}.")
        if path is None:
            raise ConfigError("the choices were not written to a file; decide with an output.")
        return read_released(path, {column: self.types.get(column) for column in self.columns})


def check_drawn_by(config: SelectionConfig, choices: Path) -> None:
    """Holds choices against the record beside them; without a record nothing is known.

    Raises:
      DataError: The record is of another file, or names other settings.
    """
    if not record_path(choices).exists():
        return
    record = read_record(choices, SelectionRecord.from_json)
    if not has_sha256(choices, record.table_sha256):
        raise DataError(
            f"{choices.name} is not the file of its record {record_path(choices).name}; keep both "
            "as they were written, or give another file another name."
        )
    drawn = parse_settings(record.settings, name=config.name)
    if dataclasses.replace(drawn, name=config.name) != config:
        raise DataError(
            f"{choices.name} was drawn by other settings than these, as its record says; give the "
            "settings that it was drawn by."
        )


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class FoundChoices:
    """Choices of one slot in the auctions of a block."""

    choices: Choices
    """Choices by number of the auction in the block."""
    raw_is_clicked: BoolArray | None
    """[choices], None if clicks were not given. Type II data."""


class ChosenAds:
    """All choices of a file, by auction. Those of a file are held in memory."""

    def __init__(
        self, auction_ids: IdArray, ads: IdArray, slots: IntArray, raw_is_clicked: BoolArray | None
    ) -> None:
        order = np.argsort(auction_ids, kind="stable")
        self._auction_ids, self._ads = auction_ids[order], ads[order]
        self._slots = slots[order]
        self._raw_is_clicked = None if raw_is_clicked is None else raw_is_clicked[order]
        self._num_found = 0

    @classmethod
    def read(cls, choices: Path, clicks: Path | None, *, like: AuctionBlock) -> "ChosenAds":
        """Reads the files whole.

        Args:
          choices: Choices as `decide` wrote them, or a copy of them in another form.
          clicks: None if they are not needed.
          like: A block of the auctions, which says whether ids are numbers or text.

        Raises:
          DataError: A file cannot be used, or a click is of no choice.
        """
        parts = list(read_choices(choices))
        if not parts:
            raise DataError(f"{choices.name} has no choices.")
        rows = pl.concat(parts)
        auction_ids = ids_like(rows["auction"].to_numpy(), like.rows.auction_ids, choices)
        own_ads = like.rows.original_ads(like.rows.ads[:1])
        ads = ids_like(rows["ad"].to_numpy(), own_ads, choices)
        slots = np.zeros(len(rows), np.int64)
        if "slot" in rows.columns:
            slots = rows["slot"].to_numpy()
        clicked = None
        if clicks is not None:
            found = _clicked_pairs(clicks, auction_ids, ads)
            clicked = _is_clicked(found, clicks, auction_ids, ads)
        return cls(auction_ids, ads, slots, clicked)

    def of_block(self, block: AuctionBlock) -> Iterator[FoundChoices]:
        """The choices in the auctions of a block, slot by slot.

        Raises:
          DataError: One is no candidate of its auction.
        """
        ids = block.rows.auction_ids[block.kept]
        if not len(ids):
            return
        order = np.argsort(ids, kind="stable")
        rows = np.searchsorted(ids[order], self._auction_ids)
        is_inside = rows < len(ids)
        rows = order[np.where(is_inside, rows, 0)]
        found = np.flatnonzero(is_inside & (ids[rows] == self._auction_ids))
        self._num_found += len(found)
        for slot in np.unique(self._slots[found]).tolist():
            part = found[self._slots[found] == slot]
            clicked = None if self._raw_is_clicked is None else self._raw_is_clicked[part]
            ads = _codes(block, rows[part], self._ads[part])
            yield FoundChoices(
                choices=Choices(auctions=rows[part], ads=ads), raw_is_clicked=clicked
            )

    @property
    def num_auctions(self) -> int:
        """Number of auctions that have a choice."""
        return len(np.unique(self._auction_ids))

    def check_all_found(self, path: Path) -> None:
        """Refuses choices of auctions that no block had."""
        if self._num_found != len(self._auction_ids):
            raise DataError(
                f"{path.name} has choices of auctions that are not there or show no ad by the "
                "reserve; bill choices with the auctions and settings they were made by."
            )


def ids_like(ids: IdArray, others: IdArray, path: Path) -> IdArray:
    """Ids as whole numbers or text, as those they are compared with: text files have text alone.

    An id that only looks like another stays another: 7 is no 007, and is not found.

    Args:
      ids: Ids of a file.
      others: Ids of the auctions that they are compared with.
      path: The file, for messages.
    """
    if (ids.dtype.kind in "iu") == (others.dtype.kind in "iu"):
        return ids
    if others.dtype.kind not in "iu":
        return np.array([str(number) for number in ids.tolist()], dtype=object)
    try:
        return np.array([int(text) for text in ids.tolist()], np.int64)
    except ValueError:
        raise DataError(
            f"{path.name} has other ids than the auctions: whole numbers in one, text in the "
            "other; write them alike."
        ) from None


def _clicked_pairs(path: Path, auction_ids: IdArray, ads: IdArray) -> set[tuple[Any, Any]]:
    """Auction and ad of each click; None for the ad where the file has none."""
    clicked: set[tuple[Any, Any]] = set()
    for part in read_clicks(path):
        auctions = ids_like(part["auction"].to_numpy(), auction_ids, path).tolist()
        names = [None] * len(part)
        if "ad" in part.columns:
            names = ids_like(part["ad"].to_numpy(), ads, path).tolist()
        pairs = zip(auctions, names, part["clicked"].to_list(), strict=True)
        clicked |= {(auction, ad) for auction, ad, is_clicked in pairs if is_clicked}
    return clicked


def _is_clicked(
    clicked: set[tuple[Any, Any]], path: Path, auction_ids: IdArray, ads: IdArray
) -> BoolArray:
    found = [
        (auction, ad) in clicked or (auction, None) in clicked
        for auction, ad in zip(auction_ids.tolist(), ads.tolist(), strict=True)
    ]
    if sum(found) != len(clicked):
        raise DataError(
            f"{path.name} has clicks that are of no choice, or of several; name the ad of a click "
            "where an auction shows several."
        )
    return np.array(found, np.bool_)


def _codes(block: AuctionBlock, rows: IntArray, ads: IdArray) -> IntArray:
    """The ads as the block numbers them."""
    auctions = block.auctions
    places, offsets = auctions.places_of(rows)
    sizes = np.diff(offsets)
    names: IdArray = block.rows.original_ads(auctions.ads[places])
    is_chosen = np.asarray(names == np.repeat(ads, sizes), np.bool_)
    owners = np.repeat(np.arange(len(rows)), sizes)
    if np.any(np.bincount(owners[is_chosen], minlength=len(rows)) != 1):
        raise DataError(
            "a choice is no eligible candidate of its auction; bill choices with the auctions and "
            "settings that they were made by."
        )
    chosen: IntArray = auctions.ads[places[is_chosen]]
    return chosen
