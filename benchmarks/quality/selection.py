"""Ad selection on three markets: python benchmarks/quality/selection.py.

The experiments of Laro et al. 2024 and their claims, on synthetic markets in which the server is
calibrated. Expectations over choices are exact; auctions and devices are drawn, and settings are
tuned on other devices than they are judged on.
"""

import argparse
import dataclasses
import sys
import time
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from record import PUBLISHED, print_table, versions, write_record
from tulle.lab.markets.claims import judge_claims
from tulle.lab.markets.experiments import (
    ExperimentSettings,
    MarketExperiments,
    run_experiments,
)
from tulle.lab.markets.market_sample import MarketSample
from tulle.lab.markets.overtaking import (
    GridRow,
    GridSettings,
    ScoreLaw,
    ScoreRow,
    compare_on_scores,
    mixing_grid,
)
from tulle.lab.markets.plots import (
    captured_charts,
    finalist_charts,
    gamma_charts,
    grid_chart,
    lift_charts,
    pricing_chart,
)
from tulle.lab.markets.synthetic_market import DISPLAY, REFERENCE_MARKETS, SyntheticMarket
from tulle.report.html.chart_svg import write_charts
from tulle.report.html.charts import Axis, Chart, Curve, CurveChart
from tulle.select.billing.prices import PricingRule
from tulle.select.planner.click_prior import LogitNormalPrior

DOCS = PUBLISHED.parents[1] / "docs"
SEED = 1
NUM_AUCTIONS = 50_000
NUM_PLANNING_AUCTIONS = 10_000
NUM_GRID_AUCTIONS = 4_000
GRID_SIZES = (3, 6, 15)
SCORE_SIZES = (15, 100)
SCORE_EPSILONS = (0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0)
NUM_SCORE_SETS = 100
RULE = PricingRule.SECOND_PRICE_PER_CLICK


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=PUBLISHED / "selection.json")
    parser.add_argument("--plots", type=Path, default=DOCS, help="Folder of the plots.")
    parser.add_argument("--auctions", type=int, default=NUM_AUCTIONS)
    parser.add_argument("--grid-auctions", type=int, default=NUM_GRID_AUCTIONS)
    options = parser.parse_args()
    start = time.monotonic()
    markets = [
        market_experiments(name, market, options.auctions)
        for name, market in REFERENCE_MARKETS.items()
    ]
    scores = score_rows()
    grid = grid_rows(options.grid_auctions)
    claims = judge_claims(markets, score_rows=scores, grid_rows=grid)
    print_table(captured_rows(markets))
    print_table([claim.to_dict() | {"numbers": rounded(claim.numbers)} for claim in claims])
    facts = {
        "versions": versions("numpy", "scipy"),
        "seed": SEED,
        "num_auctions": options.auctions,
        "num_grid_auctions": options.grid_auctions,
        "num_score_sets": NUM_SCORE_SETS,
        "settings": {
            name: dataclasses.asdict(market) for name, market in REFERENCE_MARKETS.items()
        },
        "claims": [claim.to_dict() for claim in claims],
        "markets": [published(market) for market in markets],
        "scores": [row.to_dict() for row in scores],
        "grid": [row.to_dict() for row in grid],
    }
    write_record(options.output, "ad selection by market", captured_rows(markets), facts)
    write_plots(options.plots, markets, scores, grid)
    print(f"{time.monotonic() - start:.0f} seconds")


def market_experiments(name: str, market: SyntheticMarket, num_auctions: int) -> MarketExperiments:
    """All experiments on one market; planning devices meet other auctions."""
    return run_experiments(
        name,
        sample_of(market, min(num_auctions, NUM_PLANNING_AUCTIONS), SEED + 1),
        sample_of(market, num_auctions, SEED),
        settings=ExperimentSettings(),
        prior=LogitNormalPrior(private_stddev=market.private_stddev),
    )


def sample_of(market: SyntheticMarket, num_auctions: int, seed: int) -> MarketSample:
    """Drawn auctions whose winners pay by the click."""
    auctions, device = market.draw(num_auctions, seed=seed)
    return MarketSample(auctions=auctions, device=device, pricing=RULE)


def score_rows() -> list[ScoreRow]:
    """Scores without public hints, by law and number of candidates."""
    return [
        row
        for law in ScoreLaw
        for size in SCORE_SIZES
        for row in compare_on_scores(
            law,
            num_candidates=size,
            epsilons=SCORE_EPSILONS,
            num_sets=NUM_SCORE_SETS,
            seed=SEED,
        )
    ]


def grid_rows(num_auctions: int) -> tuple[GridRow, ...]:
    """The display market with 3, 6 and 15 candidates, and devices that know less and less."""
    groups = {
        f"{size} candidates": sample_of(
            dataclasses.replace(DISPLAY, num_candidates=size, num_eligible=size),
            num_auctions,
            SEED,
        )
        for size in GRID_SIZES
    }
    return mixing_grid(groups, GridSettings())


def write_plots(
    folder: Path,
    markets: list[MarketExperiments],
    scores: list[ScoreRow],
    grid: tuple[GridRow, ...],
) -> None:
    """All plots of the page, as selection-*.svg."""
    plots = {
        "captured": captured_charts(markets),
        "gamma": gamma_charts(markets),
        "finalists": finalist_charts(markets),
        "lifts": lift_charts(markets[1]),
        "pricing": [pricing_chart(markets[0])],
        "scores": score_charts(scores),
        "grid": [grid_chart(grid)],
    }
    for name, charts in plots.items():
        write_charts(folder / f"selection-{name}.svg", charts)


def score_charts(rows: Sequence[ScoreRow]) -> list[Chart]:
    """Expected scores over epsilon without public hints, one chart for each law and size.

    Ranges are one standard deviation over the drawn sets of scores, to each side.
    """
    charts: list[Chart] = []
    for law, size in dict.fromkeys((row.law, row.num_candidates) for row in rows):
        own = [row for row in rows if (row.law, row.num_candidates) == (law, size)]
        curves = []
        for label in dict.fromkeys(row.mechanism for row in own):
            found = [row for row in own if row.mechanism == label]
            curves.append(
                Curve(
                    label=label,
                    xs=tuple(row.epsilon for row in found),
                    ys=tuple(row.mean_score for row in found),
                    ranges=tuple(
                        (row.mean_score - row.score_stddev, row.mean_score + row.score_stddev)
                        for row in found
                    ),
                )
            )
        charts.append(
            CurveChart(
                name=f"{law}, {size} candidates",
                x_axis=Axis(name="epsilon"),
                y_axis=Axis(name="expected score"),
                curves=tuple(curves),
            )
        )
    return charts


def captured_rows(markets: list[MarketExperiments]) -> list[dict[str, object]]:
    """The captured share of the gain, by market, mechanism and epsilon."""
    return [
        {
            "market": market.market,
            "mechanism": row.mechanism,
            "setting": row.setting,
            "epsilon": row.epsilon,
            "captured_share": row.captured_share,
            "captured_share_error": row.captured_share_error,
            **row.lifts,
        }
        for market in markets
        for row in market.epsilon_rows
        if row.rule == RULE.value
    ]


def published(market: MarketExperiments) -> dict[str, object]:
    """Without what the rows of the record say already, and of gammas what they capture."""
    kept = {name: value for name, value in market.to_dict().items() if name != "epsilon_rows"}
    names = ("epsilon", "gamma", "mean_finalists", "captured_share", "click_rate_lift")
    gammas = [row.to_dict() for row in market.gamma_rows]
    finalists = [row.to_dict() for row in market.finalist_rows]
    return kept | {
        "gamma_rows": [{name: row[name] for name in names} for row in gammas],
        "finalist_rows": [
            {name: row[name] for name in ("epsilon", "num_finalists", "captured_share")}
            for row in finalists
        ],
    }


def rounded(numbers: dict[str, float | None]) -> dict[str, float | None]:
    return {name: value if value is None else round(value, 3) for name, value in numbers.items()}


if __name__ == "__main__":
    main()
