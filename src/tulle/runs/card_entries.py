"""The entries of a card: epsilon computed from events, what was measured, where it was made.

Every epsilon is computed from its event and not taken from the plan. Figures of quality and what
an attack proved are handed in by whoever measured them. Provenance names versions and time.
"""

import contextlib
import dataclasses
import hmac
import platform
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib import metadata

import tulle
from tulle.accounting.accountant import (
    TOLERANCE,
    pld_epsilon,
    unamplified_epsilon,
    verify_plan,
)
from tulle.errors import ConfigError
from tulle.privacy.events import Composed
from tulle.privacy.fields import (
    Scalar,
    Settings,
    check_fields,
    check_finite,
    check_list,
    check_prob,
    check_text,
    infinite_if_null,
    null_if_infinite,
)
from tulle.privacy.guarantee import Claim, Interval, round_up
from tulle.privacy.plan import Plan

METHOD = "privacy loss distributions"
_REPEATED = (1, 7, 30)
"""Numbers of trainings that are composed where each continues from the last: nights of a month."""
_DIGITS = 9
"""Digits of an epsilon on a card: far finer than the tolerance of a claim, and the same on every
processor."""
_LIBRARIES = ("dp-accounting", "numpy", "scipy")
_KEYED = "hmac-sha256:"
_LEAST_KEY_BYTES = 16
"""Least length of a key; shorter keys can be tried one by one."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class CheckedClaim:
    """One claim beside what its event gives."""

    claim: Claim
    epsilon: float
    epsilon_without_amplification: float
    """Epsilon if batches and the order of reports were known; math.inf if none is certified."""

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
    def from_dict(cls, data: object) -> "CheckedClaim":
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
class CardAccounting:
    """How the figures came about, headline first."""

    figures: tuple[CheckedClaim, ...]
    note: str = ""
    """Which other accountant the claims come from, if one was used."""
    reproduction_only: bool = False
    """True if that accountant is not sound for the stated adjacency."""
    repeated: tuple[tuple[int, float], ...] = ()
    """Numbers of such trainings, and the epsilon of a unit whose rows are in all of them, if all
    have the noise of this one; only for runs that continue from a model."""

    def __post_init__(self) -> None:
        if self.note != "" or self.reproduction_only:
            check_text("accounting_note", self.note)
        if not self.figures:
            raise ConfigError("accounting needs at least one figure; make it with build_card().")

    def to_dict(self) -> dict[str, object]:
        """Plain data."""
        repeated = {str(number): epsilon for number, epsilon in self.repeated}
        return {
            "method": METHOD,
            "note": self.note,
            "reproduction_only": self.reproduction_only,
            "figures": [figure.to_dict() for figure in self.figures],
            **({"repeated": repeated} if repeated else {}),
        }

    @classmethod
    def from_dict(cls, data: object) -> "CardAccounting":
        """Reads what `to_dict` wrote."""
        names = ("method", "note", "reproduction_only", "figures")
        fields = check_fields("accounting", data, names, ("repeated",))
        if fields["method"] != METHOD:
            raise ConfigError(f"accounting method={fields['method']!r} must be {METHOD!r}.")
        if not isinstance(fields["reproduction_only"], bool):
            raise ConfigError("accounting reproduction_only must be true or false.")
        return cls(
            figures=tuple(
                CheckedClaim.from_dict(f) for f in check_list("figures", fields["figures"])
            ),
            note=fields["note"],
            reproduction_only=fields["reproduction_only"],
            repeated=tuple(
                (int(number), check_finite("repeated", epsilon))
                for number, epsilon in fields.get("repeated", {}).items()
            ),
        )


def compute_repeated(plan: Plan) -> tuple[tuple[int, float], ...]:
    """Epsilon of a unit whose rows are in several such trainings, all with the noise of this one.

    Args:
      plan: Plan of a run that continues from a model; for all others there is nothing to say.
    """
    if "starts_from" not in plan.settings or not plan.is_private:
        return ()
    delta, adjacency = plan.guarantee.delta, plan.guarantee.adjacency
    events = [(number, Composed((plan.event,) * number)) for number in _REPEATED]
    found = [(number, pld_epsilon(event, delta, adjacency)) for number, event in events]
    return tuple((number, round_up(epsilon, _DIGITS)) for number, epsilon in found)


def compute_figures(plan: Plan) -> tuple[CheckedClaim, ...]:
    """The figures of every claim; refuses a plan that claims too much.

    Raises:
      ConfigError: A claim is stronger than its event.
    """
    return tuple(
        CheckedClaim(
            claim=claim,
            epsilon=round_up(epsilon, _DIGITS),
            epsilon_without_amplification=round_up(unamplified_epsilon(claim), _DIGITS),
        )
        for claim, epsilon in zip(plan.claims, verify_plan(plan), strict=True)
    )


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
        check_prob("confidence", self.confidence, example=0.95)
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


@dataclasses.dataclass(frozen=True, kw_only=True)
class Provenance:
    """What it takes to repeat a run, short of its data and its noise."""

    tulle_version: str
    python_version: str
    platform: str
    """Operating system and processor, without the name of a machine."""
    created_at: datetime
    libraries: Mapping[str, Scalar]
    """Versions of what the accounting, and perhaps the training, was done with."""
    data_fingerprint: str | None = None
    """Made by `keyed_fingerprint`: a plain hash of raw data would confirm a guess of them."""
    settings: Mapping[str, Scalar] = dataclasses.field(default_factory=Settings)
    """Public settings of the run that are not part of its plan."""

    def __post_init__(self) -> None:
        for name in ("tulle_version", "python_version", "platform"):
            check_text(name, getattr(self, name))
        if not isinstance(self.created_at, datetime) or self.created_at.tzinfo is None:
            raise ConfigError(
                f"created_at={self.created_at} must have a time zone, e.g. datetime.now(UTC)."
            )
        created = self.created_at.astimezone(UTC).replace(microsecond=0)
        object.__setattr__(self, "created_at", created)
        object.__setattr__(self, "libraries", Settings(self.libraries))
        object.__setattr__(self, "settings", Settings(self.settings))
        if self.data_fingerprint is not None:
            _check_keyed(self.data_fingerprint)

    def to_dict(self) -> dict[str, object]:
        """Plain data."""
        data = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return data | {
            "created_at": self.created_at.isoformat(),
            "libraries": dict(self.libraries),
            "settings": dict(self.settings),
        }

    @classmethod
    def from_dict(cls, data: object) -> "Provenance":
        """Reads what `to_dict` wrote."""
        fields = check_fields("provenance", data, [field.name for field in dataclasses.fields(cls)])
        text = check_text("created_at", fields["created_at"])
        try:
            created_at = datetime.fromisoformat(text)
        except ValueError:
            raise ConfigError(f"created_at={text!r} is not an ISO 8601 date and time.") from None
        return cls(**fields | {"created_at": created_at})


def collect_provenance(
    *,
    data_fingerprint: str | None = None,
    settings: Mapping[str, Scalar] | None = None,
    more_libraries: Sequence[str] = (),
) -> Provenance:
    """The versions and the time of here and now.

    Args:
      data_fingerprint: Made by `keyed_fingerprint`.
      settings: Public settings of the run that are not part of its plan.
      more_libraries: What else was used, by its name in the package index; named on the
        card where it is installed.
    """
    return Provenance(
        tulle_version=tulle.__version__,
        python_version=platform.python_version(),
        platform=f"{platform.system()} {platform.machine()}",
        created_at=datetime.now(UTC),
        libraries={name: metadata.version(name) for name in _LIBRARIES} | _found(more_libraries),
        data_fingerprint=data_fingerprint,
        settings=Settings(settings),
    )


def keyed_fingerprint(data_digest: bytes, *, key: bytes) -> str:
    """A fingerprint of data that only holders of the key can compare with a guess.

    Args:
      data_digest: A hash of the data. Sensitive.
      key: Random bytes that stay with the data and are never published.
    """
    if len(key) < _LEAST_KEY_BYTES:
        raise ConfigError(
            f"key has {len(key)} bytes, at least {_LEAST_KEY_BYTES} are needed; "
            "use secrets.token_bytes(32)."
        )
    return _KEYED + hmac.digest(key, data_digest, "sha256").hex()


def _found(libraries: Sequence[str]) -> dict[str, Scalar]:
    versions: dict[str, Scalar] = {}
    for name in libraries:
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return versions


def _check_keyed(fingerprint: object) -> None:
    if not isinstance(fingerprint, str) or not re.fullmatch(
        rf"{_KEYED}[0-9a-f]{{64}}", fingerprint
    ):
        raise ConfigError(
            "data_fingerprint must be made by keyed_fingerprint(): a plain hash of raw data "
            "on a card would confirm a guess of them."
        )
