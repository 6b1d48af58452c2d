"""Every epsilon of a card, computed from its event and not taken from the plan."""

import dataclasses

from tulle.accounting.plan_check import TOLERANCE, unamplified_epsilon, verify_plan
from tulle.errors import ConfigError
from tulle.privacy.claim import Claim
from tulle.privacy.fields import (
    check_fields,
    check_list,
    check_text,
    infinite_if_null,
    null_if_infinite,
)
from tulle.privacy.plan import Plan
from tulle.privacy.rounding import round_up

METHOD = "privacy loss distributions"
# Far finer than the tolerance of a claim, and the same on every processor.
_DIGITS = 9


@dataclasses.dataclass(frozen=True, kw_only=True)
class Figure:
    """One claim beside what its event gives."""

    claim: Claim
    epsilon: float
    epsilon_without_amplification: float
    """If batches and the order of reports were known; math.inf if nothing is certified then."""

    def __post_init__(self) -> None:
        guarantee = self.claim.guarantee
        least = self.epsilon * (1 - TOLERANCE)
        if guarantee.is_private and guarantee.epsilon < least:
            raise ConfigError(
                f"epsilon={guarantee.epsilon:.6g} ({guarantee.unit}) is claimed, but the event "
                f"gives only epsilon={self.epsilon:.6g}; make the card anew with build_card()."
            )

    def to_dict(self) -> dict[str, object]:
        """Plain data; an infinite epsilon is null."""
        return self.claim.to_dict() | {
            "epsilon": null_if_infinite(self.epsilon),
            "epsilon_without_amplification": null_if_infinite(self.epsilon_without_amplification),
        }

    @classmethod
    def from_dict(cls, data: object) -> "Figure":
        """Reads what `to_dict` wrote."""
        names = ("guarantee", "event", "epsilon", "epsilon_without_amplification")
        fields = check_fields("figure", data, names)
        return cls(
            claim=Claim.from_dict({name: fields[name] for name in ("guarantee", "event")}),
            epsilon=infinite_if_null("epsilon", fields["epsilon"]),
            epsilon_without_amplification=infinite_if_null(
                "epsilon_without_amplification", fields["epsilon_without_amplification"]
            ),
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Accounting:
    """How the figures came about, headline first."""

    figures: tuple[Figure, ...]
    note: str = ""
    """Which other accountant the claims come from, if one was used."""
    reproduction_only: bool = False
    """True if that accountant is not sound for the stated adjacency."""

    def __post_init__(self) -> None:
        if self.note != "" or self.reproduction_only:
            check_text("accounting_note", self.note)
        if not self.figures:
            raise ConfigError("accounting needs at least one figure; make it with build_card().")

    def to_dict(self) -> dict[str, object]:
        """Plain data."""
        return {
            "method": METHOD,
            "note": self.note,
            "reproduction_only": self.reproduction_only,
            "figures": [figure.to_dict() for figure in self.figures],
        }

    @classmethod
    def from_dict(cls, data: object) -> "Accounting":
        """Reads what `to_dict` wrote."""
        names = ("method", "note", "reproduction_only", "figures")
        fields = check_fields("accounting", data, names)
        if fields["method"] != METHOD:
            raise ConfigError(f"accounting method={fields['method']!r} must be {METHOD!r}.")
        if not isinstance(fields["reproduction_only"], bool):
            raise ConfigError("accounting reproduction_only must be true or false.")
        return cls(
            figures=tuple(Figure.from_dict(f) for f in check_list("figures", fields["figures"])),
            note=fields["note"],
            reproduction_only=fields["reproduction_only"],
        )


def compute_figures(plan: Plan) -> tuple[Figure, ...]:
    """The figures of every claim; refuses a plan that claims too much.

    Raises:
      ConfigError: A claim is stronger than its event.
    """
    return tuple(
        Figure(
            claim=claim,
            epsilon=round_up(epsilon, _DIGITS),
            epsilon_without_amplification=round_up(unamplified_epsilon(claim), _DIGITS),
        )
        for claim, epsilon in zip(plan.claims, verify_plan(plan), strict=True)
    )
