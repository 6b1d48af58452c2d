import dataclasses
import gzip
import io
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import zstandard

from tulle.data.formats.public import LAYOUTS
from tulle.data.synth.clicks import SynthBlock, generate_blocks
from tulle.data.synth.shapes import ATTRIBUTION, DISPLAY, SEARCH, TAOBAO, SynthShape
from tulle.data.synth.write_logs import write_log, write_taobao_tables
from tulle.data.synth.zipf import salt_of, scramble
from tulle.errors import ConfigError

SHAPES = [DISPLAY, ATTRIBUTION, SEARCH, TAOBAO]
LABELS = {"display": "label", "attribution": "conversion", "search": "Sale", "taobao": "clk"}
NUM_ROWS = 20_000


def rows_of(shape: SynthShape, num_rows: int = NUM_ROWS) -> SynthBlock:
    (block,) = generate_blocks(shape, num_rows=num_rows, seed=9, rows_per_block=num_rows)
    return block


def parse(text: str, shape: SynthShape) -> dict[str, list[str]]:
    layout = LAYOUTS[shape.name]
    lines = [line.split(layout.separator) for line in text.removesuffix("\n").split("\n")]
    if layout.has_header:
        assert tuple(lines.pop(0)) == layout.columns
    assert {len(line) for line in lines} == {len(layout.columns)}
    return dict(zip(layout.columns, map(list, zip(*lines, strict=True)), strict=True))


def written(shape: SynthShape, folder: Path) -> dict[str, list[str]]:
    path = folder / "log.txt"
    write_log(shape, path, num_rows=NUM_ROWS, seed=9)
    return parse(path.read_text(), shape)


def names(column: str, codes: np.ndarray) -> list[int]:
    return scramble(codes, salt_of(f"value of {column}")).tolist()


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_every_log_has_the_labels_that_were_generated(shape: SynthShape, tmp_path: Path) -> None:
    labels = written(shape, tmp_path)[LABELS[shape.name]]
    assert labels == [str(label) for label in rows_of(shape).label]


def test_a_display_log_has_counts_and_hexadecimal_names(tmp_path: Path) -> None:
    fields, block = written(DISPLAY, tmp_path), rows_of(DISPLAY)
    for column, codes in block.columns.items():
        if column == "int_feature_2":
            assert fields[column] == [str(code - 4) for code in codes]
        elif column.startswith("int"):
            assert fields[column] == [str(code - 1) if code else "" for code in codes]
        else:
            pairs = zip(names(column, codes), codes, strict=True)
            assert fields[column] == [f"{name:08x}" if code else "" for name, code in pairs]


def test_an_attribution_log_has_users_times_and_names(tmp_path: Path) -> None:
    fields, block = written(ATTRIBUTION, tmp_path), rows_of(ATTRIBUTION)
    assert fields["uid"] == [str(user) for user in block.user]
    assert fields["timestamp"] == [str(second) for second in block.timestamp]
    for column, codes in block.columns.items():
        assert fields[column] == [str(name) for name in names(column, codes)]


def test_what_follows_a_conversion_is_there_only_with_one(tmp_path: Path) -> None:
    fields, block = written(ATTRIBUTION, tmp_path), rows_of(ATTRIBUTION)
    converted = block.label == 1
    later = np.array(fields["conversion_timestamp"], dtype=np.int64)
    assert np.all(later[~converted] == -1)
    assert np.all(later[converted] >= block.timestamp[converted])
    ids = np.array(fields["conversion_id"], dtype=np.int64)
    assert len(np.unique(ids[converted])) == converted.sum()
    attributed = np.array(fields["attribution"]) == "1"
    assert not np.any(attributed & ~converted)
    assert np.mean(np.array(fields["click"]) == "1") == pytest.approx(0.36, abs=0.03)


def test_a_search_log_has_long_names_and_minus_one_for_missing(tmp_path: Path) -> None:
    fields, block = written(SEARCH, tmp_path), rows_of(SEARCH)
    assert fields["nb_clicks_1week"] == [str(c - 1) for c in block.columns["nb_clicks_1week"]]
    assert {len(user) for user in fields["user_id"]} == {32}
    assert len(set(fields["user_id"])) == len(np.unique(block.user))
    for column, codes in block.columns.items():
        if column != "nb_clicks_1week":
            for field, name, code in zip(fields[column], names(column, codes), codes, strict=True):
                assert field.startswith(f"{name:08X}") if code else field == "-1"
    sold = block.label == 1
    amounts = np.array(fields["SalesAmountInEuro"], dtype=np.float64)
    assert np.all(amounts[~sold] == -1)
    assert np.all(amounts[sold] >= 0)


def test_taobao_tables_join_to_the_generated_rows(tmp_path: Path) -> None:
    write_taobao_tables(tmp_path, num_rows=NUM_ROWS, seed=9)
    tables = [
        pl.read_csv(tmp_path / name, null_values="NULL", infer_schema_length=None)
        for name in ("raw_sample.csv", "ad_feature.csv", "user_profile.csv")
    ]
    joined = (
        tables[0]
        .join(tables[1], on="adgroup_id", how="left", maintain_order="left")
        .join(tables[2], left_on="user", right_on="userid", how="left", maintain_order="left")
    )
    block = rows_of(TAOBAO)
    assert joined["time_stamp"].to_list() == block.timestamp.tolist()
    assert joined["clk"].to_list() == block.label.tolist()
    assert set(joined["pid"].unique()) == {"430548_1007", "430539_1007"}
    zero_based = {"cms_segid", "cms_group_id", "age_level", "occupation", "price"}
    for column, codes in block.columns.items():
        if column != "pid":
            values = (joined[column] + (column in zero_based)).fill_null(0)
            assert values.to_list() == codes.tolist(), column


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_a_compressed_log_holds_the_same_lines(suffix: str, tmp_path: Path) -> None:
    plain, packed = tmp_path / "log.tsv", tmp_path / f"log.tsv{suffix}"
    for path in (plain, packed):
        write_log(ATTRIBUTION, path, num_rows=NUM_ROWS, seed=9)
    with (gzip.open if suffix == ".gz" else zstandard.open)(packed) as file:
        assert file.read() == plain.read_bytes()


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_a_parquet_log_holds_the_same_values(shape: SynthShape, tmp_path: Path) -> None:
    layout = LAYOUTS[shape.name]
    plain, parquet = tmp_path / "log.txt", tmp_path / "log.parquet"
    for path in (plain, parquet):
        write_log(shape, path, num_rows=NUM_ROWS, seed=9)
    found = pl.read_parquet(parquet)
    expected = pl.read_csv(
        io.BytesIO(plain.read_bytes()),
        separator=layout.separator,
        has_header=layout.has_header,
        schema=found.schema,
        null_values=list(layout.missing),
    )
    assert found.columns == list(layout.columns)
    assert found.equals(expected, null_equal=True)


def test_a_log_is_the_same_with_one_thread_and_with_three(tmp_path: Path) -> None:
    for num_threads in (1, 3):
        path = tmp_path / f"{num_threads}.tsv"
        write_log(SEARCH, path, num_rows=NUM_ROWS, seed=9, num_threads=num_threads)
    assert (tmp_path / "1.tsv").read_bytes() == (tmp_path / "3.tsv").read_bytes()


def test_a_shape_without_a_text_form_is_refused(tmp_path: Path) -> None:
    shape = dataclasses.replace(DISPLAY, name="mine")
    with pytest.raises(ConfigError, match="'mine' has no text form"):
        write_log(shape, tmp_path / "log.tsv", num_rows=10, seed=1)
    with pytest.raises(ConfigError, match="'display' has no tables"):
        write_taobao_tables(tmp_path, num_rows=10, seed=1, shape=DISPLAY)
