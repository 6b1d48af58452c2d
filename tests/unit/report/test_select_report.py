"""The charts of a plan show every epsilon and the numbers of its options."""

import numpy as np
import pytest

from tulle.errors import DataError
from tulle.report.html.chart_svg import charts_svg
from tulle.report.html.charts import CurveChart
from tulle.report.select_report import plan_charts
from tulle.select.auctions import Auctions
from tulle.select.billing.prices import AdPrices, PricingRule, price_candidates
from tulle.select.planner.click_prior import LogitNormalPrior
from tulle.select.planner.outlook import OptionGrid, SelectionOutlook, plan_selection

GRID = OptionGrid(gammas=(0.0, 0.5, 1.0), nums_finalists=(1, 2, 3))


def outlook_of(num_candidates: int) -> SelectionOutlook:
    rng = np.random.default_rng(1)
    num_rows = 20 * num_candidates
    auctions = Auctions(
        offsets=np.arange(21) * num_candidates,
        ads=np.tile(np.arange(num_candidates), 20),
        bids=rng.lognormal(0, 0.5, num_rows),
        server_click_probs=rng.uniform(0.05, 0.2, num_rows),
    )
    prices: AdPrices = price_candidates(auctions, PricingRule.SECOND_PRICE, reserve=0.0)
    prior = LogitNormalPrior(private_stddev=0.6)
    return plan_selection(auctions, prices, epsilons=(1.0, 3.0), prior=prior, grid=GRID)


def test_their_curves_are_the_captured_shares() -> None:
    outlook = outlook_of(4)
    charts = plan_charts(outlook.to_dict()["options"])
    for chart, setting in zip(charts, ("gamma", "num_finalists"), strict=True):
        assert isinstance(chart, CurveChart)
        assert [curve.label for curve in chart.curves] == ["epsilon 1", "epsilon 3"]
        for curve, epsilon in zip(chart.curves, (1.0, 3.0), strict=True):
            expected = {
                getattr(option, setting): option.captured_share
                for option in outlook.options
                if option.mechanism.epsilon == epsilon and getattr(option, setting) is not None
            }
            assert dict(zip(curve.xs, curve.ys, strict=True)) == expected
            assert len(expected) == 3


def test_auctions_of_one_ad_have_nothing_to_capture() -> None:
    outlook = outlook_of(1)
    assert all(option.captured_share is None for option in outlook.options)
    with pytest.raises(DataError, match="leave out the plot"):
        charts_svg(plan_charts(outlook.to_dict()["options"]))
