"""What was measured about a release: how useful it is, and how it stood an attack."""

import dataclasses

from tulle.errors import ConfigError
from tulle.privacy.fields import (
    check_fields,
    check_finite,
    check_text,
    infinite_if_null,
    null_if_infinite,
)
from tulle.privacy.release import Interval


@dataclasses.dataclass(frozen=True, kw_only=True)
class UtilityFigure:
    """One figure of quality. It carries no noise of its own: measure it on data that may show."""

    name: str
    value: float
    measured_on: str
    """Which data, e.g. "last day, held out"; the card lists them as not protected."""
    interval: Interval | None = None
    baseline: float | None = None
    baseline_name: str = ""
    """What the baseline is, e.g. "same model without noise"."""

    def __post_init__(self) -> None:
        check_text("name", self.name)
        check_text("measured_on", self.measured_on)
        check_finite(f"utility {self.name!r}", self.value)
        if self.interval is not None:
            check_finite(f"interval.low of utility {self.name!r}", self.interval.low)
            check_finite(f"interval.high of utility {self.name!r}", self.interval.high)
        if self.baseline is not None:
            check_finite(f"baseline of utility {self.name!r}", self.baseline)
        if (self.baseline is None) != (self.baseline_name == ""):
            raise ConfigError(
                f"baseline={self.baseline} and baseline_name={self.baseline_name!r} of utility "
                f"{self.name!r} go together; give both or neither."
            )
        if self.baseline_name:
            check_text("baseline_name", self.baseline_name)

    def to_dict(self) -> dict[str, object]:
        """Plain data."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, data: object) -> "UtilityFigure":
        """Reads what `to_dict` wrote."""
        names = [field.name for field in dataclasses.fields(cls)]
        fields = check_fields("utility figure", data, names)
        return cls(**fields | {"interval": _interval_from_dict(fields["interval"])})


@dataclasses.dataclass(frozen=True, kw_only=True)
class AuditResult:
    """A lower bound on epsilon that an attack proved, beside the claim it attacked."""

    method: str
    lower_bound: float
    """Least epsilon that fits what the attack saw, at the stated confidence."""
    claim: float
    """Epsilon of the claim under attack; math.inf for a baseline."""
    confidence: float = 0.95

    def __post_init__(self) -> None:
        check_text("method", self.method)
        if check_finite("lower_bound", self.lower_bound) < 0:
            raise ConfigError(f"lower_bound={self.lower_bound} must be >= 0; 0 proves nothing.")
        if not 0 < check_finite("confidence", self.confidence) < 1:
            raise ConfigError(f"confidence={self.confidence} must be in (0, 1), e.g. 0.95.")
        if not self.claim >= 0:
            raise ConfigError(f"claim={self.claim} must be the epsilon of a claim of the plan.")

    @property
    def refutes_claim(self) -> bool:
        """True if the attack found more than was claimed."""
        return self.lower_bound > self.claim

    def to_dict(self) -> dict[str, object]:
        """Plain data; an infinite claim is null."""
        return dataclasses.asdict(self) | {"claim": null_if_infinite(self.claim)}

    @classmethod
    def from_dict(cls, data: object) -> "AuditResult":
        """Reads what `to_dict` wrote."""
        fields = check_fields("audit", data, [field.name for field in dataclasses.fields(cls)])
        return cls(**fields | {"claim": infinite_if_null("claim", fields["claim"])})


def _interval_from_dict(data: object) -> Interval | None:
    if data is None:
        return None
    fields = check_fields("interval", data, ("low", "high", "confidence"))
    return Interval(**{name: check_finite(name, value) for name, value in fields.items()})
