"""Private, personalised selection of ads: planned, decided, billed exactly, and evaluated."""

from typing import TYPE_CHECKING

from tulle.lazy_names import lazy_names

if TYPE_CHECKING:
    from tulle.select.auctions import Auctions, DeviceClicks
    from tulle.select.files.auction_files import AuctionColumns
    from tulle.select.recommending import SelectionPlan, selection_of
    from tulle.select.selection_config import SelectionConfig
    from tulle.select.serving import Devices, Server
    from tulle.select.verbs import (
        EstimateResult,
        auctions_from_log,
        bill,
        decide,
        evaluate,
        plan,
        selection,
    )

__all__ = [
    "AuctionColumns",
    "Auctions",
    "DeviceClicks",
    "Devices",
    "EstimateResult",
    "SelectionConfig",
    "SelectionPlan",
    "Server",
    "auctions_from_log",
    "bill",
    "decide",
    "evaluate",
    "plan",
    "selection",
    "selection_of",
]

__getattr__, __dir__ = lazy_names(__name__, __file__)
