"""A few auctions one by one: what decides between mechanisms is seen best there.

Figure 9 of Laro et al. 2024: auctions with few and with many candidates, in which the server's
winner is also the device's, is nearly as good, or is far from it.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from tulle.lab.markets.market_sample import MarketSample
from tulle.select.auctions import FloatArray, server_ranks
from tulle.select.mechanisms.floors import FloorMechanism
from tulle.select.mechanisms.mechanism import Greedy, NonPersonalised, SelectionMechanism
from tulle.select.mechanisms.noisy_max import ClippedScores, NoisyMax, ScaledScores
from tulle.select.mechanisms.noisy_max_probs import NoiseKind

_CLOSE = 0.5
"""A server's winner worth at least this share of the device's favourite is close to it."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class SingleAuctionRow:
    """One mechanism in one auction. As sensitive as its device's predictions."""

    auction: int
    num_candidates: int
    server_is: str
    """How the server's winner does on the device: right, close or wrong."""
    mechanism: str
    epsilon: float
    score: float
    """Expected device score of the choice."""

    def to_dict(self) -> dict[str, object]:
        """Plain data."""
        return dataclasses.asdict(self)


def single_auctions(
    sample: MarketSample,
    *,
    epsilons: Sequence[float],
    width: float,
    few: int = 3,
    many: int = 10,
) -> tuple[SingleAuctionRow, ...]:
    """The first auction of each kind that there is, with every mechanism.

    Args:
      sample: Where auctions are looked for.
      epsilons: Values of epsilon to try each mechanism at.
      width: Width of clipped scores.
      few: Most candidates of a small auction.
      many: Fewest candidates of a large auction.

    Privacy:
      Not a private release: it shows single devices. For simulations and panels that agreed.
    """
    worth = _server_winner_worth(sample)
    sizes = sample.auctions.sizes
    rows = []
    for is_of_size in ((sizes > 1) & (sizes <= few), sizes >= many):
        for server_is, is_of_kind in (
            ("right", worth == 1),
            ("close", (worth >= _CLOSE) & (worth < 1)),
            ("wrong", worth < _CLOSE),
        ):
            found = np.flatnonzero(is_of_size & is_of_kind)[:1]
            if len(found):
                rows += _rows(sample, int(found[0]), server_is, epsilons, width)
    return tuple(rows)


def _server_winner_worth(sample: MarketSample) -> FloatArray:
    """[auctions], device score of the server's winner as a share of the best one."""
    is_winner = server_ranks(sample.auctions) == 0
    starts = sample.auctions.offsets[:-1]
    best = np.maximum.reduceat(sample.raw_scores, starts)
    chosen = sample.raw_scores[is_winner]
    return np.asarray(np.divide(chosen, best, out=np.ones_like(best), where=best > 0))


def _rows(
    sample: MarketSample, auction: int, server_is: str, epsilons: Sequence[float], width: float
) -> list[SingleAuctionRow]:
    alone = sample.subset(np.array([auction]))
    return [
        SingleAuctionRow(
            auction=auction,
            num_candidates=alone.auctions.num_candidates,
            server_is=server_is,
            mechanism=name,
            epsilon=epsilon,
            score=alone.metrics(mechanism).welfare,
        )
        for epsilon in epsilons
        for name, mechanism in _mechanisms(epsilon, width).items()
    ]


def _mechanisms(epsilon: float, width: float) -> dict[str, SelectionMechanism]:
    noise = NoiseKind.GUMBEL
    clipped = ClippedScores(width=width)
    return {
        "greedy": Greedy(),
        "not personalised": NonPersonalised(),
        "randomized response": FloorMechanism(epsilon=epsilon),
        "noisy max, scaled": NoisyMax(epsilon=epsilon, noise=noise, score_bound=ScaledScores()),
        "noisy max, clipped": NoisyMax(epsilon=epsilon, noise=noise, score_bound=clipped),
    }
