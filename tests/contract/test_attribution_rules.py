"""An attribution rule is in all the places that know rules, or the test says which one lacks it.

Whoever adds a rule writes its class in `attribution/rules.py` and adds it to `Rule`, its credit as
SQL in `engines/credit.py`, how far one impression moves it in `attribution/sensitivity.py`, and its
credit in plain Python in the tests' `reference.py`. The rule is then named in `measure/__init__.py`
and described in `docs/attribution.md` and `docs/measure.md`. Settings files read it without more.
"""

import dataclasses
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import polars as pl
import pytest

from tulle import measure
from tulle.errors import ConfigError
from tulle.measure.attribution.rules import ChannelWeights, Rule
from tulle.measure.attribution.sensitivity import impression_factor
from tulle.measure.config_file import AttributionTable, read_rule
from tulle.measure.engines.credit import _credit
from tulle.privacy.codec import plain_data, settings_from
from unit.measure.attribution.reference import Touch, credit_by_rule

ROOT = Path(__file__).parents[2]
RULES = typing.get_args(Rule)
NEEDED = {ChannelWeights.name: ChannelWeights(column="channel", weights={"a": 2.0, "b": 1.0})}
"""An example of each rule that has settings without a default."""
NEEDED_SETTINGS = {
    ChannelWeights.name: {"channel": "channel", "channel_weights": {"a": 2.0, "b": 1.0}}
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Forgotten:
    """A rule that nobody added anywhere."""

    name: ClassVar[str] = "forgotten"
    has_whole_credit: ClassVar[bool] = False


def example_of(rule: Any) -> Any:
    return NEEDED.get(rule.name) or rule()


def in_rules(rule: Any) -> bool:
    return rule in RULES and isinstance(rule.name, str) and isinstance(rule.has_whole_credit, bool)


def in_credit(rule: Any) -> bool:
    return isinstance(_credit(example_of(rule), 0), str)


def in_sensitivity(rule: Any) -> bool:
    settings: Any = {"counts_unattributed": False, "max_touches": None}
    try:
        return 1 <= impression_factor(example_of(rule), **settings) <= 2
    except TypeError:
        return False


def in_reference(rule: Any) -> bool:
    touches = [Touch(age_seconds=age, kind="view", channel="a") for age in (9.0, 4.0, 2.0)]
    try:
        return sum(credit_by_rule(example_of(rule), touches)) == pytest.approx(1)
    except (TypeError, UnboundLocalError):
        return False


def in_package(rule: Any) -> bool:
    return rule.__name__ in measure.__all__


def in_settings(rule: Any) -> bool:
    own = NEEDED_SETTINGS.get(rule.name, {})
    data = {"rule": rule.name, "lookback": "7 days", **own}
    try:
        table = settings_from(AttributionTable, data, what="[attribution]")
    except ConfigError:
        return False
    again = settings_from(AttributionTable, plain_data(table), what="[attribution]")
    return again == table and table.attribution().rule == example_of(rule)


def in_page(name: str) -> Callable[[Any], bool]:
    page = (ROOT / "docs" / name).read_text()
    return lambda rule: f"`{rule.name}`" in page


PLACES: dict[str, Callable[[Any], bool]] = {
    "src/tulle/measure/attribution/rules.py": in_rules,
    "src/tulle/measure/engines/credit.py": in_credit,
    "src/tulle/measure/attribution/sensitivity.py": in_sensitivity,
    "src/tulle/measure/__init__.py": in_package,
    "src/tulle/measure/config_file.py": in_settings,
    "tests/unit/measure/attribution/reference.py": in_reference,
    "docs/attribution.md": in_page("attribution.md"),
    "docs/measure.md": in_page("measure.md"),
}


def missing_from(rule: Any) -> list[str]:
    """Files that do not know a rule."""
    return [place for place, knows in PLACES.items() if not knows(rule)]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_rule_is_in_every_place_that_knows_rules(rule: Any) -> None:
    assert missing_from(rule) == [], f"add the rule {rule.name!r} to these files"


def test_a_rule_that_is_nowhere_is_missed_everywhere() -> None:
    assert missing_from(Forgotten) == list(PLACES)


def test_every_place_is_there() -> None:
    for place in PLACES:
        assert (ROOT / place).is_file()


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_rule_shares_the_credit_that_plain_python_shares(rule: Any) -> None:
    """By the engine, with the same names that a settings file and the command line use."""
    day, now = 86_400, 1_768_348_800
    ages, kinds = (9, 4, 2, 1), ("click", "view", "click", "view")
    impressions = pl.DataFrame(
        {
            "user": 1,
            "timestamp": [now - age * day for age in ages],
            "kind": kinds,
            "channel": ["a", "b", "c", "a"],
        }
    )
    conversions = pl.DataFrame({"user": [1], "timestamp": [now]})
    chosen = example_of(rule)
    credit = measure.attribute(
        measure.Attribution(rule=chosen, lookback_seconds=30 * day),
        rules=[chosen] if rule.name in NEEDED else [rule.name],
        impressions=impressions,
        conversions=conversions,
        columns=measure.LogColumns(kind="kind"),
    )
    rows = credit.to_polars()
    found = {round(age / day): share for age, share in rows.select("age_seconds", rule.name).rows()}
    touches = [
        Touch(age_seconds=age * day, kind=kind, channel=channel)
        for age, kind, channel in zip(ages, kinds, impressions["channel"], strict=True)
    ]
    expected = dict(zip(ages, credit_by_rule(chosen, touches), strict=True))
    assert {age: found.get(age, 0.0) for age in ages} == pytest.approx(expected)


def test_rules_without_settings_are_read_by_their_names() -> None:
    for rule in RULES:
        if rule.name not in NEEDED:
            assert read_rule(rule.name) == rule()
