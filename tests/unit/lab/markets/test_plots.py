"""Charts of experiments show every market, mechanism and setting that was tried."""

import dataclasses

import pytest

from tulle.lab.markets.experiments import ExperimentSettings, MarketExperiments, run_experiments
from tulle.lab.markets.market_sample import MarketSample
from tulle.lab.markets.overtaking import GridSettings, mixing_grid
from tulle.lab.markets.plots import (
    captured_charts,
    finalist_charts,
    gamma_charts,
    grid_chart,
    lift_charts,
    market_charts,
    pricing_chart,
)
from tulle.lab.markets.sweeps import CLIPPED, TUNED_CUTOFF, SweepSettings
from tulle.lab.markets.synthetic_market import SMALL_DISPLAY
from tulle.report.html.chart_svg import charts_svg
from tulle.report.html.charts import BarChart, Chart, Curve, CurveChart
from tulle.select.billing.prices import PricingRule


def curves_of(chart: Chart) -> dict[str, Curve]:
    assert isinstance(chart, CurveChart)
    return {curve.label: curve for curve in chart.curves}


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
    charts = captured_charts([market, other])
    assert [chart.name for chart in charts] == ["four ads", "another"]
    curves = curves_of(charts[0])
    found = {
        row.epsilon: row.captured_share
        for row in market.epsilon_rows
        if row.mechanism == TUNED_CUTOFF
    }
    curve = curves[TUNED_CUTOFF]
    assert dict(zip(curve.xs, curve.ys, strict=True)) == found
    # Fixed widths have several values at one epsilon: no line.
    assert CLIPPED not in curves


def test_shortlists_have_a_curve_for_each_epsilon(market: MarketExperiments) -> None:
    (gammas,), (finalists,) = gamma_charts([market]), finalist_charts([market])
    assert list(curves_of(gammas)) == list(curves_of(finalists)) == ["epsilon 1", "epsilon 4"]
    assert curves_of(gammas)["epsilon 4"].xs == (0.0, 0.5, 1.0)
    assert curves_of(finalists)["epsilon 4"].xs == (1, 2, 3, 4)


def test_revenue_is_shown_under_each_rule(market: MarketExperiments) -> None:
    names = {
        f"{metric}, next score below, {paid}"
        for metric in ("surplus", "revenue")
        for paid in ("an impression", "a click")
    }
    assert {chart.name for chart in lift_charts(market)} == names | {"clicks", "welfare"}
    bars = pricing_chart(market)
    assert isinstance(bars, BarChart)
    labels = " ".join(bar.label for bar in bars.bars)
    assert all(word in labels for word in ("revenue", "surplus", "server", "uninformed"))
    assert "device" not in labels
    assert [bar.value for bar in bars.bars[:2]] == [
        market.pricing[1].revenue_lift,
        market.pricing[1].surplus_lift,
    ]


def test_a_metric_without_a_baseline_has_no_point(market: MarketExperiments) -> None:
    rows = tuple(
        dataclasses.replace(row, lifts=row.lifts | {"revenue_lift": None})
        if row.epsilon == 1.0
        else row
        for row in market.epsilon_rows
    )
    charts = lift_charts(dataclasses.replace(market, epsilon_rows=rows))
    shown = {chart.name: curves_of(chart)[TUNED_CUTOFF].xs for chart in charts}
    assert shown["revenue, next score below, a click"] == (4.0,)
    assert shown["surplus, next score below, a click"] == (1.0, 4.0)


def test_the_grid_shows_groups_and_alphas_where_one_is_ahead(sample: MarketSample) -> None:
    settings = GridSettings(alphas=(1.0, 0.5), epsilons=(1.0, 9.0), relative_widths=(0.1,))
    rows = mixing_grid({"four ads": sample}, settings)
    expected = {r.alpha: r.overtaking_epsilon for r in rows if r.overtaking_epsilon is not None}
    curve = curves_of(grid_chart(rows))["four ads"]
    assert dict(zip(curve.xs, curve.ys, strict=True)) == expected
    never = [dataclasses.replace(row, response_values=(-9.0, -9.0)) for row in rows]
    charts = market_charts(
        run_experiments(
            "four ads",
            sample,
            sample,
            settings=ExperimentSettings(
                sweep=SweepSettings(epsilons=(1.0,), gammas=(0.5,), relative_widths=(0.1,)),
                shortlist_epsilons=(1.0,),
            ),
            prior=None,
        ),
        never,
    )
    assert "grid" not in charts
    for shown in charts.values():
        assert charts_svg(shown).startswith("<svg xmlns")
