"""What the server may believe about a device's click probabilities.

The logit of a device's probability is a public part plus a normal private part, independent across
candidates. The server's prediction is the mean of the device's probability given the public part.
So one number, the standard deviation of the private part, turns public predictions into the law
of what devices will find: how much there is to gain from personalisation.
"""

import dataclasses
import functools

import numpy as np

from tulle.errors import ConfigError, DataError
from tulle.select.auctions import Auctions, DeviceClicks, FloatArray

LEAST_STDDEV, LARGEST_STDDEV = 0.01, 2.5
"""Bounds of the private standard deviation: with less there is nothing to gain, with more the
integrals over a prior would need more points."""
_LARGEST_LOGIT = 30.0
"""Logit beyond which a probability is 1 as far as floats can tell."""
_LOGIT_STEP = 1 / 64
"""Distance of the points between which the shift of a logit is interpolated, to 1e-5."""
_DEVIATE_STEP = 0.25
_LARGEST_DEVIATE = 8.5
"""Sums over normal deviates: their step leaves an error of 1e-12, and less is beyond their end."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class LogitNormalPrior:
    """The law of a device's click probability given the server's. Public."""

    private_stddev: float
    """Standard deviation of the part of the logit that only the device knows."""

    def __post_init__(self) -> None:
        if not LEAST_STDDEV <= self.private_stddev <= LARGEST_STDDEV:
            raise ConfigError(
                f"private_stddev={self.private_stddev} must be between {LEAST_STDDEV} and "
                f"{LARGEST_STDDEV}, e.g. 0.5; with less there is nothing to personalise."
            )

    def mean_click_probs(self, public_logits: FloatArray) -> FloatArray:
        """What a calibrated server predicts, to 1e-12 relative."""
        # A sum over equal steps: for a smooth function that ends at 0 on both sides its error
        # falls exponentially in the number of steps.
        deviates = np.arange(-_LARGEST_DEVIATE, _LARGEST_DEVIATE + _DEVIATE_STEP, _DEVIATE_STEP)
        weights = np.exp(-(deviates**2) / 2)
        means = np.zeros(np.shape(public_logits))
        for deviate, weight in zip(deviates, weights / weights.sum(), strict=True):
            means += weight * logistic(public_logits + self.private_stddev * deviate)
        return means

    def public_logits(self, server_click_probs: FloatArray) -> FloatArray:
        """The public part behind a calibrated prediction, to 1e-5; -infinity for a probability of
        0, and 30 for those too near to 1 to tell."""
        knots, shifts = _logit_shifts(self.private_stddev)
        with np.errstate(divide="ignore"):
            logits = np.log(server_click_probs) - np.log1p(-server_click_probs)
        return np.asarray(np.minimum(logits + np.interp(logits, knots, shifts), _LARGEST_LOGIT))

    def score_cdf(self, scores: FloatArray, bids: FloatArray, logits: FloatArray) -> FloatArray:
        """Probability that a device's score (bid times click probability) is at most `scores`.

        Args:
          scores: > 0.
          bids: > 0.
          logits: Public parts.
        """
        from scipy.special import ndtr

        return np.asarray(ndtr(self.deviates(scores, bids, logits)))

    def deviates(self, scores: FloatArray, bids: FloatArray, logits: FloatArray) -> FloatArray:
        """The private part, in standard deviations, that leads to each score.

        Args:
          scores: > 0.
          bids: > 0.
          logits: Public parts.
        """
        probs = np.minimum(scores / bids, 1 - 1e-16)
        return np.asarray((np.log(probs / (1 - probs)) - logits) / self.private_stddev)

    def score_quantiles(
        self, deviates: FloatArray | float, bids: FloatArray, logits: FloatArray
    ) -> FloatArray:
        """Scores of devices whose private part is so many standard deviations.

        Args:
          deviates: Private parts, in standard deviations.
          bids: >= 0.
          logits: Public parts.
        """
        return np.asarray(bids * logistic(logits + self.private_stddev * deviates))


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


def private_stddev_of_sample(auctions: Auctions, device: DeviceClicks) -> float:
    """The standard deviation under which predictions of devices are most likely.

    Args:
      auctions: The public side.
      device: Predictions for all candidates, none of them 0 or 1.

    Privacy:
      None: the result is computed from predictions of devices and is not noised. Use it on data
      that may be known, such as those of a panel, and never on those of the devices that the
      plan is for.
    """
    if device.click_probs.shape != auctions.bids.shape:
        raise ConfigError("predictions of devices must be those of the same candidates.")
    for probs in (auctions.server_click_probs, device.click_probs):
        if np.any((probs <= 0) | (probs >= 1)):
            raise DataError(
                "a click probability of 0 or 1 has no logit; leave out these candidates first."
            )
    from scipy.optimize import minimize_scalar

    logits = np.log(device.click_probs) - np.log1p(-device.click_probs)

    def loss(stddev: float) -> float:
        prior = LogitNormalPrior(private_stddev=stddev)
        deviates = (logits - prior.public_logits(auctions.server_click_probs)) / stddev
        return float(np.log(stddev) + np.mean(deviates**2) / 2)

    bounds = (LEAST_STDDEV, LARGEST_STDDEV)
    return float(minimize_scalar(loss, bounds=bounds, method="bounded").x)


def logistic(logits: FloatArray) -> FloatArray:
    """Probabilities that logits stand for."""
    from scipy.special import expit

    return np.asarray(expit(logits))


@functools.lru_cache(maxsize=64)
def _logit_shifts(private_stddev: float) -> tuple[FloatArray, FloatArray]:
    """Logits of server predictions, and what to add for the public part; constant beyond."""
    prior = LogitNormalPrior(private_stddev=private_stddev)
    public = np.arange(-_LARGEST_LOGIT, _LARGEST_LOGIT + _LOGIT_STEP, _LOGIT_STEP)
    # 1 - E p is the mean probability at the opposite logit: nothing cancels near 1.
    knots = np.log(prior.mean_click_probs(public)) - np.log(prior.mean_click_probs(-public))
    return knots, public - knots
