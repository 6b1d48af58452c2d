"""What a mechanism brings, in exact expectation over its own draws and over devices.

Nothing is drawn here. With a prior devices are integrated over, which works for rules that
depend on independent scores in a simple way. With a sample of devices' predictions every
mechanism can be evaluated, for these devices.
"""

import dataclasses
import functools
import math
from typing import Protocol

import numpy as np

from tulle.errors import ConfigError
from tulle.select.ad_prices import AdPrices
from tulle.select.auctions import Auctions, DeviceClicks
from tulle.select.baselines.greedy import Greedy, NonPersonalised
from tulle.select.baselines.noisy_max import NoisyMax
from tulle.select.baselines.prior_response import PriorResponse
from tulle.select.floors.finalists import finalist_sizes
from tulle.select.floors.floor_mechanism import FloorMechanism
from tulle.select.mechanism import SelectionMechanism
from tulle.select.metrics import MarketMetrics, expected_metrics
from tulle.select.planner.candidate_outcomes import boosted_outcomes, noisy_max_outcomes
from tulle.select.planner.click_prior import LogitNormalPrior
from tulle.select.planner.prior_response_model import prior_response_outcomes
from tulle.select.planner.shortlist_outcomes import ShortlistOutcomes, shortlist_outcomes


class Expectations(Protocol):
    """Auctions with something that stands for devices."""

    def metrics(self, mechanism: SelectionMechanism) -> MarketMetrics:
        """Exact means of a mechanism."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class SampleOfDevices:
    """Auctions with predictions of devices, which are taken as the truth."""

    auctions: Auctions
    prices: AdPrices
    device: DeviceClicks

    def metrics(self, mechanism: SelectionMechanism) -> MarketMetrics:
        """Exact means over the draws of any mechanism, for these devices.

        Privacy:
          None: the result is not noised and as sensitive as the predictions.
        """
        scores = self.device.scores(self.auctions)
        probs = mechanism.selection_probs(self.auctions, scores)
        return expected_metrics(self.auctions, self.device, probs, self.prices)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class ModelOfDevices:
    """Auctions with a prior in place of devices. Public."""

    auctions: Auctions
    prices: AdPrices
    prior: LogitNormalPrior

    @functools.cached_property
    def outcomes(self) -> ShortlistOutcomes:
        """Of all shortlists, computed once."""
        return shortlist_outcomes(self.auctions, self.prices, self.prior)

    def metrics(self, mechanism: SelectionMechanism) -> MarketMetrics:
        """Exact means over draws and devices, to 1e-4; of the two baselines with noise or a
        prior of their own to 1e-3.

        Raises:
          ConfigError: What the mechanism does depends on all scores together.
        """
        if isinstance(mechanism, NonPersonalised):
            return self.outcomes.response_metrics(np.ones(len(self.auctions), np.int64), 0.0)
        if isinstance(mechanism, Greedy):
            return self.outcomes.response_metrics(self.auctions.sizes, math.inf)
        if isinstance(mechanism, FloorMechanism) and mechanism.num_boosted == 1:
            sizes = finalist_sizes(self.auctions, mechanism.shortlist)
            return self.outcomes.response_metrics(sizes, mechanism.epsilon)
        if isinstance(mechanism, FloorMechanism):
            outcomes = boosted_outcomes(self.auctions, mechanism, self.prior)
        elif isinstance(mechanism, NoisyMax):
            outcomes = noisy_max_outcomes(self.auctions, mechanism, self.prior)
        elif isinstance(mechanism, PriorResponse):
            outcomes = prior_response_outcomes(self.auctions, mechanism, self.prior)
        else:
            raise ConfigError(
                f"mechanism {mechanism.name!r} has no known expectation over a prior; give a "
                "sample of devices' predictions."
            )
        return outcomes.metrics(self.auctions, self.prices)
