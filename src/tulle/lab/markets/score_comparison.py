"""Scores without any public hint: randomized response against scaled noisy max.

Figure 10 of Laro et al. 2024. The server ranks all candidates alike, so a shortlist would be
blind; what helps here is to boost several favourites instead of one.
"""

import dataclasses
import enum
from collections.abc import Sequence

import numpy as np

from tulle.lab.markets.market_sample import MarketSample
from tulle.lab.markets.sweeps import tuned_boost
from tulle.privacy.fields import check_count
from tulle.select.auctions import Auctions, DeviceClicks, FloatArray
from tulle.select.billing.prices import PricingRule
from tulle.select.mechanisms.floors import FloorMechanism
from tulle.select.mechanisms.mechanism import SelectionMechanism
from tulle.select.mechanisms.noisy_max import NoisyMax, ScaledScores
from tulle.select.mechanisms.noisy_max_probs import NoiseKind

ONE_BOOSTED = "randomized response"
SEVERAL_BOOSTED = "top-d randomized response"
SCALED_NOISY_MAX = "noisy max, scaled"
_ONES_PROB = 0.9
"""Probability of a score of 1 under the extreme law, as in the paper."""


class ScoreLaw(enum.Enum):
    """What scores are drawn from, independently."""

    UNIFORM = "uniform"
    BERNOULLI = "Bernoulli 0.9"
    """Extreme: 1 with probability 0.9, otherwise 0."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScoreRow:
    """One mechanism at one epsilon on drawn scores."""

    law: str
    num_candidates: int
    mechanism: str
    epsilon: float
    num_boosted: int | None
    mean_score: float
    """Expected score of the choice, mean over the sets of scores."""
    score_stddev: float
    """Standard deviation of the expected score over the sets of scores."""

    def to_dict(self) -> dict[str, object]:
        """Plain data."""
        return dataclasses.asdict(self)


def compare_on_scores(
    law: ScoreLaw,
    *,
    num_candidates: int,
    epsilons: Sequence[float],
    num_sets: int = 100,
    seed: int,
) -> tuple[ScoreRow, ...]:
    """Expected scores on `num_sets` sets of scores; d is tuned on as many others.

    Args:
      law: What scores are drawn from.
      num_candidates: Number of scores in a set.
      epsilons: Epsilons of one decision.
      num_sets: Number of sets that are judged.
      seed: Fixes the scores.
    """
    planning = score_sample(law, num_candidates=num_candidates, num_sets=num_sets, seed=seed)
    judged = score_sample(law, num_candidates=num_candidates, num_sets=num_sets, seed=seed + 1)
    nums_boosted = range(1, num_candidates)
    rows = []
    for epsilon in epsilons:
        boosted = tuned_boost(planning, epsilon=epsilon, nums_boosted=nums_boosted)
        scaled = NoisyMax(epsilon=epsilon, noise=NoiseKind.EXPONENTIAL, score_bound=ScaledScores())
        mechanisms: dict[str, tuple[SelectionMechanism, int | None]] = {
            ONE_BOOSTED: (FloorMechanism(epsilon=epsilon), 1),
            SEVERAL_BOOSTED: (boosted, boosted.num_boosted),
            SCALED_NOISY_MAX: (scaled, None),
        }
        for name, (mechanism, num_boosted) in mechanisms.items():
            scores = _expected_scores(judged, mechanism)
            rows.append(
                ScoreRow(
                    law=law.value,
                    num_candidates=num_candidates,
                    mechanism=name,
                    epsilon=epsilon,
                    num_boosted=num_boosted,
                    mean_score=float(scores.mean()),
                    score_stddev=float(scores.std()),
                )
            )
    return tuple(rows)


def score_sample(law: ScoreLaw, *, num_candidates: int, num_sets: int, seed: int) -> MarketSample:
    """Sets of scores as auctions in which all bids are 1 and the server knows nothing.

    Args:
      law: What scores are drawn from.
      num_candidates: Number of scores in a set.
      num_sets: Number of sets.
      seed: Fixes the scores.
    """
    check_count("num_candidates", num_candidates, least=2)
    check_count("num_sets", num_sets)
    rng = np.random.default_rng(seed)
    size = num_candidates * num_sets
    is_uniform = law is ScoreLaw.UNIFORM
    scores = rng.random(size) if is_uniform else (rng.random(size) < _ONES_PROB).astype(float)
    auctions = Auctions(
        offsets=np.arange(num_sets + 1) * num_candidates,
        ads=np.tile(np.arange(1, num_candidates + 1), num_sets),
        bids=np.ones(size),
        server_click_probs=np.full(size, 0.5 if is_uniform else _ONES_PROB),
    )
    return MarketSample(
        auctions=auctions,
        device=DeviceClicks(click_probs=scores),
        pricing=PricingRule.SECOND_PRICE,
    )


def _expected_scores(sample: MarketSample, mechanism: SelectionMechanism) -> FloatArray:
    probs = mechanism.selection_probs(sample.auctions, sample.raw_scores)
    return np.add.reduceat(probs * sample.raw_scores, sample.auctions.offsets[:-1])
