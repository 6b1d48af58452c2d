"""Randomized response over the best k candidates, for every k.

The same trade as with the cutoff gamma, with the number of finalists fixed instead of how far
they may be behind.
"""

import dataclasses
from collections.abc import Sequence

from tulle.select.floors.floor_mechanism import FloorMechanism
from tulle.select.floors.shortlist import TopCandidates
from tulle.select.market.market_sample import MarketSample
from tulle.select.metrics import MarketMetrics


@dataclasses.dataclass(frozen=True, kw_only=True)
class FinalistRow:
    """One number of finalists at one epsilon. As sensitive as the sample."""

    epsilon: float
    num_finalists: int
    metrics: MarketMetrics
    captured_share: float
    """Of the gain in welfare from the server's winners to the devices' favourites."""

    def to_dict(self) -> dict[str, object]:
        """One flat row."""
        return {
            "epsilon": self.epsilon,
            "num_finalists": self.num_finalists,
            **self.metrics.to_dict(),
            "captured_share": self.captured_share,
        }


def finalist_sweep(
    sample: MarketSample, *, epsilons: Sequence[float], nums_finalists: Sequence[int]
) -> tuple[FinalistRow, ...]:
    """Every number of finalists at every epsilon.

    Privacy:
      Not a private release: computed from device predictions.
    """
    return tuple(_row(sample, epsilon, number) for epsilon in epsilons for number in nums_finalists)


def _row(sample: MarketSample, epsilon: float, num_finalists: int) -> FinalistRow:
    shortlist = TopCandidates(num_finalists=num_finalists)
    metrics = sample.metrics(FloorMechanism(epsilon=epsilon, shortlist=shortlist))
    return FinalistRow(
        epsilon=epsilon,
        num_finalists=num_finalists,
        metrics=metrics,
        captured_share=sample.captured_share(metrics),
    )
