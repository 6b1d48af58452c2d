"""Runs conformance cases: files of events with the histogram or the error that each must give.

The format is that of the end-to-end cases which the W3C working group keeps beside its
specification: a folder with CONFIG.json for limits and one JSON file for each case.
"""

import dataclasses
import itertools
import json
from pathlib import Path
from typing import Any, NoReturn

from tulle.errors import ConfigError, DataError, TulleError
from tulle.measure.w3c.browser import Browser
from tulle.measure.w3c.draws import FixedDraws
from tulle.measure.w3c.events import Event, read_event
from tulle.measure.w3c.json_names import COMMENT
from tulle.measure.w3c.limits import W3cLimits
from tulle.measure.w3c.rejections import RejectedCallError
from tulle.privacy.fields import check_fields, check_list

CONFIG_NAME = "CONFIG.json"
_SCHEMA_ENDING = ".schema.json"
_DRAWS = {"fairlyAllocateCreditFraction": "credit_fraction", "epochStart": "epoch_fraction"}


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
        """For JSON."""
        return {
            "case": self.name,
            "passed": self.is_passed,
            "num_events": self.num_events,
            "failures": list(self.failures),
        }


def run_folder(folder: Path) -> tuple[CaseResult, ...]:
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


def read_case(data: object) -> tuple[Event, ...]:
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


def run_case(name: str, events: tuple[Event, ...], setup: CaseSetup) -> CaseResult:
    """Lets events happen in a new browser and compares."""
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
