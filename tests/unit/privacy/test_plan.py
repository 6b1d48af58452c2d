import itertools
import json
import math
from typing import Any

import pytest

from golden.card.fixed_card import BOTH, COLUMNS, VARIANTS, make_plan, promise
from tulle.errors import ConfigError, DataError
from tulle.privacy.codec import plain_data, settings_from
from tulle.privacy.events import Composed, Gaussian, NonPrivate, Repeated, Shuffled
from tulle.privacy.guarantee import Claim, Guarantee
from tulle.privacy.plan import Assumption, Bound, ColumnRoles, Plan, Status
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
    assert settings_from(Assumption, plain_data(assumption), what="it") == assumption


@pytest.mark.parametrize("limit", [0, -1, math.inf, True, "3"])
def test_a_bound_that_bounds_nothing_is_refused(limit: Any) -> None:
    with pytest.raises(ConfigError, match="limit"):
        Bound(what="rows per user", limit=limit, where="first rows")


def test_equal_bounds_have_equal_json() -> None:
    whole, real = (Bound(what="rows", limit=limit, where="here") for limit in (3, 3.0))
    assert json.dumps(plain_data(whole)) == json.dumps(plain_data(real))


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


ALL_ROLES = {
    "label": "clicked",
    "public": ["campaign", "hour"],
    "sensitive": ["age"],
    "unit": "user_id",
    "time": "day",
    "ignored": ["row"],
}


@pytest.mark.parametrize(("first", "second"), list(itertools.combinations(ALL_ROLES, 2)))
def test_a_column_with_two_roles_is_refused(first: str, second: str) -> None:
    columns = dict(ALL_ROLES)
    for role in (first, second):
        columns[role] = ["twice"] if isinstance(columns[role], list) else "twice"
    with pytest.raises(ConfigError, match=f"'twice' has the roles {first} and {second}.*take it"):
        ColumnRoles(**columns)


def test_a_column_twice_in_one_role_is_refused() -> None:
    with pytest.raises(ConfigError, match="'age' is in sensitive twice; name it once"):
        ColumnRoles(label="clicked", sensitive=("age", "age"))


@pytest.mark.parametrize("name", ["", "  ", 3, None, "\ud800"])
def test_a_name_that_is_no_text_is_refused(name: object) -> None:
    with pytest.raises(ConfigError, match="role public"):
        ColumnRoles(label="clicked", public=(name,))  # type: ignore[arg-type]


def test_one_name_in_place_of_a_list_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"write public=\['age'\]"):
        ColumnRoles(label="clicked", public="age")  # type: ignore[arg-type]


def test_roles_that_protect_nothing_are_refused() -> None:
    with pytest.raises(ConfigError, match="nothing to protect"):
        ColumnRoles(label=None, public=("hour",))


@pytest.mark.parametrize(
    ("roles", "scope"),
    [
        (ColumnRoles(label="y", public=("a",)), Scope.LABELS),
        (ColumnRoles(label="y"), Scope.LABELS),
        (
            ColumnRoles(label="y", public=("a",), sensitive=("b",)),
            Scope.LABELS_AND_SENSITIVE_COLUMNS,
        ),
        (ColumnRoles(label=None, public=("a",), sensitive=("b",)), Scope.SENSITIVE_COLUMNS),
        (ColumnRoles(label="y", sensitive=("b",), unit="user"), Scope.WHOLE_ROWS),
        (
            ColumnRoles(label="y", sensitive=("b",), time="day"),
            Scope.LABELS_AND_SENSITIVE_COLUMNS,
        ),
    ],
)
def test_the_scope_follows_from_the_roles(roles: ColumnRoles, scope: Scope) -> None:
    assert roles.scope is scope


def test_roles_come_back_from_their_json() -> None:
    roles = ColumnRoles(**ALL_ROLES)
    assert roles.to_dict() == ALL_ROLES
    assert ColumnRoles.from_dict(roles.to_dict()) == roles
    assert ColumnRoles.from_dict({"label": "y"}) == ColumnRoles(label="y")


def test_a_misspelt_role_is_refused_with_the_closest_one() -> None:
    with pytest.raises(ConfigError, match=r"'sensitiv'.*did you mean 'sensitive'"):
        ColumnRoles.from_dict({"label": "y", "sensitiv": ["age"]})


def test_roles_without_a_label_entry_are_refused() -> None:
    with pytest.raises(ConfigError, match="needs the setting 'label'"):
        ColumnRoles.from_dict({"sensitive": ["age"]})


def test_data_with_all_columns_and_more_pass() -> None:
    columns_present = {"clicked", "campaign", "hour", "age", "user_id", "day", "row", "other"}
    ColumnRoles(**ALL_ROLES).check_against(columns_present)


def test_an_unknown_column_is_refused_with_the_closest_one() -> None:
    roles = ColumnRoles(label="clickd")
    with pytest.raises(DataError, match=r"'clickd' of role label.*did you mean 'clicked'"):
        roles.check_against(["clicked", "age"])


def test_a_long_list_of_columns_is_cut_in_the_message() -> None:
    with pytest.raises(DataError, match=r"c00, .*c09, …\.$"):
        ColumnRoles(label="y").check_against([f"c{i:02}" for i in range(50)])
