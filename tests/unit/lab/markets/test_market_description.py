"""Counts of candidates and differences of predictions are described exactly."""

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest

from tulle.lab.markets.market_sample import MarketSample, candidate_counts, click_differences
from tulle.lab.markets.synthetic_market import DISPLAY, SEARCH, SMALL_DISPLAY

SampleOf = Callable[..., MarketSample]


def test_shares_of_candidates_add_up(sample_of: SampleOf) -> None:
    auctions = sample_of(SMALL_DISPLAY, 5).auctions
    ragged = dataclasses.replace(auctions, offsets=np.array([0, 2, 4, 9, 11, 20]))
    counts = candidate_counts(ragged)
    assert counts.num_candidates == (2, 5, 9)
    assert counts.shares == pytest.approx((0.6, 0.8, 1.0))


def test_differences_are_counted_and_shrink_with_alpha(sample_of: SampleOf) -> None:
    sample = sample_of(SMALL_DISPLAY, 500)
    edges = [0.0, 0.01, 0.02, 0.05]
    whole, half = click_differences(sample, alphas=[1.0, 0.5], edges=edges)
    raw = np.abs(sample.device.click_probs - sample.auctions.server_click_probs)
    assert whole.shares[0] == np.mean(raw < 0.01)
    assert whole.shares[2] == pytest.approx(np.mean(raw >= 0.02))
    assert sum(whole.shares) == pytest.approx(1.0)
    assert half.shares[0] == pytest.approx(np.mean(raw < 0.02))
    assert half.median == pytest.approx(whole.median / 2)


def test_devices_know_more_in_display_than_in_search(sample_of: SampleOf) -> None:
    display, search = (
        click_differences(sample_of(market, 2000), alphas=[1.0], edges=[0.0, 1.0])[0].median
        / float(np.mean(sample_of(market, 2000).auctions.server_click_probs))
        for market in (DISPLAY, SEARCH)
    )
    # Laro et al. 2024 report a median that is more than twice as large.
    assert display > 1.9 * search
