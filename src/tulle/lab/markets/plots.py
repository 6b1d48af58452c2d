"""Charts of the experiments on markets: what each mechanism captures, and where one overtakes.

They show expectations over a market; those of single auctions show single devices.
"""

from collections.abc import Iterable, Sequence

from tulle.lab.markets.claims import RULE_NAMES
from tulle.lab.markets.experiments import MarketExperiments
from tulle.lab.markets.overtaking import GridRow
from tulle.lab.markets.sweeps import CLIPPED, SweepRow
from tulle.report.html.charts import Axis, Bar, BarChart, Chart, Curve, CurveChart

_EPSILON = Axis(name="epsilon")
_SHARE = Axis(name="captured share of the gain", is_percent=True, low=-1.0, high=1.0)
"""Cut at minus the whole gain, so that one bad mechanism does not flatten the others."""

Point = tuple[str, float, float]
"""Label of a curve, setting and value."""


def captured_charts(markets: Sequence[MarketExperiments]) -> list[Chart]:
    """The captured share over epsilon, one chart for each market."""
    return [
        _chart(
            market.market,
            _EPSILON,
            _SHARE,
            # Prices do not change welfare: the rows of one rule are enough.
            [(r.mechanism, r.epsilon, r.captured_share) for r in _rows(market, _rules(market)[0])],
        )
        for market in markets
    ]


def gamma_charts(markets: Sequence[MarketExperiments]) -> list[Chart]:
    """The captured share over gamma, one curve for each epsilon."""
    return [
        _chart(
            market.market,
            Axis(name="cutoff gamma"),
            _SHARE,
            [(_epsilon(r.epsilon), r.gamma, r.captured_share) for r in market.gamma_rows],
        )
        for market in markets
    ]


def finalist_charts(markets: Sequence[MarketExperiments]) -> list[Chart]:
    """The captured share over the number of finalists, one curve for each epsilon."""
    return [
        _chart(
            market.market,
            Axis(name="number of finalists"),
            _SHARE,
            [
                (_epsilon(r.epsilon), r.num_finalists, r.captured_share)
                for r in market.finalist_rows
            ],
        )
        for market in markets
    ]


def lift_charts(market: MarketExperiments) -> list[Chart]:
    """Clicks, welfare, and surplus and revenue under each rule of pricing, over epsilon."""
    rules = _rules(market)
    names = {"clicks": (rules[0], "click_rate_lift"), "welfare": (rules[0], "welfare_lift")}
    for rule in rules:
        for metric in ("surplus", "revenue"):
            names[f"{metric}, {RULE_NAMES.get(rule, rule)}"] = rule, f"{metric}_lift"
    lift_axis = Axis(name="lift over no personalisation", is_percent=True)
    charts: list[Chart] = []
    for name, (rule, lift_name) in names.items():
        points = [
            (row.mechanism, row.epsilon, lift)
            for row in _rows(market, rule)
            if (lift := row.lifts[lift_name]) is not None
        ]
        if points:
            charts.append(_chart(name, _EPSILON, lift_axis, points))
    return charts


def pricing_chart(market: MarketExperiments) -> Chart:
    """Revenue and surplus without private data in prices, by rule."""
    return BarChart(
        name=f"Prices without private data, {market.market}",
        value_name="change against the device's predictions",
        bars=tuple(
            Bar(label=f"{metric}: {RULE_NAMES[row.rule]}, {row.predictions}", value=lift)
            for row in market.pricing
            if row.predictions != "device"
            for metric, lift in (("revenue", row.revenue_lift), ("surplus", row.surplus_lift))
        ),
        is_percent=True,
    )


def grid_chart(rows: Sequence[GridRow]) -> Chart:
    """Epsilon from which on randomized response is ahead, by what devices know.

    A point is missing where it is never ahead.
    """
    return _chart(
        "Where randomized response overtakes clipped noisy max",
        Axis(name="alpha: share that is left of what devices know"),
        Axis(name="epsilon from which it is ahead", low=0.0),
        [
            (row.group, row.alpha, row.overtaking_epsilon)
            for row in sorted(rows, key=lambda row: row.alpha)
            if row.overtaking_epsilon is not None
        ],
    )


def single_auction_charts(market: MarketExperiments) -> list[Chart]:
    """Expected scores over epsilon in single auctions, one chart for each."""
    charts: list[Chart] = []
    for auction in dict.fromkeys(row.auction for row in market.single_rows):
        rows = [row for row in market.single_rows if row.auction == auction]
        name = f"{rows[0].num_candidates} candidates, server {rows[0].server_is}"
        points = [(row.mechanism, row.epsilon, row.score) for row in rows]
        charts.append(_chart(name, _EPSILON, Axis(name="expected score"), points))
    return charts


def market_charts(market: MarketExperiments, grid: Sequence[GridRow]) -> dict[str, list[Chart]]:
    """All charts of one market, by the name of their file.

    Args:
      market: What was found on it.
      grid: Rows of the mixing grid.
    """
    charts = {
        "captured": captured_charts([market]),
        "gamma": gamma_charts([market]),
        "finalists": finalist_charts([market]),
        "lifts": lift_charts(market),
        "pricing": [pricing_chart(market)],
        "candidates": [_candidate_chart(market)],
        "differences": [_difference_chart(market)],
    }
    if any(row.overtaking_epsilon is not None for row in grid):
        charts["grid"] = [grid_chart(grid)]
    if market.single_rows:
        charts["auctions"] = single_auction_charts(market)
    return charts


def _candidate_chart(market: MarketExperiments) -> Chart:
    """Which share of auctions has at most so many candidates."""
    counts = market.counts
    return _chart(
        f"Candidates of an auction, {market.market}",
        Axis(name="candidates"),
        Axis(name="share of auctions with at most as many", is_percent=True, low=0.0),
        [("", num, share) for num, share in zip(counts.num_candidates, counts.shares, strict=True)],
    )


def _difference_chart(market: MarketExperiments) -> Chart:
    """How far devices are from the server, by how much of what they know is left."""
    return _chart(
        f"Device against server, {market.market}",
        Axis(name="|device - server|"),
        Axis(name="share of candidates", is_percent=True),
        [
            (f"alpha {found.alpha:g}", edge, share)
            for found in market.differences
            for edge, share in zip(found.edges[:-1], found.shares, strict=True)
        ],
    )


def _rules(market: MarketExperiments) -> list[str]:
    return list(dict.fromkeys(row.rule for row in market.epsilon_rows))


def _rows(market: MarketExperiments, rule: str) -> list[SweepRow]:
    """Rows of one rule, without the fixed widths, which are several at one epsilon."""
    return [r for r in market.epsilon_rows if r.rule == rule and r.mechanism != CLIPPED]


def _epsilon(epsilon: float) -> str:
    return f"epsilon {epsilon:g}"


def _chart(name: str, x_axis: Axis, y_axis: Axis, points: Iterable[Point]) -> Chart:
    """One curve for each label, in the order in which labels first come."""
    curves: dict[str, list[tuple[float, float]]] = {}
    for label, x, y in points:
        curves.setdefault(label, []).append((x, y))
    return CurveChart(
        name=name,
        x_axis=x_axis,
        y_axis=y_axis,
        curves=tuple(
            Curve(label=label, xs=tuple(x for x, _ in found), ys=tuple(y for _, y in found))
            for label, found in curves.items()
        ),
    )
