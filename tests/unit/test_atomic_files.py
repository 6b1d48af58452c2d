import errno
import os
import pathlib
from collections.abc import Callable

import pytest

from tulle.atomic_files import (
    check_room,
    clear_staged,
    short_name,
    stage_text,
    sync_folder,
    write_bytes,
    write_text,
)
from tulle.errors import RunStateError


@pytest.mark.parametrize(
    ("path", "name"),
    [("card.json", "card.json"), ("run/card.json", "run/card.json"), ("/a/b/c.json", "b/c.json")],
)
def test_a_file_is_called_by_its_name_and_its_folder_if_that_has_one(path: str, name: str) -> None:
    assert short_name(pathlib.Path(path)) == name


def test_a_staged_text_is_whole_and_not_yet_in_place(tmp_path: pathlib.Path) -> None:
    final = tmp_path / "card.json"
    staged = stage_text(final, "whole")
    assert not final.exists()
    assert staged.read_text() == "whole"
    os.replace(staged, final)
    sync_folder(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["card.json"]


def test_a_failed_write_leaves_nothing_behind(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def disk_is_full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", disk_is_full)
    with pytest.raises(OSError, match="No space left"):
        stage_text(tmp_path / "card.json", "half")
    assert list(tmp_path.iterdir()) == []


def write_new_text(path: pathlib.Path) -> None:
    write_text(path, "new")


def write_new_bytes(path: pathlib.Path) -> None:
    write_bytes(path, b"new")


@pytest.mark.parametrize("write", [write_new_text, write_new_bytes])
@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_full_disk_leaves_the_old_file_and_nothing_else(
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    write: Callable[[pathlib.Path], None],
    call: str,
) -> None:
    path = tmp_path / "card.json"
    path.write_text("old")

    def disk_is_full(*_arguments: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, call, disk_is_full)
        with pytest.raises(RunStateError, match=r"card\.json cannot be used: No space left"):
            write(path)
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["card.json"]
    write(path)
    assert path.read_text() == "new"


def test_only_staged_files_are_cleared(tmp_path: pathlib.Path) -> None:
    for name in (".card.json.0123.tmp", "card.json", ".hidden", "notes.tmp"):
        (tmp_path / name).touch()
    clear_staged(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".hidden", "card.json", "notes.tmp"]
    clear_staged(tmp_path / "none")


def test_what_a_disk_has_no_room_for_is_refused_and_leaves_nothing(tmp_path: pathlib.Path) -> None:
    check_room(tmp_path, 1 << 16)
    with pytest.raises(RunStateError, match="cannot be used"):
        check_room(tmp_path, 1 << 62)
    with pytest.raises(RunStateError, match="cannot be used"):
        check_room(tmp_path / "none", 1)
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_cannot_reserve_room_is_not_taken_for_full(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def not_supported(*_arguments: int) -> None:
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    monkeypatch.setattr(os, "posix_fallocate", not_supported)
    check_room(tmp_path, 1 << 16)
