from pathlib import Path

import polars as pl
import pytest

from tulle.data.formats.public import TAOBAO
from tulle.data.formats.taobao_tables import read_taobao_blocks
from tulle.data.tables.layout import BadLines, Position
from tulle.errors import ConfigError, DataError

# The real header of user_profile ends with a space.
PROFILES = """userid,cms_segid,cms_group_id,final_gender_code,age_level,pvalue_level,\
shopping_level,occupation,new_user_class_level \n7,0,5,2,5,,3,0,3\n8,1,6,1,4,2,1,1,\n"""
ADS = "adgroup_id,cate_id,campaign_id,customer,brand,price\n1,11,12,13,NULL,9.5\n"
CLICKS = """user,time_stamp,adgroup_id,pid,nonclk,clk
7,100,1,p_1,1,0
9,101,1,p_2,0,1
8,102,2,p_1,1,0
7,103,1,p_1,0,1
"""


@pytest.fixture
def paths(tmp_path: Path) -> tuple[Path, Path, Path]:
    for name, text in (("clicks", CLICKS), ("ads", ADS), ("profiles", PROFILES)):
        (tmp_path / f"{name}.csv").write_text(text)
    return tmp_path / "clicks.csv", tmp_path / "ads.csv", tmp_path / "profiles.csv"


def test_clicks_get_the_features_of_their_ad_and_user(paths: tuple[Path, Path, Path]) -> None:
    (block,) = read_taobao_blocks(*paths)
    assert block.table.columns == list(TAOBAO.schema.used)
    assert block.table.row(0, named=True) == {
        "clk": "0", "adgroup_id": "1", "pid": "p_1", "cate_id": "11", "campaign_id": "12",
        "customer": "13", "brand": None, "price": "9.5", "cms_segid": "0", "cms_group_id": "5",
        "final_gender_code": "2", "age_level": "5", "pvalue_level": None, "shopping_level": "3",
        "occupation": "0", "new_user_class_level": "3", "user": "7", "time_stamp": "100",
    }  # fmt: skip
    assert block.table["time_stamp"].to_list() == ["100", "101", "102", "103"]


def test_clicks_without_a_profile_or_ad_are_kept_with_nulls(
    paths: tuple[Path, Path, Path],
) -> None:
    (block,) = read_taobao_blocks(*paths, columns=["user", "age_level", "cate_id"])
    assert block.table.rows() == [
        ("7", "5", "11"),
        ("9", None, "11"),
        ("8", "4", None),
        ("7", "5", "11"),
    ]


@pytest.mark.parametrize("rows_per_block", [1, 3])
def test_reading_goes_on_after_any_block(
    paths: tuple[Path, Path, Path], rows_per_block: int
) -> None:
    blocks = list(read_taobao_blocks(*paths, rows_per_block=rows_per_block))
    for num_seen, block in enumerate(blocks, 1):
        rest = list(read_taobao_blocks(*paths, rows_per_block=rows_per_block, start=block.next))
        assert [b.table.rows() for b in rest] == [b.table.rows() for b in blocks[num_seen:]]


def test_bad_lines_of_all_three_files_are_counted_once(paths: tuple[Path, Path, Path]) -> None:
    for path in paths:
        path.write_text(path.read_text() + "1,2\n")
    blocks = list(read_taobao_blocks(*paths, rows_per_block=2, bad_lines=BadLines.SKIP))
    assert [block.num_bad_lines for block in blocks] == [2, 0, 1]
    begun = read_taobao_blocks(
        *paths, rows_per_block=2, bad_lines=BadLines.SKIP, start=Position(0, 0, 0, 0)
    )
    assert [block.num_bad_lines for block in begun] == [2, 0, 1]
    rest = read_taobao_blocks(
        *paths, rows_per_block=2, bad_lines=BadLines.SKIP, start=blocks[0].next
    )
    assert [block.num_bad_lines for block in rest] == [0, 1]


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_bad_line_of_any_file_is_refused(paths: tuple[Path, Path, Path], place: int) -> None:
    paths[place].write_text(paths[place].read_text() + "1,2\n")
    with pytest.raises(DataError, match=rf"{paths[place].name} line \d has 2 columns"):
        list(read_taobao_blocks(*paths))


@pytest.mark.parametrize("line", ["7,0,0,0,0,0,0,0,0\n", ",0,0,0,0,0,0,0,0\n"])
def test_a_user_twice_or_without_id_is_refused(paths: tuple[Path, Path, Path], line: str) -> None:
    paths[2].write_text(PROFILES + line)
    with pytest.raises(DataError, match=r"profiles\.csv must have one row for each userid"):
        read_taobao_blocks(*paths)


def test_a_table_without_rows_is_refused(paths: tuple[Path, Path, Path]) -> None:
    paths[1].write_text(ADS.splitlines()[0] + "\n")
    with pytest.raises(DataError, match=r"ads\.csv has no rows"):
        read_taobao_blocks(*paths)


def test_keys_stored_as_integers_join_with_text(paths: tuple[Path, Path, Path]) -> None:
    stored = paths[0].with_suffix(".parquet")
    pl.read_csv(paths[0]).write_parquet(stored)
    (block,) = read_taobao_blocks(stored, *paths[1:], columns=["clk", "age_level"])
    assert block.table.rows() == [(0, "5"), (1, None), (0, "4"), (1, "5")]
    pl.read_csv(paths[0], schema_overrides={"user": pl.Float64}).write_parquet(stored)
    with pytest.raises(DataError, match="column 'user' has type Float64"):
        list(read_taobao_blocks(stored, *paths[1:]))


def test_a_column_without_a_role_is_refused(paths: tuple[Path, Path, Path]) -> None:
    with pytest.raises(ConfigError, match="column 'nonclk' has no role"):
        read_taobao_blocks(*paths, columns=["nonclk"])
