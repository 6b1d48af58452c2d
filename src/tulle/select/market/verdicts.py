"""A claim, the condition it was checked under, and what came out."""

import dataclasses
import enum


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


def verdict_of(is_true: bool) -> Verdict:
    """Of a claim that can be checked."""
    return Verdict.HOLDS if is_true else Verdict.DOES_NOT_HOLD
