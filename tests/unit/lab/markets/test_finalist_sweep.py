"""The number of finalists leads from no personalisation to all candidates."""

from collections.abc import Callable

from tulle.lab.markets.market_sample import MarketSample
from tulle.lab.markets.sweeps import finalist_sweep
from tulle.lab.markets.synthetic_market import SEARCH
from tulle.select.mechanisms.floors import FloorMechanism

SampleOf = Callable[..., MarketSample]


def test_the_ends_are_no_personalisation_and_all_candidates(sample_of: SampleOf) -> None:
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
