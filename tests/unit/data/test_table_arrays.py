import datetime as dt
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet
import pytest

from tulle.data.features.column_features import (
    DayOfWeekFeature,
    HashedFeature,
    HourFeature,
    LogFeature,
    VocabularyFeature,
)
from tulle.data.features.encoder import Encoder, build_encoder
from tulle.data.features.feature_plan import FeaturePlan
from tulle.data.features.vocabulary import fit_vocabularies
from tulle.data.preparation import prepare_log
from tulle.data.prepared.dataset import PreparedDataset
from tulle.data.schema import Schema
from tulle.data.table_arrays import TableArrays, encode_table
from tulle.data.tables.layout import layout_for
from tulle.data.tables.memory import as_polars
from tulle.data.tables.sources import LogFiles
from tulle.errors import ConfigError, DataError

SCHEMA = Schema(
    label="click",
    public=("site", "price", "slot", "size"),
    sensitive=("age", "city"),
    unit="user",
    time="at",
    kinds={"price": "real", "age": "integer", "size": "integer", "at": "timestamp"},
)
NUM_ROWS = 60
VOCABULARY = FeaturePlan(
    schema=SCHEMA,
    features=(
        VocabularyFeature(column="site", min_count=8),
        HashedFeature(column="price", num_bins=500),
        HashedFeature(column="slot", num_bins=500),
        LogFeature(column="size"),
        HourFeature(column="at"),
        DayOfWeekFeature(column="at"),
        LogFeature(column="age"),
        HashedFeature(column="city", num_bins=200),
    ),
    salt=bytes(range(16)),
)


def columns() -> dict[str, list[object]]:
    """Every kind of value, with missing ones; site is empty text at times."""
    rows = range(NUM_ROWS)
    return {
        "note": [f"unused {row}" for row in rows],
        "click": [int(row % 3 == 0) for row in rows],
        "site": ["" if row % 13 == 0 else f"sité, {row % 7}" for row in rows],
        "price": [None if row % 11 == 0 else row / 7 - 2 for row in rows],
        "slot": [row % 4 for row in rows],
        "size": [None if row % 9 == 0 else 2**row % 1001 for row in rows],
        "age": [None if row % 5 == 0 else row % 90 for row in rows],
        "city": [None if row % 6 == 0 else f'city "{row % 11}"' for row in rows],
        "user": [f"user{row // 3}" for row in rows],
        "at": [row * 7321 for row in rows],
    }


def polars_table() -> pl.DataFrame:
    return pl.DataFrame(columns())


def pandas_table() -> pd.DataFrame:
    # Integers with gaps as pandas has them by default: floats.
    return pd.DataFrame(columns())


def nullable_pandas_table() -> pd.DataFrame:
    types = {"age": "Int64", "size": "Int16", "city": "category", "site": "string"}
    return pd.DataFrame(columns()).astype(types)


def arrow_table() -> pa.Table:
    table = pa.table(columns())
    place = table.column_names.index("city")
    return table.set_column(place, "city", table["city"].dictionary_encode())


def encoder() -> Encoder:
    return build_encoder(
        VOCABULARY, fit_vocabularies(lambda: iter([as_polars(polars_table())]), VOCABULARY)
    )


def prepared(path: Path) -> PreparedDataset:
    log = LogFiles(paths=(path,), layout=layout_for(path, SCHEMA))
    return prepare_log(log, encoder(), path.with_suffix(path.suffix + ".dir")).dataset


def assert_equal(made: TableArrays, dataset: PreparedDataset) -> None:
    assert made.features == dataset.features
    assert made.schema == dataset.schema
    assert made.num_rows == dataset.num_rows
    for name in ("public_features", "sensitive_features", "labels", "units"):
        found, expected = getattr(made, name), getattr(dataset, name)
        np.testing.assert_array_equal(found, expected, err_msg=name)
        assert found.dtype == expected.dtype
        assert found.flags.c_contiguous


@pytest.mark.parametrize(
    ("make", "write"),
    [
        (polars_table, lambda table, path: table.write_csv(path)),
        (pandas_table, lambda table, path: table.to_csv(path, index=False)),
        (nullable_pandas_table, lambda table, path: table.to_csv(path, index=False)),
    ],
)
def test_a_table_gives_the_arrays_of_its_csv_file(
    tmp_path: Path, make: Callable[[], object], write: Callable[[object, Path], None]
) -> None:
    path = tmp_path / "log.csv"
    write(make(), path)
    if make is pandas_table:
        # 5.0 in the text of a whole number is not one; a gap made pandas write it.
        text = pl.read_csv(path, infer_schema=False)
        whole = [pl.col(name).str.strip_suffix(".0") for name in ("age", "size")]
        text.with_columns(whole).write_csv(path)
    assert_equal(encode_table(make(), encoder(), with_label=True), prepared(path))


@pytest.mark.parametrize("make", [polars_table, pandas_table, nullable_pandas_table, arrow_table])
def test_every_library_gives_the_arrays_of_one_csv_file(
    tmp_path: Path, make: Callable[[], object]
) -> None:
    path = tmp_path / "log.csv"
    polars_table().write_csv(path)
    assert_equal(encode_table(make(), encoder(), with_label=True), prepared(path))


def slot_ids(made: TableArrays | PreparedDataset) -> list[int]:
    return [int(value) for value in made.public_features[:, 2]]


def test_a_gap_in_a_column_of_whole_numbers_changes_no_other_id() -> None:
    whole = encode_table(pandas_table(), encoder(), with_label=True)
    for gap in (float("nan"), None):
        frame = pandas_table().astype({"slot": "float64"})
        frame.loc[7, "slot"] = gap
        with_gap = encode_table(frame, encoder(), with_label=True)
        assert slot_ids(with_gap)[:7] == slot_ids(whole)[:7]
        assert slot_ids(with_gap)[8:] == slot_ids(whole)[8:]
        assert slot_ids(with_gap)[7] != slot_ids(whole)[7]
        # One row at a time, as a service would ask.
        alone = encode_table(frame.iloc[3:4], encoder(), with_label=False)
        assert slot_ids(alone) == slot_ids(whole)[3:4]


@pytest.mark.parametrize("dtype", [pl.Int64, pl.UInt8, pl.Float32, pl.Float64])
def test_parquet_gives_whole_numbers_the_ids_of_text(
    tmp_path: Path, dtype: type[pl.DataType]
) -> None:
    text, stored = tmp_path / "log.csv", tmp_path / "log.parquet"
    polars_table().write_csv(text)
    polars_table().with_columns(pl.col("slot").cast(dtype)).write_parquet(stored)
    assert slot_ids(prepared(stored)) == slot_ids(prepared(text))


def test_a_fraction_and_the_text_of_a_float_are_categories_of_their_own(tmp_path: Path) -> None:
    slots = pl.Series("slot", [3.0, 3.5] * (NUM_ROWS // 2))
    texts = {3.0: "3", 3.5: "3.5"}
    found = slot_ids(encode_table(polars_table().with_columns(slots), encoder(), with_label=True))
    for written, matches in ((texts, True), (texts | {3.0: "3.0"}, False)):
        path = tmp_path / f"{matches}.csv"
        values = pl.Series("slot", [written[value] for value in slots])
        polars_table().with_columns(values).write_csv(path)
        from_text = slot_ids(prepared(path))
        assert (from_text == found) is matches
        assert from_text[1::2] == found[1::2]


def test_a_table_with_times_gives_the_arrays_of_its_parquet_file(tmp_path: Path) -> None:
    start = dt.datetime(2024, 2, 28, 20)
    times = [start + dt.timedelta(hours=row, milliseconds=1) for row in range(NUM_ROWS)]
    frame = pd.DataFrame(columns() | {"at": times})
    arrow = pa.Table.from_pandas(frame)
    path = tmp_path / "log.parquet"
    pyarrow.parquet.write_table(arrow, path)
    dataset = prepared(path)
    for table in (frame, arrow, pl.read_parquet(path)):
        assert_equal(encode_table(table, encoder(), with_label=True), dataset)


def test_vocabularies_of_a_table_are_those_of_its_file(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    polars_table().write_csv(path)
    log = LogFiles(paths=(path,), layout=layout_for(path, SCHEMA))
    dataset = prepare_log(log, VOCABULARY, tmp_path / "out").dataset
    assert dataset.head.contents.encoder_fingerprint == encoder().fingerprint()


def test_to_predict_the_columns_of_features_are_enough() -> None:
    whole = encode_table(polars_table(), encoder(), with_label=True)
    bare = polars_table().drop("click", "user", "note")
    made = encode_table(bare, encoder(), with_label=False)
    assert made.labels is None
    assert made.units is None
    np.testing.assert_array_equal(made.public_features, whole.public_features)
    np.testing.assert_array_equal(made.sensitive_features, whole.sensitive_features)
    with pytest.raises(DataError, match="column 'city' is not in the data"):
        encode_table(bare.drop("city"), encoder(), with_label=False)


def test_a_label_is_not_read_to_predict() -> None:
    broken = polars_table().with_columns(click=pl.lit("?"), user=pl.lit(None))
    assert encode_table(broken, encoder(), with_label=False).labels is None


def test_no_rows_can_be_predicted_but_not_trained_on() -> None:
    made = encode_table(polars_table().clear(), encoder(), with_label=False)
    assert made.public_features.shape == (0, 6)
    assert made.sensitive_features.shape == (0, 2)
    with pytest.raises(DataError, match="the table has no rows"):
        encode_table(polars_table().clear(), encoder(), with_label=True)


@pytest.mark.parametrize("column", SCHEMA.used)
def test_to_train_every_column_with_a_role_must_be_there(column: str) -> None:
    with pytest.raises(DataError, match=f"column '{column}' of role .* is not in the data"):
        encode_table(polars_table().drop(column), encoder(), with_label=True)


def test_bad_labels_and_missing_units_are_refused() -> None:
    table = polars_table()
    with pytest.raises(DataError, match=r"column 'click' of role label .* row 1 of the table"):
        encode_table(table.with_columns(click=pl.lit(2)), encoder(), with_label=True)
    with pytest.raises(
        DataError, match="column 'user' has nulls or empty text; every row needs a unit"
    ):
        encode_table(table.with_columns(user=pl.lit(None)), encoder(), with_label=True)


def test_a_schema_without_label_has_none_to_give() -> None:
    schema = Schema(label=None, sensitive=("city",))
    feature = HashedFeature(column="city", num_bins=100)
    plan = FeaturePlan(schema=schema, features=(feature,), salt=bytes(16))
    made = encode_table(polars_table(), build_encoder(plan), with_label=False)
    assert made.public_features.shape == (NUM_ROWS, 0)
    assert made.sensitive_features.shape == (NUM_ROWS, 1)
    with pytest.raises(ConfigError, match="with_label=True, but the schema has no label"):
        encode_table(polars_table(), build_encoder(plan), with_label=True)
