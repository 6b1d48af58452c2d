import os
import re
from pathlib import Path

import pytest

from tulle.data.source_files import content_sha256, inspect_sources
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
