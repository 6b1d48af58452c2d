"""How many candidates each public rule keeps."""

import dataclasses

import numpy as np
import pytest

from tulle.errors import ConfigError
from tulle.select.auctions import Auctions, IntArray
from tulle.select.mechanisms.shortlists import (
    AllCandidates,
    Cutoff,
    TopCandidates,
    finalist_groups,
    finalist_sizes,
)
from unit.select.mechanisms.tiny_auctions import auctions_of, random_auctions

AUCTIONS = auctions_of([1.0, 0.5, 0.25, 0.1], [0.2], [0.3, 0.3, 0.3], [0.0, 0.0])


def test_all_candidates_are_all() -> None:
    assert AllCandidates().sizes(AUCTIONS).tolist() == [4, 1, 3, 2]
    assert AllCandidates().name == ""


def test_the_best_few_are_no_more_than_there_are() -> None:
    assert TopCandidates(num_finalists=2).sizes(AUCTIONS).tolist() == [2, 1, 2, 2]
    assert TopCandidates(num_finalists=2).name == "top 2"


@pytest.mark.parametrize(
    ("gamma", "kept"),
    [(0.0, [1, 1, 1, 1]), (0.5, [2, 1, 3, 2]), (0.8, [3, 1, 3, 2]), (1.0, [4, 1, 3, 2])],
)
def test_a_cutoff_keeps_what_reaches_its_share_of_the_best(gamma: float, kept: list[int]) -> None:
    assert Cutoff(gamma=gamma).sizes(AUCTIONS).tolist() == kept


def test_a_larger_gamma_keeps_no_fewer() -> None:
    auctions = random_auctions([6] * 300, seed=1)
    sizes = [Cutoff(gamma=gamma).sizes(auctions) for gamma in np.linspace(0, 1, 21)]
    assert np.all(np.diff(sizes, axis=0) >= 0)
    assert sizes[0].max() == 1
    assert sizes[-1].min() == 6


@pytest.mark.parametrize("gamma", [-0.1, 1.1, float("nan")])
def test_a_gamma_outside_its_range_is_refused(gamma: float) -> None:
    with pytest.raises(ConfigError, match="gamma"):
        Cutoff(gamma=gamma)


def test_a_list_of_none_is_refused() -> None:
    with pytest.raises(ConfigError, match="num_finalists"):
        TopCandidates(num_finalists=0)


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
