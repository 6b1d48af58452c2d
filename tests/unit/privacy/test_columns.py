import itertools

import pytest

from tulle.errors import ConfigError, DataError
from tulle.privacy.columns import ColumnRoles
from tulle.privacy.units import Scope

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
    with pytest.raises(ConfigError, match="'age' has the roles sensitive and sensitive"):
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
    with pytest.raises(ConfigError, match="needs the key 'label'"):
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
