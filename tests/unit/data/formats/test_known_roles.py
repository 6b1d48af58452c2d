import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest

from tulle.data.formats.known_roles import _COMMON_NAMES, check_known_roles
from tulle.data.formats.public import ATTRIBUTION, DISPLAY, IMPRESSIONS, LAYOUTS, SEARCH, TAOBAO
from tulle.data.schema import Schema, read_schema
from tulle.errors import ConfigError
from waiting import HANG_S


def with_public(schema: Schema, column: str) -> Schema:
    """The schema with a column made public, whatever it was."""
    return dataclasses.replace(
        schema,
        label=None if schema.label == column else schema.label,
        unit=None if schema.unit == column else schema.unit,
        public=(*(c for c in schema.public if c != column), column),
        sensitive=tuple(c for c in schema.sensitive if c != column),
        ignored=tuple(c for c in schema.ignored if c != column),
    )


@pytest.mark.parametrize("name", LAYOUTS)
def test_the_roles_of_a_known_log_pass(name: str) -> None:
    check_known_roles(LAYOUTS[name].schema)
    check_known_roles(LAYOUTS[name].schema, format_name=name)


@pytest.mark.parametrize("name", LAYOUTS)
def test_every_protected_column_of_a_known_log_stays_protected(name: str) -> None:
    layout = LAYOUTS[name]
    roles = layout.schema
    protected = {*roles.sensitive, *layout.outcomes, roles.label, roles.unit} - {None}
    assert protected
    for column in sorted(map(str, protected)):
        changed = with_public(roles, column)
        with pytest.raises(ConfigError, match=f"{column!r} is public in the schema") as caught:
            check_known_roles(changed)
        assert f"allowed_public=[{column!r}]" in str(caught.value)
        check_known_roles(changed, allowed_public=[column])


@pytest.mark.parametrize(
    ("schema", "column", "why"),
    [
        (SEARCH.schema, "user_id", "in format 'search' it is sensitive"),
        (SEARCH.schema, "SalesAmountInEuro", "in format 'search' it is an outcome"),
        (SEARCH.schema, "time_delay_for_conversion", "in format 'search' it is an outcome"),
        (SEARCH.schema, "product_price", "in format 'search' it is an outcome"),
        (SEARCH.schema, "Sale", "in format 'search' it is the label"),
        (ATTRIBUTION.schema, "uid", "in format 'attribution' it is the unit"),
        (ATTRIBUTION.schema, "attribution", "in format 'attribution' it is an outcome"),
        (TAOBAO.schema, "nonclk", "in format 'taobao' it is an outcome"),
        (DISPLAY.schema, "int_feature_2", "in format 'display' it is sensitive"),
        (IMPRESSIONS.schema, "user", "in format 'browser-impressions' it is the unit"),
    ],
)
def test_a_refusal_says_what_the_column_is_there(schema: Schema, column: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        check_known_roles(with_public(schema, column))


def test_a_schema_file_that_lists_the_user_as_public_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "search.toml"
    path.write_text(
        'label = "Sale"\n'
        'public = ["nb_clicks_1week", "product_age_group", "product_gender", "user_id"]\n'
        'sensitive = ["device_type"]\n'
        'time = "day"\n'
    )
    with pytest.raises(ConfigError, match=r"'user_id' is public in the schema.*'search'"):
        check_known_roles(read_schema(path))


def test_all_exposed_columns_are_named_at_once() -> None:
    schema = with_public(with_public(SEARCH.schema, "user_id"), "audience_id")
    with pytest.raises(ConfigError, match=r"column 'user_id' \(and also 'audience_id'\)"):
        check_known_roles(schema)
    with pytest.raises(ConfigError, match="column 'audience_id' is public"):
        check_known_roles(schema, allowed_public=["user_id"])


@pytest.mark.parametrize(
    "schema",
    [
        Schema(label="sold", public=("user_id", "product_price", "shop"), sensitive=("age",)),
        Schema(label="click", public=("campaign", "cat1", "site", "hour"), unit="user"),
        Schema(label="conversion", public=("campaign", "cat1", "cat2"), time="timestamp"),
        Schema(label="clk", public=("brand", "price", "occupation"), unit="user"),
        Schema(label="label", public=("value", "device_type", "user_id")),
        Schema(label="Sale", public=("user_id", "store", "till", "nb_clicks_1week", "city")),
        Schema(label="value", public=("publisher", "campaign"), unit="user", time="timestamp"),
    ],
)
def test_other_logs_may_share_names_with_a_known_one(schema: Schema) -> None:
    check_known_roles(schema)


def test_a_known_log_is_recognised_with_a_column_of_ones_own() -> None:
    example = Path(__file__).parents[4] / "examples" / "criteo_search_parquet.toml"
    schema = read_schema(example)
    assert "day" in schema.used
    assert "day" not in SEARCH.columns
    check_known_roles(schema)
    with pytest.raises(ConfigError, match="'device_type' is public in the schema"):
        check_known_roles(with_public(schema, "device_type"))


def test_where_the_format_is_known_few_columns_are_enough() -> None:
    schema = Schema(label="Sale", public=("user_id",))
    check_known_roles(schema)
    check_known_roles(schema, format_name="clicks.csv")
    with pytest.raises(ConfigError, match="user_id"):
        check_known_roles(schema, format_name="search")


@pytest.mark.parametrize("allowed", [["user"], ["device_type"], ["Sale"]])
def test_only_a_public_column_can_be_allowed(allowed: list[str]) -> None:
    schema = with_public(SEARCH.schema, "user_id")
    with pytest.raises(ConfigError, match=f"allowed_public names column {allowed[0]!r}"):
        check_known_roles(schema, allowed_public=allowed)
    with pytest.raises(ConfigError, match=r"write \['user_id'\]"):
        check_known_roles(schema, allowed_public="user_id")


def test_every_common_name_is_one_of_a_known_log() -> None:
    columns = {column for layout in LAYOUTS.values() for column in layout.columns}
    assert columns >= _COMMON_NAMES


def test_the_check_needs_no_polars() -> None:
    script = (
        "import sys\n"
        "from tulle.data.formats.known_roles import check_known_roles\n"
        "print('polars' in sys.modules)\n"
    )
    command = [sys.executable, "-c", script]
    shown = subprocess.run(command, capture_output=True, text=True, check=True, timeout=HANG_S)
    assert shown.stdout.strip() == "False"
