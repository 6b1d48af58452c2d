"""The plot of an outlook shows every epsilon and the numbers of its options."""

import xml.etree.ElementTree as ET

import numpy as np
import pytest

from tulle.errors import DataError
from tulle.report import outlook_plot
from tulle.report.outlook_plot import plot_outlook
from tulle.report.select_plots import CurveAxes, SelectionCurve
from tulle.select.ad_prices import AdPrices
from tulle.select.auctions import Auctions
from tulle.select.billing.prices import PricingRule, price_candidates
from tulle.select.planner.click_prior import LogitNormalPrior
from tulle.select.planner.plan_selection import OptionGrid, plan_selection
from tulle.select.planner.selection_outlook import SelectionOutlook

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


def test_it_is_an_svg_with_every_epsilon() -> None:
    text = plot_outlook(outlook_of(4))
    root = ET.fromstring(text)  # noqa: S314  (it is our own)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    for shown in ("epsilon 1", "epsilon 3", "by cutoff gamma", "by number of finalists"):
        assert shown in text


def test_its_curves_are_the_captured_shares(monkeypatch: pytest.MonkeyPatch) -> None:
    outlook = outlook_of(4)
    seen: dict[str, list[SelectionCurve]] = {}

    def keep(panels: dict[str, list[SelectionCurve]], axes: CurveAxes) -> str:
        assert axes.value_name == "captured share of the gain"
        seen.update(panels)
        return "<svg/>"

    monkeypatch.setattr(outlook_plot, "plot_selection_panels", keep)
    plot_outlook(outlook)
    for panel, setting in (
        ("by cutoff gamma", "gamma"),
        ("by number of finalists", "num_finalists"),
    ):
        assert [curve.label for curve in seen[panel]] == ["epsilon 1", "epsilon 3"]
        for curve, epsilon in zip(seen[panel], (1.0, 3.0), strict=True):
            expected = {
                getattr(option, setting): option.captured_share
                for option in outlook.options
                if option.mechanism.epsilon == epsilon and getattr(option, setting) is not None
            }
            assert dict(zip(curve.settings, curve.values, strict=True)) == expected
            assert len(expected) == 3


def test_auctions_of_one_ad_have_nothing_to_capture() -> None:
    outlook = outlook_of(1)
    assert all(option.captured_share is None for option in outlook.options)
    with pytest.raises(DataError, match="leave out the plot"):
        plot_outlook(outlook)
