"""Drawn markets are calibrated, have the stated moments and can be drawn again."""

import dataclasses

import numpy as np
import pytest

from tulle.errors import ConfigError
from tulle.lab.markets.synthetic_market import REFERENCE_MARKETS, SEARCH, SyntheticMarket

ALL_KEPT = SyntheticMarket(
    num_candidates=8,
    num_eligible=8,
    mean_logit=-1.0,
    public_stddev=0.7,
    private_stddev=0.9,
    bid_stddev=0.6,
    bid_correlation=-0.5,
)


def test_the_server_predicts_the_mean_of_its_devices() -> None:
    public = ALL_KEPT.draw_public(20, seed=3)
    draws = np.array([public.draw_device(seed=seed).click_probs for seed in range(4000)])
    error = draws.mean(axis=0) - public.auctions.server_click_probs
    deviates = error / (draws.std(axis=0) / np.sqrt(len(draws)))
    # 160 candidates: beyond 7 standard errors with a probability below 1e-9.
    assert np.abs(deviates).max() < 7
    # A prediction that is 5% too high would be seen.
    wrong = draws.mean(axis=0) - 1.05 * public.auctions.server_click_probs
    assert np.abs(wrong / (draws.std(axis=0) / np.sqrt(len(draws)))).max() > 7


def test_logits_and_bids_have_the_stated_moments() -> None:
    public = ALL_KEPT.draw_public(20_000, seed=4)
    log_bids = np.log(public.auctions.bids)
    assert public.public_logits.mean() == pytest.approx(-1.0, abs=0.02)
    assert public.public_logits.std() == pytest.approx(0.7, rel=0.02)
    assert log_bids.std() == pytest.approx(0.6, rel=0.02)
    assert np.corrcoef(log_bids, public.public_logits)[0, 1] == pytest.approx(-0.5, abs=0.02)


def test_the_best_of_the_eligible_ads_are_kept() -> None:
    few = dataclasses.replace(ALL_KEPT, num_candidates=3)
    kept, everyone = few.draw_public(50, seed=5).auctions, ALL_KEPT.draw_public(50, seed=5).auctions
    for auction in range(50):
        best = np.sort(everyone.server_scores[8 * auction : 8 * auction + 8])[-3:]
        assert np.array_equal(np.sort(kept.server_scores[3 * auction : 3 * auction + 3]), best)


def test_devices_differ_between_seeds_and_not_within_one() -> None:
    public = SEARCH.draw_public(5, seed=1)
    first = public.draw_device(seed=1).click_probs
    assert np.array_equal(first, public.draw_device(seed=1).click_probs)
    assert not np.any(first == public.draw_device(seed=2).click_probs)
    auctions, device = SEARCH.draw(5, seed=1)
    assert np.array_equal(auctions.bids, public.auctions.bids)
    assert np.array_equal(device.click_probs, first)


def test_devices_that_know_nothing_more_predict_what_the_server_does() -> None:
    same = dataclasses.replace(ALL_KEPT, private_stddev=0.0)
    auctions, device = same.draw(30, seed=1)
    np.testing.assert_allclose(device.click_probs, auctions.server_click_probs, atol=1e-7)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("num_candidates", 0),
        ("num_candidates", 9),
        ("public_stddev", -0.1),
        ("private_stddev", 2.6),
        ("bid_stddev", float("nan")),
        ("bid_correlation", 1.1),
        ("mean_logit", float("inf")),
    ],
)
def test_settings_out_of_range_are_refused_by_name(field: str, value: float) -> None:
    with pytest.raises(ConfigError, match=field):
        dataclasses.replace(ALL_KEPT, **{field: value})


def test_a_seed_is_not_negative() -> None:
    with pytest.raises(ConfigError, match="seed=-1"):
        ALL_KEPT.draw(3, seed=-1)


def test_reference_markets_have_names_and_sizes() -> None:
    assert {name: market.num_candidates for name, market in REFERENCE_MARKETS.items()} == {
        "search, 15 candidates": 15,
        "display, 15 candidates": 15,
        "display, 4 candidates": 4,
    }
