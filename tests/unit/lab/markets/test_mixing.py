"""Mixing moves every prediction of a device towards the server's by the same share."""

import numpy as np
import pytest

from tulle.errors import ConfigError
from tulle.lab.markets.market_sample import mix_device_clicks
from tulle.lab.markets.synthetic_market import SMALL_DISPLAY
from tulle.select.auctions import DeviceClicks

AUCTIONS, DEVICE = SMALL_DISPLAY.draw(100, seed=1)


def test_the_ends_are_exactly_device_and_server() -> None:
    own = mix_device_clicks(AUCTIONS, DEVICE, alpha=1.0).click_probs
    servers = mix_device_clicks(AUCTIONS, DEVICE, alpha=0.0).click_probs
    assert np.array_equal(own, DEVICE.click_probs)
    assert np.array_equal(servers, AUCTIONS.server_click_probs)


def test_differences_shrink_by_alpha() -> None:
    mixed = mix_device_clicks(AUCTIONS, DEVICE, alpha=0.25).click_probs
    difference = DEVICE.click_probs - AUCTIONS.server_click_probs
    np.testing.assert_allclose(
        mixed - AUCTIONS.server_click_probs, 0.25 * difference, rtol=1e-9, atol=1e-15
    )


@pytest.mark.parametrize("alpha", [-0.1, 1.1, float("nan")])
def test_an_alpha_outside_of_0_and_1_is_refused(alpha: float) -> None:
    with pytest.raises(ConfigError, match="alpha="):
        mix_device_clicks(AUCTIONS, DEVICE, alpha=alpha)


def test_devices_of_other_candidates_are_refused() -> None:
    with pytest.raises(ConfigError, match="same candidates"):
        mix_device_clicks(AUCTIONS, DeviceClicks(click_probs=np.array([0.5])), alpha=0.5)
