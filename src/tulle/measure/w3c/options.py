"""What a browser fixes for everybody, what a page passes to its two calls, and what is refused.

The specification leaves most limits to browsers. Sizes default to its minima where it has some. No
browser has chosen budgets: those here are one epsilon for a site, and the multiples of it that the
conformance cases use. Settings are read in the spelling of the specification: camelCase keys, none
unknown. Calls are refused by the kinds of error that it names.

A site is the registrable domain of a host, which is what impressions and budgets are kept by. What
counts as a public suffix ("com", "co.uk") is data that changes. Without a list the last label is
the suffix, which is the list's own rule for names it does not know.
"""

import dataclasses
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from tulle.errors import ConfigError, DataError
from tulle.privacy.fields import check_count, check_fields, check_finite, check_text

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
_UNSIGNED_LONG = (0, 2**32 - 1)
"""Range of an unsigned long of Web IDL."""
_LONG = (-(2**31), 2**31 - 1)
"""Range of a long of Web IDL."""
_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")
"""A label of a host name."""
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
"""The last label of an address in numbers, which is no site."""


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


def fields_from_json(kind: type[_Kind], what: str, data: object) -> _Kind:
    """A settings class from a JSON object; lists become tuples and comments are dropped.

    Args:
      kind: The class.
      what: How messages name the data.
      data: A JSON object.
    """
    fields = {
        re.sub("_([a-z])", lambda found: found[1].upper(), field.name): field
        for field in dataclasses.fields(kind)  # type: ignore[arg-type]
    }
    missing = dataclasses.MISSING
    required = [key for key, f in fields.items() if f.default is f.default_factory is missing]
    optional = [key for key in fields if key not in required]
    checked = check_fields(what, data, required, [*optional, COMMENT])
    values: dict[str, Any] = {
        fields[key].name: tuple(value) if isinstance(value, list) else value
        for key, value in checked.items()
        if key != COMMENT
    }
    return kind(**values)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ImpressionOptions:
    """Options of saveImpression()."""

    histogram_index: int
    """The bucket that gets the credit of this impression."""
    match_value: int = 0
    """A label that conversions can choose impressions by."""
    conversion_sites: tuple[str, ...] = ()
    """Sites whose conversions may use the impression; empty for all."""
    conversion_callers: tuple[str, ...] = ()
    lifetime_days: int = 30
    priority: int = 0

    def __post_init__(self) -> None:
        for name in ("histogram_index", "match_value", "lifetime_days"):
            _check_integer(name, getattr(self, name), _UNSIGNED_LONG)
        _check_integer("priority", self.priority, _LONG)
        for name in ("conversion_sites", "conversion_callers"):
            _check_site_list(name, getattr(self, name))

    @classmethod
    def from_json(cls, data: object) -> "ImpressionOptions":
        """Reads options in the spelling of the specification; refuses unknown keys."""
        return fields_from_json(cls, "options of saveImpression", data)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConversionOptions:
    """Options of measureConversion()."""

    aggregation_service: str
    histogram_size: int
    epsilon: float = 1.0
    """What a report of `max_value` costs at most, in each epoch that it touches."""
    value: int = 1
    """Divided among the impressions that get credit."""
    max_value: int = 1
    """Largest value of any conversion in the same aggregate: it sets the noise."""
    credit: tuple[float, ...] = (1.0,)
    """Weights of the first, second, ... impression by priority, then by time from the last."""
    lookback_days: int | None = None
    """Days that impressions may be old; None for the longest that is allowed."""
    match_values: tuple[int, ...] = ()
    impression_sites: tuple[str, ...] = ()
    impression_callers: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_text("aggregation_service", self.aggregation_service)
        check_finite("epsilon", self.epsilon)
        for name in ("histogram_size", "value", "max_value"):
            _check_integer(name, getattr(self, name), _UNSIGNED_LONG)
        if self.lookback_days is not None:
            _check_integer("lookback_days", self.lookback_days, _UNSIGNED_LONG)
        _check_tuple("match_values", self.match_values)
        for number in self.match_values:
            _check_integer("match_values", number, _UNSIGNED_LONG)
        _check_tuple("credit", self.credit)
        for weight in self.credit:
            check_finite("credit", weight)
        for name in ("impression_sites", "impression_callers"):
            _check_site_list(name, getattr(self, name))

    @classmethod
    def from_json(cls, data: object) -> "ConversionOptions":
        """Reads options in the spelling of the specification; refuses unknown keys."""
        return fields_from_json(cls, "options of measureConversion", data)


@dataclasses.dataclass(frozen=True)
class PublicSuffixes:
    """Rules in the notation of the Public Suffix List: "co.uk", "*.ck", "!www.ck"."""

    rules: frozenset[str] = frozenset()

    @classmethod
    def from_file(cls, path: Path) -> "PublicSuffixes":
        """Reads a copy of the Public Suffix List."""
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise DataError(
                f"{path} cannot be read as a list of public suffixes ({type(error).__name__}); "
                "give a copy of public_suffix_list.dat."
            ) from None
        rules = (line.split()[0] for line in lines if line.strip() and not line.startswith("//"))
        return cls(frozenset(_ascii_rule(rule) for rule in rules))

    def registrable_domain(self, host: str) -> str | None:
        """The public suffix of a host and the label before it; None for a bare suffix."""
        labels = host.split(".")
        suffix_size = 1
        for start in range(len(labels)):
            name = ".".join(labels[start:])
            size = len(labels) - start
            if f"!{name}" in self.rules:
                suffix_size = size - 1
                break
            parent = ".".join(labels[start + 1 :])
            if name in self.rules or (parent and f"*.{parent}" in self.rules):
                suffix_size = size
                break
        if len(labels) <= suffix_size:
            return None
        return ".".join(labels[-suffix_size - 1 :])


def check_impression(options: ImpressionOptions, limits: W3cLimits) -> None:
    """Refuses an impression outside the limits, as a browser does."""
    if options.histogram_index >= limits.max_histogram_size:
        raise range_error(
            f"histogram_index={options.histogram_index} must be below "
            f"max_histogram_size={limits.max_histogram_size}."
        )
    if options.lifetime_days == 0:
        raise range_error("lifetime_days=0 must be >= 1.")


def check_conversion(options: ConversionOptions, limits: W3cLimits) -> None:
    """Refuses a conversion outside the limits, as a browser does."""
    if options.aggregation_service not in limits.aggregation_services:
        raise RejectedCallError(
            "ReferenceError",
            "ReferenceError",
            f"aggregation_service={options.aggregation_service!r} is unknown; "
            f"use one of {', '.join(limits.aggregation_services)}.",
        )
    if not 0 < options.epsilon <= MAX_EPSILON:
        raise range_error(f"epsilon={options.epsilon} must be in (0, {MAX_EPSILON}].")
    if not 1 <= options.histogram_size <= limits.max_histogram_size:
        raise range_error(
            f"histogram_size={options.histogram_size} must be from 1 to "
            f"max_histogram_size={limits.max_histogram_size}."
        )
    if not 1 <= options.value <= options.max_value:
        raise range_error(f"value={options.value} must be from 1 to max_value={options.max_value}.")
    if not 1 <= len(options.credit) <= limits.max_credit_size:
        raise range_error(
            f"credit has {len(options.credit)} weights; give 1 to {limits.max_credit_size}."
        )
    if any(weight <= 0 for weight in options.credit):
        raise range_error(f"credit={list(options.credit)} must have weights > 0 alone.")
    if options.lookback_days == 0:
        raise range_error("lookback_days=0 must be >= 1.")
    if len(options.match_values) > limits.max_match_values:
        raise range_error(
            f"match_values has {len(options.match_values)} values; "
            f"give at most {limits.max_match_values}."
        )


def parse_site(text: str, suffixes: PublicSuffixes) -> str:
    """The site that a host belongs to; refuses what is no domain name, and localhost."""
    host = _ascii_host(text)
    site = None if host is None else suffixes.registrable_domain(host)
    is_local = host is not None and host.split(".")[-1] == "localhost"
    if site is None or is_local:
        raise RejectedCallError(
            "DOMException",
            "SyntaxError",
            f"site {text!r} is not usable: name a host below a public suffix, without scheme or "
            'port and not localhost, e.g. "shop.example".',
        )
    return site


def _check_integer(name: str, value: object, allowed: tuple[int, int]) -> None:
    least, most = allowed
    is_integer = isinstance(value, int) and not isinstance(value, bool)
    if not is_integer or not least <= value <= most:  # type: ignore[operator]
        raise ConfigError(f"{name}={value!r} must be a whole number from {least} to {most}.")


def _check_site_list(name: str, hosts: object) -> None:
    _check_tuple(name, hosts)
    if any(not isinstance(host, str) for host in hosts):  # type: ignore[attr-defined]
        raise ConfigError(f"{name}={hosts!r} must hold host names.")


def _check_tuple(name: str, values: object) -> None:
    if not isinstance(values, tuple):
        raise ConfigError(f"{name}={values!r} must be a tuple, and in JSON a list.")


def _ascii_host(text: str) -> str | None:
    try:
        host = text.encode("idna").decode("ascii").lower().removesuffix(".")
    except UnicodeError:
        return None
    if len(host) > 253 or not all(_LABEL.fullmatch(label) for label in host.split(".")):
        return None
    # Whatever ends in a number is read as an address.
    return None if _NUMBER.fullmatch(host.split(".")[-1]) else host


def _ascii_rule(rule: str) -> str:
    mark = "!" if rule.startswith("!") else "*." if rule.startswith("*.") else ""
    try:
        return mark + rule.removeprefix(mark).encode("idna").decode("ascii").lower()
    except UnicodeError:
        raise DataError(f"rule {rule!r} is no public suffix; take it out of the list.") from None
