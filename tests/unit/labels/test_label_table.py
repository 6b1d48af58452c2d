from pathlib import Path

import numpy as np
import polars as pl
import pytest

from tulle.data.schema import Kind, Schema
from tulle.errors import ConfigError, DataError
from tulle.labels.mechanisms.class_response import BinaryResponse
from tulle.privacy.units import Unit
from unit.labels.label_files import SCHEMA, clicks_table, write_clicks


@pytest.mark.parametrize("name", ["clicks.parquet", "clicks.csv"])
def test_blocks_hold_every_row_once_in_order(tmp_path: Path, name: str) -> None:
    written = write_clicks(tmp_path / name)
    blocks = list(clicks_table(tmp_path / name).blocks())
    assert len(blocks) > 1
    labels = np.concatenate([labels for _, labels in blocks])
    assert labels.tolist() == written["sale"].to_list()
    kept = pl.concat([table for table, _ in blocks])
    assert kept["campaign"].to_list() == written["campaign"].to_list()
    assert set(kept.columns) == {"campaign", "advertiser", "user", "second"}


@pytest.mark.parametrize("wrong", [None, float("nan"), "text"])
def test_a_missing_label_is_named_by_its_row_and_not_shown(tmp_path: Path, wrong: object) -> None:
    path = tmp_path / "clicks.parquet"
    table = write_clicks(path)
    kind = pl.String if isinstance(wrong, str) else pl.Float64
    labels = table["sale"].cast(kind).to_list()
    labels[456] = wrong
    table.with_columns(sale=pl.Series(labels, dtype=kind)).write_parquet(path)
    with pytest.raises(DataError, match=r"'sale'.*clicks\.parquet, row 457") as caught:
        list(clicks_table(path).label_blocks())
    assert "text" not in str(caught.value)


def test_a_unit_column_with_nulls_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "clicks.parquet"
    table = write_clicks(path)
    users = table["user"].to_list()
    users[700] = None
    table.with_columns(user=pl.Series(users)).write_parquet(path)
    with pytest.raises(DataError, match=r"'user' has nulls.*row 701.*every row needs a unit"):
        clicks_table(path, unit=Unit.user()).unit_rows()


@pytest.mark.parametrize(
    ("unit", "partner", "keys"),
    [
        (Unit.user(), None, ["user"]),
        (Unit.user(days=7), None, ["user", "week"]),
        (Unit.user_advertiser(days=7), "advertiser", ["user", "advertiser", "week"]),
        (Unit.user_publisher(), "campaign", ["user", "campaign"]),
    ],
)
def test_units_have_the_rows_that_a_group_by_gives(
    tmp_path: Path, unit: Unit, partner: str | None, keys: list[str]
) -> None:
    path = tmp_path / "clicks.parquet"
    table = write_clicks(path).with_columns(week=pl.col("second") // (7 * 86_400))
    unit_rows = clicks_table(path, unit=unit, partner=partner).unit_rows()
    counts = table.group_by(keys).len()["len"].value_counts()
    expected = dict(zip(counts["len"].to_list(), counts["count"].to_list(), strict=True))
    assert unit_rows.length_counts() == dict(sorted(expected.items()))


def test_times_in_days_make_the_windows_of_the_same_days(tmp_path: Path) -> None:
    path = tmp_path / "clicks.parquet"
    table = write_clicks(path).with_columns(second=pl.col("second") // 86_400)
    table.write_parquet(path)
    kinds = {**SCHEMA.kinds, "second": Kind.INTEGER}
    schema = Schema(**{**SCHEMA.to_dict(), "kinds": kinds})  # type: ignore[arg-type]
    unit_rows = clicks_table(path, unit=Unit.user(days=7), schema=schema).unit_rows()
    weeks = table.with_columns(week=pl.col("second") // 7).group_by(["user", "week"]).len()
    assert unit_rows.num_units == weeks.height


@pytest.mark.parametrize(
    ("schema", "unit", "partner", "message"),
    [
        (Schema(label="sale"), Unit.user(), None, "needs a unit column"),
        (Schema(label="sale", unit="user"), Unit.user(days=1), None, "no time column"),
        (SCHEMA, Unit.user_advertiser(), None, "public column with the advertiser"),
        (SCHEMA, Unit.user_publisher(), "user", "public column with the publisher"),
        (SCHEMA, Unit.user(), "advertiser", "leave it out"),
        (SCHEMA, Unit.example(), "advertiser", "leave it out"),
    ],
)
def test_a_unit_that_the_columns_cannot_give_is_refused(
    tmp_path: Path, schema: Schema, unit: Unit, partner: str | None, message: str
) -> None:
    path = tmp_path / "clicks.parquet"
    write_clicks(path)
    with pytest.raises(ConfigError, match=message):
        clicks_table(path, unit=unit, partner=partner, schema=schema)


@pytest.mark.parametrize(("kind", "factor"), [(Kind.INTEGER, 1), (Kind.TIMESTAMP, 1000)])
def test_times_in_a_smaller_unit_than_declared_make_no_windows(
    tmp_path: Path, kind: Kind, factor: int
) -> None:
    path = tmp_path / "clicks.parquet"
    seconds = (pl.col("second") + 1_767_225_600) * factor
    write_clicks(path).with_columns(second=seconds).write_parquet(path)
    kinds = {**SCHEMA.kinds, "second": kind}
    schema = Schema(**{**SCHEMA.to_dict(), "kinds": kinds})  # type: ignore[arg-type]
    with pytest.raises(DataError, match="look like"):
        clicks_table(path, unit=Unit.user(days=7), schema=schema).unit_rows()


@pytest.mark.parametrize("name", ["clicks.parquet", "clicks.csv"])
@pytest.mark.parametrize("missing", ["sale", "campaign"])
def test_a_missing_column_is_found_without_reading_labels(
    tmp_path: Path, name: str, missing: str
) -> None:
    path = tmp_path / name
    table = write_clicks(path).drop(missing)
    table.write_csv(path) if name.endswith("csv") else table.write_parquet(path)
    with pytest.raises(DataError, match=missing):
        clicks_table(path).check_columns()


def test_a_label_outside_the_range_is_named_by_its_row(tmp_path: Path) -> None:
    path = tmp_path / "clicks.parquet"
    table = write_clicks(path)
    labels = table["sale"].to_list()
    labels[777] = 7
    table.with_columns(sale=pl.Series(labels)).write_parquet(path)
    check = BinaryResponse(epsilon=1.0).check_labels
    with pytest.raises(DataError, match=r"'sale', clicks\.parquet, row 778") as caught:
        list(clicks_table(path).label_blocks(check))
    assert "7," not in str(caught.value).replace("778", "")


def test_an_empty_table_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "clicks.parquet"
    write_clicks(path, num_rows=0)
    with pytest.raises(DataError, match="has no rows"):
        list(clicks_table(path).label_blocks())


def test_the_digest_tells_files_and_roles_apart(tmp_path: Path) -> None:
    first, second = tmp_path / "a.parquet", tmp_path / "b.parquet"
    write_clicks(first)
    write_clicks(second, seed=1)
    digest = clicks_table(first).digest()
    assert digest == clicks_table(first).digest()
    assert digest != clicks_table(second).digest()
    other = Schema(label="sale", public=("campaign",))
    assert digest != clicks_table(first, schema=other).digest()
