"""The claims of Laro et al. 2024 with a verdict for each, computed and not written down.

A synthetic market can show that a claim depends on its conditions. It can't show what holds in
the data of the paper.
"""

from collections.abc import Sequence

from tulle.select.market.experiments import MarketExperiments
from tulle.select.market.mechanism_claims import mechanism_claims
from tulle.select.market.mixing_grid import GridRow
from tulle.select.market.pricing_claims import pricing_claims
from tulle.select.market.score_claims import grid_claims, score_claims
from tulle.select.market.synthetic_scores import ScoreRow
from tulle.select.market.verdicts import ClaimVerdict


def judge_claims(
    markets: Sequence[MarketExperiments],
    *,
    score_rows: Sequence[ScoreRow],
    grid_rows: Sequence[GridRow],
) -> tuple[ClaimVerdict, ...]:
    """All verdicts, claim by claim.

    Args:
      markets: Results of `run_experiments`, with epsilons 1 and 5 among the others.
      score_rows: Of `compare_on_scores`, for all laws and sizes; may be empty.
      grid_rows: Of `mixing_grid`, groups with the fewest candidates first; may be empty.
    """
    verdicts = [
        verdict
        for claims in (pricing_claims, mechanism_claims)
        for found in zip(*(claims(market) for market in markets), strict=True)
        for verdict in found
    ]
    if score_rows:
        verdicts += score_claims(score_rows)
    if grid_rows:
        verdicts += grid_claims(grid_rows)
    return tuple(verdicts)
