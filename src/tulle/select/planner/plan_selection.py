"""Which mechanism to use: what each would bring, and the best of them.

The options are randomized response over shortlists: by cutoff, by length, and of the length that
pays off in each auction. A cutoff of 0 shows the server's winner and is always among them, so
what is recommended is never below not personalising.
"""

import dataclasses
from collections.abc import Iterator, Sequence

from tulle.errors import ConfigError
from tulle.select.ad_prices import AdPrices
from tulle.select.auctions import Auctions, DeviceClicks
from tulle.select.baselines.greedy import Greedy, NonPersonalised
from tulle.select.floors.floor_mechanism import FloorMechanism
from tulle.select.floors.shortlist import Cutoff, Shortlist, TopCandidates
from tulle.select.mechanism import SelectionMechanism
from tulle.select.metrics import captured_share
from tulle.select.planner.adaptive_shortlist import AdaptiveTop
from tulle.select.planner.click_prior import LogitNormalPrior
from tulle.select.planner.expectations import Expectations, ModelOfDevices, SampleOfDevices
from tulle.select.planner.selection_outlook import Objective, SelectionOption, SelectionOutlook

_GAMMAS = tuple(step / 20 for step in range(21))


@dataclasses.dataclass(frozen=True, kw_only=True)
class OptionGrid:
    """What to compare at each epsilon."""

    gammas: tuple[float, ...] = _GAMMAS
    """Of cutoffs; 0 is added."""
    nums_finalists: tuple[int, ...] = tuple(range(1, 16))
    """Lengths of shortlists."""
    mechanisms: tuple[SelectionMechanism, ...] = ()
    """Further ones, such as baselines, with an epsilon of their own."""

    def of_epsilon(
        self, epsilon: float, prior: LogitNormalPrior | None
    ) -> Iterator[SelectionMechanism]:
        """From shorter to longer lists: the first of equally good ones is recommended."""
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
      prices: Of all candidates, before any shortlist.
      epsilons: Budgets of one decision to compare.
      prior: What devices may find. Without it there is no adaptive shortlist.
      device: Predictions of devices to evaluate on in place of the prior.
      objective: What is to be as large as possible.
      grid: The options.

    Privacy:
      With `device` none: the outlook is not noised and as sensitive as the predictions. Use
      those of a panel. With `prior` alone everything is public.
    """
    expectations = _expectations(auctions, prices, prior, device)
    grid = grid or OptionGrid()
    if not epsilons:
        raise ConfigError("epsilons is empty; give at least one, e.g. (1.0, 3.0).")
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


def _expectations(
    auctions: Auctions,
    prices: AdPrices,
    prior: LogitNormalPrior | None,
    device: DeviceClicks | None,
) -> Expectations:
    if not len(auctions):
        raise ConfigError("there are no auctions to plan for; give at least one.")
    if device is not None:
        return SampleOfDevices(auctions=auctions, prices=prices, device=device)
    if prior is not None:
        return ModelOfDevices(auctions=auctions, prices=prices, prior=prior)
    raise ConfigError(
        "a plan needs to know what devices may find: give prior=LogitNormalPrior(...), or device= "
        "with predictions of a panel."
    )
