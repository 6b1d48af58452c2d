"""The cutoff leads from no personalisation to all candidates, with an optimum between."""

from collections.abc import Callable

import pytest

from tulle.lab.markets.market_sample import MarketSample
from tulle.lab.markets.sweeps import best_gamma, gamma_sweep
from tulle.lab.markets.synthetic_market import DISPLAY, SEARCH
from tulle.select.mechanisms.floors import FloorMechanism

SampleOf = Callable[..., MarketSample]
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
