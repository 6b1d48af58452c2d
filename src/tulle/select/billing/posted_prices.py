"""One price for each ad and cell, posted before anybody chooses.

Where a shuffler hides who chose what, a price that differs from auction to auction undoes it:
few sets of auctions add up to an exact total of spend, and with prices to the micro usually one
alone. The totals then name the winner of every auction. A price that is the same in all auctions
of a cell leaves nothing in a total but the number of impressions.

A cell is a set of auctions with the same candidates. Prices are posted from public data of a
batch: the mean of what the ad would pay in the auctions of the cell.
"""

import dataclasses

import numpy as np

from tulle.errors import ConfigError, DataError
from tulle.select.ad_prices import AdPrices, PaidEvent
from tulle.select.auctions import Auctions, IntArray
from tulle.select.billing.money import from_micros, sum_by_group, to_micros


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class CellCounts:
    """How often each ad was chosen in each cell."""

    cells: IntArray
    ads: IntArray
    impressions: IntArray
    """[rows], >= 0."""

    def __post_init__(self) -> None:
        if not self.cells.shape == self.ads.shape == self.impressions.shape:
            raise DataError("counts need one cell, one ad and one number of impressions each.")
        if np.any(self.impressions < 0):
            raise DataError("impressions must be >= 0.")


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class PostedPrices:
    """A price list. Public."""

    paid_event: PaidEvent
    cells: IntArray
    """[rows], rising."""
    ads: IntArray
    """[rows], rising within a cell, none twice."""
    micros: IntArray
    """[rows], the price of the ad in the cell."""

    def __post_init__(self) -> None:
        if not self.cells.shape == self.ads.shape == self.micros.shape:
            raise DataError("a price list needs one cell, one ad and one price each.")
        is_same_cell = np.diff(self.cells) == 0
        if np.any(np.diff(self.cells) < 0) or np.any(np.diff(self.ads)[is_same_cell] <= 0):
            raise DataError("a price list must be sorted by cell and ad, without a pair twice.")
        if np.any(self.micros < 0):
            raise DataError("posted prices must be >= 0.")

    def micros_of(self, cells: IntArray, ads: IntArray) -> IntArray:
        """[rows], the price of each ad in its cell."""
        listed, groups = _numbered_pairs(
            np.concatenate([self.cells, cells]), np.concatenate([self.ads, ads])
        )
        if len(listed) > len(self.cells):
            raise DataError(
                "an ad has no posted price in its cell; post prices from the same batch."
            )
        # The list has every pair once and in the order of the numbers.
        return self.micros[groups[len(self.cells) :]]

    def prices(self, auctions: Auctions, cells: IntArray) -> AdPrices:
        """The posted price of every candidate.

        Args:
          auctions: The public side.
          cells: [auctions], the cell of each.
        """
        micros = self.micros_of(_cell_of_candidates(auctions, cells), auctions.ads)
        return AdPrices(amounts=from_micros(micros), paid_event=self.paid_event)


def post_prices(auctions: Auctions, prices: AdPrices, cells: IntArray) -> PostedPrices:
    """The mean price of each ad over the auctions of a cell, rounded down to a micro.

    A mean may be above the ad's server score in a single auction, but not above its mean score.

    Args:
      auctions: What devices choose from, so after the shortlist.
      prices: Of those candidates, computed before it.
      cells: [auctions], the cell of each. Auctions of one cell must have the same ads.
    """
    if prices.amounts.shape != auctions.ads.shape:
        raise ConfigError("prices must be those of the same candidates.")
    candidate_cells = _cell_of_candidates(auctions, cells)
    pairs, groups = _numbered_pairs(candidate_cells, auctions.ads)
    num_auctions = np.bincount(groups, minlength=len(pairs))
    _check_same_ads(pairs[:, 0], num_auctions, cells)
    sums = sum_by_group(to_micros(prices.amounts), groups, len(pairs))
    means = [total // num for total, num in zip(sums, num_auctions.tolist(), strict=True)]
    return PostedPrices(
        paid_event=prices.paid_event,
        cells=pairs[:, 0],
        ads=pairs[:, 1],
        micros=np.array(means, np.int64),
    )


def _cell_of_candidates(auctions: Auctions, cells: IntArray) -> IntArray:
    if cells.shape != (len(auctions),):
        raise ConfigError("cells must have one entry for each of the auctions.")
    return np.repeat(cells, auctions.sizes)


def _numbered_pairs(cells: IntArray, ads: IntArray) -> tuple[IntArray, IntArray]:
    """All (cell, ad) in their order, and the number of the one in each row."""
    pairs = np.stack([cells, ads], axis=1)
    order = np.lexsort((ads, cells))
    is_new = np.ones(len(pairs), np.bool_)
    is_new[1:] = np.any(np.diff(pairs[order], axis=0) != 0, axis=1)
    groups = np.empty(len(pairs), np.int64)
    groups[order] = np.cumsum(is_new) - 1
    return pairs[order[is_new]], groups


def _check_same_ads(pair_cells: IntArray, num_auctions: IntArray, cells: IntArray) -> None:
    names, sizes = np.unique(cells, return_counts=True)
    # Ads are distinct within an auction: in every one of the cell is in as many as it has.
    if np.any(num_auctions != sizes[np.searchsorted(names, pair_cells)]):
        raise DataError(
            "auctions of one cell have different candidates; a report hides only among auctions "
            "that could have given it. Make one cell for each set of candidates."
        )
