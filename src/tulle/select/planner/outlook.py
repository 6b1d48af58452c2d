"""Which mechanism to use: what each would bring, side by side, and the best one for each epsilon.

What a mechanism brings is exact, in expectation over its own draws and over devices; nothing is
drawn. With a prior devices are integrated over, which works for rules that depend on independent
scores in a simple way. With a sample of devices' predictions every mechanism can be evaluated, for
these devices.

The options are randomized response over shortlists: by cutoff, by length, and of the length that
pays off in each auction. A cutoff of 0 shows the server's winner and is always among them, so
what is recommended is never below not personalising.
"""

import dataclasses
import enum
import functools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tulle.errors import ConfigError
from tulle.select.auctions import Auctions, DeviceClicks
from tulle.select.billing.prices import AdPrices, MarketMetrics, captured_share, expected_metrics
from tulle.select.mechanisms.floors import FloorMechanism
from tulle.select.mechanisms.mechanism import Greedy, NonPersonalised, SelectionMechanism
from tulle.select.mechanisms.noisy_max import NoisyMax
from tulle.select.mechanisms.prior_choice import PriorChoice
from tulle.select.mechanisms.shortlists import Cutoff, Shortlist, TopCandidates, finalist_sizes
from tulle.select.planner.candidate_outcomes import (
    boosted_outcomes,
    noisy_max_outcomes,
    prior_choice_outcomes,
)
from tulle.select.planner.click_prior import LogitNormalPrior
from tulle.select.planner.shortlist_outcomes import (
    AdaptiveTop,
    ShortlistOutcomes,
    shortlist_outcomes,
)

_GAMMAS = tuple(step / 20 for step in range(21))
"""Cutoffs from 0 to 1 in steps of 0.05, over which a plan compares outcomes; a finer grid takes
longer in proportion."""


class Objective(enum.Enum):
    """What a plan makes as large as possible."""

    WELFARE = "welfare"
    CLICK_RATE = "click_rate"
    REVENUE = "revenue"
    SURPLUS = "surplus"

    def of(self, metrics: MarketMetrics) -> float:
        """Value of the objective."""
        return float(getattr(metrics, self.value))


@dataclasses.dataclass(frozen=True, kw_only=True)
class SelectionOption:
    """One mechanism and what it would bring."""

    mechanism: SelectionMechanism
    metrics: MarketMetrics
    captured_share: float | None
    """Share of the welfare that personalisation without privacy adds; below 0 if it is better not
    to personalise, None if there is nothing to add."""

    @property
    def gamma(self) -> float | None:
        """Gamma of its cutoff, if it has one."""
        shortlist = self.mechanism.shortlist
        return shortlist.gamma if isinstance(shortlist, Cutoff) else None

    @property
    def num_finalists(self) -> int | None:
        """Length of its shortlist, if it is the same for all auctions."""
        shortlist = self.mechanism.shortlist
        return shortlist.num_finalists if isinstance(shortlist, TopCandidates) else None

    def to_dict(self) -> dict[str, Any]:
        """All numbers by name; no epsilon if it is infinite."""
        epsilon = self.mechanism.epsilon
        return {
            "mechanism": self.mechanism.name,
            "epsilon": epsilon if math.isfinite(epsilon) else None,
            "gamma": self.gamma,
            "num_finalists": self.num_finalists,
            **self.metrics.to_dict(),
            "captured_share": self.captured_share,
        }


@dataclasses.dataclass(frozen=True, kw_only=True)
class SelectionOutlook:
    """All options of a plan. As sensitive as what it was computed from."""

    num_auctions: int
    epsilons: tuple[float, ...]
    objective: Objective
    is_from_devices: bool
    """True if it was computed from predictions of devices, and is as sensitive as they are."""
    baseline: MarketMetrics
    """What it is worth not to personalise."""
    ideal: MarketMetrics
    """What the device's favourite is worth, without privacy."""
    options: tuple[SelectionOption, ...]

    def recommended(self, epsilon: float) -> SelectionOption:
        """The best response over a shortlist that spends at most this epsilon.

        The first of equally good ones. Baselines are compared and not recommended.

        Args:
          epsilon: One of those that the outlook was made for.
        """
        if epsilon not in self.epsilons:
            raise ConfigError(
                f"epsilon={epsilon} was not compared; the outlook has {self.epsilons}."
            )
        affordable = [
            option
            for option in self.options
            if isinstance(option.mechanism, FloorMechanism) and option.mechanism.epsilon <= epsilon
        ]
        return max(affordable, key=lambda option: self.objective.of(option.metrics))

    def to_dict(self) -> dict[str, Any]:
        """Plain data for a file or a report."""
        return {
            "num_auctions": self.num_auctions,
            "objective": self.objective.value,
            "is_from_devices": self.is_from_devices,
            "baseline": self.baseline.to_dict(),
            "ideal": self.ideal.to_dict(),
            "options": [option.to_dict() for option in self.options],
            "recommended": [
                {"for_epsilon": epsilon, **self.recommended(epsilon).to_dict()}
                for epsilon in self.epsilons
            ],
        }


@dataclasses.dataclass(frozen=True, kw_only=True)
class OptionGrid:
    """What to compare at each epsilon."""

    gammas: tuple[float, ...] = _GAMMAS
    """Gammas of cutoffs; 0 is added."""
    nums_finalists: tuple[int, ...] = tuple(range(1, 16))
    """Lengths of shortlists."""
    mechanisms: tuple[SelectionMechanism, ...] = ()
    """Further ones, such as baselines, with an epsilon of their own."""

    def of_epsilon(
        self, epsilon: float, prior: LogitNormalPrior | None
    ) -> Iterator[SelectionMechanism]:
        """Options from shorter to longer lists: the first of equally good ones is recommended."""
        shortlists: list[Shortlist] = [
            *(Cutoff(gamma=gamma) for gamma in sorted({0.0, *self.gammas})),
            *(TopCandidates(num_finalists=num) for num in sorted(set(self.nums_finalists))),
        ]
        if prior is not None:
            shortlists.append(AdaptiveTop(epsilon=epsilon, prior=prior))
        for shortlist in shortlists:
            yield FloorMechanism(epsilon=epsilon, shortlist=shortlist)


def plan_selection(
    auctions: Auctions,
    prices: AdPrices,
    *,
    epsilons: Sequence[float],
    prior: LogitNormalPrior | None = None,
    device: DeviceClicks | None = None,
    objective: Objective = Objective.WELFARE,
    grid: OptionGrid | None = None,
) -> SelectionOutlook:
    """Compares mechanisms by exact expectations.

    Args:
      auctions: The public side of auctions like those to come.
      prices: Prices of all candidates, before any shortlist.
      epsilons: Budgets of one decision to compare.
      prior: What devices may find. Without it there is no adaptive shortlist.
      device: Predictions of devices to evaluate on in place of the prior.
      objective: What is to be as large as possible.
      grid: The options.

    Privacy:
      With `device` none: the outlook is not noised and as sensitive as the predictions. Use
      those of a panel. With `prior` alone everything is public.
    """
    if not len(auctions):
        raise ConfigError("there are no auctions to plan for; give at least one.")
    if not epsilons:
        raise ConfigError("epsilons is empty; give at least one, e.g. (1.0, 3.0).")
    expectations: SampleOfDevices | ModelOfDevices
    if device is not None:
        expectations = SampleOfDevices(auctions=auctions, prices=prices, device=device)
    elif prior is not None:
        expectations = ModelOfDevices(auctions=auctions, prices=prices, prior=prior)
    else:
        raise ConfigError(
            "a plan needs to know what devices may find: give prior=LogitNormalPrior(...), or "
            "device= with predictions of a panel."
        )
    grid = grid or OptionGrid()
    baseline, ideal = (expectations.metrics(end) for end in (NonPersonalised(), Greedy()))
    mechanisms = [
        mechanism for epsilon in epsilons for mechanism in grid.of_epsilon(epsilon, prior)
    ]
    options = []
    for mechanism in (*mechanisms, *grid.mechanisms):
        metrics = expectations.metrics(mechanism)
        share = None
        if ideal.welfare > baseline.welfare:
            share = captured_share(metrics.welfare, baseline=baseline.welfare, ideal=ideal.welfare)
        options.append(SelectionOption(mechanism=mechanism, metrics=metrics, captured_share=share))
    return SelectionOutlook(
        num_auctions=len(auctions),
        epsilons=tuple(epsilons),
        objective=objective,
        is_from_devices=device is not None,
        baseline=baseline,
        ideal=ideal,
        options=tuple(options),
    )


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
        """Outcomes of all shortlists, computed once."""
        return shortlist_outcomes(self.auctions, self.prices, self.prior)

    def metrics(self, mechanism: SelectionMechanism) -> MarketMetrics:
        """Exact means over draws and devices, to 1e-4.

        Those of the two baselines with noise or a prior of their own are exact to 1e-3.

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
        elif isinstance(mechanism, PriorChoice):
            outcomes = prior_choice_outcomes(self.auctions, mechanism, self.prior)
        else:
            raise ConfigError(
                f"mechanism {mechanism.name!r} has no known expectation over a prior; give a "
                "sample of devices' predictions."
            )
        return outcomes.metrics(self.auctions, self.prices)
