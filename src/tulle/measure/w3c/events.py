"""What happens in a browser over time, as the conformance cases write it down."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from tulle.errors import ConfigError
from tulle.measure.w3c.browser import Browser
from tulle.measure.w3c.json_names import COMMENT
from tulle.measure.w3c.options import ConversionOptions, ImpressionOptions
from tulle.privacy.fields import check_count, check_fields, check_list, check_text, did_you_mean

ExpectedError = tuple[str, str]
"""Kind and name of an error; both are the same but for a DOMException."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class SaveImpression:
    """A page saves an impression."""

    seconds: int
    site: str
    options: ImpressionOptions
    intermediary: str | None = None
    expected_error: ExpectedError | None = None

    @property
    def expected(self) -> ExpectedError | None:
        """None for a call that works."""
        return self.expected_error

    def happen(self, browser: Browser) -> None:
        """Makes the call."""
        browser.save_impression(
            self.site, self.options, now=self.seconds, intermediary=self.intermediary
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class MeasureConversion:
    """A page measures a conversion."""

    seconds: int
    site: str
    options: ConversionOptions
    expected: tuple[int, ...] | ExpectedError
    """The histogram, or the error."""
    intermediary: str | None = None

    def happen(self, browser: Browser) -> tuple[int, ...]:
        """Makes the call."""
        return browser.measure_conversion(
            self.site, self.options, now=self.seconds, intermediary=self.intermediary
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClearImpressionsForSite:
    """A site clears its own data."""

    seconds: int
    site: str
    expected: None = None

    def happen(self, browser: Browser) -> None:
        """Clears."""
        browser.clear_impressions_for_site(self.site, now=self.seconds)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClearBrowsingHistory:
    """A person clears data of sites, or of all."""

    seconds: int
    sites: tuple[str, ...]
    forget_visits: bool
    expected: None = None

    def happen(self, browser: Browser) -> None:
        """Clears."""
        browser.clear_browsing_history(
            self.sites, forget_visits=self.forget_visits, now=self.seconds
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class SwitchApi:
    """A person turns the API on or off."""

    seconds: int
    is_enabled: bool
    expected: None = None

    def happen(self, browser: Browser) -> None:
        """Turns it."""
        browser.is_enabled = self.is_enabled


Event = (
    SaveImpression | MeasureConversion | ClearImpressionsForSite | ClearBrowsingHistory | SwitchApi
)


def read_event(data: object) -> Event:
    """An event from JSON; refuses unknown kinds and unknown keys."""
    kind = data.get("event") if isinstance(data, Mapping) else None
    if kind not in _READERS:
        raise ConfigError(
            f"event={kind!r} is unknown{did_you_mean(kind, _READERS)}; "
            f"use one of {', '.join(_READERS)}."
        )
    return _READERS[kind](data)


def _save_impression(data: object) -> SaveImpression:
    fields = _fields(data, ("site", "options"), ("intermediarySite", "expectedError"))
    error = fields.get("expectedError")
    return SaveImpression(
        seconds=fields["seconds"],
        site=check_text("site", fields["site"]),
        options=ImpressionOptions.from_json(fields["options"]),
        intermediary=_intermediary(fields),
        expected_error=None if error is None else _error(error),
    )


def _measure_conversion(data: object) -> MeasureConversion:
    fields = _fields(data, ("site", "options", "expected"), ("intermediarySite",))
    expected = fields["expected"]
    return MeasureConversion(
        seconds=fields["seconds"],
        site=check_text("site", fields["site"]),
        options=ConversionOptions.from_json(fields["options"]),
        expected=(
            tuple(check_count("expected", count, least=0) for count in expected)
            if isinstance(expected, list)
            else _error(expected)
        ),
        intermediary=_intermediary(fields),
    )


def _clear_impressions(data: object) -> ClearImpressionsForSite:
    fields = _fields(data, ("site",))
    return ClearImpressionsForSite(
        seconds=fields["seconds"], site=check_text("site", fields["site"])
    )


def _clear_history(data: object) -> ClearBrowsingHistory:
    fields = _fields(data, ("sites", "forgetVisits"))
    if not isinstance(fields["forgetVisits"], bool):
        raise ConfigError(f"forgetVisits={fields['forgetVisits']!r} must be true or false.")
    sites = tuple(check_text("sites", site) for site in check_list("sites", fields["sites"]))
    return ClearBrowsingHistory(
        seconds=fields["seconds"], sites=sites, forget_visits=fields["forgetVisits"]
    )


def _enable(data: object) -> SwitchApi:
    return SwitchApi(seconds=_fields(data)["seconds"], is_enabled=True)


def _disable(data: object) -> SwitchApi:
    return SwitchApi(seconds=_fields(data)["seconds"], is_enabled=False)


_READERS: dict[Any, Callable[[object], Event]] = {
    "saveImpression": _save_impression,
    "measureConversion": _measure_conversion,
    "clearImpressionsForSite": _clear_impressions,
    "clearBrowsingHistoryForAttribution": _clear_history,
    "enableAPI": _enable,
    "disableAPI": _disable,
}


def _fields(
    data: object, required: tuple[str, ...] = (), optional: tuple[str, ...] = ()
) -> dict[str, Any]:
    fields = check_fields("event", data, ("event", "seconds", *required), (*optional, COMMENT))
    if isinstance(fields["seconds"], bool) or not isinstance(fields["seconds"], int):
        raise ConfigError(f"seconds={fields['seconds']!r} must be a whole number.")
    return fields


def _intermediary(fields: Mapping[str, Any]) -> str | None:
    site = fields.get("intermediarySite")
    return None if site is None else check_text("intermediarySite", site)


def _error(data: object) -> ExpectedError:
    if isinstance(data, str):
        return data, data
    fields = check_fields("expected error", data, ("error", "name"))
    return check_text("error", fields["error"]), check_text("name", fields["name"])
