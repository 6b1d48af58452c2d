"""AuctionCells hold auctions with the same finalists, and count only what hides a report."""

import hashlib
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tulle.errors import ConfigError, DataError
from tulle.select.auctions import Auctions, IntArray
from tulle.select.decision_accounting import (
    AuctionCells,
    finalist_cells,
    first_decisions,
    first_in_cell,
    personalised,
)

AdLists = list[list[int]]

ad_lists = st.lists(
    st.permutations([3, 7, -2, 10**12]).map(lambda ads: ads[:3]), min_size=1, max_size=12
)
owners = st.lists(st.integers(-2, 3), min_size=12, max_size=12)


def auctions_of(lists: AdLists) -> Auctions:
    """The first ad of each list has the best server score, and so on."""
    sizes = [len(ads) for ads in lists]
    return Auctions(
        offsets=np.concatenate(([0], np.cumsum(np.array(sizes, np.int64)))),
        ads=np.array([ad for ads in lists for ad in ads], np.int64),
        bids=np.concatenate([np.arange(size, 0.0, -1.0) for size in sizes]),
        server_click_probs=np.full(sum(sizes), 0.5),
    )


def cells_of(lists: AdLists) -> AuctionCells:
    auctions = auctions_of(lists)
    return finalist_cells(auctions, auctions.sizes)


def everything(cells: AuctionCells) -> "np.typing.NDArray[np.bool_]":
    return np.ones(len(cells.numbers), np.bool_)


def test_the_order_of_candidates_does_not_matter() -> None:
    cells = cells_of([[1, 2, 3], [3, 1, 2], [2, 3]])
    assert cells.numbers[0] == cells.numbers[1] != cells.numbers[2]
    assert sorted(cells.counts.tolist()) == [1, 2]
    assert cells.num_finalists[cells.numbers].tolist() == [3, 3, 2]


@given(ad_lists, st.integers(1, 3))
def test_cells_are_those_of_equal_sets(lists: AdLists, size: int) -> None:
    auctions = auctions_of(lists)
    cells = finalist_cells(auctions, np.full(len(lists), size))
    sets = [frozenset(ads[:size]) for ads in lists]
    for first, one in enumerate(sets):
        for second, other in enumerate(sets):
            assert (cells.numbers[first] == cells.numbers[second]) == (one == other)
    assert len(cells.keys) == len(set(sets)) == len(set(cells.keys.tolist()))
    assert cells.counts.sum() == len(lists)


def test_only_finalists_make_a_cell() -> None:
    auctions = auctions_of([[1, 2, 3], [2, 1, 9]])
    whole = finalist_cells(auctions, np.array([3, 3]))
    top = finalist_cells(auctions, np.array([2, 2]))
    assert whole.numbers[0] != whole.numbers[1]
    assert top.numbers[0] == top.numbers[1]


def test_a_key_names_the_ads_in_every_batch_and_on_every_machine() -> None:
    first, second = cells_of([[9, 4], [5, 6]]), cells_of([[8, 7, 6], [4, 9]])
    key = hashlib.blake2b(struct.pack("<2q", 4, 9), digest_size=16).hexdigest()
    assert first.keys[first.numbers[0]] == second.keys[second.numbers[1]] == key


def test_small_cells_are_not_personalised() -> None:
    cells = cells_of([[1, 2], [2, 1], [1, 3], [1, 2]])
    assert personalised(cells, 3, counts_as_report=everything(cells)).tolist() == [
        True,
        True,
        False,
        True,
    ]


def test_a_single_finalist_is_never_personalised() -> None:
    cells = cells_of([[1], [1], [1]])
    assert not personalised(cells, 1, counts_as_report=everything(cells)).any()


def test_only_reports_count_and_impressions_do_not() -> None:
    cells = cells_of([[1, 2]] * 4)
    reports = np.array([True, True, True, False])
    assert not personalised(cells, 4, counts_as_report=reports).any()
    assert personalised(cells, 3, counts_as_report=reports).tolist() == reports.tolist()


@given(ad_lists, owners, st.lists(st.booleans(), min_size=12, max_size=12))
def test_the_first_in_a_cell_is_found_as_by_hand(
    lists: AdLists, owner_list: list[int], flags: list[bool]
) -> None:
    cells, users, among = cells_of(lists), _cut(owner_list, lists), _cut(flags, lists)
    seen: set[tuple[int, int]] = set()
    expected = []
    for user, cell, is_asked in zip(users, cells.numbers, among, strict=True):
        expected.append(bool(is_asked) and (int(user), int(cell)) not in seen)
        if is_asked:
            seen.add((int(user), int(cell)))
    found = first_in_cell(cells, users, among=among.astype(np.bool_))
    assert found.tolist() == expected


@given(owners, st.lists(st.booleans(), min_size=12, max_size=12), st.integers(1, 4))
def test_the_first_decisions_are_found_as_by_hand(
    owner_list: list[int], flags: list[bool], most: int
) -> None:
    counts: dict[int, int] = {}
    expected = []
    for user, is_asked in zip(owner_list, flags, strict=True):
        counts[user] = counts.get(user, 0) + is_asked
        expected.append(is_asked and counts[user] <= most)
    found = first_decisions(np.array(owner_list), most, among=np.array(flags))
    assert found.tolist() == expected


def test_sizes_must_fit_the_auctions() -> None:
    auctions = auctions_of([[1, 2]])
    with pytest.raises(DataError, match="from 1 to the number of candidates"):
        finalist_cells(auctions, np.array([3]))
    with pytest.raises(ConfigError, match="one entry for each auction"):
        finalist_cells(auctions, np.array([2, 2]))
    with pytest.raises(ConfigError, match="users needs one entry for each of the 1 auctions"):
        first_in_cell(cells_of([[1, 2]]), np.array([1, 2]), among=np.array([True]))
    with pytest.raises(ConfigError, match="min_cell_size=0"):
        personalised(cells_of([[1, 2]]), 0, counts_as_report=np.array([True]))


def _cut(values: "list[int] | list[bool]", lists: AdLists) -> IntArray:
    return np.array(values[: len(lists)], np.int64)


def test_a_cell_of_named_ads_has_the_same_key_in_every_batch() -> None:
    """Numbers of ads are those of one file; names are the same in all."""
    names = {"a": ["x", "y", "z"], "b": ["z", "y", "x"]}
    keys = {}
    for batch, ordered in names.items():
        auctions = Auctions(
            offsets=np.array([0, 2]),
            ads=np.array([0, 1]),
            bids=np.ones(2),
            server_click_probs=np.full(2, 0.1),
        )
        found = finalist_cells(
            auctions,
            auctions.sizes,
            ad_names=lambda ads, ordered=ordered: [ordered[ad] for ad in ads],
        )
        keys[batch] = found.keys[0]
        swapped = finalist_cells(
            auctions, auctions.sizes, ad_names=lambda ads: [["y", "x"][ad] for ad in ads]
        )
        keys[f"{batch} swapped"] = swapped.keys[0]
    assert keys["a"] == keys["a swapped"] == keys["b swapped"]  # {x, y} whatever their numbers
    assert keys["b"] != keys["a"]  # {z, y}


def test_names_that_run_into_one_another_are_told_apart() -> None:
    auctions = Auctions(
        offsets=np.array([0, 2]),
        ads=np.array([0, 1]),
        bids=np.ones(2),
        server_click_probs=np.full(2, 0.1),
    )
    keys = set()
    for names in (["ab", "c"], ["a", "bc"], ["abc", ""]):
        found = finalist_cells(
            auctions, auctions.sizes, ad_names=lambda ads, names=names: [names[ad] for ad in ads]
        )
        keys.add(found.keys[0])
    assert len(keys) == 3
