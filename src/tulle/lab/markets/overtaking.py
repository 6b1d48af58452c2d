"""Epsilon at which randomized response overtakes noisy max, by candidates and knowledge.

Figure 13 of Laro et al. 2024: against clipped noisy max, the fewer the candidates and the more
devices know, the earlier. The clipped scores get the width that is best for each epsilon, on the
very sample they are judged on: the comparison favours them.

Figure 10: against scaled noisy max, on scores without any public hint. The server ranks all
candidates alike, so a shortlist would be blind; what helps here is to boost several favourites
instead of one.
"""

import dataclasses
import enum
from collections.abc import Mapping, Sequence

import numpy as np

from tulle.errors import ConfigError
from tulle.lab.markets.market_sample import MarketSample, best_of, mix_device_clicks
from tulle.lab.markets.sweeps import tuned_clipping
from tulle.privacy.fields import check_count
from tulle.select.auctions import Auctions, DeviceClicks, FloatArray
from tulle.select.billing.prices import PricingRule
from tulle.select.mechanisms.floors import FloorMechanism
from tulle.select.mechanisms.mechanism import SelectionMechanism
from tulle.select.mechanisms.noisy_max import NoisyMax, ScaledScores, typical_score
from tulle.select.mechanisms.noisy_max_probs import NoiseKind


@dataclasses.dataclass(frozen=True, kw_only=True)
class GridSettings:
    """What is compared. Every field is public."""

    alphas: Sequence[float] = (1.0, 0.5, 0.25, 0.1)
    """How much of the difference between device and server is left."""
    epsilons: Sequence[float] = (0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 8.0, 10.0)
    relative_widths: Sequence[float] = (0.02, 0.1, 0.35, 1.0, 3.0)
    """Widths of clipping, in typical server scores."""
    noise: NoiseKind = NoiseKind.EXPONENTIAL
    objective: str = "click_rate"


@dataclasses.dataclass(frozen=True, kw_only=True)
class GridRow:
    """One kind of auction and one alpha. As sensitive as the sample."""

    group: str
    alpha: float
    epsilons: Sequence[float]
    response_values: Sequence[float]
    """Values of the objective with randomized response over all candidates."""
    clipped_values: Sequence[float]
    """The same with clipped noisy max."""
    baseline: float
    ideal: float

    @property
    def overtaking_epsilon(self) -> float | None:
        """Epsilon from which on randomized response is at least as good; None if there is none."""
        return overtaking_epsilon(self.epsilons, self.response_values, self.clipped_values)

    def to_dict(self) -> dict[str, object]:
        """Plain data."""
        return dataclasses.asdict(self) | {"overtaking_epsilon": self.overtaking_epsilon}


def mixing_grid(groups: Mapping[str, MarketSample], settings: GridSettings) -> tuple[GridRow, ...]:
    """Every group of auctions with every alpha.

    Privacy:
      Not a private release: computed from device predictions.
    """
    return tuple(
        _grid_row(name, sample, alpha, settings)
        for name, sample in groups.items()
        for alpha in settings.alphas
    )


def groups_by_size(
    sample: MarketSample, *, few: int = 3, many: int = 10
) -> dict[str, MarketSample]:
    """Auctions with up to `few` candidates, with `many` or more, and those between.

    Args:
      sample: Auctions with their devices.
      few: Most candidates of a small auction.
      many: Fewest candidates of a large auction.

    Privacy:
      Sorted by public data alone; the parts are as sensitive as the sample.
    """
    if not 1 <= few < many:
        raise ConfigError(f"few={few} must be at least 1 and below many={many}.")
    sizes = sample.auctions.sizes
    members = {
        f"up to {few} candidates": sizes <= few,
        f"{few + 1} to {many - 1} candidates": (sizes > few) & (sizes < many),
        f"{many} candidates or more": sizes >= many,
    }
    return {
        name: sample.subset(np.flatnonzero(is_member))
        for name, is_member in members.items()
        if is_member.any()
    }


def _grid_row(name: str, sample: MarketSample, alpha: float, settings: GridSettings) -> GridRow:
    device = mix_device_clicks(sample.auctions, sample.device, alpha=alpha)
    mixed = dataclasses.replace(sample, device=device)
    unit = typical_score(mixed.auctions)
    widths = [width * unit for width in settings.relative_widths]
    response_values, clipped_values = [], []
    for epsilon in settings.epsilons:
        clipped = tuned_clipping(
            mixed,
            epsilon=epsilon,
            widths=widths,
            noise=settings.noise,
            objective=settings.objective,
        )
        response = FloorMechanism(epsilon=epsilon)
        response_values.append(mixed.metrics(response).to_dict()[settings.objective])
        clipped_values.append(mixed.metrics(clipped).to_dict()[settings.objective])
    return GridRow(
        group=name,
        alpha=alpha,
        epsilons=tuple(settings.epsilons),
        response_values=tuple(response_values),
        clipped_values=tuple(clipped_values),
        baseline=mixed.baseline.to_dict()[settings.objective],
        ideal=mixed.ideal.to_dict()[settings.objective],
    )


def overtaking_epsilon(
    epsilons: Sequence[float], values: Sequence[float], others: Sequence[float]
) -> float | None:
    """The least epsilon from which on `values` are never below `others`; None if there is none.

    Args:
      epsilons: Rising.
      values: Values of the mechanism that may overtake, one for each epsilon.
      others: Values of the mechanism it is compared with.
    """
    found = None
    for epsilon, value, other in reversed(list(zip(epsilons, values, others, strict=True))):
        if value < other:
            break
        found = epsilon
    return found


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
    rows = []
    for epsilon in epsilons:
        boosted = best_of(
            planning,
            [FloorMechanism(epsilon=epsilon, num_boosted=num) for num in range(1, num_candidates)],
        )
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


def score_overtaking(rows: Sequence[ScoreRow]) -> dict[tuple[str, int], float | None]:
    """Epsilon from which on randomized response is ahead, by score law and candidates."""
    cells = dict.fromkeys((row.law, row.num_candidates) for row in rows)
    found: dict[tuple[str, int], float | None] = {}
    for law, size in cells:
        own = [row for row in rows if (row.law, row.num_candidates) == (law, size)]
        response = [row for row in own if row.mechanism == ONE_BOOSTED]
        scaled = [row for row in own if row.mechanism == SCALED_NOISY_MAX]
        found[law, size] = overtaking_epsilon(
            [row.epsilon for row in response],
            [row.mean_score for row in response],
            [row.mean_score for row in scaled],
        )
    return found
