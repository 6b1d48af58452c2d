import errno
import os
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from tulle.data.prediction_file import read_predictions, write_predictions
from tulle.errors import DataError, RunStateError

ROWS = np.array([4, 0, 7])
PROBABILITIES = np.array([0.25, 0.0, 1.0])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_and_probabilities_come_back_as_they_were(tmp_path: Path, dtype: type) -> None:
    path = tmp_path / "predictions.parquet"
    write_predictions(path, ROWS.astype(np.int32), PROBABILITIES.astype(dtype))
    table = pl.read_parquet(path)
    assert table.columns == ["row", "probability"]
    assert table["row"].dtype == pl.Int64
    assert table["probability"].to_numpy().dtype == dtype
    assert table.rows() == [(4, 0.25), (0, 0.0), (7, 1.0)]
    assert [entry.name for entry in tmp_path.iterdir()] == ["predictions.parquet"]


def test_no_predictions_make_an_empty_file(tmp_path: Path) -> None:
    path = tmp_path / "predictions.parquet"
    write_predictions(path, np.empty(0, np.int64), np.empty(0, np.float32))
    assert pl.read_parquet(path).shape == (0, 2)


def test_an_existing_file_is_replaced_only_if_asked(tmp_path: Path) -> None:
    path = tmp_path / "predictions.parquet"
    path.write_text("precious")
    with pytest.raises(RunStateError, match=r"predictions.parquet exists already.*overwrite=True"):
        write_predictions(path, ROWS, PROBABILITIES)
    assert path.read_text() == "precious"
    write_predictions(path, ROWS, PROBABILITIES, overwrite=True)
    assert pl.read_parquet(path).height == 3
    assert len(list(tmp_path.iterdir())) == 1


def test_a_file_that_comes_meanwhile_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "predictions.parquet"
    write = pl.DataFrame.write_parquet

    def slow(self: pl.DataFrame, file: object) -> None:
        write(self, file)  # type: ignore[arg-type]
        path.write_text("faster")

    monkeypatch.setattr(pl.DataFrame, "write_parquet", slow)
    with pytest.raises(RunStateError, match="exists already"):
        write_predictions(path, ROWS, PROBABILITIES)
    assert path.read_text() == "faster"
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_full_disk_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, overwrite: bool
) -> None:
    def full(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(RunStateError, match="cannot be written: No space left"):
        write_predictions(
            tmp_path / "predictions.parquet", ROWS, PROBABILITIES, overwrite=overwrite
        )
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_there_or_in_the_way_is_named(tmp_path: Path) -> None:
    with pytest.raises(RunStateError, match=r"p.parquet cannot be written: No such file"):
        write_predictions(tmp_path / "missing" / "p.parquet", ROWS, PROBABILITIES)
    with pytest.raises(RunStateError, match="is a folder"):
        write_predictions(tmp_path, ROWS, PROBABILITIES, overwrite=True)


@pytest.mark.parametrize("wrong", [np.nan, -0.1, 1.5])
def test_what_is_no_probability_is_refused(tmp_path: Path, wrong: float) -> None:
    with pytest.raises(DataError, match=r"probabilities must lie in \[0, 1\]"):
        write_predictions(tmp_path / "p.parquet", ROWS, np.array([0.5, wrong, 0.5]))
    assert list(tmp_path.iterdir()) == []


def test_wrong_shapes_and_types_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "p.parquet"
    with pytest.raises(DataError, match=r"rows have the shape \(3,\)"):
        write_predictions(path, ROWS, PROBABILITIES[:2])
    with pytest.raises(DataError, match="shape"):
        write_predictions(path, ROWS[:, None], PROBABILITIES[:, None])
    with pytest.raises(DataError, match="rows have the type float64"):
        write_predictions(path, PROBABILITIES, PROBABILITIES)  # type: ignore[arg-type]
    with pytest.raises(DataError, match="float32 or float64"):
        write_predictions(path, ROWS, ROWS)  # type: ignore[arg-type]


def test_predictions_are_read_in_their_order(tmp_path: Path) -> None:
    path = tmp_path / "predictions.parquet"
    write_predictions(path, ROWS, PROBABILITIES.astype(np.float32))
    rows, probabilities = read_predictions(path, 8)
    assert rows.tolist() == [4, 0, 7]
    assert probabilities.tolist() == [0.25, 0.0, 1.0]
    assert probabilities.dtype == np.float64


@pytest.mark.parametrize(
    ("columns", "problem"),
    [
        ({"row": [0, 8], "probability": [0.1, 0.2]}, "names rows that the table, with 8 rows"),
        ({"row": [-1, 0], "probability": [0.1, 0.2]}, "names rows that the table"),
        ({"row": [1, 1], "probability": [0.1, 0.2]}, "must name each row once"),
        ({"row": [0.5, 1.0], "probability": [0.1, 0.2]}, "column 'row' .*, row 1"),
        ({"row": [0, None], "probability": [0.1, 0.2]}, "column 'row' is missing in .*, row 2"),
        ({"row": [0, 1], "probability": [None, 0.2]}, "'probability' is missing in .*, row 1"),
        ({"row": [0, 1], "probability": [1.5, 0.2]}, r"no probability in \[0, 1\] in .*, row 1"),
        ({"row": [0, 1], "probability": [float("nan"), 0.2]}, "'probability' is missing"),
        ({"row": [0, 1], "chance": [0.1, 0.2]}, "has no column 'probability'"),
        ({"row": ["x", "y"], "probability": [0.1, 0.2]}, "column 'row' .*, row 1"),
        ({"row": [], "probability": []}, "has no rows"),
    ],
)
def test_a_file_that_is_no_predictions_is_refused(
    tmp_path: Path, columns: dict[str, list[object]], problem: str
) -> None:
    path = tmp_path / "predictions.parquet"
    pl.DataFrame(columns, strict=False).write_parquet(path)
    with pytest.raises(DataError, match=problem):
        read_predictions(path, 8)


@pytest.mark.parametrize("form", ["csv", "tsv", "jsonl", "arrow", "polars", "pandas"])
def test_predictions_come_from_any_file_or_table(tmp_path: Path, form: str) -> None:
    frame = pl.DataFrame({"probability": PROBABILITIES, "row": ROWS})
    path = tmp_path / f"predictions.{form}"
    write = {
        "csv": lambda: frame.write_csv(path),
        "tsv": lambda: frame.write_csv(path, separator="\t"),
        "jsonl": lambda: frame.write_ndjson(path),
        "arrow": lambda: frame.write_ipc(path),
    }
    source: object = path
    if form in write:
        write[form]()
    else:
        source = frame if form == "polars" else frame.to_pandas()
    rows, probabilities = read_predictions(source, 8)
    assert rows.tolist() == [4, 0, 7]
    assert probabilities.tolist() == [0.25, 0.0, 1.0]
