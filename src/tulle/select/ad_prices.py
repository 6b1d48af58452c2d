"""What an advertiser pays, before it is known who is chosen.

Prices follow from public data alone. They are the same whatever a device prefers, so the amount
of a bill says no more than the choice does.
"""

import dataclasses
import enum

import numpy as np

from tulle.errors import DataError
from tulle.select.auctions import FloatArray


class PaidEvent(enum.Enum):
    """What an advertiser pays for."""

    IMPRESSION = "impression"
    CLICK = "click"
    """Type II data: the selection mechanism does not protect them."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class AdPrices:
    """One price for each candidate of some auctions. Public."""

    amounts: FloatArray
    """[candidates], >= 0, in the currency of the bids."""
    paid_event: PaidEvent

    def __post_init__(self) -> None:
        if not np.all(np.isfinite(self.amounts)) or np.any(self.amounts < 0):
            raise DataError("prices must be finite and >= 0.")
