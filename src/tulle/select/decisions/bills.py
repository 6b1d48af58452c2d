"""The bill of a file of choices, from the public columns of its auctions alone."""

import csv
import dataclasses
import decimal
import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tulle.errors import ConfigError, DataError
from tulle.select.auctions import Auctions, IntArray
from tulle.select.billing.bill import (
    Bill,
    bill_clicks,
    bill_counts,
    bill_impressions,
    merge_bills,
)
from tulle.select.billing.prices import (
    AdPrices,
    PostedPrices,
    post_prices,
    price_candidates,
)
from tulle.select.decision_accounting import AuctionCells, finalist_cells
from tulle.select.decisions.chosen_ads import ChosenAds, FoundChoices, check_drawn_by, ids_like
from tulle.select.decisions.requests import (
    AuctionBlock,
    read_blocks,
    read_whole_batch,
)
from tulle.select.files.auction_files import AuctionColumns
from tulle.select.files.choice_files import read_cell_counts
from tulle.select.mechanisms.shortlists import FinalistAuctions
from tulle.select.selection_config import SelectionConfig

if TYPE_CHECKING:
    import polars as pl


@dataclasses.dataclass(frozen=True, kw_only=True)
class FileBill:
    """A bill with the names of ads as the files have them."""

    bill: Bill
    """Exact counts and amounts, by number of the ad."""
    ads: tuple[Any, ...]
    """One for each line of the bill."""
    num_without_choice: int
    """Auctions with an eligible ad and no choice: nobody pays for them."""

    def to_dict(self) -> dict[str, Any]:
        """Plain data with one line an ad."""
        return {
            "paid_event": self.bill.paid_event.value,
            "impressions": self.bill.num_impressions,
            "auctions_without_choice": self.num_without_choice,
            "total": self.bill.total,
            "lines": [
                {
                    "ad": ad,
                    "impressions": line.impressions,
                    "clicks": line.clicks,
                    "amount": line.amount,
                }
                for ad, line in zip(self.ads, self.bill.lines, strict=True)
            ],
        }

    def to_polars(self) -> "pl.DataFrame":
        """One row an ad: impressions, clicks where they were counted, and the exact amount."""
        import polars as pl

        lines = self.bill.lines
        return pl.DataFrame(
            {
                "ad": list(self.ads),
                "impressions": [line.impressions for line in lines],
                "clicks": pl.Series([line.clicks for line in lines], dtype=pl.Int64),
                "amount": pl.Series(
                    [decimal.Decimal(line.amount) for line in lines], dtype=pl.Decimal(38, 6)
                ),
            }
        )

    def to_pandas(self) -> Any:
        """The same as a pandas frame."""
        import pandas as pd  # type: ignore[import-untyped]

        return pd.DataFrame({column.name: column.to_list() for column in self.to_polars()})

    def to_csv(self) -> str:
        """A table as text, with one line an ad."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(["ad", "impressions", "clicks", "amount"])
        for ad, line in zip(self.ads, self.bill.lines, strict=True):
            clicks = "" if line.clicks is None else line.clicks
            writer.writerow([ad, line.impressions, clicks, line.amount])
        return text.getvalue()


def bill_file(
    config: SelectionConfig,
    auctions: Path,
    choices: Path,
    *,
    columns: AuctionColumns,
    clicks: Path | None = None,
) -> FileBill:
    """What advertisers owe for a file of choices, exactly.

    Args:
      config: The selection that the choices were drawn by.
      auctions: Their auctions. Predictions of devices are not read.
      choices: Choices as `decide` wrote them; behind a shuffler, counts of cells.
      columns: Names of the columns of the auctions.
      clicks: Clicks, for prices of clicks alone. Type II data.

    Privacy:
      Post-processing of released choices with public prices: no event. Clicks are not
      protected: their exact counts are in the bill.

    Raises:
      DataError: A choice is no eligible candidate of its auction, or there twice.
    """
    if config.pricing.is_paid_by_click and clicks is None:
        raise ConfigError(
            f"pricing {config.pricing.name!r} charges for clicks; give the file of clicks "
            "(--clicks)."
        )
    if clicks is not None and not config.pricing.is_paid_by_click:
        raise ConfigError(
            f"pricing {config.pricing.name!r} charges for impressions; leave out clicks, which "
            "nothing protects."
        )
    # Prices of another selection would look right and charge for ads that could not be chosen.
    check_drawn_by(config, choices)
    reserve = config.pricing.reserve
    blocks = read_blocks(auctions, columns, reserve=reserve, with_device=False)
    if config.pricing.is_posted:
        # A posted price is a mean over the batch: it is known when all of it is read.
        batch = read_whole_batch(auctions, columns, reserve=reserve, with_device=False)
        blocks = iter([batch])
    if config.privacy.shuffle is not None:
        return _bill_counts(config, next(blocks), choices)
    chosen: ChosenAds | None = None
    bills: list[Bill] = []
    names: dict[int, Any] = {}
    num_auctions = 0
    for block in blocks:
        num_auctions += len(block.auctions)
        chosen = chosen or ChosenAds.read(choices, clicks, like=block)
        prices = candidate_prices(config, block)
        for found in chosen.of_block(block):
            bills.append(_bill_of(block.auctions, prices, found))
            names |= _names(block, found.choices.ads)
    if chosen is None:
        raise DataError(f"{auctions.name} has no auctions; there is nothing to bill.")
    chosen.check_all_found(choices)
    bill = merge_bills(bills)
    return FileBill(
        bill=bill,
        ads=tuple(names[line.ad] for line in bill.lines),
        num_without_choice=num_auctions - chosen.num_auctions,
    )


def candidate_prices(config: SelectionConfig, block: AuctionBlock) -> AdPrices:
    """What each candidate pays if it is chosen.

    Args:
      config: The selection.
      block: Auctions of the file; all of them, if prices are posted.
    """
    if config.pricing.is_posted:
        return _posted(config, block)[2]
    return price_candidates(
        block.auctions, config.pricing.price_rule, reserve=config.pricing.reserve
    )


def _posted(
    config: SelectionConfig, block: AuctionBlock
) -> tuple[AuctionCells, PostedPrices, AdPrices]:
    """Cells of equal finalists, their price list, and the prices of all candidates by it."""
    auctions = block.auctions
    prices = price_candidates(auctions, config.pricing.price_rule, reserve=config.pricing.reserve)
    finalists = FinalistAuctions.of_shortlist(auctions, config.mechanism.shortlist)
    cells = finalist_cells(auctions, finalists.auctions.sizes, ad_names=block.ad_names)
    listed = AdPrices(amounts=prices.amounts[finalists.places], paid_event=prices.paid_event)
    price_list = post_prices(finalists.auctions, listed, cells.numbers)
    # Others can not be chosen: what they would pay does not matter.
    amounts = np.zeros(auctions.num_candidates)
    posted = price_list.prices(finalists.auctions, cells.numbers)
    amounts[finalists.places] = posted.amounts
    return cells, price_list, AdPrices(amounts=amounts, paid_event=prices.paid_event)


def _bill_of(auctions: Auctions, prices: AdPrices, found: FoundChoices) -> Bill:
    if found.raw_is_clicked is None:
        return bill_impressions(auctions, prices, found.choices)
    return bill_clicks(auctions, prices, found.choices, raw_is_clicked=found.raw_is_clicked)


def _names(block: AuctionBlock, ads: IntArray) -> dict[int, Any]:
    distinct = np.unique(ads)
    return dict(zip(distinct.tolist(), block.rows.original_ads(distinct).tolist(), strict=True))


def _bill_counts(config: SelectionConfig, block: AuctionBlock, path: Path) -> FileBill:
    """Counts of cells times posted prices."""
    counts = read_cell_counts(path)
    cells, price_list, _ = _posted(config, block)
    names = _names(block, block.auctions.ads)
    codes = {name: code for code, name in names.items()}
    numbers = {key: number for number, key in enumerate(cells.keys.tolist())}
    ads = ids_like(counts["ad"].to_numpy(), block.rows.original_ads(block.rows.ads[:1]), path)
    pairs = list(zip(counts["cell"].to_list(), ads.tolist(), strict=True))
    impressions = counts["impressions"].to_numpy()
    if any(cell not in numbers or ad not in codes for cell, ad in pairs):
        raise DataError(
            f"{path.name} has a cell or an ad that the auctions have not; bill counts with the "
            "auctions and settings that they were made by."
        )
    if int(impressions.sum()) != len(block.auctions):
        raise DataError(
            f"{path.name} has not one impression for each auction; bill counts with the auctions "
            "that they were made of."
        )
    bill = bill_counts(
        price_list,
        cells=np.array([numbers[cell] for cell, _ in pairs], np.int64),
        ads=np.array([codes[ad] for _, ad in pairs], np.int64),
        impressions=impressions,
    )
    return FileBill(
        bill=bill, ads=tuple(names[line.ad] for line in bill.lines), num_without_choice=0
    )
