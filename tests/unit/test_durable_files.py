import os
import pathlib

import pytest

from tulle.durable_files import stage_text, sync_folder


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
