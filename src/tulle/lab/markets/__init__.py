"""Simulated markets, on which the experiments and claims of Laro et al. 2024 are tried."""

from typing import TYPE_CHECKING

from tulle.lazy_names import lazy_names

if TYPE_CHECKING:
    from tulle.lab.markets.synthetic_market import (
        DISPLAY,
        REFERENCE_MARKETS,
        SEARCH,
        SMALL_DISPLAY,
        SyntheticMarket,
    )
    from tulle.lab.markets.verbs import Simulation, simulate

__all__ = [
    "DISPLAY",
    "REFERENCE_MARKETS",
    "SEARCH",
    "SMALL_DISPLAY",
    "Simulation",
    "SyntheticMarket",
    "simulate",
]

__getattr__, __dir__ = lazy_names(__name__, __file__)
