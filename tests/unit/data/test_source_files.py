import gzip
import io
import os
import re
from pathlib import Path

import polars as pl
import pytest

from tulle.data.source_files import content_sha256, inspect_sources, refuse_copies
from tulle.errors import DataError

MEBIBYTE = 1 << 20


def test_a_file_is_known_by_name_size_time_and_both_ends(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(bytes(3 * MEBIBYTE))
    (before,) = inspect_sources([path])
    assert (before.name, before.num_bytes) == ("a.csv", 3 * MEBIBYTE)
    assert inspect_sources([path]) == (before,)
    for place in (0, MEBIBYTE - 1, 2 * MEBIBYTE, 3 * MEBIBYTE - 1):
        content = bytearray(3 * MEBIBYTE)
        content[place] = 1
        path.write_bytes(content)
        os.utime(path, ns=(before.modified_ns, before.modified_ns))
        (after,) = inspect_sources([path])
        assert after != before
        assert after.edges_sha256 != before.edges_sha256


def test_the_folder_of_a_file_is_not_kept(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.touch()
    (found,) = inspect_sources([path])
    assert str(tmp_path) not in str(found.to_dict())


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"b\.csv cannot be read: No such file"):
        inspect_sources([tmp_path / "b.csv"])
    with pytest.raises(DataError, match="cannot be read: Is a directory"):
        inspect_sources([tmp_path])
    with pytest.raises(DataError, match="cannot be read: Is a directory"):
        content_sha256(tmp_path)
    with pytest.raises(DataError, match="no input file"):
        inspect_sources([])


@pytest.mark.parametrize("path", [".", "/"])
def test_a_path_without_a_name_is_shown_as_it_is(path: str) -> None:
    with pytest.raises(DataError, match=f"^{re.escape(path)} cannot be read"):
        inspect_sources([Path(path)])
    with pytest.raises(DataError, match=f"^{re.escape(path)} cannot be read"):
        content_sha256(Path(path))


def test_one_file_is_refused_under_every_name_it_has(tmp_path: Path) -> None:
    path, other = tmp_path / "a.csv", tmp_path / "b.csv"
    path.write_bytes(b"user\n1\n")
    with pytest.raises(DataError, match="named twice"):
        refuse_copies([path, path])
    with pytest.raises(DataError, match="named twice"):
        refuse_copies([path, tmp_path / ".." / tmp_path.name / "a.csv"])
    for make_link in (other.symlink_to, other.hardlink_to):
        make_link(path)
        with pytest.raises(DataError, match=r"b\.csv is named twice: it is the same file as a"):
            refuse_copies([path, other])
        other.unlink()


@pytest.mark.parametrize("num_bytes", [7, 3 * MEBIBYTE])
def test_a_copy_is_refused_and_one_other_byte_makes_another_file(
    tmp_path: Path, num_bytes: int
) -> None:
    first, between, last = (tmp_path / name for name in ("a.csv", "b.csv", "c.csv"))
    first.write_bytes(bytes(num_bytes))
    between.write_bytes(bytes(num_bytes + 1))
    last.write_bytes(bytes(num_bytes))
    with pytest.raises(DataError, match=r"c\.csv is a copy of a\.csv, equal byte by byte"):
        refuse_copies([first, between, last])
    content = bytearray(num_bytes)
    content[num_bytes // 2] = 1  # of the large file neither end shows it
    last.write_bytes(content)
    refuse_copies([first, between, last])


def write_twice(folder: Path, name: str, content: bytes) -> list[Path]:
    paths = [folder / f"{number}-{name}" for number in range(2)]
    for path in paths:
        path.write_bytes(content)
    return paths


def table_bytes(num_rows: int, form: str) -> bytes:
    table = pl.DataFrame({"user": ["u"] * num_rows}, schema={"user": pl.String})
    buffer = io.BytesIO()
    table.write_parquet(buffer) if form == "parquet" else table.write_ipc(buffer)
    return buffer.getvalue()


def test_files_without_a_row_are_no_copies_of_each_other(tmp_path: Path) -> None:
    header = b"user,city\n"
    for name, content in {
        "a.csv": header,
        "b.csv": header.rstrip(),
        "c.csv.gz": gzip.compress(header, mtime=0),
        "d.parquet": table_bytes(0, "parquet"),
        "e.arrow": table_bytes(0, "arrow"),
        "f.csv": b"",
    }.items():
        refuse_copies(write_twice(tmp_path, name, content), has_header=True)
    refuse_copies(write_twice(tmp_path, "g.csv", b""))


def test_a_single_row_is_enough_for_a_copy(tmp_path: Path) -> None:
    for name, content in {
        "a.csv": b"user\nu\n",
        "b.csv.gz": gzip.compress(b"user\nu", mtime=0),
        "c.parquet": table_bytes(1, "parquet"),
        "d.arrow": table_bytes(1, "arrow"),
        "e.csv": b"user\n\n",
        "f.parquet": b"broken",
    }.items():
        with pytest.raises(DataError, match="is a copy of"):
            refuse_copies(write_twice(tmp_path, name, content), has_header=True)
    # Without a header the first line is a row.
    with pytest.raises(DataError, match="is a copy of"):
        refuse_copies(write_twice(tmp_path, "g.csv", b"u,1\n"))


def test_files_of_different_sizes_are_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [tmp_path / f"{size}.csv" for size in range(3)]
    for size, path in enumerate(paths):
        path.write_bytes(bytes(size))
    monkeypatch.setattr(Path, "open", lambda path, _mode: pytest.fail(f"{path} was opened"))
    refuse_copies(paths)


def test_a_file_that_is_not_there_has_no_copy(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"b\.csv cannot be read: No such file"):
        refuse_copies([tmp_path / "b.csv"])
