"""On what a guarantee rests: assumptions and bounds on one unit's contribution."""

import dataclasses
import enum

from tulle.errors import ConfigError
from tulle.privacy.fields import check_choice, check_fields, check_finite, check_text


class Status(enum.Enum):
    """How sure it is that an assumption holds."""

    ENFORCED = "enforced"
    """The code makes it true, whatever the data are."""
    CHECKED = "checked"
    """The code looked, and stops where it does not hold."""
    ASSUMED = "assumed"
    """Somebody says so. A release that rests on it is not certified as private."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Assumption:
    """One thing that must be true for the guarantee to hold."""

    statement: str
    status: Status
    evidence: str = ""
    """What enforces or checks it; may be empty only if it is assumed."""

    def __post_init__(self) -> None:
        check_text("statement", self.statement)
        if not isinstance(self.status, Status):
            raise ConfigError(f"status={self.status!r} must be a Status, e.g. Status.CHECKED.")
        if self.evidence != "" or self.status is not Status.ASSUMED:
            check_text(f"evidence of the {self.status.value} assumption", self.evidence)

    def to_dict(self) -> dict[str, object]:
        """Plain data."""
        return dataclasses.asdict(self) | {"status": self.status.value}

    @classmethod
    def from_dict(cls, data: object) -> "Assumption":
        """Reads what `to_dict` wrote."""
        fields = check_fields("assumption", data, ("statement", "status", "evidence"))
        return cls(**fields | {"status": check_choice("status", fields["status"], Status)})


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bound:
    """The most that one unit can contribute, and what makes sure of it."""

    what: str
    """For example "rows per user"."""
    limit: float
    where: str
    """What enforces it, for example "first rows by time, before sampling"."""

    def __post_init__(self) -> None:
        check_text("what", self.what)
        check_text("where", self.where)
        if check_finite("limit", self.limit) <= 0:
            raise ConfigError(
                f"limit={self.limit} of {self.what!r} must be > 0; drop what nobody contributes to."
            )
        if self.limit == int(self.limit):
            # Equal bounds must have equal text, so 3.0 is kept as 3.
            object.__setattr__(self, "limit", int(self.limit))

    def to_dict(self) -> dict[str, object]:
        """Plain data."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, data: object) -> "Bound":
        """Reads what `to_dict` wrote."""
        return cls(**check_fields("bound", data, ("what", "limit", "where")))
