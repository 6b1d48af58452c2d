"""Decides the auctions of a file, once for one payment: one draw for each auction.

Behind a shuffler counts of chosen ads by cell leave, and nothing else.
"""

import collections
import dataclasses
import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tulle.data.source_files import SourceFile, content_sha256, inspect_sources
from tulle.errors import DataError
from tulle.mechanisms.entropy import NoiseSource, SeededNoise
from tulle.privacy.plan import Plan
from tulle.privacy.units import Adjacency
from tulle.runs.charging import ReleaseKind, ReleaseTerms
from tulle.runs.record import Result
from tulle.runs.release_files import ReleaseFiles, check_output
from tulle.runs.release_once import (
    OneRelease,
    ReleaseOptions,
    Watch,
    release_once,
)
from tulle.select.auctions import BoolArray, Eligible, IntArray, keep_candidates, server_ranks
from tulle.select.decision_accounting import AuctionCells
from tulle.select.decisions.chosen_ads import SelectionRecord
from tulle.select.decisions.requests import (
    AuctionBlock,
    Requests,
    read_blocks,
    read_requests,
    shortlist_sizes,
)
from tulle.select.files.auction_files import AuctionColumns
from tulle.select.files.choice_files import write_choices
from tulle.select.files.whole_auctions import RowForm
from tulle.select.selection_config import DecidingMechanism, SelectionConfig
from tulle.select.selection_plan import make_selection_plan
from tulle.select.settings import settings_text

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
) -> Result[SelectionRecord, Plan]:
    """Draws the ads of all auctions and writes choices, or counts of cells behind a shuffler.

    Args:
      config: The selection.
      auctions: The file, read three times: public columns, all columns, all columns to draw.
      out: The new file: Parquet, CSV or JSON lines, by its ending.
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
    RowForm.of(out)
    check_output(out, inputs=[auctions])
    plan = make_selection_plan(
        config,
        columns,
        ReleaseTerms(has_ledger=options.charge is not None, noise_source=rng.description),
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
        record_type=SelectionRecord,
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
        """Hash of the file and of the meaning of its columns."""
        text = repr(self.columns) + content_sha256(self.path)
        return hashlib.sha256(text.encode()).digest()

    def write(self, files: ReleaseFiles[SelectionRecord]) -> SelectionRecord:
        """Draws into the hidden file; the record says what it is."""
        form = RowForm.of(files.table)
        if self.requests.cells is None:
            names: tuple[str, ...] = ("auction_id", "ad")
            if self.config.mechanism.num_slots > 1:
                names = ("auction_id", "slot", "ad")
            types = write_choices(files.hidden_table, self._choices(), names, form=form)
        else:
            names = ("cell", "ad", "impressions")
            types = write_choices(
                files.hidden_table, [self._counts(self.requests.cells)], names, form=form
            )
        # Which decisions are personalised was counted on the first state of the file; on another
        # one a user could have more of them than are paid.
        if inspect_sources([self.path]) != self.sources:
            raise DataError(f"{self.path.name} changed while it was read; start again.")
        record = SelectionRecord(
            plan=self.plan,
            settings=settings_text(self.config),
            num_requests=len(self.requests.is_personalised),
            num_without_ad=self.requests.num_without_ad,
            num_personalised=int(self.requests.is_personalised.sum()),
            columns={name: _COLUMNS[name] for name in names},
            types=types,
            table=files.table.name,
            table_sha256=content_sha256(files.hidden_table),
            randomness=self.rng.description,
            is_secure=self.rng.is_secure,
        )
        files.hide_record(record)
        return record

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

    def _counts(self, cells: AuctionCells) -> Mapping[str, npt.NDArray[Any]]:
        """One row for each cell and ad, in the order of their names: not in that of the choices."""
        counts: collections.Counter[tuple[str, Any]] = collections.Counter()
        for block, part, places in self._drawn():
            ads = block.rows.original_ads(block.auctions.ads[places[:, 0]])
            keys = cells.keys[cells.numbers[part]]
            counts.update(zip(keys.tolist(), ads.tolist(), strict=True))
        # Sorted by name: the order of first appearance would tell who came before whom.
        rows = sorted(counts.items())
        return {
            "cell": np.array([cell for (cell, _), _ in rows], dtype=np.str_),
            "ad": np.array([ad for (_, ad), _ in rows]),
            "impressions": np.array([count for _, count in rows], np.int64),
        }


def draw_places(
    block: AuctionBlock,
    mechanism: DecidingMechanism,
    is_personalised: BoolArray,
    *,
    rng: NoiseSource,
) -> IntArray:
    """[auctions, slots], the place of each chosen candidate; -1 where a slot stays empty.

    Args:
      block: Auctions with predictions of devices.
      mechanism: How ads are drawn.
      is_personalised: [auctions]; the others show what the server ranks first.
      rng: Source of the draws. Sensitive: never log or save its state.

    Privacy:
      Unit: one decision, replace. Event: that of the mechanism for each personalised decision.
      Relies on: `is_personalised` follows from public data; one draw a decision.
    """
    num_slots = mechanism.num_slots
    # All others keep the server's winners, so private scores outside of the budget are not read.
    chosen = _server_winners(block, mechanism, num_slots)
    if not is_personalised.any():
        return chosen
    asked = _asked(block, is_personalised)
    raw_scores = block.raw_scores()[asked.kept_candidates]
    places = mechanism.choose(asked.auctions, raw_scores, rng=rng).reshape(-1, num_slots)
    is_shown = places >= 0
    drawn = np.where(is_shown, asked.kept_candidates[np.where(is_shown, places, 0)], -1)
    chosen[asked.kept_auctions] = drawn
    return chosen


def rehearse(block: AuctionBlock, mechanism: DecidingMechanism, is_personalised: BoolArray) -> None:
    """Draws by server scores, and forgets it: what a mechanism refuses shows before it is charged.

    Args:
      block: Auctions to draw.
      mechanism: How ads are drawn.
      is_personalised: [auctions], which decisions use private scores.

    Raises:
      ConfigError: The mechanism can not draw in auctions of this kind.
    """
    if is_personalised.any():
        asked = _asked(block, is_personalised).auctions
        # Public scores, so that a refusal tells nothing; the seed never meets private ones.
        mechanism.choose(asked, asked.server_scores, rng=SeededNoise(0))


def _asked(block: AuctionBlock, is_personalised: BoolArray) -> Eligible:
    return keep_candidates(block.auctions, np.repeat(is_personalised, block.auctions.sizes))


def _server_winners(block: AuctionBlock, mechanism: DecidingMechanism, num_slots: int) -> IntArray:
    """The best finalists by server score: nobody else has a place, nor a posted price."""
    auctions = block.auctions
    chosen = np.full((len(auctions), num_slots), -1, np.int64)
    ranks = server_ranks(auctions)
    num_shown = np.minimum(shortlist_sizes(mechanism, auctions), num_slots)
    places = np.flatnonzero(ranks < np.repeat(num_shown, auctions.sizes))
    owners = np.searchsorted(auctions.offsets, places, side="right") - 1
    chosen[owners, ranks[places]] = places
    return chosen
