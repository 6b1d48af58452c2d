import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tulle.errors import ConfigError
from tulle.select.auctions import Auctions
from tulle.select.baselines.score_bounds import BidBox, ClippedScores, ScaledScores, ScoreBound
from unit.select.baselines.realised_channels import one_auction

FINITE = st.floats(allow_nan=False, allow_infinity=False)


def two_auctions() -> Auctions:
    return Auctions(
        offsets=np.array([0, 3, 5]),
        ads=np.arange(5),
        bids=np.array([1.0, 2.0, 4.0, 1.0, 0.0]),
        server_click_probs=np.full(5, 0.5),
    )


def test_scaled_scores_go_from_0_to_1_in_every_auction() -> None:
    scaled = ScaledScores().bounded(two_auctions(), np.array([1.0, 2.0, 5.0, 7.0, 3.0]))
    assert scaled.tolist() == [0.0, 0.25, 1.0, 1.0, 0.0]


def test_equal_scores_are_scaled_to_0() -> None:
    scaled = ScaledScores().bounded(two_auctions(), np.array([2.0, 2.0, 2.0, 1.0, 0.0]))
    assert scaled.tolist() == [0.0, 0.0, 0.0, 1.0, 0.0]


def test_clipping_allows_half_of_the_width_either_way() -> None:
    auction = one_auction([2.0, 2.0, 2.0], [0.5, 0.5, 0.5])
    clipped = ClippedScores(width=0.5).bounded(auction, np.array([9.0, -9.0, 1.1]))
    assert clipped.tolist() == [1.25, 0.75, 1.1]


def test_the_bid_is_a_bound_for_free() -> None:
    auction = one_auction([2.0, 0.0], [0.5, 0.5])
    assert BidBox().bounded(auction, np.array([3.0, -1.0])).tolist() == [2.0, 0.0]
    assert [side.tolist() for side in BidBox().box(auction)] == [[0.0, 0.0], [2.0, 0.0]]


@settings(max_examples=200)
@given(
    bound=st.one_of(
        st.just(ScaledScores()),
        st.just(BidBox()),
        st.floats(1e-12, 1e12).map(lambda width: ClippedScores(width=width)),
    ),
    raw=st.lists(FINITE, min_size=5, max_size=5),
)
def test_a_bounded_score_is_in_its_box_whatever_the_device_holds(
    bound: ScoreBound, raw: list[float]
) -> None:
    auctions = two_auctions()
    lows, highs = bound.box(auctions)
    bounded = bound.bounded(auctions, np.array(raw))
    assert np.all((bounded >= lows) & (bounded <= highs))


@pytest.mark.parametrize("width", [0.0, -1.0, math.inf, math.nan])
def test_a_width_must_be_a_length(width: float) -> None:
    with pytest.raises(ConfigError, match="width"):
        ClippedScores(width=width)
