"""Plots of the experiments on markets: what each mechanism captures, and where one overtakes."""

from collections.abc import Sequence

from tulle.report.select_plots import (
    CurveAxes,
    SelectionCurve,
    plot_lifts,
    plot_overtaking_grid,
    plot_selection_curves,
    plot_selection_panels,
)
from tulle.select.market.epsilon_sweep import CLIPPED
from tulle.select.market.experiments import MarketExperiments
from tulle.select.market.mixing_grid import GridRow
from tulle.select.market.pricing_claims import RULE_NAMES
from tulle.select.market.synthetic_scores import ScoreRow


def plot_captured_shares(markets: Sequence[MarketExperiments]) -> str:
    """The captured share over epsilon, one panel for each market."""
    panels = {}
    for market in markets:
        # Prices do not change welfare; the rows of one rule are enough.
        rule = market.epsilon_rows[0].rule
        rows = [r for r in market.epsilon_rows if r.rule == rule and r.mechanism != CLIPPED]
        panels[market.market] = [
            _curve(label, [(r.epsilon, r.captured_share) for r in rows if r.mechanism == label])
            for label in dict.fromkeys(row.mechanism for row in rows)
        ]
    return plot_selection_panels(panels, _shares_over("epsilon"))


def plot_gammas(markets: Sequence[MarketExperiments]) -> str:
    """The captured share over gamma, one line for each epsilon."""
    panels = {
        market.market: _curves_by_epsilon(
            [(row.epsilon, row.gamma, row.captured_share) for row in market.gamma_rows]
        )
        for market in markets
    }
    return plot_selection_panels(panels, _shares_over("cutoff gamma"))


def plot_finalists(markets: Sequence[MarketExperiments]) -> str:
    """The captured share over the number of finalists, one line for each epsilon."""
    panels = {
        market.market: _curves_by_epsilon(
            [(row.epsilon, row.num_finalists, row.captured_share) for row in market.finalist_rows]
        )
        for market in markets
    }
    return plot_selection_panels(panels, _shares_over("finalists"))


def plot_lifts_over_epsilon(market: MarketExperiments) -> str:
    """Clicks, welfare, and surplus and revenue under each rule of pricing, over epsilon."""
    rules = list(dict.fromkeys(row.rule for row in market.epsilon_rows))
    panels = {
        "clicks": _lift_curves(market, rules[0], "click_rate_lift"),
        "welfare": _lift_curves(market, rules[0], "welfare_lift"),
    }
    for rule in rules:
        for metric in ("surplus", "revenue"):
            title = f"{metric}, {RULE_NAMES.get(rule, rule)}"
            panels[title] = _lift_curves(market, rule, f"{metric}_lift")
    axes = CurveAxes(setting_name="epsilon", value_name="lift over no personalisation")
    return plot_selection_panels(panels, axes)


def plot_pricing_effect(market: MarketExperiments) -> str:
    """Revenue and surplus without private data in prices, by rule."""
    lifts = {
        f"{RULE_NAMES[row.rule]}, {row.predictions}": {
            "revenue": row.revenue_lift,
            "surplus": row.surplus_lift,
        }
        for row in market.pricing
        if row.predictions != "device"
    }
    return plot_lifts(lifts, value_name="change against the device's predictions")


def plot_score_comparison(rows: Sequence[ScoreRow]) -> str:
    """Expected scores over epsilon without public hints, one panel for each law and size."""
    panels = {}
    for law, size in dict.fromkeys((row.law, row.num_candidates) for row in rows):
        own = [row for row in rows if (row.law, row.num_candidates) == (law, size)]
        panels[f"{law}, {size} candidates"] = [
            SelectionCurve(
                label=label,
                settings=[row.epsilon for row in own if row.mechanism == label],
                values=[row.mean_score for row in own if row.mechanism == label],
                spreads=[row.score_stddev for row in own if row.mechanism == label],
            )
            for label in dict.fromkeys(row.mechanism for row in own)
        ]
    axes = CurveAxes(setting_name="epsilon", value_name="expected score", is_percent=False)
    return plot_selection_panels(panels, axes)


def plot_mixing_grid(rows: Sequence[GridRow]) -> str:
    """From which epsilon on randomized response is ahead of clipped noisy max."""
    cells: dict[str, dict[float, float | None]] = {}
    for row in rows:
        cells.setdefault(row.group, {})[row.alpha] = row.overtaking_epsilon
    return plot_overtaking_grid(cells)


def plot_single_auctions(market: MarketExperiments) -> str:
    """Expected scores over epsilon in single auctions, one panel for each."""
    panels: dict[str, list[SelectionCurve]] = {}
    for auction in dict.fromkeys(row.auction for row in market.single_rows):
        rows = [row for row in market.single_rows if row.auction == auction]
        title = f"{rows[0].num_candidates} candidates, server {rows[0].server_is}"
        panels[title] = [
            _curve(label, [(row.epsilon, row.score) for row in rows if row.mechanism == label])
            for label in dict.fromkeys(row.mechanism for row in rows)
        ]
    axes = CurveAxes(setting_name="epsilon", value_name="expected score", is_percent=False)
    return plot_selection_panels(panels, axes)


def plot_candidate_counts(markets: Sequence[MarketExperiments]) -> str:
    """Which share of auctions has at most so many candidates."""
    curves = [
        SelectionCurve(
            label=market.market, settings=market.counts.num_candidates, values=market.counts.shares
        )
        for market in markets
    ]
    axes = CurveAxes(setting_name="candidates", value_name="share of auctions", lowest=0.0)
    return plot_selection_curves(curves, axes)


def plot_click_differences(market: MarketExperiments) -> str:
    """How far devices are from the server, by how much of what they know is left."""
    curves = [
        SelectionCurve(
            label=f"alpha {found.alpha:g}", settings=found.edges[:-1], values=found.shares
        )
        for found in market.differences
    ]
    axes = CurveAxes(setting_name="|device - server|", value_name="share of candidates")
    return plot_selection_curves(curves, axes)


def plot_market(market: MarketExperiments, grid: Sequence[GridRow]) -> dict[str, str]:
    """All plots of one market, by name."""
    plots = {
        "captured": plot_captured_shares([market]),
        "gamma": plot_gammas([market]),
        "finalists": plot_finalists([market]),
        "lifts": plot_lifts_over_epsilon(market),
        "pricing": plot_pricing_effect(market),
        "candidates": plot_candidate_counts([market]),
        "differences": plot_click_differences(market),
        "grid": plot_mixing_grid(grid),
    }
    if market.single_rows:
        plots["auctions"] = plot_single_auctions(market)
    return plots


def _lift_curves(market: MarketExperiments, rule: str, lift_name: str) -> list[SelectionCurve]:
    """One for each mechanism, without points where there was nothing to lift."""
    points: dict[str, list[tuple[float, float]]] = {}
    for row in market.epsilon_rows:
        lift = row.lifts[lift_name]
        if row.rule == rule and row.mechanism != CLIPPED and lift is not None:
            points.setdefault(row.mechanism, []).append((row.epsilon, lift))
    return [_curve(label, found) for label, found in points.items()]


def _shares_over(setting_name: str) -> CurveAxes:
    return CurveAxes(
        setting_name=setting_name,
        value_name="captured share of the gain",
        lowest=-1.0,
        highest=1.05,
    )


def _curves_by_epsilon(points: Sequence[tuple[float, float, float]]) -> list[SelectionCurve]:
    """From epsilon, setting and value of each point."""
    return [
        _curve(f"epsilon {epsilon:g}", [(x, y) for own, x, y in points if own == epsilon])
        for epsilon in dict.fromkeys(epsilon for epsilon, _, _ in points)
    ]


def _curve(label: str, points: list[tuple[float, float]]) -> SelectionCurve:
    return SelectionCurve(
        label=label, settings=[x for x, _ in points], values=[y for _, y in points]
    )
