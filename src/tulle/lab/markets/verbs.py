"""The verb of the lab's markets: run the published experiments on a market and judge their claims.

Nothing here is protected: what comes out is computed from predictions of devices without noise.
It is for synthetic markets, and for panels that agreed.
"""

import dataclasses
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tulle.atomic_files import reporting_disk_errors, write_text
from tulle.errors import ConfigError, DataError, RunStateError
from tulle.lab.markets.claims import ClaimVerdict, judge_claims
from tulle.lab.markets.experiments import ExperimentSettings, MarketExperiments, run_experiments
from tulle.lab.markets.market_sample import MarketSample
from tulle.lab.markets.overtaking import GridRow, GridSettings, groups_by_size, mixing_grid
from tulle.lab.markets.plots import market_charts
from tulle.lab.markets.synthetic_market import REFERENCE_MARKETS
from tulle.privacy.fields import did_you_mean
from tulle.report.html.chart_svg import write_charts
from tulle.select.auctions import Auctions, DeviceClicks, above_reserve
from tulle.select.billing.prices import PricingRule
from tulle.select.decisions.requests import first_auctions
from tulle.select.files.auction_files import AuctionColumns, auctions_file
from tulle.select.planner.click_prior import LogitNormalPrior, private_stddev_of_sample
from tulle.select.recommending import auction_columns

MARKETS = {
    "search": "search, 15 candidates",
    "display": "display, 15 candidates",
    "small-display": "display, 4 candidates",
}
"""Names of synthetic markets by their word."""

Watch = Callable[[str], None]
"""Function that is told what begins."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Simulation:
    """What was found on one market. Not a private release."""

    found: MarketExperiments
    grid: tuple[GridRow, ...]
    """Epsilons at which randomized response overtakes, by candidates and by what devices know."""
    claims: tuple[ClaimVerdict, ...]

    def to_dict(self) -> dict[str, Any]:
        """Everything that was found, in plain data, and that nothing protects it."""
        return {
            "simulation": "not a private release",
            **self.found.to_dict(),
            "grid_rows": [row.to_dict() for row in self.grid],
            "claims": [claim.to_dict() for claim in self.claims],
        }

    def write(self, folder: Path) -> None:
        """Writes simulation.json and the charts as SVG files into a new folder."""
        text = json.dumps(self.to_dict(), indent=2, allow_nan=False) + "\n"
        charts = market_charts(self.found, self.grid)
        with reporting_disk_errors(folder):
            folder.mkdir(parents=True)
        for name, shown in charts.items():
            write_charts(folder / f"{name}.svg", shown)
        write_text(folder / "simulation.json", text)


def simulate(
    auctions: object = None,
    *,
    market: str | None = None,
    num_auctions: int = 10_000,
    seed: int = 1,
    reserve: float = 0.0,
    private_stddev: float | None = None,
    columns: AuctionColumns | Mapping[str, Any] | None = None,
    output: str | os.PathLike[str] | None = None,
    watch: Watch | None = None,
) -> Simulation:
    """Runs the experiments of Laro et al. 2024 on a market and judges their claims.

    Settings are tuned on one half of the devices and judged on the other. All expectations are
    exact.

    Args:
      auctions: A file of auctions with predictions of devices, or a table of them.
      market: Synthetic market instead of files: "search", "display" or "small-display".
      num_auctions: Number of auctions to draw, or to read at most.
      seed: Seed of a synthetic market.
      reserve: Least server score that takes part.
      private_stddev: Standard deviation of the planner's prior, for auctions that were given;
        None: fitted to half of them.
      columns: Names of the columns of auctions, where they are not the usual ones.
      output: New folder for simulation.json and charts.
      watch: Function that is told what begins.

    Privacy:
      None: exact figures from predictions of devices. For synthetic markets, and for people who
      agreed.

    Raises:
      ConfigError: Neither or both of auctions and market are given, or a setting is wrong.
      DataError: The auctions cannot be used.
      RunStateError: The folder exists.
    """
    if (auctions is None) == (market is None):
        raise ConfigError("give a file of auctions, or e.g. market='search', and not both.")
    folder = None if output is None else Path(output)
    if folder is not None and folder.exists():
        raise RunStateError(f"{folder.name} exists already; name a new folder.")
    say = watch or (lambda _: None)
    say("read the market")
    if market is not None:
        if private_stddev is not None:
            raise ConfigError("private_stddev is for a file: a synthetic market has its own.")
        name, planning, judged, prior = _drawn(market, num_auctions, seed, reserve)
    else:
        names = auction_columns(columns)
        with auctions_file(auctions, names, with_device=True) as path:
            name, whole = path.stem, _read(path, names, num_auctions, reserve)
        planning, judged, prior = _halves(whole, private_stddev)
    say("sweep mechanisms")
    found = run_experiments(name, planning, judged, settings=ExperimentSettings(), prior=prior)
    say("mix predictions")
    grid = mixing_grid(groups_by_size(judged), GridSettings())
    claims = judge_claims([found], score_rows=(), grid_rows=grid)
    made = Simulation(found=found, grid=grid, claims=claims)
    if folder is not None:
        made.write(folder)
    return made


def _drawn(
    word: str, num_auctions: int, seed: int, reserve: float
) -> tuple[str, MarketSample, MarketSample, LogitNormalPrior]:
    """Name of a synthetic market, the half for tuning, the half to judge, and its prior."""
    if word not in MARKETS:
        raise ConfigError(
            f"market={word!r} is unknown{did_you_mean(word, MARKETS)}; use one of "
            f"{', '.join(MARKETS)}."
        )
    name = MARKETS[word]
    market = REFERENCE_MARKETS[name]
    planning, judged = (
        _sample(*market.draw(num_auctions // 2, seed=own_seed), reserve)
        for own_seed in (seed + 1, seed)
    )
    return name, planning, judged, LogitNormalPrior(private_stddev=market.private_stddev)


def _read(path: Path, columns: AuctionColumns, num_auctions: int, reserve: float) -> MarketSample:
    block = first_auctions(
        path, columns, num_auctions=num_auctions, reserve=reserve, with_device=True
    )
    if len(block.auctions) < 2:
        raise DataError(f"{path.name} has fewer than two auctions above the reserve.")
    return _sample(block.auctions, block.device_clicks(), reserve)


def _halves(
    whole: MarketSample, private_stddev: float | None
) -> tuple[MarketSample, MarketSample, LogitNormalPrior]:
    """Every other auction for tuning, the others to judge; the prior is fitted to the first."""
    rows = np.arange(len(whole.auctions))
    planning, judged = whole.subset(rows[1::2]), whole.subset(rows[::2])
    if private_stddev is None:
        private_stddev = private_stddev_of_sample(planning.auctions, planning.device)
    return planning, judged, LogitNormalPrior(private_stddev=private_stddev)


def _sample(auctions: Auctions, device: DeviceClicks, reserve: float) -> MarketSample:
    eligible = above_reserve(auctions, reserve)
    return MarketSample(
        auctions=eligible.auctions,
        device=DeviceClicks(click_probs=device.click_probs[eligible.kept_candidates]),
        pricing=PricingRule.SECOND_PRICE_PER_CLICK,
        reserve=reserve,
    )
