"""What a page passes to the two calls of the API, and the checks a browser makes on it.

A site is the registrable domain of a host, which is what impressions and budgets are kept by. What
counts as a public suffix ("com", "co.uk") is data that changes. Without a list the last label is
the suffix, which is the list's own rule for names it does not know.
"""

import dataclasses
import re
from collections.abc import Sequence
from pathlib import Path

from tulle.errors import ConfigError, DataError
from tulle.measure.w3c.limits import (
    MAX_EPSILON,
    W3cLimits,
    fields_from_json,
    range_error,
    reference_error,
    syntax_error,
)
from tulle.privacy.fields import check_finite, check_text

_UNSIGNED_LONG = (0, 2**32 - 1)
"""Range of an unsigned long of Web IDL."""
_LONG = (-(2**31), 2**31 - 1)
"""Range of a long of Web IDL."""
_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")
"""A label of a host name."""
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
"""The last label of an address in numbers, which is no site."""


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
        raise reference_error(
            f"aggregation_service={options.aggregation_service!r} is unknown; "
            f"use one of {', '.join(limits.aggregation_services)}."
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


def parse_sites(
    name: str, hosts: Sequence[str], max_sites: int, suffixes: PublicSuffixes
) -> frozenset[str]:
    """The sites of a list of hosts that must not be too long.

    Args:
      name: Name of the list, for messages.
      hosts: What the page passed.
      max_sites: Most sites of the list.
      suffixes: Known public suffixes.
    """
    if len(hosts) > max_sites:
        raise range_error(f"{name} has {len(hosts)} entries; give at most {max_sites}.")
    return frozenset(parse_site(host, suffixes) for host in hosts)


def parse_site(text: str, suffixes: PublicSuffixes) -> str:
    """The site that a host belongs to; refuses what is no domain name, and localhost."""
    host = _ascii_host(text)
    site = None if host is None else suffixes.registrable_domain(host)
    is_local = host is not None and host.split(".")[-1] == "localhost"
    if site is None or is_local:
        raise syntax_error(
            f"site {text!r} is not usable: name a host below a public suffix, without scheme or "
            'port and not localhost, e.g. "shop.example".'
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
