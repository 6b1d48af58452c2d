"""Ad selection by Laro et al. 2024, run again on a market.

Captured shares are of the gain in welfare from the server's winners to the devices' favourites:
below 0 is worse than no personalisation. Expectations over choices are exact.
"""

import dataclasses
import math
from collections.abc import Mapping

import numpy as np

from tulle.errors import DataError
from tulle.lab.markets.experiments import BEST_OTHER, pricing_effect
from tulle.lab.markets.market_sample import MarketSample
from tulle.lab.markets.overtaking import (
    ONE_BOOSTED,
    SCALED_NOISY_MAX,
    GridSettings,
    ScoreLaw,
    ScoreRow,
    compare_on_scores,
    groups_by_size,
    mixing_grid,
    score_overtaking,
)
from tulle.lab.markets.sweeps import (
    RANDOMIZED_RESPONSE,
    SCALED,
    TUNED_CLIPPED,
    SweepRow,
    SweepSettings,
    best_gamma,
    epsilon_sweep,
    gamma_sweep,
)
from tulle.lab.markets.synthetic_market import DISPLAY, SEARCH, SMALL_DISPLAY, SyntheticMarket
from tulle.lab.reproduction.published import Findings, OwnFigure
from tulle.lab.reproduction.reproducing import ReproductionSettings
from tulle.select.billing.prices import PricingRule

# Auctions of a reduced run, which takes seconds, and of one at paper scale; those of the grid are
# judged at many settings, so they are fewer.
_NUM_AUCTIONS, _PAPER_AUCTIONS = 40_000, 750_000
_GRID_AUCTIONS, _PAPER_GRID_AUCTIONS = 5_000, 50_000
_SWEEP = SweepSettings(epsilons=(0.5, 1.0, 2.0, 3.0, 5.0, 8.0, 20.0))
"""Epsilons of the sweep; 20 shows what mechanisms come to with almost no noise."""
_COMPARED = (RANDOMIZED_RESPONSE, SCALED, TUNED_CLIPPED)
_GAMMAS = tuple(number / 20 for number in range(21))
"""Cutoffs from 0 to 1; the best one is found to a step of 0.05."""
_HIGH_EPSILON = 5.0
"""The epsilon at which the paper compares cutoffs and lifts."""
# Sizes and epsilons of the panels, and as many sets of scores in each as in the paper.
_SCORE_SIZES = (15, 100)
_SCORE_EPSILONS = (0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0)
_NUM_SCORE_SETS = 100
_GROUPS = {"few candidates": 3, "some candidates": 6, "many candidates": 15}
"""Auctions that stand for the groups of up to 3, of 4 to 9 and of 10 or more candidates."""
_RULES = {
    PricingRule.SECOND_PRICE.value: "paid by the impression",
    PricingRule.SECOND_PRICE_PER_CLICK.value: "paid by the click",
    BEST_OTHER: "best other score",
}


def run_epsilon_sweep(settings: ReproductionSettings) -> Findings:
    """Mechanisms over epsilon: shares of the gain, and lifts at two rules of pricing.

    Privacy:
      Not a private release: computed from device predictions.
    """
    settings.say("draw a market")
    planning, judged = _halves(settings, SMALL_DISPLAY)
    settings.say("sweep mechanisms over epsilon")
    rows = epsilon_sweep(planning, judged, settings=_SWEEP, prior=None)
    figures: dict[str, OwnFigure] = {}
    for row in rows:
        name = f"{row.mechanism}, epsilon {row.epsilon:g}"
        figure = OwnFigure(value=row.captured_share, error=row.captured_share_error)
        # Several widths of clipping have one name: the best of them stands for all.
        if name not in figures or figure.value > figures[name].value:
            figures[name] = figure
    return Findings(figures=figures | _sweep_lifts(rows), setting=_described(judged, settings))


def run_gamma_sweep(settings: ReproductionSettings) -> Findings:
    """Randomized response at epsilon 5 over the cutoff: where each metric is best.

    Privacy:
      Not a private release: computed from device predictions.
    """
    settings.say("draw a market")
    _, judged = _halves(settings, SMALL_DISPLAY)
    figures = {}
    for rule in (PricingRule.SECOND_PRICE, PricingRule.SECOND_PRICE_PER_CLICK):
        settings.say(f"sweep gamma, {_RULES[rule.value]}")
        sample = dataclasses.replace(judged, pricing=rule)
        rows = gamma_sweep(sample, epsilons=(_HIGH_EPSILON,), gammas=_GAMMAS)
        for metric in ("click_rate", "surplus", "revenue"):
            gamma = best_gamma(rows, epsilon=_HIGH_EPSILON, objective=metric)
            words = metric.replace("_", " ")
            name = words if metric == "click_rate" else f"{words}, {_RULES[rule.value]}"
            figures[f"best gamma, {name}"] = OwnFigure(value=gamma)
        by_gamma = {row.gamma: row.metrics.click_rate for row in rows}
        best = max(by_gamma, key=lambda gamma: by_gamma[gamma])
        for name, gamma in (("0", 0.0), ("1", 1.0), ("best", best)):
            figures[f"click rate, gamma {name}"] = OwnFigure(value=by_gamma[gamma])
    return Findings(figures=figures, setting=_described(judged, settings))


def run_synthetic_scores(settings: ReproductionSettings) -> Findings:
    """Randomized response against scaled noisy max on drawn scores without public hints."""
    if settings.data is not None:
        raise DataError(
            "this target is about scores that are drawn; there is no data to give. Leave out "
            "--data."
        )
    rows: list[ScoreRow] = []
    for law in ScoreLaw:
        for size in _SCORE_SIZES:
            settings.say(f"{size} scores, {law.value}")
            rows += compare_on_scores(
                law,
                num_candidates=size,
                epsilons=_SCORE_EPSILONS,
                num_sets=_NUM_SCORE_SETS,
                seed=settings.seed,
            )
    figures = {
        f"{row.mechanism}, {row.law}, {row.num_candidates}, epsilon {row.epsilon:g}": OwnFigure(
            value=row.mean_score, error=row.score_stddev / math.sqrt(_NUM_SCORE_SETS)
        )
        for row in rows
        if row.mechanism in (ONE_BOOSTED, SCALED_NOISY_MAX)
    }
    for (law_name, size), epsilon in score_overtaking(rows).items():
        figures[f"overtaking epsilon, {law_name}, {size}"] = _overtaking(epsilon)
    return Findings(
        figures=figures, setting=f"{_NUM_SCORE_SETS} sets of scores a panel, as in the paper"
    )


def run_mixing_grid(settings: ReproductionSettings) -> Findings:
    """Finds the epsilon from which on randomized response beats clipping, by candidates and alpha.

    Privacy:
      Not a private release: computed from device predictions.
    """
    groups, setting = _grid_groups(settings)
    settings.say("mix predictions and sweep epsilon")
    rows = mixing_grid(groups, GridSettings())
    figures = {
        f"overtaking epsilon, {row.group}, alpha {row.alpha:g}": _overtaking(row.overtaking_epsilon)
        for row in rows
    }
    missing = {
        f"overtaking epsilon, {name}, alpha {alpha:g}": f"the data have no auctions with {name}"
        for name in _GROUPS
        if name not in groups
        for alpha in GridSettings().alphas
    }
    return Findings(figures=figures, missing=missing, setting=setting)


def run_pricing(settings: ReproductionSettings) -> Findings:
    """Revenue and surplus when prices come from other predictions than the device's.

    Privacy:
      Not a private release: computed from device predictions.
    """
    figures: dict[str, OwnFigure] = {}
    missing: dict[str, str] = {}
    settings.say("draw markets")
    _, display = _halves(settings, SMALL_DISPLAY)
    figures |= _pricing_figures("display", display)
    if settings.data is None:
        _, search = _halves(settings, SEARCH)
        figures |= _pricing_figures("search", search)
    else:
        missing = {
            name.replace("display", "search", 1): "the data are one market, taken for display"
            for name in figures
        }
    return Findings(figures=figures, missing=missing, setting=_described(display, settings))


def _pricing_figures(market: str, sample: MarketSample) -> dict[str, OwnFigure]:
    return {
        f"{market}, {metric} lift, {row.predictions} prices, {_RULES[row.rule]}": OwnFigure(
            value=value
        )
        for row in pricing_effect(sample)
        if row.predictions != "device"
        for metric, value in (("revenue", row.revenue_lift), ("surplus", row.surplus_lift))
    }


def _sweep_lifts(rows: tuple[SweepRow, ...]) -> dict[str, OwnFigure]:
    """Lifts over the server's winners: clicks, and what the printed rule and clicks pay."""
    figures: dict[str, OwnFigure] = {}
    for row in rows:
        lifts = {name.replace("_", " "): lift for name, lift in row.lifts.items()}
        end = f"{row.mechanism}, epsilon {row.epsilon:g}"
        wanted = {f"click rate lift, {end}": lifts["click rate lift"]}
        if (row.mechanism, row.epsilon) == (RANDOMIZED_RESPONSE, _HIGH_EPSILON):
            for metric in ("revenue lift", "surplus lift"):
                wanted[f"{metric}, {end}, {_RULES[row.rule]}"] = lifts[metric]
        if row.mechanism in _COMPARED:
            figures |= {
                name: OwnFigure(value=lift) for name, lift in wanted.items() if lift is not None
            }
    return figures


def _overtaking(epsilon: float | None) -> OwnFigure:
    return OwnFigure(value=math.inf if epsilon is None else epsilon)


def _halves(
    settings: ReproductionSettings, market: SyntheticMarket
) -> tuple[MarketSample, MarketSample]:
    """Auctions to tune on and others to judge by; drawn, or the user's."""
    most = _PAPER_AUCTIONS if settings.is_paper else _NUM_AUCTIONS
    if settings.data is None:
        planning, judged = (
            _drawn(market, most // 2, seed) for seed in (settings.seed + 1, settings.seed)
        )
        return planning, judged
    whole = _read(settings, most)
    rows = np.arange(len(whole.auctions))
    return whole.subset(rows[1::2]), whole.subset(rows[::2])


def _grid_groups(settings: ReproductionSettings) -> tuple[Mapping[str, MarketSample], str]:
    most = _PAPER_GRID_AUCTIONS if settings.is_paper else _GRID_AUCTIONS
    if settings.data is not None:
        whole = _read(settings, most)
        sized = groups_by_size(whole)
        names = dict(zip(("up to 3", "4 to 9", "10 candid"), _GROUPS, strict=True))
        groups = {
            names[start]: sample
            for group, sample in sized.items()
            for start in names
            if group.startswith(start)
        }
        return groups, _described(whole, settings)
    drawn = {
        name: _drawn(
            dataclasses.replace(DISPLAY, num_candidates=size, num_eligible=size),
            most,
            settings.seed,
        )
        for name, size in _GROUPS.items()
    }
    sizes = ", ".join(str(size) for size in _GROUPS.values())
    return drawn, f"synthetic display market, {most:,} auctions each with {sizes} candidates"


def _drawn(market: SyntheticMarket, num_auctions: int, seed: int) -> MarketSample:
    auctions, device = market.draw(num_auctions, seed=seed)
    return MarketSample(
        auctions=auctions, device=device, pricing=PricingRule.SECOND_PRICE_PER_CLICK
    )


def _read(settings: ReproductionSettings, most: int) -> MarketSample:
    from tulle.select.decisions.requests import first_auctions
    from tulle.select.files.auction_files import AuctionColumns

    if settings.data is None:
        raise DataError("there is no file of auctions; give --data.")
    block = first_auctions(
        settings.data, AuctionColumns(), num_auctions=most, reserve=0.0, with_device=True
    )
    if len(block.auctions) < 2:
        raise DataError(f"{settings.data.name} has fewer than two auctions; give more.")
    return MarketSample(
        auctions=block.auctions,
        device=block.device_clicks(),
        pricing=PricingRule.SECOND_PRICE_PER_CLICK,
    )


def _described(sample: MarketSample, settings: ReproductionSettings) -> str:
    where = "synthetic display market" if settings.data is None else settings.data.name
    mean_size = sample.auctions.num_candidates / len(sample.auctions)
    return (
        f"{where}, {len(sample.auctions):,} auctions to judge by, {mean_size:.1f} candidates each, "
        f"personalisation adds {sample.gain:.1%} of welfare"
    )
