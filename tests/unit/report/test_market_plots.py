"""Plots of experiments show every market, mechanism and setting that was tried."""

import dataclasses
import xml.etree.ElementTree as ET

import pytest

from tulle.report.market_plots import (
    plot_captured_shares,
    plot_finalists,
    plot_gammas,
    plot_lifts_over_epsilon,
    plot_mixing_grid,
    plot_pricing_effect,
    plot_score_comparison,
)
from tulle.select.billing.prices import PricingRule
from tulle.select.market.epsilon_sweep import SweepSettings
from tulle.select.market.experiments import (
    ExperimentSettings,
    MarketExperiments,
    run_experiments,
)
from tulle.select.market.market_sample import MarketSample
from tulle.select.market.mixing_grid import GridSettings, mixing_grid
from tulle.select.market.reference_markets import SMALL_DISPLAY
from tulle.select.market.synthetic_scores import ScoreLaw, compare_on_scores

SVG = "{http://www.w3.org/2000/svg}"


def texts(svg: str) -> list[str]:
    root = ET.fromstring(svg)  # noqa: S314  (it is our own)
    return [element.text or "" for element in root.iter(f"{SVG}text")]


@pytest.fixture(scope="module")
def sample() -> MarketSample:
    auctions, device = SMALL_DISPLAY.draw(60, seed=1)
    return MarketSample(auctions=auctions, device=device, pricing=PricingRule.SECOND_PRICE)


@pytest.fixture(scope="module")
def market(sample: MarketSample) -> MarketExperiments:
    sweep = SweepSettings(epsilons=(1.0, 4.0), gammas=(0.0, 0.5, 1.0), relative_widths=(0.1,))
    settings = ExperimentSettings(sweep=sweep, shortlist_epsilons=(1.0, 4.0))
    return run_experiments("four ads", sample, sample, settings=settings, prior=None)


def test_captured_shares_are_shown_by_market_and_mechanism(market: MarketExperiments) -> None:
    other = dataclasses.replace(market, market="another")
    shown = texts(plot_captured_shares([market, other]))
    assert {"four ads", "another", "epsilon", "randomized response, gamma tuned"} < set(shown)
    # Fixed widths have several values at one epsilon: no line.
    assert "noisy max, clipped" not in shown


def test_shortlists_have_a_line_for_each_epsilon(market: MarketExperiments) -> None:
    for plot, name in ((plot_gammas, "cutoff gamma"), (plot_finalists, "finalists")):
        shown = texts(plot([market]))
        assert {"epsilon 1", "epsilon 4", name, "four ads"} < set(shown)


def test_revenue_is_shown_under_each_rule(market: MarketExperiments) -> None:
    shown = texts(plot_lifts_over_epsilon(market))
    panels = {
        f"{metric}, next score below, {paid}"
        for metric in ("surplus", "revenue")
        for paid in ("an impression", "a click")
    }
    assert panels | {"clicks", "welfare"} < set(shown)
    bars = texts(plot_pricing_effect(market))
    assert {"revenue", "surplus", "server", "uninformed"} < set(bars)
    assert "device" not in bars


def test_a_metric_without_a_baseline_has_no_point(market: MarketExperiments) -> None:
    rows = tuple(
        dataclasses.replace(row, lifts=row.lifts | {"revenue_lift": None})
        if row.epsilon == 1.0
        else row
        for row in market.epsilon_rows
    )
    svg = plot_lifts_over_epsilon(dataclasses.replace(market, epsilon_rows=rows))
    assert svg != plot_lifts_over_epsilon(market)


def test_scores_have_a_panel_for_each_law_and_size() -> None:
    rows = [
        row
        for law in ScoreLaw
        for row in compare_on_scores(law, num_candidates=5, epsilons=[1.0, 2.0], num_sets=5, seed=1)
    ]
    shown = texts(plot_score_comparison(rows))
    assert {"uniform, 5 candidates", "Bernoulli 0.9, 5 candidates", "expected score"} < set(shown)


def test_the_grid_shows_groups_and_alphas(sample: MarketSample) -> None:
    settings = GridSettings(alphas=(1.0, 0.5), epsilons=(1.0, 9.0), relative_widths=(0.1,))
    shown = texts(plot_mixing_grid(mixing_grid({"four ads": sample}, settings)))
    assert {"four ads", "1", "0.5"} < set(shown)
