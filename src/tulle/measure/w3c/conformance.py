"""Runs conformance cases: files of events with the histogram or the error that each must give.

The format is that of the end-to-end cases which the W3C working group keeps beside its
specification: a folder with CONFIG.json for limits and one JSON file for each case.
"""

import dataclasses
import itertools
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn

from tulle.errors import ConfigError, DataError, TulleError
from tulle.measure.w3c.attribution_state import FixedDraws
from tulle.measure.w3c.browser import Browser
from tulle.measure.w3c.options import (
    COMMENT,
    ConversionOptions,
    ImpressionOptions,
    RejectedCallError,
    W3cLimits,
)
from tulle.privacy.fields import check_count, check_fields, check_list, check_text, did_you_mean

CONFIG_NAME = "CONFIG.json"
"""Name of the file with the limits of all cases."""
_SCHEMA_ENDING = ".schema.json"
"""Ending of files that describe cases and are none."""
_DRAWS = {"fairlyAllocateCreditFraction": "credit_fraction", "epochStart": "epoch_fraction"}
"""The specification's names of what is drawn, and ours."""
ExpectedError = tuple[str, str]
"""Kind and name of an error; both are the same but for a DOMException."""
Expected = tuple[int, ...] | ExpectedError | None
_Fields = Mapping[str, Any]
_Call = tuple[Callable[[Browser], object], Expected]


@dataclasses.dataclass(frozen=True, kw_only=True)
class BrowserEvent:
    """One thing that a page or a person does in a browser, and what must come of it."""

    seconds: int
    happen: Callable[[Browser], object]
    """Makes the call."""
    expected: Expected
    """The histogram or the error; None for a call that works and answers nothing."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class CaseSetup:
    """The browser that cases run in."""

    limits: W3cLimits
    draws: FixedDraws = dataclasses.field(default_factory=FixedDraws)

    @classmethod
    def from_json(cls, data: object) -> "CaseSetup":
        """Reads the content of CONFIG.json; refuses unknown keys."""
        if not isinstance(data, dict):
            raise ConfigError(f"{CONFIG_NAME} must hold a JSON object with limits.")
        draws = {name: data[key] for key, name in _DRAWS.items() if key in data}
        limits = {key: value for key, value in data.items() if key not in _DRAWS}
        return cls(limits=W3cLimits.from_json(limits), draws=FixedDraws(**draws))


@dataclasses.dataclass(frozen=True, kw_only=True)
class CaseResult:
    """How one case went."""

    name: str
    num_events: int
    failures: tuple[str, ...]
    """What was expected and what came, for each event that went wrong."""

    @property
    def is_passed(self) -> bool:
        """Whether everything was as expected."""
        return not self.failures

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "case": self.name,
            "passed": self.is_passed,
            "num_events": self.num_events,
            "failures": list(self.failures),
        }


def run_w3c_cases(folder: Path) -> tuple[CaseResult, ...]:
    """Runs every case of a folder, in the order of names."""
    if not (folder / CONFIG_NAME).is_file():
        raise DataError(f"{folder} has no {CONFIG_NAME}; give a folder of conformance cases.")
    setup = CaseSetup.from_json(_read(folder / CONFIG_NAME))
    paths = [
        path
        for path in sorted(folder.glob("*.json"))
        if path.name != CONFIG_NAME and not path.name.endswith(_SCHEMA_ENDING)
    ]
    if not paths:
        raise DataError(f"{folder} has no cases; put JSON files beside {CONFIG_NAME}.")
    return tuple(run_file(path, setup) for path in paths)


def run_file(path: Path, setup: CaseSetup) -> CaseResult:
    """Runs one case. A file that cannot be read is a failed case."""
    try:
        events = read_case(_read(path))
    except TulleError as error:
        return CaseResult(name=path.stem, num_events=0, failures=(f"cannot be read: {error}",))
    return run_case(path.stem, events, setup)


def read_case(data: object) -> tuple[BrowserEvent, ...]:
    """Events of a case, which must come one after another."""
    fields = check_fields("case", data, ("events",), (COMMENT,))
    events = tuple(read_event(entry) for entry in check_list("events", fields["events"]))
    for earlier, later in itertools.pairwise(events):
        if later.seconds <= earlier.seconds:
            raise ConfigError(
                f"seconds={later.seconds} comes after seconds={earlier.seconds}; "
                "each event must be later than the one before."
            )
    return events


def run_case(name: str, events: tuple[BrowserEvent, ...], setup: CaseSetup) -> CaseResult:
    """Lets events happen in a new browser and compares.

    Args:
      name: Name of the case.
      events: What happens, in the order of time.
      setup: Limits and draws of the browser.
    """
    browser = Browser(setup.limits, setup.draws)
    failures = []
    for event in events:
        actual: object
        try:
            actual = event.happen(browser)
        except RejectedCallError as error:
            actual = (error.error, error.name)
        except ConfigError as error:
            failures.append(f"at {event.seconds} s: {error}")
            continue
        if actual != event.expected:
            failures.append(
                f"at {event.seconds} s: expected {_shown(event.expected)}, got {_shown(actual)}"
            )
    return CaseResult(name=name, num_events=len(events), failures=tuple(failures))


def read_event(data: object) -> BrowserEvent:
    """An event from JSON; refuses unknown kinds and unknown keys."""
    kind = data.get("event") if isinstance(data, Mapping) else None
    if kind not in _KINDS:
        raise ConfigError(
            f"event={kind!r} is unknown{did_you_mean(kind, _KINDS)}; "
            f"use one of {', '.join(_KINDS)}."
        )
    read, required, optional = _KINDS[kind]
    fields = check_fields("event", data, ("event", "seconds", *required), (*optional, COMMENT))
    seconds = fields["seconds"]
    if isinstance(seconds, bool) or not isinstance(seconds, int):
        raise ConfigError(f"seconds={seconds!r} must be a whole number.")
    happen, expected = read(fields, seconds)
    return BrowserEvent(seconds=seconds, happen=happen, expected=expected)


def _shown(outcome: Any) -> str:
    if outcome is None:
        return "no error"
    if outcome and isinstance(outcome[0], str):
        error, name = outcome
        return error if error == name else f"{error} {name}"
    return str(list(outcome))


def _read(path: Path) -> Any:
    try:
        return json.loads(
            path.read_text(encoding="utf-8"),
            parse_constant=_refuse_constant,
            object_pairs_hook=_without_comments,
        )
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{path} cannot be read as JSON ({type(error).__name__}).") from None


def _without_comments(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Cases comment one event more than once; any other key may be there once."""
    kept = [(key, value) for key, value in pairs if key != COMMENT]
    data = dict(kept)
    if len(data) < len(kept):
        raise ConfigError(f"an object has one of the keys {', '.join(data)} twice; keep one.")
    return data


def _refuse_constant(name: str) -> NoReturn:
    raise ConfigError(f"{name} is not JSON; write a finite number.")


def _save_impression(fields: _Fields, now: int) -> _Call:
    site, frame = check_text("site", fields["site"]), _intermediary(fields)
    options = ImpressionOptions.from_json(fields["options"])
    error = fields.get("expectedError")
    expected = None if error is None else _error(error)
    return lambda b: b.save_impression(site, options, now=now, intermediary=frame), expected


def _measure_conversion(fields: _Fields, now: int) -> _Call:
    site, frame = check_text("site", fields["site"]), _intermediary(fields)
    options = ConversionOptions.from_json(fields["options"])
    expected: Expected
    if isinstance(fields["expected"], list):
        expected = tuple(check_count("expected", count, least=0) for count in fields["expected"])
    else:
        expected = _error(fields["expected"])
    return lambda b: b.measure_conversion(site, options, now=now, intermediary=frame), expected


def _clear_impressions(fields: _Fields, now: int) -> _Call:
    site = check_text("site", fields["site"])
    return lambda b: b.clear_impressions_for_site(site, now=now), None


def _clear_history(fields: _Fields, now: int) -> _Call:
    forget = fields["forgetVisits"]
    if not isinstance(forget, bool):
        raise ConfigError(f"forgetVisits={forget!r} must be true or false.")
    sites = tuple(check_text("sites", site) for site in check_list("sites", fields["sites"]))
    return lambda b: b.clear_browsing_history(sites, forget_visits=forget, now=now), None


def _switch(fields: _Fields, now: int) -> _Call:
    del now  # a person may turn the API on and off at any time
    is_enabled = fields["event"] == "enableAPI"
    return lambda b: setattr(b, "is_enabled", is_enabled), None


def _intermediary(fields: _Fields) -> str | None:
    site = fields.get("intermediarySite")
    return None if site is None else check_text("intermediarySite", site)


def _error(data: object) -> ExpectedError:
    if isinstance(data, str):
        return data, data
    fields = check_fields("expected error", data, ("error", "name"))
    return check_text("error", fields["error"]), check_text("name", fields["name"])


# How each kind of event is read, the keys that it must have, and those that it may have.
_KINDS: dict[Any, tuple[Callable[[_Fields, int], _Call], tuple[str, ...], tuple[str, ...]]] = {
    "saveImpression": (
        _save_impression,
        ("site", "options"),
        ("intermediarySite", "expectedError"),
    ),
    "measureConversion": (
        _measure_conversion,
        ("site", "options", "expected"),
        ("intermediarySite",),
    ),
    "clearImpressionsForSite": (_clear_impressions, ("site",), ()),
    "clearBrowsingHistoryForAttribution": (_clear_history, ("sites", "forgetVisits"), ()),
    "enableAPI": (_switch, (), ()),
    "disableAPI": (_switch, (), ()),
}
