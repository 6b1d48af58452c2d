"""What true reach numbers of one campaign always satisfy.

Reach does not add up over publishers or weeks, because a user can be in several. What holds are
inequalities: a part is at most the whole, a union at most the sum of its parts, a total over time
never falls. Only over disjoint groups of users (geo, age) is the whole the sum.
"""

import dataclasses
import itertools
from collections.abc import Sequence

from tulle.errors import ConfigError
from tulle.privacy.fields import check_count, check_finite, check_text


@dataclasses.dataclass(frozen=True, kw_only=True)
class Relation:
    """sum of coefficient * number <= limit, or == limit. Public."""

    description: str
    coefficients: tuple[tuple[str, float], ...]
    limit: float = 0.0
    is_equality: bool = False

    def __post_init__(self) -> None:
        check_text("description", self.description)
        check_finite("limit", self.limit)
        if not self.coefficients:
            raise ConfigError(f"relation {self.description!r} has no numbers; name at least one.")
        names = [name for name, _ in self.coefficients]
        if len(set(names)) < len(names):
            raise ConfigError(f"relation {self.description!r} names a number twice; once is right.")
        for name, coefficient in self.coefficients:
            check_finite(f"coefficient of {name!r}", coefficient)


def part_of(part: str, whole: str) -> Relation:
    """Whoever a part reached, the whole reached: a publisher in all publishers, 2+ in 1+."""
    return Relation(description=f"{part} <= {whole}", coefficients=((part, 1.0), (whole, -1.0)))


def covered_by(union: str, parts: Sequence[str]) -> Relation:
    """Whoever a union reached, one of its parts did."""
    return Relation(
        description=f"{union} <= {' + '.join(parts)}",
        coefficients=((union, 1.0), *((part, -1.0) for part in parts)),
    )


def in_order(names: Sequence[str]) -> tuple[Relation, ...]:
    """Each number is at most the next: reach up to week 1, up to week 2, and so on."""
    return tuple(part_of(a, b) for a, b in itertools.pairwise(names))


def adds_up(whole: str, parts: Sequence[str]) -> Relation:
    """The whole is the sum of disjoint groups of users."""
    return Relation(
        description=f"{whole} = {' + '.join(parts)}",
        coefficients=((whole, 1.0), *((part, -1.0) for part in parts)),
        is_equality=True,
    )


def within_impressions(k_plus_reach: str, k: int, impressions: str | float) -> Relation:
    """Whoever saw k impressions or more used up k of them.

    Impressions are another noisy number, by name, or a public one.
    """
    check_count("k", k)
    if isinstance(impressions, str):
        return Relation(
            description=f"{k} * {k_plus_reach} <= {impressions}",
            coefficients=((k_plus_reach, float(k)), (impressions, -1.0)),
        )
    return Relation(
        description=f"{k} * {k_plus_reach} <= public impressions",
        coefficients=((k_plus_reach, float(k)),),
        limit=float(impressions),
    )
