"""Auctions refuse what is none, and come apart into rectangles without loss."""

import dataclasses

import numpy as np
import pytest

from tulle.errors import ConfigError, DataError
from tulle.select.auctions import Auctions, DeviceClicks, check_raw_scores, ranks_of, server_ranks
from unit.select.mechanisms.tiny_auctions import auctions_of, random_auctions


def test_size_groups_hold_every_candidate_once() -> None:
    sizes = np.random.default_rng(1).integers(1, 9, 2_000).tolist()
    auctions = random_auctions(sizes, seed=1)
    places, numbers = [], []
    for group in auctions.size_groups():
        assert len({sizes[auction] for auction in group.auctions}) == 1
        for auction, row in zip(group.auctions, group.places, strict=True):
            assert row.tolist() == list(
                range(auctions.offsets[auction], auctions.offsets[auction + 1])
            )
        places += group.places.ravel().tolist()
        numbers += group.auctions.tolist()
    assert sorted(places) == list(range(auctions.num_candidates))
    assert sorted(numbers) == list(range(2_000))


def test_many_auctions_of_one_size_come_in_several_groups() -> None:
    auctions = random_auctions([1] * 300_000, seed=1)
    groups = [group.auctions for group in auctions.size_groups()]
    assert len(groups) == 2
    assert np.array_equal(np.concatenate(groups), np.arange(300_000))


def test_an_auction_larger_than_a_group_is_a_group() -> None:
    auctions = random_auctions([300_000, 300_000], seed=1)
    assert [group.places.shape for group in auctions.size_groups()] == [(1, 300_000)] * 2


def test_places_of_auctions_are_those_of_their_candidates() -> None:
    auctions = random_auctions([2, 1, 4, 3], seed=3)
    places, offsets = auctions.places_of(np.array([3, 0, 3, 1]))
    assert places.tolist() == [7, 8, 9, 0, 1, 7, 8, 9, 2]
    assert offsets.tolist() == [0, 3, 5, 8, 9]


def test_no_auctions_have_no_places() -> None:
    places, offsets = random_auctions([2, 1], seed=3).places_of(np.empty(0, np.int64))
    assert (places.tolist(), offsets.tolist()) == ([], [0])
    assert places.dtype == offsets.dtype == np.int64


def test_taken_candidates_keep_everything_they_had() -> None:
    auctions = random_auctions([2, 1, 4, 3], seed=3)
    places = np.array([6, 3, 9])
    taken = auctions.take(places, np.array([0, 2, 3]))
    assert taken.sizes.tolist() == [2, 1]
    for name in ("ads", "bids", "server_click_probs"):
        assert getattr(taken, name).tolist() == getattr(auctions, name)[places].tolist()


def test_auctions_that_would_be_empty_are_not_taken() -> None:
    auctions = random_auctions([2, 1], seed=3)
    with pytest.raises(DataError, match="at least one candidate"):
        auctions.take(np.array([0, 2]), np.array([0, 0, 2]))


def test_scores_are_bids_times_click_chances() -> None:
    auctions = random_auctions([3], seed=2)
    assert auctions.server_scores.tolist() == (auctions.bids * auctions.server_click_probs).tolist()
    clicks = np.array([0.1, 0.2, 0.0])
    device = DeviceClicks(click_probs=clicks)
    assert device.scores(auctions).tolist() == (auctions.bids * clicks).tolist()
    assert "0.2" not in repr(device)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("offsets", np.array([1, 3]), "starts with 0"),
        ("offsets", np.array([[0, 3]]), "one row"),
        ("offsets", np.array([0, 1, 1, 3]), "at least one candidate"),
        ("offsets", np.array([0, 2]), "one entry for each"),
        ("ads", np.array([1, 2]), "ads must have one entry"),
        ("bids", np.array([1.0, -1.0, 1.0]), "bids"),
        ("bids", np.array([1.0, np.inf, 1.0]), "bids"),
        ("server_click_probs", np.array([0.1, 1.2, 0.1]), r"\[0, 1\]"),
        ("server_click_probs", np.array([0.1, np.nan, 0.1]), r"\[0, 1\]"),
    ],
)
def test_what_is_no_auction_is_refused(field: str, value: np.ndarray, message: str) -> None:
    auctions: Auctions = random_auctions([3], seed=2)
    with pytest.raises(DataError, match=message):
        dataclasses.replace(auctions, **{field: value})


def test_predictions_that_are_no_chances_or_of_other_candidates_are_refused() -> None:
    with pytest.raises(DataError, match="click_probs") as error:
        DeviceClicks(click_probs=np.array([0.5, 1.75]))
    assert "1.75" not in str(error.value)
    with pytest.raises(ConfigError, match="same candidates"):
        DeviceClicks(click_probs=np.array([0.5])).scores(random_auctions([3], seed=2))


def test_ranks_are_those_of_each_auction() -> None:
    auctions = auctions_of([0.1, 0.9, 0.5], [0.3], [0.2, 0.2, 0.4])
    assert server_ranks(auctions).tolist() == [2, 0, 1, 0, 1, 2, 0]


def test_ranks_agree_with_a_loop_over_auctions_with_many_ties() -> None:
    auctions = random_auctions([5, 1, 3, 5, 2] * 40, seed=1, num_levels=2)
    scores = np.random.default_rng(2).integers(-1, 2, auctions.num_candidates).astype(float)
    ranks = ranks_of(auctions, scores)
    for first, last in zip(auctions.offsets[:-1], auctions.offsets[1:], strict=True):
        order = sorted(range(first, last), key=lambda place: (-scores[place], place))
        assert [ranks[place] for place in order] == list(range(last - first))


def test_bids_and_clicks_both_count() -> None:
    auctions = random_auctions([4], seed=3)
    best = int((auctions.bids * auctions.server_click_probs).argmax())
    assert server_ranks(auctions).tolist().index(0) == best


AUCTIONS = auctions_of([0.1, 0.2], [0.3])


def test_finite_scores_of_all_candidates_are_taken_as_float64() -> None:
    checked = check_raw_scores(AUCTIONS, np.array([1, -2, 3], np.float32))
    assert checked.dtype == np.float64
    assert checked.tolist() == [1, -2, 3]


@pytest.mark.parametrize("bad", [None, np.nan, np.inf, -np.inf])
def test_a_hard_exclusion_is_refused_with_reason_and_way_out(bad: float | None) -> None:
    with pytest.raises(DataError, match="hard private exclusion") as error:
        check_raw_scores(AUCTIONS, [0.123456, bad, 1.0])  # type: ignore[list-item]
    assert "e^-epsilon" in str(error.value)
    assert "'no ad' as a candidate" in str(error.value)
    assert "0.123456" not in str(error.value)


@pytest.mark.parametrize("scores", [[0.1, 0.2], [0.1] * 4, [[0.1, 0.2, 0.3]], []])
def test_scores_of_other_candidates_are_refused(scores: list[float]) -> None:
    with pytest.raises(DataError, match="depends on private data"):
        check_raw_scores(AUCTIONS, scores)


def test_what_is_no_number_is_refused_and_not_shown() -> None:
    with pytest.raises(DataError, match="one row of numbers") as error:
        check_raw_scores(AUCTIONS, ["0.1", "secret", "0.3"])
    assert "secret" not in str(error.value)
