"""Every mechanism at every epsilon; cutoff and list length have an optimum between their ends."""

from collections.abc import Callable

import numpy as np
import pytest

from tulle.lab.markets.market_sample import MarketSample
from tulle.lab.markets.sweeps import (
    ADAPTIVE,
    CLIPPED,
    PAPER_CUTOFF,
    RANDOMIZED_RESPONSE,
    SCALED,
    TUNED_CLIPPED,
    TUNED_CUTOFF,
    WITH_PRIOR,
    SweepRow,
    SweepSettings,
    best_gamma,
    epsilon_sweep,
    finalist_sweep,
    gamma_sweep,
    tuned_clipping,
)
from tulle.lab.markets.synthetic_market import DISPLAY, SEARCH, SMALL_DISPLAY
from tulle.select.billing.prices import PricingRule
from tulle.select.mechanisms.floors import FloorMechanism
from tulle.select.mechanisms.noisy_max import typical_score
from tulle.select.planner.click_prior import LogitNormalPrior

SampleOf = Callable[..., MarketSample]


@pytest.fixture(scope="module")
def search_rows() -> dict[str, SweepRow]:
    """At epsilon 3, by mechanism; the fixed widths one over the other."""

    def draw(seed: int, num_auctions: int) -> MarketSample:
        auctions, device = SEARCH.draw(num_auctions, seed=seed)
        rule = PricingRule.SECOND_PRICE_PER_CLICK
        return MarketSample(auctions=auctions, device=device, pricing=rule)

    rows = epsilon_sweep(
        draw(2, 2000),
        draw(1, 12_000),
        settings=SweepSettings(epsilons=[3.0]),
        prior=LogitNormalPrior(private_stddev=SEARCH.private_stddev),
    )
    return {row.mechanism: row for row in rows}


@pytest.mark.parametrize(
    ("mechanism", "expected", "error"),
    [
        (ADAPTIVE, 0.609, 0.03),
        (TUNED_CUTOFF, 0.586, 0.03),
        (WITH_PRIOR, 0.463, 0.03),
        (TUNED_CLIPPED, 0.173, 0.03),
        # Shares this far below 0 move by several points with the auctions that are drawn.
        (PAPER_CUTOFF, -1.01, 0.1),
        (RANDOMIZED_RESPONSE, -1.64, 0.1),
        (SCALED, -3.62, 0.2),
    ],
)
def test_the_captured_share_is_that_of_the_reference(
    mechanism: str, expected: float, error: float, search_rows: dict[str, SweepRow]
) -> None:
    assert search_rows[mechanism].captured_share == pytest.approx(expected, abs=error)


def test_the_order_of_mechanisms_is_that_of_the_reference(
    search_rows: dict[str, SweepRow],
) -> None:
    order = [ADAPTIVE, TUNED_CUTOFF, WITH_PRIOR, TUNED_CLIPPED, PAPER_CUTOFF, RANDOMIZED_RESPONSE]
    shares = [search_rows[mechanism].captured_share for mechanism in [*order, SCALED]]
    assert shares == sorted(shares, reverse=True)


def test_there_is_a_row_for_each_mechanism_epsilon_and_rule(sample_of: SampleOf) -> None:
    sample = sample_of(SMALL_DISPLAY, 50)
    settings = SweepSettings(epsilons=[1.0, 2.0], fixed_relative_widths=[0.1, 1.0])
    rows = epsilon_sweep(sample, sample, settings=settings, prior=None)
    # Without a prior: three cutoffs, scaled, two widths and the tuned one.
    assert len(rows) == 2 * 2 * 7
    assert sum(row.mechanism == CLIPPED for row in rows) == 2 * 2 * 2
    assert {row.mechanism for row in rows}.isdisjoint({ADAPTIVE, WITH_PRIOR})


def test_rules_of_pricing_change_revenue_and_not_welfare(sample_of: SampleOf) -> None:
    sample = sample_of(SMALL_DISPLAY, 50)
    first, second, *_ = epsilon_sweep(
        sample, sample, settings=SweepSettings(epsilons=[1.0]), prior=None
    )
    assert first.rule != second.rule
    assert first.metrics.welfare == second.metrics.welfare
    assert first.captured_share == second.captured_share
    assert first.metrics.revenue != second.metrics.revenue


def test_a_row_says_what_its_mechanism_is_worth(sample_of: SampleOf) -> None:
    planning, judged = sample_of(SMALL_DISPLAY, 50, seed=2), sample_of(SMALL_DISPLAY, 50)
    rows = epsilon_sweep(planning, judged, settings=SweepSettings(epsilons=[2.0]), prior=None)
    own = [r for r in rows if r.mechanism == RANDOMIZED_RESPONSE and r.rule == judged.pricing.value]
    assert [row.metrics for row in own] == [judged.metrics(FloorMechanism(epsilon=2.0))]
    assert own[0].to_dict()["click_rate_lift"] == pytest.approx(
        own[0].metrics.click_rate / judged.baseline.click_rate - 1
    )


def test_widths_are_tuned_on_the_planning_sample_alone(sample_of: SampleOf) -> None:
    planning, judged = sample_of(SMALL_DISPLAY, 30, seed=2), sample_of(SMALL_DISPLAY, 30, seed=3)
    settings = SweepSettings(epsilons=[5.0])
    unit = typical_score(planning.auctions)
    widths = [width * unit for width in settings.relative_widths]
    rows = epsilon_sweep(planning, judged, settings=settings, prior=None)
    chosen = {row.setting for row in rows if row.mechanism == TUNED_CLIPPED}
    assert chosen == {tuned_clipping(planning, epsilon=5.0, widths=widths).name}


def test_the_typical_score_is_the_mean_of_the_best_server_scores(sample_of: SampleOf) -> None:
    sample = sample_of(SMALL_DISPLAY, 30)
    best = sample.auctions.server_scores.reshape(30, 4).max(axis=1)
    assert typical_score(sample.auctions) == pytest.approx(np.mean(best))


GAMMAS = [number / 20 for number in range(21)]


def test_the_ends_are_no_personalisation_and_all_candidates(sample_of: SampleOf) -> None:
    sample = sample_of(SEARCH, 300)
    none, everyone = gamma_sweep(sample, epsilons=[2.0], gammas=[0.0, 1.0])
    assert none.metrics == sample.baseline
    assert (none.captured_share, none.mean_finalists) == (0.0, 1.0)
    assert set(none.lifts.values()) == {0.0}
    assert everyone.metrics == sample.metrics(FloorMechanism(epsilon=2.0))
    assert everyone.mean_finalists == 15


def test_more_gamma_means_more_finalists(sample_of: SampleOf) -> None:
    rows = gamma_sweep(sample_of(SEARCH, 300), epsilons=[2.0], gammas=GAMMAS)
    finalists = [row.mean_finalists for row in rows]
    assert finalists == sorted(finalists)
    assert finalists[0] < finalists[-1]


@pytest.mark.parametrize(
    ("market", "epsilon", "least", "most"),
    [
        # Laro et al. 2024 found 0.8; that takes devices that know much more than the server.
        (DISPLAY, 5.0, 0.7, 0.9),
        (SEARCH, 5.0, 0.45, 0.65),
        (DISPLAY, 1.0, 0.1, 0.4),
        (SEARCH, 1.0, 0.05, 0.4),
    ],
    ids=["display 5", "search 5", "display 1", "search 1"],
)
def test_the_best_gamma_depends_on_market_and_epsilon(
    market: object, epsilon: float, least: float, most: float, sample_of: SampleOf
) -> None:
    rows = gamma_sweep(sample_of(market, 4000), epsilons=[epsilon], gammas=GAMMAS)
    assert least <= best_gamma(rows, epsilon=epsilon) <= most


def test_the_best_gamma_is_that_of_its_epsilon_and_objective(sample_of: SampleOf) -> None:
    rows = gamma_sweep(sample_of(DISPLAY, 500), epsilons=[1.0, 8.0], gammas=GAMMAS)
    for epsilon in (1.0, 8.0):
        own = [row for row in rows if row.epsilon == epsilon]
        for objective in ("welfare", "click_rate"):
            best = max(own, key=lambda row, name=objective: row.metrics.to_dict()[name])
            assert best_gamma(rows, epsilon=epsilon, objective=objective) == best.gamma


def test_a_row_is_flat(sample_of: SampleOf) -> None:
    (row,) = gamma_sweep(sample_of(DISPLAY, 20), epsilons=[1.0], gammas=[0.5])
    data = row.to_dict()
    assert data["welfare_lift"] == row.lifts["welfare_lift"]
    assert not any(isinstance(value, (dict, list, tuple)) for value in data.values())


def test_one_finalist_is_no_personalisation_and_all_are_all_candidates(sample_of: SampleOf) -> None:
    sample = sample_of(SEARCH, 300)
    one, everyone = finalist_sweep(sample, epsilons=[2.0], nums_finalists=[1, 15])
    assert (one.metrics, one.captured_share) == (sample.baseline, 0.0)
    assert everyone.metrics == sample.metrics(FloorMechanism(epsilon=2.0))
    assert everyone.to_dict()["welfare"] == everyone.metrics.welfare


def test_the_best_number_of_finalists_grows_with_epsilon(sample_of: SampleOf) -> None:
    rows = finalist_sweep(
        sample_of(SEARCH, 3000), epsilons=[1.0, 3.0, 5.0, 8.0], nums_finalists=range(1, 16)
    )
    best = {
        epsilon: max(
            (row for row in rows if row.epsilon == epsilon), key=lambda row: row.captured_share
        ).num_finalists
        for epsilon in (1.0, 3.0, 5.0, 8.0)
    }
    assert 1 < best[3.0] < best[5.0] < best[8.0] <= 15
    assert best[1.0] <= best[3.0]
