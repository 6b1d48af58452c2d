"""Devices drawn from a prior, for reports that need single devices and not their mean."""

import numpy as np

from tulle.select.auctions import Auctions, DeviceClicks
from tulle.select.planner.click_prior import LogitNormalPrior


def draw_devices(auctions: Auctions, prior: LogitNormalPrior, *, seed: int) -> DeviceClicks:
    """One device for each auction, drawn from public data: nobody's predictions.

    Args:
      auctions: The public side.
      prior: What devices may find.
      seed: Fixes the draw.
    """
    generator = np.random.Generator(np.random.PCG64(seed))
    deviates = generator.standard_normal(auctions.num_candidates)
    logits = prior.public_logits(auctions.server_click_probs)
    probs = prior.score_quantiles(deviates, np.ones(auctions.num_candidates), logits)
    return DeviceClicks(click_probs=probs)
