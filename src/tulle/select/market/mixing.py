"""Devices that know less than they do: their predictions moved towards the server's.

Eq. 6 of Laro et al. 2024. Calibrated predictions stay calibrated, and every difference between
device and server shrinks by the same factor.
"""

from tulle.errors import ConfigError
from tulle.select.auctions import Auctions, DeviceClicks


def mix_device_clicks(auctions: Auctions, device: DeviceClicks, *, alpha: float) -> DeviceClicks:
    """alpha times the device's prediction plus 1 - alpha times the server's.

    Args:
      auctions: Whose server predictions are mixed in.
      device: Predictions from private data.
      alpha: From 0, the server's predictions, to 1, the device's.

    Privacy:
      Stays on devices: the result is as sensitive as `device`. Releases nothing, costs nothing.
    """
    if not 0 <= alpha <= 1:
        raise ConfigError(f"alpha={alpha} must be in [0, 1], e.g. 0.5.")
    if device.click_probs.shape != auctions.bids.shape:
        raise ConfigError("predictions of devices must be those of the same candidates.")
    mixed = alpha * device.click_probs + (1 - alpha) * auctions.server_click_probs
    return DeviceClicks(click_probs=mixed)
