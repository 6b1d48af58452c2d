import json
import math
from typing import Any

import pytest

from golden.card.fixed_card import BOTH, COLUMNS, VARIANTS, make_plan, promise
from tulle.errors import ConfigError
from tulle.privacy.columns import ColumnRoles
from tulle.privacy.events import Composed, Gaussian, NonPrivate, Repeated, Shuffled
from tulle.privacy.guarantee import Guarantee
from tulle.privacy.plan import Assumption, Bound, Claim, Plan, Status
from tulle.privacy.units import Adjacency, Scope, Unit


def test_a_plan_comes_back_from_its_json() -> None:
    plan = make_plan()
    assert Plan.from_json(plan.to_json()) == plan
    assert Plan.from_json(plan.to_json()).fingerprint() == plan.fingerprint()


def test_the_order_of_settings_does_not_matter() -> None:
    forward = make_plan(settings={"a": 1, "b": 2})
    backward = make_plan(settings={"b": 2, "a": 1})
    assert forward == backward
    assert hash(forward) == hash(backward)
    assert forward.to_json() == backward.to_json()


def test_every_change_changes_the_fingerprint() -> None:
    changes: list[dict[str, Any]] = [
        {},
        {"name": "other"},
        {"mechanism": "other"},
        {"settings": {"steps": 1}},
        {"settings": {"steps": 1.0}},
        {"settings": {"steps": True}},
        {"event": Gaussian(noise_multiplier=9)},
        {"guarantee": promise(2.3, Unit.user(), BOTH)},
        {"variants": ()},
        {"bounds": ()},
        {"assumptions": ()},
        {"columns": ColumnRoles(label="y", public=("p",), sensitive=("s",), unit="u")},
    ]
    plans = [make_plan(**change) for change in changes]
    assert len({plan.fingerprint() for plan in plans}) == len(changes)
    assert len(set(plans)) == len(changes)


def test_settings_of_a_plan_cannot_be_changed() -> None:
    given = {"steps": 100}
    plan = make_plan(settings=given)
    given["steps"] = 1
    assert plan.settings["steps"] == 100
    with pytest.raises(TypeError):
        plan.settings["steps"] = 1  # type: ignore[index]


@pytest.mark.parametrize("value", [[1], math.inf, math.nan, {"a": 1}, "\ud800"])
def test_a_setting_that_is_not_one_value_is_refused(value: object) -> None:
    with pytest.raises(ConfigError, match=r"settings\['clip'\]"):
        make_plan(settings={"clip": value})


def test_an_unknown_key_is_refused_with_the_closest_one() -> None:
    data = make_plan().to_dict()
    data["assumption"] = data.pop("assumptions")
    with pytest.raises(ConfigError, match=r"'assumption'.*did you mean 'assumptions'"):
        Plan.from_dict(data)


@pytest.mark.parametrize("key", sorted(make_plan().to_dict()))
def test_a_missing_key_is_named(key: str) -> None:
    data = make_plan().to_dict()
    del data[key]
    with pytest.raises(ConfigError, match=f"plan needs the key '{key}'"):
        Plan.from_dict(data)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("format",), "tulle plan 9", "tulle plan 9"),
        (("trust",), "nobody", "trust='nobody'"),
        (("guarantee", "adjacency"), "remove", "adjacency='remove'"),
        (("guarantee", "epsilon"), "1", "epsilon='1'"),
        (("guarantee", "delta"), True, "delta=True"),
        (("guarantee", "unit"), 7, "unit=7"),
        (("assumptions", 0, "status"), "sure", "status='sure'"),
        (("bounds", 0, "limit"), None, "limit=None"),
        (("bounds",), {}, "bounds must be a list"),
        (("settings",), [], "settings"),
        (("name",), None, "name=None"),
        (("event", "kind"), "Magic", "Magic"),
    ],
)
def test_a_wrong_value_is_named(path: tuple[Any, ...], value: object, message: str) -> None:
    data: Any = make_plan().to_dict()
    place = data
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    with pytest.raises(ConfigError, match=message):
        Plan.from_dict(data)


@pytest.mark.parametrize("text", ["{", "[]", '{"a": NaN}', '{"a": Infinity}', '{"a": 1, "a": 1}'])
def test_text_that_is_not_strict_json_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        Plan.from_json(text)


@pytest.mark.parametrize(
    "event",
    [
        NonPrivate(),
        Repeated(event=NonPrivate(), count=2),
        Shuffled(event=NonPrivate(), num_reports=5),
        Composed((Gaussian(noise_multiplier=1), NonPrivate())),
    ],
)
def test_a_plan_with_an_unprotected_event_is_allowed_and_not_private(event: Any) -> None:
    assert not make_plan(event=event).is_private


def test_an_infinite_epsilon_is_allowed_not_private_and_null_in_json() -> None:
    plan = make_plan(guarantee=promise(math.inf, Unit.user(), BOTH))
    assert not plan.is_private
    assert json.loads(plan.to_json())["guarantee"]["epsilon"] is None
    assert Plan.from_json(plan.to_json()) == plan
    assert make_plan().is_private


def test_a_scope_wider_than_the_columns_is_refused() -> None:
    with pytest.raises(ConfigError, match="scope='whole rows' is more than the columns allow"):
        make_plan(guarantee=promise(2.2, Unit.user(), Scope.WHOLE_ROWS))
    with pytest.raises(ConfigError, match="scope='labels and sensitive columns'"):
        make_plan(columns=ColumnRoles(label="y", public=("p",), unit="u"))


def test_a_time_column_stays_only_where_rows_are_replaced() -> None:
    columns = ColumnRoles(label="y", sensitive=("s",), unit="u", time="day")
    whole = Guarantee(
        epsilon=2.2,
        delta=1e-7,
        unit=Unit.user(),
        adjacency=Adjacency.ADD_OR_REMOVE,
        scope=Scope.WHOLE_ROWS,
    )
    assert make_plan(columns=columns, guarantee=whole).guarantee == whole
    with pytest.raises(ConfigError, match="whole rows"):
        make_plan(columns=columns, guarantee=promise(2.2, Unit.user(), Scope.WHOLE_ROWS))


def test_a_user_level_claim_needs_a_unit_column() -> None:
    columns = ColumnRoles(label="y", public=("p",), sensitive=("s",))
    with pytest.raises(ConfigError, match=r"columns\.unit=None"):
        make_plan(columns=columns)


def test_two_claims_about_the_same_thing_are_refused() -> None:
    with pytest.raises(ConfigError, match="two claims"):
        make_plan(variants=(VARIANTS[0], VARIANTS[0]))


def test_the_headline_is_the_first_claim() -> None:
    plan = make_plan()
    assert plan.claims == (Claim(guarantee=plan.guarantee, event=plan.event), *plan.variants)


@pytest.mark.parametrize("status", [Status.ENFORCED, Status.CHECKED])
def test_what_is_enforced_or_checked_needs_evidence(status: Status) -> None:
    with pytest.raises(ConfigError, match=f"evidence of the {status.value} assumption"):
        Assumption(statement="rows are bounded", status=status)


def test_what_is_assumed_needs_no_evidence() -> None:
    assumption = Assumption(statement="users are independent", status=Status.ASSUMED)
    assert Assumption.from_dict(assumption.to_dict()) == assumption


@pytest.mark.parametrize("limit", [0, -1, math.inf, True, "3"])
def test_a_bound_that_bounds_nothing_is_refused(limit: Any) -> None:
    with pytest.raises(ConfigError, match="limit"):
        Bound(what="rows per user", limit=limit, where="first rows")


def test_equal_bounds_have_equal_json() -> None:
    whole, real = (Bound(what="rows", limit=limit, where="here") for limit in (3, 3.0))
    assert json.dumps(whole.to_dict()) == json.dumps(real.to_dict())


@pytest.mark.parametrize("name", ["variants", "bounds", "assumptions"])
def test_items_of_another_class_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name}="):
        make_plan(**{name: ("text",)})


@pytest.mark.parametrize("change", [{"trust": "central"}, {"columns": {}}, {"event": "Gaussian"}])
def test_a_part_of_another_class_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=f"{next(iter(change))}="):
        make_plan(**change)


def test_a_plan_names_its_columns() -> None:
    assert make_plan().to_dict()["columns"] == COLUMNS.to_dict()
