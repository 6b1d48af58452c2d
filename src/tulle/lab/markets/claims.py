"""The claims of Laro et al. 2024 with a verdict for each, computed and not written down.

A synthetic market can show that a claim depends on its conditions. It can't show what holds in
the data of the paper.
"""

import dataclasses
import enum
import itertools
import math
from collections.abc import Callable, Mapping, Sequence

from tulle.errors import ConfigError
from tulle.lab.markets.experiments import BEST_OTHER, MarketExperiments
from tulle.lab.markets.overtaking import (
    GridRow,
    ScoreLaw,
    ScoreRow,
    overtaking_epsilon,
    score_overtaking,
)
from tulle.lab.markets.sweeps import (
    ADAPTIVE,
    CLIPPED,
    RANDOMIZED_RESPONSE,
    SCALED,
    TUNED_CLIPPED,
    TUNED_CUTOFF,
    SweepRow,
    best_gamma,
)
from tulle.select.billing.prices import PricingRule

_FEW, _MANY = 4, 10
"""Candidates that the paper calls few, and many."""
_LOW_EPSILON, _MODERATE_EPSILON, _HIGH_EPSILON = 1.0, 3.0, 5.0
"""Epsilons that its claims name."""
_PAPER_GAMMA, _NEAR = 0.8, 0.1
"""The gamma that it recommends, and how far from it still counts as near."""
_UNTUNED = (RANDOMIZED_RESPONSE, SCALED, CLIPPED)
_TUNED = (TUNED_CUTOFF, ADAPTIVE, TUNED_CLIPPED)
RULE_NAMES = {
    PricingRule.SECOND_PRICE.value: "next score below, an impression",
    PricingRule.SECOND_PRICE_PER_CLICK.value: "next score below, a click",
    BEST_OTHER: "best other score, an impression",
}


class Verdict(enum.Enum):
    """What the numbers say of a claim."""

    HOLDS = "holds"
    DOES_NOT_HOLD = "does not hold"
    NOT_COMPARABLE = "not comparable"
    """The market is not of the kind that the claim is about."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClaimVerdict:
    """One claim in one market."""

    claim: str
    market: str
    condition: str
    verdict: Verdict
    numbers: dict[str, float | None]
    """What the verdict follows from, by name."""

    def to_dict(self) -> dict[str, object]:
        """Plain data."""
        return dataclasses.asdict(self) | {"verdict": self.verdict.value}


def judge_claims(
    markets: Sequence[MarketExperiments],
    *,
    score_rows: Sequence[ScoreRow],
    grid_rows: Sequence[GridRow],
) -> tuple[ClaimVerdict, ...]:
    """All verdicts, claim by claim.

    Args:
      markets: Results of `run_experiments`, with epsilons 1 and 5 among the others.
      score_rows: Rows of `compare_on_scores`, for all laws and sizes; may be empty.
      grid_rows: Rows of `mixing_grid`, groups with the fewest candidates first; may be empty.
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


def mechanism_claims(found: MarketExperiments) -> list[ClaimVerdict]:
    """Which mechanism wins where, and whether local privacy leaves anything to win."""
    return [
        _response_beats_scaled(found),
        *(_response_beats_clipped(found, metric) for metric in ("click_rate", "welfare")),
        _clipped_wins_early(found, RANDOMIZED_RESPONSE, "against gamma 1"),
        _clipped_wins_early(found, TUNED_CUTOFF, "against gamma tuned for each epsilon"),
        _nothing_at_low_epsilon(found, is_tuned=False),
        _nothing_at_low_epsilon(found, is_tuned=True),
        *(_gamma_near(found, metric) for metric in ("click_rate", "welfare")),
    ]


def pricing_claims(found: MarketExperiments) -> list[ClaimVerdict]:
    """Whether revenue rises when private data leave the pricing, and which lifts are left."""
    rises, continues = zip(*(_revenue_claims(found, rule) for rule in RULE_NAMES), strict=True)
    return [
        *rises,
        *continues,
        *(
            _all_metrics_rise(found, rule.value)
            for rule in (PricingRule.SECOND_PRICE, PricingRule.SECOND_PRICE_PER_CLICK)
        ),
    ]


def score_claims(rows: Sequence[ScoreRow]) -> list[ClaimVerdict]:
    """Judges the claim that more candidates and more extreme scores favour noisy max.

    The devices' scores are all that a mechanism has here: there are no public scores.
    """
    from_epsilon = score_overtaking(rows)
    sizes = sorted({size for _, size in from_epsilon})
    numbers = {f"{law}, {size}": value for (law, size), value in from_epsilon.items()}
    laws = list(dict.fromkeys(law for law, _ in from_epsilon))
    larger = all(
        _at_least(from_epsilon[law, large], from_epsilon[law, small])
        for law in laws
        for small, large in itertools.pairwise(sizes)
    )
    extreme = all(
        _at_least(
            from_epsilon[ScoreLaw.BERNOULLI.value, size],
            from_epsilon[ScoreLaw.UNIFORM.value, size],
        )
        for size in sizes
    )
    return _everywhere(
        {
            "more candidates favour scaled noisy max over randomized response": larger,
            "extreme scores favour scaled noisy max over randomized response": extreme,
        },
        "scores without public hints; epsilon from which randomized response is ahead",
        numbers,
    )


def grid_claims(rows: Sequence[GridRow]) -> list[ClaimVerdict]:
    """Judges the claim that more candidates and less informed devices favour clipped noisy max.

    Args:
      rows: Groups in the order of their candidates, fewest first.
    """
    groups = list(dict.fromkeys(row.group for row in rows))
    alphas = sorted({row.alpha for row in rows}, reverse=True)
    cells = {(row.group, row.alpha): row.overtaking_epsilon for row in rows}
    numbers = {f"{group}, alpha {alpha:g}": value for (group, alpha), value in cells.items()}
    more_candidates = all(
        _at_least(cells[large, alpha], cells[small, alpha])
        for alpha in alphas
        for small, large in itertools.pairwise(groups)
    )
    less_known = all(
        _at_least(cells[group, less], cells[group, more])
        for group in groups
        for more, less in itertools.pairwise(alphas)
    )
    return _everywhere(
        {
            "more candidates favour clipped noisy max": more_candidates,
            "devices that know less favour clipped noisy max": less_known,
        },
        "epsilon from which randomized response with gamma 1 is ahead",
        numbers,
    )


def _everywhere(
    claims: Mapping[str, bool], condition: str, numbers: dict[str, float | None]
) -> list[ClaimVerdict]:
    """Verdicts on claims that are about no single market."""
    return [
        ClaimVerdict(
            claim=claim,
            market="all",
            condition=condition,
            verdict=verdict_of(is_true),
            numbers=numbers,
        )
        for claim, is_true in claims.items()
    ]


def verdict_of(is_true: bool) -> Verdict:
    """Verdict on a claim that can be checked."""
    return Verdict.HOLDS if is_true else Verdict.DOES_NOT_HOLD


def _response_beats_scaled(found: MarketExperiments) -> ClaimVerdict:
    response = _shares(found, RANDOMIZED_RESPONSE)
    scaled = _shares(found, SCALED)
    least = min(response[epsilon] - scaled[epsilon] for epsilon in response)
    return ClaimVerdict(
        claim="randomized response beats scaled noisy max",
        market=found.market,
        condition="gamma 1, every epsilon; welfare",
        verdict=verdict_of(least > 0),
        numbers={"least_difference_of_captured_shares": least},
    )


def _response_beats_clipped(found: MarketExperiments, metric: str) -> ClaimVerdict:
    response, clipped = (
        _values(found, mechanism, lambda row: row.metrics.to_dict()[metric])
        for mechanism in (RANDOMIZED_RESPONSE, TUNED_CLIPPED)
    )
    epsilon = overtaking_epsilon(list(response), list(response.values()), list(clipped.values()))
    is_early = epsilon is not None and epsilon <= _MODERATE_EPSILON
    is_few = found.mean_candidates <= _FEW
    return ClaimVerdict(
        claim="randomized response beats clipped noisy max from epsilon 3 on with few candidates",
        market=found.market,
        condition=f"gamma 1, width tuned for welfare; {metric.replace('_', ' ')}",
        verdict=verdict_of(is_early) if is_few else Verdict.NOT_COMPARABLE,
        numbers={"from_epsilon": epsilon},
    )


def _clipped_wins_early(found: MarketExperiments, other: str, condition: str) -> ClaimVerdict:
    clipped, values = _shares(found, TUNED_CLIPPED), _shares(found, other)
    epsilon = min(values)
    is_many = found.mean_candidates >= _MANY
    verdict = verdict_of(clipped[epsilon] > values[epsilon]) if is_many else Verdict.NOT_COMPARABLE
    return ClaimVerdict(
        claim="clipped noisy max is best at very low epsilon with many candidates",
        market=found.market,
        condition=f"epsilon {epsilon:g}, {condition}; welfare",
        verdict=verdict,
        numbers={"clipped": clipped[epsilon], "randomized_response": values[epsilon]},
    )


def _nothing_at_low_epsilon(found: MarketExperiments, *, is_tuned: bool) -> ClaimVerdict:
    best: dict[str, float] = {}
    for row in found.epsilon_rows:
        if row.mechanism in (_TUNED if is_tuned else _UNTUNED) and row.epsilon == _LOW_EPSILON:
            best[row.mechanism] = max(best.get(row.mechanism, -math.inf), row.captured_share)
    if not best:
        raise ConfigError(f"the sweep needs epsilon={_LOW_EPSILON:g} to check its claims; add it.")
    return ClaimVerdict(
        claim=f"at epsilon {_LOW_EPSILON:g} every mechanism is below no personalisation",
        market=found.market,
        condition="gamma, width and number of finalists tuned; welfare"
        if is_tuned
        else "gamma 1, the best of the fixed widths; welfare",
        verdict=verdict_of(max(best.values()) < 0),
        numbers=dict(best),
    )


def _gamma_near(found: MarketExperiments, metric: str) -> ClaimVerdict:
    gamma = best_gamma(found.gamma_rows, epsilon=_HIGH_EPSILON, objective=metric)
    return ClaimVerdict(
        claim="gamma is best near 0.8 at epsilon 5",
        market=found.market,
        condition=f"{metric.replace('_', ' ')}; near is within {_NEAR:g}",
        # Gammas are multiples of 0.05 that do not all add up exactly.
        verdict=verdict_of(abs(gamma - _PAPER_GAMMA) <= _NEAR + 1e-9),
        numbers={"best_gamma": gamma},
    )


def _values(
    found: MarketExperiments, mechanism: str, value_of: Callable[[SweepRow], float]
) -> dict[float, float]:
    """Values by epsilon; prices change neither welfare nor clicks, so that any rule will do."""
    values = {
        row.epsilon: value_of(row) for row in found.epsilon_rows if row.mechanism == mechanism
    }
    if not values:
        raise ConfigError(f"the sweep has no rows of {mechanism!r}, which its claims need.")
    return dict(sorted(values.items()))


def _shares(found: MarketExperiments, mechanism: str) -> dict[float, float]:
    return _values(found, mechanism, lambda row: row.captured_share)


def _revenue_claims(found: MarketExperiments, rule: str) -> list[ClaimVerdict]:
    """Revenue without private data in the prices, and with the same click rate for all ads."""
    lifts = {row.predictions: row.revenue_lift for row in found.pricing if row.rule == rule}
    server, uninformed = lifts["server"], lifts["uninformed"]
    judged: tuple[tuple[str, bool, dict[str, float | None]], ...] = (
        (
            "revenue rises when private data leave the pricing",
            server > 0,
            {"revenue_lift": server},
        ),
        (
            "revenue rises further with the same click rate for all ads",
            uninformed > server > 0,
            {"server_lift": server, "uninformed_lift": uninformed},
        ),
    )
    return [
        ClaimVerdict(
            claim=claim,
            market=found.market,
            condition=f"greedy selection, {RULE_NAMES[rule]}",
            verdict=verdict_of(is_true),
            numbers=numbers,
        )
        for claim, is_true, numbers in judged
    ]


def _all_metrics_rise(found: MarketExperiments, rule: str) -> ClaimVerdict:
    rows = [
        row
        for row in found.epsilon_rows
        if (row.mechanism, row.epsilon, row.rule) == (RANDOMIZED_RESPONSE, _HIGH_EPSILON, rule)
    ]
    if not rows:
        raise ConfigError(
            f"the sweep needs epsilon={_HIGH_EPSILON:g} under the rule {rule!r} to check its "
            "claims; add both to its settings."
        )
    names = ("click_rate_lift", "surplus_lift", "revenue_lift")
    numbers = {name: rows[0].lifts[name] for name in names}
    return ClaimVerdict(
        claim=f"randomized response at epsilon {_HIGH_EPSILON:g} lifts every metric",
        market=found.market,
        condition=f"gamma 1, {RULE_NAMES[rule]}",
        verdict=verdict_of(all(lift is not None and lift > 0 for lift in numbers.values())),
        numbers=numbers,
    )


def _at_least(value: float | None, other: float | None) -> bool:
    """Whether overtaking is no earlier; never is the latest."""
    return value is None or (other is not None and value >= other)
