"""The selection to use for auctions like those of a file, before any private score is read."""

import dataclasses
import functools
import itertools
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tulle.errors import ConfigError, DataError
from tulle.privacy.plan import Plan
from tulle.select.auctions import Auctions, DeviceClicks, keep_candidates
from tulle.select.billing.incentives import IncentiveReport, PricedSelection, report_incentives
from tulle.select.billing.prices import price_candidates
from tulle.select.decisions.requests import AuctionBlock, first_auctions, personalised_requests
from tulle.select.files.auction_files import AuctionColumns
from tulle.select.mechanisms.floors import FloorMechanism
from tulle.select.mechanisms.mechanism import NonPersonalised
from tulle.select.mechanisms.noisy_max import (
    ClippedScores,
    NoisyMax,
    ScaledScores,
    typical_score,
)
from tulle.select.mechanisms.noisy_max_probs import NoiseKind
from tulle.select.mechanisms.prior_choice import PriorChoice
from tulle.select.mechanisms.slots import SlotMechanism
from tulle.select.planner.candidate_outcomes import favourite_probs
from tulle.select.planner.click_prior import (
    LogitNormalPrior,
    draw_devices,
    private_stddev_of_sample,
)
from tulle.select.planner.outlook import Objective, OptionGrid, SelectionOutlook, plan_selection
from tulle.select.selection_config import (
    DecidingMechanism,
    Pricing,
    SelectionConfig,
    SelectionPrivacy,
    shows_one_ad,
)
from tulle.select.selection_plan import make_selection_plan
from tulle.select.settings import read_settings, settings_of, settings_text

_INCENTIVE_AUCTIONS = 2000
"""Auctions that incentives are judged on; they are simulated one by one and take longest."""
_DRAWN_SEED = 1
"""Seed of devices that are drawn for the report on incentives: nobody's predictions."""
_MOST_FINALISTS = 15
"""Longest shortlist that is compared: with more ads randomized response gains hardly anything."""
_CLIPPED_WIDTHS = (0.02, 0.1, 0.4)
"""Widths of the scores of baselines, in typical server scores."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlanSettings:
    """What a selection is to be like, and how it is planned. Every field is public."""

    epsilons: tuple[float, ...]
    """Epsilons of one decision to compare; the largest is planned for."""
    private_stddev: float | None = None
    """How much more devices know: standard deviation of the private part of the logit of a
    click."""
    from_devices: bool = False
    """Evaluate on predictions of devices, of a panel. Then the outlook is not private."""
    objective: Objective = Objective.WELFARE
    """What the plan maximises."""
    baselines: bool = False
    """Compare noisy maxima and others too."""
    privacy: SelectionPrivacy
    """Who is to be protected, how far, and who may be personalised for."""
    pricing: Pricing = dataclasses.field(default_factory=Pricing)
    """What chosen ads are to pay."""
    sample: int = 20_000
    """Number of first auctions that are planned on."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class SelectionPlan:
    """A selection, what it would bring and cost, and what advertisers may object to."""

    config: SelectionConfig
    """The recommended selection. Decisions, bills and evaluations take it as it is."""
    columns: AuctionColumns = dataclasses.field(default_factory=AuctionColumns)
    """Names of the columns that it was planned with; decisions read the same."""
    outlook: SelectionOutlook | None = dataclasses.field(default=None, repr=False)
    """All options that were compared; None where the selection was given."""
    incentives: IncentiveReport | None = dataclasses.field(default=None, repr=False)
    """What advertisers may object to, measured on the sample."""
    personalised_share: float | None = None
    """Share of the sample that would be personalised, by consent and finalists."""

    @functools.cached_property
    def plan(self) -> Plan:
        """The plan with event, guarantee and assumptions, as the card will show it."""
        return make_selection_plan(self.config, self.columns)

    @property
    def settings(self) -> str:
        """The settings file of the selection, as text."""
        return settings_text(self.config)

    def _repr_html_(self) -> str:
        """The page of the plan, for notebooks."""
        from tulle.report.select_report import plan_page
        from tulle.report.verbs import page_frame

        return page_frame(plan_page(self.config.name, self.to_dict()))

    def to_dict(self) -> dict[str, Any]:
        """Everything that was found, in plain data."""
        accounting = self.config.accounting
        facts = {} if self.outlook is None else self.outlook.to_dict()
        facts |= {
            "settings": self.settings,
            "decision_guarantee": str(accounting.decision_guarantee(self.config.privacy.delta)),
            "incentives": None,
        }
        if self.config.privacy.max_decisions_per_user is not None:
            facts["user_guarantee"] = str(accounting.user_guarantee(self.config.privacy.delta))
        if self.incentives is not None:
            facts["incentives"] = [
                dataclasses.asdict(finding) | {"severity": finding.severity.value}
                for finding in self.incentives.findings
            ]
        if self.personalised_share is not None:
            facts["personalised_share"] = self.personalised_share
        return facts


FilePath = str | os.PathLike[str]
Selection = SelectionConfig | SelectionPlan | Mapping[str, Any] | FilePath
"""A selection: what `plan` gave, a config, the tables of a settings file, or its path."""
Columns = AuctionColumns | Mapping[str, Any] | None
"""Names of the columns of auctions; None: those of the plan, or the usual ones."""


def selection_of(given: Selection) -> SelectionConfig:
    """The selection, whichever way it was given.

    Raises:
      ConfigError: A setting is unknown, missing or wrong, or two do not go together.
      DataError: The file cannot be read.
    """
    if isinstance(given, SelectionPlan):
        return given.config
    if isinstance(given, SelectionConfig):
        return given
    if isinstance(given, Mapping):
        return settings_of(given, name="selection")
    return read_settings(Path(given))


def auction_columns(given: Columns, selection: Selection | None = None) -> AuctionColumns:
    """Names of the columns: as given, else those that the selection was planned with."""
    if given is None:
        return selection.columns if isinstance(selection, SelectionPlan) else AuctionColumns()
    return given if isinstance(given, AuctionColumns) else AuctionColumns(**given)


def recommend_selection(
    auctions: Path, settings: PlanSettings, *, columns: AuctionColumns, name: str
) -> SelectionPlan:
    """Compares mechanisms by exact expectations and recommends one.

    Args:
      auctions: A file of auctions like those to come.
      settings: What the selection is to be like.
      columns: Names of the columns of the auctions.
      name: Name of the selection.

    Privacy:
      Nothing is spent. Predictions of devices are read only if the settings say so; then the
      outlook is as sensitive as they are, and must be of a panel.
    """
    if not settings.epsilons:
        raise ConfigError("epsilon is missing: say what one decision may cost, e.g. 3.")
    block = _sample(auctions, settings, columns)
    sample = block.auctions
    device = block.device_clicks() if settings.from_devices else None
    prior = _prior(settings, sample, device)
    extra = _baselines(settings, sample, prior, device) if settings.baselines else ()
    outlook = plan_selection(
        sample,
        price_candidates(sample, settings.pricing.price_rule, reserve=settings.pricing.reserve),
        epsilons=tuple(sorted(set(settings.epsilons))),
        prior=prior,
        device=device,
        objective=settings.objective,
        grid=OptionGrid(
            mechanisms=extra,
            nums_finalists=tuple(range(1, min(int(sample.sizes.max()), _MOST_FINALISTS) + 1)),
        ),
    )
    config = SelectionConfig(
        name=name,
        mechanism=_recommended(outlook),
        privacy=dataclasses.replace(settings.privacy, planned_on_devices=settings.from_devices),
        pricing=settings.pricing,
    )
    is_personalised = personalised_requests(config, [block]).is_personalised
    return SelectionPlan(
        config=config,
        columns=columns,
        outlook=outlook,
        incentives=_incentives(config, sample, device, prior),
        personalised_share=float(is_personalised.mean()),
    )


def _sample(path: Path, settings: PlanSettings, columns: AuctionColumns) -> AuctionBlock:
    """The first auctions of the file; predictions of devices only if they were asked for."""
    reserve = settings.pricing.reserve
    block = first_auctions(
        path,
        columns,
        num_auctions=settings.sample,
        reserve=reserve,
        with_device=settings.from_devices,
    )
    if not len(block.auctions):
        raise DataError(f"no auction has an ad with a server score of {reserve} or more.")
    return block


def _prior(
    settings: PlanSettings, auctions: Auctions, device: DeviceClicks | None
) -> LogitNormalPrior:
    """What devices may find. Asked for only after the file has shown that it holds auctions."""
    if settings.private_stddev is not None:
        return LogitNormalPrior(private_stddev=settings.private_stddev)
    if device is None:
        raise ConfigError(
            "a plan needs to know what devices may find: give private_stddev, e.g. 0.6, or "
            "from_devices with predictions of a panel."
        )
    return LogitNormalPrior(private_stddev=round(private_stddev_of_sample(auctions, device), 3))


def _baselines(
    settings: PlanSettings,
    auctions: Auctions,
    prior: LogitNormalPrior,
    device: DeviceClicks | None,
) -> tuple[Any, ...]:
    unit = typical_score(auctions)
    bounds: list[Any] = [ClippedScores(width=width * unit) for width in _CLIPPED_WIDTHS]
    if device is not None:  # over a prior they have no known expectation
        bounds.append(ScaledScores())
    found: list[Any] = [
        NoisyMax(epsilon=epsilon, noise=noise, score_bound=bound)
        for epsilon in settings.epsilons
        for bound, noise in itertools.product(bounds, NoiseKind)
    ]
    probs = favourite_probs(auctions, prior)
    found += [PriorChoice(epsilon=epsilon, winner_probs=probs) for epsilon in settings.epsilons]
    return tuple(found)


def _recommended(outlook: SelectionOutlook) -> DecidingMechanism:
    """The recommended mechanism at the largest epsilon."""
    best = outlook.recommended(max(outlook.epsilons)).mechanism
    # The server's winner alone costs nothing; a response over one ad would be charged.
    if isinstance(best, FloorMechanism) and not shows_one_ad(best):
        return best
    return NonPersonalised()


def _incentives(
    config: SelectionConfig,
    auctions: Auctions,
    device: DeviceClicks | None,
    prior: LogitNormalPrior,
) -> IncentiveReport | None:
    """What advertisers may object to, on the first auctions; devices are drawn if none is known."""
    if isinstance(config.mechanism, SlotMechanism):
        return None
    is_first = np.repeat(np.arange(len(auctions)) < _INCENTIVE_AUCTIONS, auctions.sizes)
    first = keep_candidates(auctions, is_first)
    if device is None:
        devices = draw_devices(first.auctions, prior, seed=_DRAWN_SEED)
    else:
        devices = DeviceClicks(click_probs=device.click_probs[first.kept_candidates])
    selection = PricedSelection(
        mechanism=config.mechanism, rule=config.pricing.price_rule, reserve=config.pricing.reserve
    )
    return report_incentives(first.auctions, devices, selection)
