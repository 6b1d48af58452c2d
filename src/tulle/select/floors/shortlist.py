"""Which candidates a device may choose from: the first few by server score.

Public data alone decide, so a shortlist costs no budget. Its last ads have little to win and
take chance from the others: the shorter the list, the more often the device's favourite wins.
"""

import dataclasses
from typing import Protocol

import numpy as np

from tulle.errors import ConfigError
from tulle.privacy.fields import check_count
from tulle.select.auctions import Auctions, IntArray


class Shortlist(Protocol):
    """A public rule for how many candidates are finalists."""

    @property
    def name(self) -> str:
        """In a few words with its settings; empty for all candidates."""

    def sizes(self, auctions: Auctions) -> IntArray:
        """[auctions], how many of the best by server score are finalists; at least 1."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class AllCandidates:
    """Every candidate is a finalist."""

    name = ""

    def sizes(self, auctions: Auctions) -> IntArray:
        """[auctions], all candidates of each."""
        return auctions.sizes


@dataclasses.dataclass(frozen=True, kw_only=True)
class TopCandidates:
    """The best few by server score."""

    num_finalists: int

    def __post_init__(self) -> None:
        check_count("num_finalists", self.num_finalists)

    @property
    def name(self) -> str:
        """With its size."""
        return f"top {self.num_finalists}"

    def sizes(self, auctions: Auctions) -> IntArray:
        """[auctions], the same for all that have enough candidates."""
        return np.minimum(auctions.sizes, self.num_finalists)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cutoff:
    """Candidates with a server score of at least (1 - gamma) times the best.

    With gamma = 0 the server's winner alone, also among equals.
    """

    gamma: float
    """From 0, nothing is personalised, to 1, every candidate is a finalist."""

    def __post_init__(self) -> None:
        if not 0 <= self.gamma <= 1:
            raise ConfigError(f"gamma={self.gamma} must be in [0, 1], e.g. 0.8.")

    @property
    def name(self) -> str:
        """With its gamma."""
        return f"cutoff {self.gamma:g}"

    def sizes(self, auctions: Auctions) -> IntArray:
        """[auctions], how many reach the cutoff."""
        if self.gamma == 0:
            return np.ones(len(auctions), np.int64)
        scores = auctions.server_scores
        best = np.maximum.reduceat(scores, auctions.offsets[:-1])
        is_finalist = scores >= np.repeat((1 - self.gamma) * best, auctions.sizes)
        return np.add.reduceat(is_finalist.astype(np.int64), auctions.offsets[:-1])
