"""Claims of Laro et al. 2024 about mechanisms, against the numbers of a market."""

from collections.abc import Callable

from tulle.errors import ConfigError
from tulle.select.market.epsilon_sweep import (
    ADAPTIVE,
    CLIPPED,
    RANDOMIZED_RESPONSE,
    SCALED,
    TUNED_CLIPPED,
    TUNED_CUTOFF,
    SweepRow,
)
from tulle.select.market.experiments import MarketExperiments
from tulle.select.market.gamma_sweep import best_gamma
from tulle.select.market.overtaking import overtaking_epsilon
from tulle.select.market.verdicts import ClaimVerdict, Verdict, verdict_of

_FEW, _MANY = 4, 10
_LOW_EPSILON, _MODERATE_EPSILON, _HIGH_EPSILON = 1.0, 3.0, 5.0
_PAPER_GAMMA, _NEAR = 0.8, 0.1
_UNTUNED = (RANDOMIZED_RESPONSE, SCALED, CLIPPED)
_TUNED = (TUNED_CUTOFF, ADAPTIVE, TUNED_CLIPPED)


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


def _response_beats_scaled(found: MarketExperiments) -> ClaimVerdict:
    response = _values(found, RANDOMIZED_RESPONSE, _share)
    scaled = _values(found, SCALED, _share)
    least = min(response[epsilon] - scaled[epsilon] for epsilon in response)
    return ClaimVerdict(
        claim="randomized response beats scaled noisy max",
        market=found.market,
        condition="gamma 1, every epsilon; welfare",
        verdict=verdict_of(least > 0),
        numbers={"least_difference_of_captured_shares": least},
    )


def _response_beats_clipped(found: MarketExperiments, metric: str) -> ClaimVerdict:
    response = _values(found, RANDOMIZED_RESPONSE, _metric(metric))
    clipped = _values(found, TUNED_CLIPPED, _metric(metric))
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
    clipped, values = _values(found, TUNED_CLIPPED, _share), _values(found, other, _share)
    epsilon = min(values)
    is_many = found.mean_candidates >= _MANY
    return ClaimVerdict(
        claim="clipped noisy max is best at very low epsilon with many candidates",
        market=found.market,
        condition=f"epsilon {epsilon:g}, {condition}; welfare",
        verdict=verdict_of(clipped[epsilon] > values[epsilon])
        if is_many
        else Verdict.NOT_COMPARABLE,
        numbers={"clipped": clipped[epsilon], "randomized_response": values[epsilon]},
    )


def _nothing_at_low_epsilon(found: MarketExperiments, *, is_tuned: bool) -> ClaimVerdict:
    mechanisms = _TUNED if is_tuned else _UNTUNED
    best: dict[str, float | None] = {}
    for name in mechanisms:
        shares = [
            row.captured_share
            for row in found.epsilon_rows
            if (row.mechanism, row.epsilon) == (name, _LOW_EPSILON)
        ]
        if shares:
            best[name] = max(shares)
    if not best:
        raise ConfigError(f"the sweep needs epsilon={_LOW_EPSILON:g} to check its claims; add it.")
    return ClaimVerdict(
        claim=f"at epsilon {_LOW_EPSILON:g} every mechanism is below no personalisation",
        market=found.market,
        condition="gamma, width and number of finalists tuned; welfare"
        if is_tuned
        else "gamma 1, the best of the fixed widths; welfare",
        verdict=verdict_of(all(share is not None and share < 0 for share in best.values())),
        numbers=best,
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
    """By epsilon; prices change neither welfare nor clicks, so that any rule will do."""
    values = {
        row.epsilon: value_of(row) for row in found.epsilon_rows if row.mechanism == mechanism
    }
    if not values:
        raise ConfigError(f"the sweep has no rows of {mechanism!r}, which its claims need.")
    return dict(sorted(values.items()))


def _share(row: SweepRow) -> float:
    return row.captured_share


def _metric(name: str) -> Callable[[SweepRow], float]:
    return lambda row: row.metrics.to_dict()[name]
