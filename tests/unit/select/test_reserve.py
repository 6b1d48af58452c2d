"""A reserve on server scores says which candidates and which auctions take part."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tulle.errors import ConfigError
from tulle.select.auctions import above_reserve, keep_candidates
from unit.select.billing.small_auctions import auctions_of, random_auctions, rows_of


@settings(max_examples=60)
@given(seed=st.integers(0, 10_000), reserve=st.floats(0, 2))
def test_exactly_the_candidates_with_enough_score_are_kept(seed: int, reserve: float) -> None:
    auctions = random_auctions(20, seed=seed)
    eligible = above_reserve(auctions, reserve)
    expected = [
        (number, [p for p in places if auctions.server_scores[p] >= reserve])
        for number, places in enumerate(rows_of(auctions))
    ]
    expected = [(number, places) for number, places in expected if places]
    assert eligible.kept_auctions.tolist() == [number for number, _ in expected]
    assert eligible.kept_candidates.tolist() == [p for _, places in expected for p in places]
    assert eligible.auctions.sizes.tolist() == [len(places) for _, places in expected]
    for name in ("ads", "bids", "server_click_probs"):
        whole, part = getattr(auctions, name), getattr(eligible.auctions, name)
        assert np.array_equal(whole[eligible.kept_candidates], part)


def test_a_score_equal_to_the_reserve_takes_part() -> None:
    eligible = above_reserve(auctions_of([(1, 2.0, 0.5), (2, 1.99, 0.5)]), 1.0)
    assert eligible.auctions.ads.tolist() == [1]


def test_an_auction_without_an_eligible_ad_is_not_held() -> None:
    auctions = auctions_of([(1, 1.0, 0.1)], [(1, 1.0, 0.9)], [(2, 1.0, 0.2)])
    assert above_reserve(auctions, 0.5).kept_auctions.tolist() == [1]
    nothing = above_reserve(auctions, 5.0)
    assert len(nothing.auctions) == 0
    assert nothing.auctions.num_candidates == 0


def test_no_reserve_keeps_everything() -> None:
    auctions = random_auctions(20, seed=1)
    assert np.array_equal(above_reserve(auctions, 0).auctions.offsets, auctions.offsets)


@pytest.mark.parametrize("reserve", [-0.01, float("nan"), float("inf")])
def test_what_is_no_price_is_refused_as_reserve(reserve: float) -> None:
    with pytest.raises(ConfigError, match="reserve="):
        above_reserve(auctions_of([(1, 1.0, 0.1)]), reserve)


def test_a_mask_of_other_candidates_is_refused() -> None:
    with pytest.raises(ConfigError, match="is_kept"):
        keep_candidates(auctions_of([(1, 1.0, 0.1)]), np.ones(2, np.bool_))
