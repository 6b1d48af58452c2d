import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from tulle.data.tables.rows import column_names
from tulle.errors import ConfigError, DataError, RunStateError
from tulle.select.files.choice_files import (
    read_cell_counts,
    read_choices,
    read_clicks,
    write_choices,
)
from tulle.select.files.whole_auctions import RowForm

NAMES = ["c.parquet", "c.jsonl", "c.ndjson", "c.csv"]
TYPED = NAMES[:3]


def block(auctions: list[Any], ads: list[Any], **more: Any) -> dict[str, Any]:
    kind = object if isinstance(auctions[0], str) else np.int64
    ad_kind = object if isinstance(ads[0], str) else np.int64
    return {
        "auction_id": np.array(auctions, dtype=kind),
        "ad": np.array(ads, dtype=ad_kind),
        **{name: np.array(values) for name, values in more.items()},
    }


BLOCKS = [block([5, 2], [10, 11]), block([9], [10])]


def read_back(path: Path) -> list[tuple[Any, Any]]:
    return [pair for rows in read_choices(path) for pair in rows.select("auction", "ad").rows()]


@pytest.mark.parametrize("name", TYPED)
def test_choices_come_back_as_they_were(tmp_path: Path, name: str) -> None:
    write_choices(tmp_path / name, BLOCKS)
    assert read_back(tmp_path / name) == [(5, 10), (2, 11), (9, 10)]
    texts = [block(["a", "007"], [3, 4]), block(["b"], [3])]
    (tmp_path / name).unlink()
    write_choices(tmp_path / name, texts)
    assert read_back(tmp_path / name) == [("a", 3), ("007", 4), ("b", 3)]


def test_ids_are_text_in_delimited_files(tmp_path: Path) -> None:
    write_choices(tmp_path / "c.csv", BLOCKS)
    assert (tmp_path / "c.csv").read_text() == "auction_id,ad\n5,10\n2,11\n9,10\n"
    assert read_back(tmp_path / "c.csv") == [("5", "10"), ("2", "11"), ("9", "10")]


@pytest.mark.parametrize("name", NAMES)
def test_an_auction_has_a_row_for_each_slot(tmp_path: Path, name: str) -> None:
    blocks = [block([5, 5, 2], [10, 11, 10], slot=[0, 1, 1])]
    write_choices(tmp_path / name, blocks, ("auction_id", "ad", "slot"))
    (rows,) = read_choices(tmp_path / name)
    assert len(rows) == 3
    assert rows["slot"].to_list() == [0, 1, 1]


def test_a_file_can_have_a_name_that_says_no_form(tmp_path: Path) -> None:
    path = tmp_path / ".c.jsonl.12.unreleased"
    write_choices(path, BLOCKS, form=RowForm.JSON_LINES)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert lines[0] == {"auction_id": 5, "ad": 10}
    with pytest.raises(ConfigError, match="does not say how to write rows"):
        write_choices(tmp_path / "c.out", BLOCKS)


Writer = Callable[[Path, list[Mapping[str, Any]], tuple[str, ...]], None]

TELLING = [
    *("propensity", "Propensity", "exact_propensity", "prob", "probability", "choice_prob"),
    *("p", "p_device", "weight", "ips_weight", "importanceWeights", "score", "deviceScore"),
    *("logit", "likelihood", "probability", "noisy_score", "best_ad"),
]


def assert_keeps_propensities_back(write: Writer, folder: Path, name: str) -> None:
    path = folder / "c.parquet"
    path.unlink(missing_ok=True)
    chances = [block([5, 2], [10, 11], **{name: [0.9, 0.02]})]
    try:
        write(path, chances, ("auction_id", "ad", name))
    except ConfigError as error:
        assert "exact propensity says which ad the device liked best" in str(error)  # noqa: PT017
    assert not path.exists()


@pytest.mark.parametrize("name", TELLING)
def test_a_choice_never_goes_with_its_propensity(tmp_path: Path, name: str) -> None:
    def careless(path: Path, blocks: list[Mapping[str, Any]], columns: tuple[str, ...]) -> None:
        pl.DataFrame({column: blocks[0][column] for column in columns}).write_parquet(path)

    assert_keeps_propensities_back(write_choices, tmp_path, name)
    with pytest.raises(AssertionError):
        assert_keeps_propensities_back(careless, tmp_path, name)


def test_fractions_beside_a_choice_are_refused_under_any_name(tmp_path: Path) -> None:
    fractions = [block([5, 2], [10, 11], slot=[0.9, 0.02])]
    with pytest.raises(ConfigError, match="'slot' has the type float64"):
        write_choices(tmp_path / "c.parquet", fractions, ("auction_id", "ad", "slot"))
    assert not (tmp_path / "c.parquet").exists()


@pytest.mark.parametrize("name", NAMES)
def test_only_the_named_columns_are_written(tmp_path: Path, name: str) -> None:
    write_choices(tmp_path / name, [block([5, 2], [10, 11], propensity=[0.9, 0.02])])
    assert column_names(tmp_path / name) == ["auction_id", "ad"]


@pytest.mark.parametrize("name", ["favourite", "campaign", "score", "Propensity", "p", "position"])
def test_nothing_else_goes_with_a_choice(tmp_path: Path, name: str) -> None:
    blocks = [block([5, 2], [10, 11], **{name: [1, 2]})]
    with pytest.raises(ConfigError, match="must not be written beside a choice"):
        write_choices(tmp_path / "c.parquet", blocks, ("auction_id", "ad", name))
    assert not (tmp_path / "c.parquet").exists()


@pytest.mark.parametrize("name", NAMES)
def test_a_file_is_whole_or_not_there(tmp_path: Path, name: str) -> None:
    def failing() -> Iterator[dict[str, Any]]:
        yield BLOCKS[0]
        raise DataError("line 3 is wrong")

    with pytest.raises(DataError, match=r"^line 3 is wrong$"):
        write_choices(tmp_path / name, failing())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", NAMES)
def test_a_file_that_is_there_is_kept(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("precious")
    with pytest.raises(RunStateError, match="cannot be written"):
        write_choices(tmp_path / name, BLOCKS)
    assert (tmp_path / name).read_text() == "precious"
    with pytest.raises(RunStateError, match="folder that exists"):
        write_choices(tmp_path / "nowhere" / name, BLOCKS)


@pytest.mark.parametrize("name", NAMES)
def test_blocks_must_be_alike(tmp_path: Path, name: str) -> None:
    with pytest.raises(DataError, match="all whole numbers or all texts"):
        write_choices(tmp_path / name, [block([5], [1]), block(["x"], [1])])
    with pytest.raises(DataError, match="no column 'ad'"):
        write_choices(tmp_path / name, [{"auction_id": np.array([1])}])
    with pytest.raises(DataError, match="no rows to write"):
        write_choices(tmp_path / name, [])
    for objects in ([0.5, "x"], [0.5, 0.25], [None, "x"], [1, 2]):
        with pytest.raises(DataError, match="'ad' of choices has objects that are no text"):
            write_choices(tmp_path / name, [{**BLOCKS[0], "ad": np.array(objects, dtype=object)}])
    with pytest.raises(DataError, match="'ad' of choices has numbers beyond 64 bits"):
        write_choices(tmp_path / name, [{**BLOCKS[0], "ad": np.array([1, 2**63], dtype=np.uint64)}])
    with pytest.raises(ConfigError, match="must name an auction and an ad"):
        write_choices(tmp_path / name, BLOCKS, ("auction_id",))


@pytest.mark.parametrize("name", NAMES)
def test_an_auction_with_two_choices_for_one_slot_is_refused(tmp_path: Path, name: str) -> None:
    place = {"c.parquet": "row 2", "c.csv": "row 2"}.get(name, "line 2")
    write_choices(tmp_path / name, [block([5, 5], [10, 11])])
    with pytest.raises(DataError, match=f"{place}: an auction has a second row; with several sl"):
        list(read_choices(tmp_path / name))
    for slots, ads, column in (([1, 1], [10, 11], "slot"), ([0, 1], [10, 10], "ad")):
        (tmp_path / name).unlink()
        twice = [block([5, 5], ads, slot=slots)]
        write_choices(tmp_path / name, twice, ("auction_id", "ad", "slot"))
        with pytest.raises(DataError, match=f"{place}: column '{column}' has a value a second"):
            list(read_choices(tmp_path / name))


@pytest.mark.parametrize("name", NAMES)
def test_an_auction_that_comes_back_would_be_billed_twice(tmp_path: Path, name: str) -> None:
    place = {"c.parquet": "row 3", "c.csv": "row 3"}.get(name, "line 3")
    write_choices(tmp_path / name, [block([5, 2, 5], [10, 11, 12])])
    with pytest.raises(DataError, match=f"{place}: an auction comes back"):
        list(read_choices(tmp_path / name))


def write_rows(path: Path, **columns: list[Any]) -> Path:
    table = pl.DataFrame(columns)
    if path.suffix == ".parquet":
        table.write_parquet(path)
    elif path.suffix == ".csv":
        table.write_csv(path)
    else:
        table.write_ndjson(path)
    return path


@pytest.mark.parametrize("name", NAMES)
def test_a_list_of_clicks_says_which_auctions_were_clicked(tmp_path: Path, name: str) -> None:
    (rows,) = read_clicks(write_rows(tmp_path / name, auction_id=[3, 8]))
    assert [str(auction) for auction in rows["auction"]] == ["3", "8"]
    assert "ad" not in rows.columns
    assert rows["clicked"].to_list() == [True, True]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("values", [[True, False, True], [1, 0, 1], ["true", "false", "1"]])
def test_a_report_says_whether_there_was_a_click(
    tmp_path: Path, name: str, values: list[Any]
) -> None:
    path = write_rows(tmp_path / name, auction_id=[3, 3, 8], ad=[1, 2, 1], clicked=values)
    (rows,) = read_clicks(path)
    assert len(rows) == 3
    assert [str(ad) for ad in rows["ad"]] == ["1", "2", "1"]
    assert rows["clicked"].to_list() == [True, False, True]


@pytest.mark.parametrize("name", NAMES)
def test_a_click_counts_once(tmp_path: Path, name: str) -> None:
    with pytest.raises(DataError, match="an auction has a second row"):
        list(read_clicks(write_rows(tmp_path / name, auction_id=[3, 3])))
    with pytest.raises(DataError, match="'ad' has a value a second time"):
        list(read_clicks(write_rows(tmp_path / name, auction_id=[3, 3], ad=[1, 1])))
    with pytest.raises(DataError, match="an auction comes back"):
        list(read_clicks(write_rows(tmp_path / name, auction_id=[3, 4, 3])))


@pytest.mark.parametrize("value", [2, "perhaps", None, 0.5])
def test_a_click_is_true_or_false(tmp_path: Path, value: Any) -> None:
    path = write_rows(tmp_path / "c.parquet", auction_id=[3], clicked=[value])
    with pytest.raises(DataError, match="column 'clicked'"):
        list(read_clicks(path))


def test_no_click_is_not_taken_for_one_because_an_earlier_line_has_no_key(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    path.write_text('{"auction_id": 1}\n{"auction_id": 2, "clicked": false}\n')
    with pytest.raises(DataError, match="line 2 has the key 'clicked', which the first line lacks"):
        list(read_clicks(path))


@pytest.mark.parametrize("name", NAMES)
def test_counts_of_cells_come_back(tmp_path: Path, name: str) -> None:
    counts = {
        "cell": np.array(["x", "x", "y"]),
        "ad": np.array(["a", "b", "a"]),
        "impressions": np.array([3, 0, 2]),
    }
    write_choices(tmp_path / name, [counts], tuple(counts))
    found = read_cell_counts(tmp_path / name)
    assert len(found) == 3
    assert found.rows() == [("x", "a", 3), ("x", "b", 0), ("y", "a", 2)]


@pytest.mark.parametrize(
    ("columns", "problem"),
    [
        ({"cell": ["x", "x"], "ad": [1, 1], "impressions": [1, 2]}, "an ad twice in one cell"),
        ({"cell": ["x", "y"], "ad": [1, 1], "impressions": [1, -2]}, "must be >= 0"),
        ({"cell": ["x", "y"], "ad": [1, 1], "impressions": [1, None]}, "is missing in .*row 2; "),
        ({"cell": ["x"], "ad": [1], "impressions": [1.5]}, "holds no whole number"),
        ({"cell": ["x"], "ad": [1]}, "no column 'impressions'"),
        ({"cell": [], "ad": [], "impressions": []}, "has no counts"),
    ],
)
def test_counts_that_cannot_be_are_refused(
    tmp_path: Path, columns: dict[str, list[Any]], problem: str
) -> None:
    with pytest.raises(DataError, match=problem):
        read_cell_counts(write_rows(tmp_path / "c.parquet", **columns))
