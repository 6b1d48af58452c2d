"""Selection run again: figures agree with the library's own claims on the same market."""

import dataclasses
import json
from pathlib import Path

import pytest

from tulle.errors import DataError
from tulle.lab.markets.claims import ClaimVerdict, mechanism_claims, pricing_claims
from tulle.lab.markets.experiments import ExperimentSettings, run_experiments
from tulle.lab.markets.market_sample import MarketSample
from tulle.lab.markets.synthetic_market import SMALL_DISPLAY
from tulle.lab.reproduction import market_runs
from tulle.lab.reproduction.market_runs import (
    run_epsilon_sweep,
    run_gamma_sweep,
    run_mixing_grid,
    run_pricing,
    run_synthetic_scores,
)
from tulle.lab.reproduction.published import Findings, judge, published_target
from tulle.lab.reproduction.reproducing import ReproductionSettings
from tulle.select.billing.prices import PricingRule
from unit.select.decisions.auction_tables import auction_table, write_table

SEED = 4
NUM_AUCTIONS = 600


@pytest.fixture(autouse=True)
def _small_markets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(market_runs, "_NUM_AUCTIONS", 2 * NUM_AUCTIONS)
    monkeypatch.setattr(market_runs, "_GRID_AUCTIONS", 200)


def verdicts_of(name: str, found: Findings) -> dict[str, str]:
    exact = Findings(
        figures={
            key: dataclasses.replace(figure, error=None) for key, figure in found.figures.items()
        }
    )
    return {
        claim.text: judge(claim, exact).verdict.value for claim in published_target(name).claims
    }


def _sample(seed: int) -> MarketSample:
    auctions, device = SMALL_DISPLAY.draw(NUM_AUCTIONS, seed=seed)
    return MarketSample(
        auctions=auctions, device=device, pricing=PricingRule.SECOND_PRICE_PER_CLICK
    )


def library_verdicts() -> list[ClaimVerdict]:
    planning, judged = (_sample(seed) for seed in (SEED + 1, SEED))
    sweep = dataclasses.replace(market_runs._SWEEP, epsilons=(0.5, 1.0, 5.0))
    found = run_experiments(
        "display",
        planning,
        judged,
        settings=ExperimentSettings(sweep=sweep, shortlist_epsilons=(5.0,)),
        prior=None,
    )
    return [*pricing_claims(found), *mechanism_claims(found)]


def test_verdicts_agree_with_those_that_the_library_computes_by_itself() -> None:
    settings = ReproductionSettings(seed=SEED)
    library = {(claim.claim, claim.condition): claim.verdict.value for claim in library_verdicts()}
    prices = verdicts_of("apple-pricing", run_pricing(settings))
    for ours, theirs in (
        ("paid by the impression", "next score below, an impression"),
        ("paid by the click", "next score below, a click"),
    ):
        condition = f"greedy selection, {theirs}"
        rises = "revenue rises when private data leave the pricing"
        further = "revenue rises further with the same click rate for all ads"
        trend = "the trend goes on with one click rate for all ads"
        assert prices[f"{rises}, display, {ours}"] == library[rises, condition]
        assert prices[f"{trend}, display, {ours}"] == library[further, condition]
    sweep = verdicts_of("apple-fig3", run_epsilon_sweep(settings))
    lifts = "randomized response at epsilon 5 lifts"
    for ours, theirs in (
        ("with the printed prices", "next score below, an impression"),
        ("if clicks are paid for", "next score below, a click"),
    ):
        assert (
            sweep[f"{lifts} clicks, surplus and revenue, {ours}"]
            == library[f"{lifts} every metric", f"gamma 1, {theirs}"]
        )
    low = "at epsilon 1 every mechanism"
    assert (
        sweep[f"{low} does worse than no personalisation"]
        == library[
            f"{low} is below no personalisation", "gamma 1, the best of the fixed widths; welfare"
        ]
    )
    gammas = verdicts_of("apple-fig4", run_gamma_sweep(settings))
    assert (
        gammas["gamma is best near 0.8: click rate"]
        == library["gamma is best near 0.8 at epsilon 5", "click rate; near is within 0.1"]
    )


def test_the_printed_prices_never_raise_revenue() -> None:
    # A theorem: the price falls with the server's rank, and rank 1 is the baseline.
    found = run_epsilon_sweep(ReproductionSettings(seed=SEED))
    name = "revenue lift, randomized response, epsilon 5, paid by the impression"
    assert found.figures[name].value <= 0
    gammas = run_gamma_sweep(ReproductionSettings(seed=SEED))
    assert gammas.figures["best gamma, revenue, paid by the impression"].value == 0


def test_drawn_scores_give_the_published_order() -> None:
    found = run_synthetic_scores(ReproductionSettings(seed=2))
    assert set(verdicts_of("apple-fig10", found).values()) == {"holds"}
    # All scores are between 0 and 1, and errors are those of a hundred sets.
    scores = [figure for name, figure in found.figures.items() if "overtaking" not in name]
    assert all(0 < score.value < 1 and 0 <= (score.error or 0) < 0.02 for score in scores)


def test_drawn_scores_take_no_data(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="Leave out"):
        run_synthetic_scores(ReproductionSettings(data=tmp_path))


def test_a_file_of_auctions_is_run_and_what_it_lacks_is_told(tmp_path: Path) -> None:
    path = tmp_path / "auctions.parquet"
    write_table(auction_table(300, seed=3).drop("consent"), path)
    settings = ReproductionSettings(data=path)
    found = run_pricing(settings)
    assert "auctions.parquet" in found.setting
    name = "search, revenue lift, server prices, paid by the click"
    assert found.missing[name] == "the data are one market, taken for display"
    claims = published_target("apple-pricing").claims
    judged = {claim.text: judge(claim, found) for claim in claims}
    rises = "revenue rises when private data leave the pricing"
    assert judged[f"{rises}, search, paid by the click"].verdict.value == "not comparable"
    assert judged[f"{rises}, display, paid by the click"].verdict.value != "not comparable"
    grid = run_mixing_grid(settings)
    assert grid.figures
    assert not set(grid.figures) & set(grid.missing)
    assert len(grid.figures) + len(grid.missing) == 12


def test_the_same_seed_gives_the_same_figures() -> None:
    one, same, other = (
        run_mixing_grid(ReproductionSettings(seed=seed)).figures for seed in (1, 1, 2)
    )
    assert one == same
    assert len(one) == 12
    first, second = (
        json.dumps(sorted((k, v.value) for k, v in run_pricing(s).figures.items()))
        for s in (ReproductionSettings(seed=1), ReproductionSettings(seed=2))
    )
    assert first != second
    assert set(one) == set(other)
