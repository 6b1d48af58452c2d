import dataclasses

import pytest

from tulle.data.formats.public import LAYOUTS
from tulle.data.schema import Schema
from tulle.data.tables.layout import Layout
from tulle.errors import ConfigError

GOOD = {
    "name": "log",
    "columns": ("y", "a"),
    "separator": ",",
    "has_header": True,
    "schema": Schema(label="y", public=("a",)),
}


def test_lists_become_tuples() -> None:
    layout = Layout(**GOOD | {"columns": ["y", "a"], "missing": [""]})
    assert layout == Layout(**GOOD)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"name": " "}, "name=' ' must be text"),
        ({"columns": ()}, "must name at least one column"),
        ({"columns": "ya"}, r"write columns=\['ya'\]"),
        ({"columns": ("y", "a", "a")}, "'a' is in the layout twice"),
        ({"columns": ("y", "aa")}, r"no column 'a', to which its schema gives the role public"),
        ({"separator": ":"}, "separator=':' must be a tab, a comma, a semicolon or a bar"),
        ({"quote": "'"}, "must be '\"' or None"),
        ({"missing": "-1"}, r"write missing=\['-1'\]"),
        ({"missing": ("a,b",)}, "'a,b', but must be text that fits a value"),
        ({"outcomes": ("b",)}, "outcomes names column 'b'"),
        ({"outcomes": "a"}, r"write outcomes=\['a'\]"),
        ({"missing": (-1,)}, "-1, but must be text that fits a value"),
    ],
)
def test_a_layout_that_cannot_be_is_refused(change: dict[str, object], match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        Layout(**GOOD | change)


@pytest.mark.parametrize("name", LAYOUTS)
def test_every_column_of_a_public_log_has_a_role(name: str) -> None:
    layout = LAYOUTS[name]
    assert layout.name == name
    assert {column for _, column in layout.schema.roles.items()} == set(layout.columns)


def test_display_has_the_roles_of_its_papers() -> None:
    layout = LAYOUTS["display"]
    numbers = [int(column.rpartition("_")[2]) for column in layout.schema.sensitive]
    assert numbers == list(range(2, 40, 2))
    assert (len(layout.schema.public), len(layout.schema.sensitive)) == (20, 19)
    assert layout.columns[0] == layout.schema.label == "label"
    assert layout.columns[13:15] == ("int_feature_13", "categorical_feature_14")
    assert len(layout.columns) == 40


def test_attribution_has_the_roles_of_its_paper() -> None:
    schema = LAYOUTS["attribution"].schema
    assert schema.sensitive == ("cat1", "cat2")
    assert schema.public == ("campaign", "cat3", "cat4", "cat5", "cat6", "cat7", "cat8", "cat9")
    assert (schema.label, schema.unit, schema.time) == ("conversion", "uid", "timestamp")


def test_search_has_the_roles_of_its_paper() -> None:
    layout = LAYOUTS["search"]
    assert len(layout.columns) == 23
    assert layout.columns[3:6] == ("click_timestamp", "nb_clicks_1week", "product_price")
    assert layout.columns[-2:] == ("partner_id", "user_id")
    assert layout.schema.sensitive == ("device_type", "audience_id", "user_id")
    assert layout.schema.ignored == (
        "SalesAmountInEuro",
        "time_delay_for_conversion",
        "product_price",
    )
    # With the click time as day of week the paper has 17 public embeddings, bias included.
    assert len(layout.schema.public) == 15


def test_search_by_user_only_moves_the_user() -> None:
    by_user = LAYOUTS["search-by-user"].schema
    assert by_user.unit == "user_id"
    assert by_user.sensitive == ("device_type", "audience_id")
    moved = dataclasses.replace(
        by_user, unit=None, sensitive=("device_type", "audience_id", "user_id")
    )
    assert moved == LAYOUTS["search"].schema


def test_taobao_protects_all_features_of_users_and_none_of_ads() -> None:
    schema = LAYOUTS["taobao"].schema
    assert len(schema.sensitive) == 8
    assert schema.public == (
        "adgroup_id",
        "pid",
        "cate_id",
        "campaign_id",
        "customer",
        "brand",
        "price",
    )
    assert schema.ignored == ("nonclk",)


@pytest.mark.parametrize("name", LAYOUTS)
def test_no_public_log_uses_an_outcome(name: str) -> None:
    assert set(LAYOUTS[name].outcomes) <= set(LAYOUTS[name].schema.ignored)
