import math
import os
import pathlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tulle.errors import ConfigError, RunStateError
from tulle.privacy.settings import Scalar
from tulle.runs.records import Records

NAMES = st.text("abc \n\u2028ü", min_size=1, max_size=5).filter(str.strip)
VALUES = (
    st.none()
    | st.booleans()
    | st.integers(-(10**20), 10**20)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=9)
)
LINES = st.lists(st.dictionaries(NAMES, VALUES, min_size=1, max_size=3), max_size=5)


@pytest.fixture
def path(tmp_path: pathlib.Path) -> pathlib.Path:
    return tmp_path / "records.jsonl"


@given(lines=LINES, cut=st.integers(0, 10**6))
def test_a_file_cut_anywhere_has_its_whole_lines_and_takes_more(
    tmp_path_factory: pytest.TempPathFactory, lines: list[dict[str, Scalar]], cut: int
) -> None:
    path = tmp_path_factory.mktemp("run") / "records.jsonl"
    records = Records(path)
    for line in lines:
        records.append(line)
    assert records.read() == lines
    assert [list(line) for line in records.read()] == [list(line) for line in lines]
    content = path.read_bytes() if lines else b""
    content = content[: cut % (len(content) + 1)]
    path.write_bytes(content)
    whole = lines[: content.count(b"\n")]
    assert records.read() == whole
    records.append({"step": 1}, durable=True)
    assert records.read() == [*whole, {"step": 1}]
    assert path.read_bytes().count(b"\n") == len(whole) + 1


def test_nothing_written_reads_as_nothing(path: pathlib.Path) -> None:
    assert Records(path).read() == []


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b'{"step": ',
        b"[1]",
        b"{}",
        b'{"loss": NaN}',
        b'{"step": 1, "step": 2}',
        b'{"step": [1]}',
        b'{"": 1}',
        b"\xff",
        b"\0\0",
    ],
)
def test_a_broken_line_that_ends_is_refused_by_its_number(path: pathlib.Path, line: bytes) -> None:
    path.write_bytes(b'{"step": 1}\n' + line + b'\n{"step": 2}\n')
    with pytest.raises(RunStateError, match=r"records\.jsonl is damaged in line 2"):
        Records(path).read()


@pytest.mark.parametrize(
    "record",
    [
        {},
        {"loss": math.nan},
        {"loss": -math.inf},
        {"loss": [1.0]},
        {"loss": {"a": 1}},
        {"loss": np.float32(1)},
        {"loss": b"x"},
        {"": 1},
        {1: 1},
    ],
)
def test_what_is_no_record_is_not_written(path: pathlib.Path, record: dict[str, Scalar]) -> None:
    with pytest.raises(ConfigError):
        Records(path).append(record)
    assert not path.exists()


def test_a_disk_that_takes_half_a_line_keeps_none_of_it(
    path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = Records(path)
    records.append({"step": 1})
    write = os.write

    def write_half(file: int, line: bytes) -> int:
        return write(file, line[: len(line) // 2])

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", write_half)
        with pytest.raises(RunStateError, match=r"records\.jsonl cannot be used: only"):
            records.append({"step": 2})
    assert path.read_bytes() == b'{"step": 1}\n'


def test_a_durable_line_is_synced_with_its_folder_when_new(
    path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[bool] = []
    fsync = os.fsync

    def note(descriptor: int) -> None:
        synced.append(os.path.isdir(f"/proc/self/fd/{descriptor}"))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    records = Records(path)
    records.append({"step": 1}, durable=True)
    assert synced == [False, True]
    records.append({"step": 2})
    assert synced == [False, True]
    records.append({"step": 3}, durable=True)
    assert synced == [False, True, False]
