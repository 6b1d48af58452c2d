"""Which ad was chosen in which auction: what a server observes and bills."""

import dataclasses

import numpy as np

from tulle.errors import DataError
from tulle.select.auctions import Auctions, IntArray


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Choices:
    """One chosen ad for each of some auctions. Released by a mechanism of selection."""

    auctions: IntArray
    """[choices], the number of each auction; none twice."""
    ads: IntArray
    """[choices], the ad that was chosen."""

    def __post_init__(self) -> None:
        if self.auctions.ndim != 1 or self.auctions.shape != self.ads.shape:
            raise DataError("choices need one auction and one ad each.")
        if len(np.unique(self.auctions)) < len(self.auctions):
            raise DataError(
                "an auction is there twice; it can be billed once. Keep one choice of each."
            )

    def __len__(self) -> int:
        return len(self.auctions)

    def places(self, auctions: Auctions) -> IntArray:
        """[choices], where each chosen ad is in the arrays of all candidates."""
        if np.any((self.auctions < 0) | (self.auctions >= len(auctions))):
            raise DataError(
                f"a choice is of an auction that is not there; they are 0 to {len(auctions) - 1}. "
                "Bill a choice with the batch it was made in."
            )
        places, offsets = auctions.places_of(self.auctions)
        sizes = np.diff(offsets)
        is_chosen = auctions.ads[places] == np.repeat(self.ads, sizes)
        choice_of_place = np.repeat(np.arange(len(self)), sizes)
        if np.any(np.bincount(choice_of_place[is_chosen], minlength=len(self)) != 1):
            raise DataError(
                "a choice is no candidate of its auction, or one twice; "
                "nothing is billed before every choice is one of the ads that were offered."
            )
        chosen_places: IntArray = places[is_chosen]
        return chosen_places
