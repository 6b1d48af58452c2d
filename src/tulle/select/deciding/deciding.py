"""Decides the auctions of a file, once for one payment."""

import dataclasses
import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tulle.data.auction_choices import write_choices
from tulle.data.auction_files import AuctionColumns
from tulle.data.row_writer import RowForm
from tulle.data.source_files import SourceFile, content_sha256, inspect_sources
from tulle.errors import ConfigError, DataError
from tulle.mechanisms.entropy import NoiseSource
from tulle.privacy.plan import Plan
from tulle.privacy.units import Adjacency
from tulle.runs.release_books import ReleaseKind
from tulle.runs.release_files import ReleaseFiles
from tulle.runs.release_once import (
    OneRelease,
    Released,
    ReleaseOptions,
    Watch,
    release_once,
)
from tulle.select.deciding.auction_blocks import AuctionBlock, read_blocks
from tulle.select.deciding.cell_counts import CellTally
from tulle.select.deciding.drawing import draw_places, rehearse
from tulle.select.deciding.requests import Requests, read_requests
from tulle.select.deciding.selection_record import SelectionRecord
from tulle.select.selection_config import SelectionConfig
from tulle.select.selection_plan import make_selection_plan
from tulle.select.settings_file import settings_text

SELECTIONS = ReleaseKind(name="selection", key_ending="select-key", adjacency=Adjacency.REPLACE)

_COLUMNS = {
    "auction_id": "The auction, as in the input.",
    "slot": "The place on the page, from 0; public data order the ads of a page.",
    "ad": "The ad that was drawn and is shown.",
    "cell": "The set of ads that could be drawn: the same name for the same ads.",
    "impressions": "How often the ad is shown in auctions of the cell.",
}


def decide(
    config: SelectionConfig,
    auctions: Path,
    out: Path,
    *,
    columns: AuctionColumns,
    rng: NoiseSource,
    options: ReleaseOptions | None = None,
) -> Released[SelectionRecord]:
    """Draws the ads of all auctions and writes choices, or counts of cells behind a shuffler.

    Args:
      config: The selection.
      auctions: The file, read three times: public columns, all columns, all columns to draw.
      out: The new file: Parquet or JSON lines, by its ending.
      columns: Names of the columns of the auctions.
      rng: Source of the draws. Sensitive: never log or save its state.
      options: Ledger and progress.

    Privacy:
      Unit: that of the config, replace, device predictions only. Event: that of the plan,
      charged before the first draw. Relies on: all other columns follow from public data; the
      hidden file is not looked at before it is in place.

    Raises:
      DataError: A score is missing or out of range, or a column is. Nothing was spent.
      SpendRefusedError: A budget does not cover it. Nothing was spent.
      RunStateError: The file exists, or an earlier draw of the same is gone.
    """
    options = options or ReleaseOptions()
    _check_out(out, auctions)
    plan = make_selection_plan(
        config, columns, has_ledger=options.charge is not None, noise_source=rng.description
    )
    sources = inspect_sources([auctions])
    requests = read_requests(auctions, columns, config)
    if not len(requests.is_personalised):
        raise DataError(
            f"no auction of {auctions.name} has an ad with a server score of reserve="
            f"{config.pricing.reserve:g} or more; lower the reserve."
        )
    release = OneRelease(
        plan=plan,
        kind=SELECTIONS,
        out=out,
        parse_record=SelectionRecord.from_json,
        options=options,
    )
    draw = _ChoiceDraw(
        config=config,
        path=auctions,
        columns=columns,
        plan=plan,
        requests=requests,
        sources=sources,
        rng=rng,
        watch=options.watch,
    )
    return release_once(release, draw)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class _ChoiceDraw:
    config: SelectionConfig
    path: Path
    columns: AuctionColumns
    plan: Plan
    requests: Requests
    sources: tuple[SourceFile, ...]
    rng: NoiseSource = dataclasses.field(repr=False)
    watch: Watch | None

    def check(self) -> None:
        """Reads every value once, and finds out whether all auctions can be drawn."""
        first = 0
        for block in self._blocks():
            part = slice(first, first + len(block.auctions))
            rehearse(block, self.config.mechanism, self.requests.is_personalised[part])
            first = part.stop

    def digest(self) -> bytes:
        """Of the file and of the meaning of its columns."""
        text = repr(self.columns) + content_sha256(self.path)
        return hashlib.sha256(text.encode()).digest()

    def write(self, files: ReleaseFiles[SelectionRecord]) -> SelectionRecord:
        """Draws into the hidden file; the record says what it is."""
        form = RowForm.of(files.table)
        if self.requests.cells is None:
            names: tuple[str, ...] = ("auction_id", "ad")
            if self._num_slots > 1:
                names = ("auction_id", "slot", "ad")
            write_choices(files.hidden_table, self._choices(), names, form=form)
        else:
            names = ("cell", "ad", "impressions")
            write_choices(files.hidden_table, [self._counts()], names, form=form)
        if inspect_sources([self.path]) != self.sources:
            raise DataError(f"{self.path.name} changed while it was read; start again.")
        record = SelectionRecord(
            plan=self.plan,
            settings=settings_text(self.config),
            num_requests=len(self.requests.is_personalised),
            num_without_ad=self.requests.num_without_ad,
            num_personalised=int(self.requests.is_personalised.sum()),
            columns={name: _COLUMNS[name] for name in names},
            table=files.table.name,
            table_sha256=content_sha256(files.hidden_table),
            randomness=self.rng.description,
            is_secure=self.rng.is_secure,
        )
        files.hide_record(record)
        return record

    @property
    def _num_slots(self) -> int:
        return getattr(self.config.mechanism, "num_slots", 1)

    def _blocks(self) -> Iterator[AuctionBlock]:
        reserve = self.config.pricing.reserve
        return read_blocks(self.path, self.columns, reserve=reserve, with_device=True)

    def _drawn(self) -> "Iterator[tuple[AuctionBlock, slice, npt.NDArray[np.int64]]]":
        """Each block with its part of all requests and the places that were drawn."""
        first = 0
        for block in self._blocks():
            if not len(block.auctions):
                continue
            part = slice(first, first + len(block.auctions))
            is_personalised = self.requests.is_personalised[part]
            places = draw_places(block, self.config.mechanism, is_personalised, rng=self.rng)
            yield block, part, places
            first = part.stop
            if self.watch is not None:
                self.watch(first)

    def _choices(self) -> Iterator[Mapping[str, npt.NDArray[Any]]]:
        for block, _, places in self._drawn():
            rows, slots = np.nonzero(places >= 0)
            ads = block.auctions.ads[places[rows, slots]]
            yield {
                "auction_id": block.rows.auction_ids[block.kept[rows]],
                "slot": slots.astype(np.int64),
                "ad": block.rows.original_ads(ads),
            }

    def _counts(self) -> Mapping[str, npt.NDArray[Any]]:
        if self.requests.cells is None:
            raise ConfigError("counts of cells need cells.")
        tally = CellTally(self.requests.cells)
        for block, part, places in self._drawn():
            ads = block.auctions.ads[places[:, 0]]
            tally.add(part, block.rows.original_ads(ads))
        return tally.table()


def _check_out(out: Path, auctions: Path) -> None:
    RowForm.of(out)
    if not out.parent.is_dir():
        raise ConfigError(f"out={str(out)!r} is in no folder that exists; make it first.")
    if out.absolute() == auctions.absolute():
        raise ConfigError(f"out={str(out)!r} is the file of auctions itself; name another.")
