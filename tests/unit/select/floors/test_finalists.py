"""Finalists are the best by server score, each auction once, in server order."""

import dataclasses

import numpy as np
import pytest

from tulle.errors import ConfigError
from tulle.select.auctions import Auctions, IntArray
from tulle.select.floors.finalists import finalist_groups, finalist_sizes
from unit.select.floors.tiny_auctions import random_auctions


@dataclasses.dataclass(frozen=True)
class FixedSizes:
    """A shortlist that keeps as many as it is told."""

    kept: tuple[int, ...]
    name = "fixed"

    def sizes(self, auctions: Auctions) -> IntArray:  # noqa: ARG002
        return np.array(self.kept)


@pytest.mark.parametrize("num_levels", [0, 2])
def test_every_auction_comes_once_with_its_best_in_server_order(num_levels: int) -> None:
    rng = np.random.default_rng(4)
    auctions = random_auctions(rng.integers(1, 8, 500).tolist(), seed=5, num_levels=num_levels)
    kept = rng.integers(1, auctions.sizes + 1)
    server = auctions.server_scores
    seen = []
    for group in finalist_groups(auctions, kept):
        for auction, places in zip(group.auctions.tolist(), group.places.tolist(), strict=True):
            first, last = auctions.offsets[auction : auction + 2]
            order = sorted(range(first, last), key=lambda place: (-server[place], place))
            assert places == order[: kept[auction]]
            seen.append(auction)
    assert sorted(seen) == list(range(500))


@pytest.mark.parametrize("kept", [(0, 1), (1, 3), (1,), (1, 1, 1)])
def test_a_shortlist_that_keeps_none_or_too_many_is_refused(kept: tuple[int, ...]) -> None:
    auctions = random_auctions([2, 2], seed=1)
    with pytest.raises(ConfigError, match="at least one of the candidates"):
        finalist_sizes(auctions, FixedSizes(kept))
    assert finalist_sizes(auctions, FixedSizes((1, 2))).tolist() == [1, 2]
