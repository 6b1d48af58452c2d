"""Claims of Laro et al. 2024 about candidates and information, across markets and score laws."""

import itertools
from collections.abc import Sequence

from tulle.select.market.mixing_grid import GridRow
from tulle.select.market.overtaking import overtaking_epsilon
from tulle.select.market.synthetic_scores import ONE_BOOSTED, SCALED_NOISY_MAX, ScoreLaw, ScoreRow
from tulle.select.market.verdicts import ClaimVerdict, verdict_of

_EVERYWHERE = "all"


def score_claims(rows: Sequence[ScoreRow]) -> list[ClaimVerdict]:
    """More candidates and more extreme scores favour noisy max, without public scores."""
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
    condition = "scores without public hints; epsilon from which randomized response is ahead"
    return [
        ClaimVerdict(
            claim=claim,
            market=_EVERYWHERE,
            condition=condition,
            verdict=verdict_of(is_true),
            numbers=numbers,
        )
        for claim, is_true in (
            ("more candidates favour scaled noisy max over randomized response", larger),
            ("extreme scores favour scaled noisy max over randomized response", extreme),
        )
    ]


def score_overtaking(rows: Sequence[ScoreRow]) -> dict[tuple[str, int], float | None]:
    """From which epsilon on randomized response is ahead, by score law and candidates."""
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


def grid_claims(rows: Sequence[GridRow]) -> list[ClaimVerdict]:
    """More candidates, and devices that know less, favour clipped noisy max.

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
    return [
        ClaimVerdict(
            claim=claim,
            market=_EVERYWHERE,
            condition="epsilon from which randomized response with gamma 1 is ahead",
            verdict=verdict_of(is_true),
            numbers=numbers,
        )
        for claim, is_true in (
            ("more candidates favour clipped noisy max", more_candidates),
            ("devices that know less favour clipped noisy max", less_known),
        )
    ]


def _at_least(value: float | None, other: float | None) -> bool:
    """Whether overtaking is no earlier; never is the latest."""
    return value is None or (other is not None and value >= other)
