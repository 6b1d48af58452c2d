"""What a browser fixes for everybody: budgets of each epoch, limits on calls, and its refusals.

The specification leaves most of these to browsers. Sizes default to its minima where it has
some. No browser has chosen budgets: those here are one epsilon for a site, and the multiples of
it that the conformance cases use. Settings are read in the spelling of the specification: camelCase
keys, none unknown. Calls are refused by the kinds of error that it names.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, TypeVar

from tulle.errors import ConfigError
from tulle.privacy.fields import check_count, check_fields

MICROEPSILONS = 1_000_000
"""Microepsilons in one epsilon."""
MAX_EPSILON = 4294
"""Budgets are 32-bit numbers of microepsilons."""
DAY_SECONDS = 86_400
COMMENT = "$comment"
"""A key of JSON objects that is no setting."""
_PROTOCOLS = ("dap-18-histogram",)
"""Protocols of aggregation services that are known."""
_BUDGETS = (
    "per_site_privacy_budget",
    "global_privacy_budget_per_epoch",
    "impression_site_quota_per_epoch",
)
"""Limits that are budgets."""
_MAY_BE_ZERO = (
    "max_conversion_sites_per_impression",
    "max_conversion_callers_per_impression",
    "max_impression_sites_for_conversion",
    "max_impression_callers_for_conversion",
    "max_match_values",
)
"""Limits that may be 0."""
_Kind = TypeVar("_Kind")


@dataclasses.dataclass(frozen=True, kw_only=True)
class W3cLimits:
    """Limits of one browser. Budgets are in microepsilons, for each epoch. Public."""

    per_site_privacy_budget: int = MICROEPSILONS
    """What reports to one conversion site may spend on the impressions of one epoch.

    It does not bound what the site learns if sites react to each other's reports.
    """
    global_privacy_budget_per_epoch: int = 8 * MICROEPSILONS
    """What all conversion sites together may learn about the impressions of one epoch."""
    impression_site_quota_per_epoch: int = 4 * MICROEPSILONS
    """How much of the global budget the impressions of one site may use up."""
    privacy_budget_epoch_days: int = 7
    max_lookback_days: int = 30
    """Longest lifetime of an impression, and longest lookback of a conversion."""
    max_histogram_size: int = 1024
    max_credit_size: int = 10
    max_match_values: int = 30
    max_conversion_sites_per_impression: int = 5
    max_conversion_callers_per_impression: int = 10
    max_impression_sites_for_conversion: int = 30
    max_impression_callers_for_conversion: int = 10
    aggregation_services: Mapping[str, str] = dataclasses.field(
        default_factory=lambda: {"https://aggregation.example": _PROTOCOLS[0]}
    )
    """Address of each service that reports can be made for, and its protocol."""

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            if field.name != "aggregation_services":
                least = 0 if field.name in _MAY_BE_ZERO else 1
                check_count(field.name, getattr(self, field.name), least=least)
        for name in _BUDGETS:
            if getattr(self, name) > MAX_EPSILON * MICROEPSILONS:
                raise ConfigError(
                    f"{name}={getattr(self, name)} must be <= {MAX_EPSILON * MICROEPSILONS} "
                    "microepsilons; one epsilon is 1000000 of them."
                )
        if not isinstance(self.aggregation_services, Mapping):
            raise ConfigError("aggregation_services must map addresses to protocols.")
        for address, protocol in self.aggregation_services.items():
            if protocol not in _PROTOCOLS:
                raise ConfigError(
                    f"aggregation_services[{address!r}]={protocol!r} is unknown; "
                    f"use one of {', '.join(_PROTOCOLS)}."
                )

    @classmethod
    def from_json(cls, data: object) -> "W3cLimits":
        """Reads limits in the spelling of the specification; refuses unknown keys."""
        return fields_from_json(cls, "limits", data)


class RejectedCallError(ConfigError):
    """A call that a browser would reject. Nothing was stored and nothing was spent."""

    def __init__(self, error: str, name: str, message: str) -> None:
        super().__init__(message)
        self.error = error
        """RangeError, ReferenceError or DOMException."""
        self.name = name
        """The kind of error again, or for a DOMException its name."""


def range_error(message: str) -> RejectedCallError:
    """A number, or the length of a list, is outside its limits."""
    return RejectedCallError("RangeError", "RangeError", message)


def reference_error(message: str) -> RejectedCallError:
    """The aggregation service is unknown."""
    return RejectedCallError("ReferenceError", "ReferenceError", message)


def syntax_error(message: str) -> RejectedCallError:
    """A site is none."""
    return RejectedCallError("DOMException", "SyntaxError", message)


def fields_from_json(kind: type[_Kind], what: str, data: object) -> _Kind:
    """A settings class from a JSON object; lists become tuples and comments are dropped.

    Args:
      kind: The class.
      what: How messages name the data.
      data: A JSON object.
    """
    names: dict[str, str] = {}
    required = []
    for field in dataclasses.fields(kind):  # type: ignore[arg-type]
        names[camel_case(field.name)] = field.name
        if field.default is field.default_factory is dataclasses.MISSING:
            required.append(camel_case(field.name))
    optional = [name for name in names if name not in required]
    checked = check_fields(what, data, required, [*optional, COMMENT])
    values: dict[str, Any] = {
        names[key]: tuple(value) if isinstance(value, list) else value
        for key, value in checked.items()
        if key != COMMENT
    }
    return kind(**values)


def camel_case(name: str) -> str:
    """`histogram_index` as `histogramIndex`."""
    first, *others = name.split("_")
    return first + "".join(other.capitalize() for other in others)
