"""Auctions with the predictions of their devices, as one thing to try mechanisms on.

The predictions are taken as the truth and choices are not drawn: all numbers are exact for the
sample. They are for planning and for simulations, where somebody holds such predictions (a panel
that agreed, or a synthetic market); none of them is a private release.
"""

import dataclasses
import functools
from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from tulle.errors import ConfigError, DataError
from tulle.select.auctions import Auctions, DeviceClicks, FloatArray, IntArray
from tulle.select.billing.prices import (
    AdPrices,
    MarketMetrics,
    PricingRule,
    captured_share,
    expected_metrics,
    price_candidates,
)
from tulle.select.mechanisms.mechanism import Greedy, NonPersonalised, SelectionMechanism

_Mechanism = TypeVar("_Mechanism", bound=SelectionMechanism)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class MarketSample:
    """Some auctions, what their devices predict, and how winners pay.

    Privacy:
      Nothing computed here is noised: every number is as sensitive as the predictions.
    """

    auctions: Auctions
    device: DeviceClicks
    pricing: PricingRule
    reserve: float = 0.0
    """Least worth of an impression by server score. Auctions must be above it already."""

    def __post_init__(self) -> None:
        if self.device.click_probs.shape != self.auctions.bids.shape:
            raise ConfigError("predictions of devices must be those of the same candidates.")
        if len(self.auctions) == 0:
            raise DataError("there is no auction to try anything on; give at least one.")

    @functools.cached_property
    def raw_scores(self) -> FloatArray:
        """[candidates], what an impression is worth by the device. Sensitive."""
        return self.device.scores(self.auctions)

    @functools.cached_property
    def prices(self) -> AdPrices:
        """Prices of all candidates, from public data."""
        return price_candidates(self.auctions, self.pricing, reserve=self.reserve)

    @functools.cached_property
    def baseline(self) -> MarketMetrics:
        """The server's winners: nothing is personalised."""
        return self.metrics(NonPersonalised())

    @functools.cached_property
    def ideal(self) -> MarketMetrics:
        """The devices' favourites: nothing is private."""
        return self.metrics(Greedy())

    @property
    def gain(self) -> float:
        """What personalisation adds to welfare, as a share of the baseline."""
        if self.baseline.welfare == 0:
            raise DataError(
                "the gain is a share of what the server's winners are worth, and they are worth "
                "nothing here: their bids or click probabilities are all 0; give others."
            )
        return self.ideal.welfare / self.baseline.welfare - 1

    def metrics(self, mechanism: SelectionMechanism) -> MarketMetrics:
        """What a mechanism is worth, exact for this sample."""
        return self.metrics_of(mechanism.selection_probs(self.auctions, self.raw_scores))

    def metrics_of(self, selection_probs: FloatArray) -> MarketMetrics:
        """What given probabilities of selection are worth, exact for this sample."""
        return expected_metrics(self.auctions, self.device, selection_probs, self.prices)

    def captured_share(self, metrics: MarketMetrics) -> float:
        """Share of the welfare gain of personalisation that is kept."""
        return captured_share(
            metrics.welfare, baseline=self.baseline.welfare, ideal=self.ideal.welfare
        )

    def captured_share_error(self, selection_probs: FloatArray) -> float:
        """Standard error of the captured share, over the auctions and devices that were drawn."""
        baseline = self._welfare_of_auctions(NonPersonalised())
        gains = self._welfare_of_auctions(Greedy()) - baseline
        kept = self._sum_of_auctions(selection_probs * self.raw_scores) - baseline
        # Error of a ratio of means, to first order.
        deviations = kept - kept.mean() / gains.mean() * gains
        return float(deviations.std() / gains.mean() / np.sqrt(len(gains)))

    def subset(self, rows: IntArray) -> "MarketSample":
        """Some of the auctions, in the given order."""
        places, offsets = self.auctions.places_of(rows)
        return dataclasses.replace(
            self,
            auctions=self.auctions.take(places, offsets),
            device=DeviceClicks(click_probs=self.device.click_probs[places]),
        )

    def _welfare_of_auctions(self, mechanism: SelectionMechanism) -> FloatArray:
        probs = mechanism.selection_probs(self.auctions, self.raw_scores)
        return self._sum_of_auctions(probs * self.raw_scores)

    def _sum_of_auctions(self, values: FloatArray) -> FloatArray:
        return np.asarray(np.add.reduceat(values, self.auctions.offsets[:-1]))


def lifts(metrics: MarketMetrics, baseline: MarketMetrics) -> dict[str, float | None]:
    """Relative change of each metric; None where the baseline has none of it to begin with."""
    before, after = baseline.to_dict(), metrics.to_dict()
    return {
        f"{name}_lift": after[name] / before[name] - 1 if before[name] > 0 else None
        for name in before
    }


def best_of(
    sample: MarketSample, options: Sequence[_Mechanism], *, objective: str = "welfare"
) -> _Mechanism:
    """The option with the most of the objective on the sample; the first one of equals.

    Args:
      sample: Where options are tried.
      options: Mechanisms to compare, at least one.
      objective: The metric that is made large.

    Privacy:
      Not a private release: the choice depends on the sample's device predictions.
    """
    if not options:
        raise ConfigError("there is nothing to choose from; give at least one mechanism.")
    return max(options, key=lambda option: sample.metrics(option).to_dict()[objective])


def mix_device_clicks(auctions: Auctions, device: DeviceClicks, *, alpha: float) -> DeviceClicks:
    """Predictions moved towards the server's: devices that know less than they do.

    alpha times the device's prediction plus 1 - alpha times the server's (eq. 6 of Laro et al.
    2024). Calibrated predictions stay calibrated, and every difference between device and server
    shrinks by the same factor.

    Args:
      auctions: Auctions whose server predictions are mixed in.
      device: Predictions from private data.
      alpha: Weight from 0, the server's predictions, to 1, the device's.

    Privacy:
      Stays on devices: the result is as sensitive as `device`. Releases nothing, costs nothing.
    """
    if not 0 <= alpha <= 1:
        raise ConfigError(f"alpha={alpha} must be in [0, 1], e.g. 0.5.")
    if device.click_probs.shape != auctions.bids.shape:
        raise ConfigError("predictions of devices must be those of the same candidates.")
    mixed = alpha * device.click_probs + (1 - alpha) * auctions.server_click_probs
    return DeviceClicks(click_probs=mixed)


@dataclasses.dataclass(frozen=True, kw_only=True)
class CandidateCounts:
    """Which share of auctions has at most so many candidates. Public."""

    num_candidates: tuple[int, ...]
    """Every number that occurs, rising."""
    shares: tuple[float, ...]
    """Share of the auctions with at most so many; the last is 1."""


def candidate_counts(auctions: Auctions) -> CandidateCounts:
    """The distribution function of the number of candidates."""
    numbers, counts = np.unique(auctions.sizes, return_counts=True)
    return CandidateCounts(
        num_candidates=tuple(int(number) for number in numbers),
        shares=tuple(float(share) for share in np.cumsum(counts) / len(auctions)),
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClickDifferences:
    """Histogram of |device - server| over candidates, for one alpha. As sensitive as the sample."""

    alpha: float
    edges: tuple[float, ...]
    shares: tuple[float, ...]
    """Share of the candidates between one edge and the next; the last bin has those beyond."""
    median: float


def click_differences(
    sample: MarketSample, *, alphas: Sequence[float], edges: Sequence[float]
) -> tuple[ClickDifferences, ...]:
    """How far devices are from the server, for several shares alpha of what they know.

    Args:
      sample: Auctions with their devices.
      alphas: Shares that are left of what devices know.
      edges: Edges of the bins.

    Privacy:
      Not a private release: computed from device predictions.
    """
    found = []
    for alpha in alphas:
        device = mix_device_clicks(sample.auctions, sample.device, alpha=alpha)
        differences = np.abs(device.click_probs - sample.auctions.server_click_probs)
        counts, _ = np.histogram(np.minimum(differences, edges[-1]), np.asarray(edges))
        found.append(
            ClickDifferences(
                alpha=alpha,
                edges=tuple(edges),
                shares=tuple(float(share) for share in counts / len(differences)),
                median=float(np.median(differences)),
            )
        )
    return tuple(found)
