import contextlib
import json
import multiprocessing
import os
from pathlib import Path

import numpy as np
import pytest

from tulle.data.prepared.dataset import PreparedDataset
from tulle.data.prepared.writer import DatasetWriter, hold_partial
from tulle.errors import ConfigError, DataError, RunStateError
from unit.data.prepared.small_dataset import (
    CONTENTS,
    SETTINGS,
    block,
    write_small_dataset,
)
from waiting import HANG_S


def stop_after_blocks(folder: Path, num_blocks: int) -> None:
    """Leaves a dataset behind that was begun and not finished."""
    with (
        contextlib.suppress(KeyboardInterrupt),
        hold_partial(folder, SETTINGS, resume=True) as partial,
        DatasetWriter(partial, CONTENTS) as writer,
    ):
        for start in range(0, num_blocks * 40, 40):
            writer.append(block(start, 40), position={"row": start + 40}, num_bad_lines=1)
        raise KeyboardInterrupt


def bytes_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_an_unfinished_dataset_is_not_there(tmp_path: Path) -> None:
    stop_after_blocks(tmp_path / "data", 2)
    assert not (tmp_path / "data").exists()
    for folder in (tmp_path / "data.partial", tmp_path / "data.partial" / "data"):
        with pytest.raises(DataError, match="is not a prepared dataset"):
            PreparedDataset.open(folder)


@pytest.mark.parametrize("num_blocks", [0, 1, 2, 3])
def test_a_resumed_dataset_has_the_bytes_of_an_uninterrupted_one(
    tmp_path: Path, num_blocks: int
) -> None:
    whole = write_small_dataset(tmp_path / "whole")
    stop_after_blocks(tmp_path / "resumed", num_blocks)
    resumed = write_small_dataset(tmp_path / "resumed")
    assert bytes_of(resumed.folder) == bytes_of(whole.folder)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["resumed", "whole"]


def test_bytes_behind_the_last_whole_block_are_cut_off(tmp_path: Path) -> None:
    whole = write_small_dataset(tmp_path / "whole")
    stop_after_blocks(tmp_path / "resumed", 1)
    for path in (tmp_path / "resumed.partial" / "data").iterdir():
        with path.open("ab") as file:
            file.write(b"half a block")
    assert bytes_of(write_small_dataset(tmp_path / "resumed").folder) == bytes_of(whole.folder)


def test_where_it_stood_is_known(tmp_path: Path) -> None:
    stop_after_blocks(tmp_path / "data", 2)
    with (
        hold_partial(tmp_path / "data", SETTINGS, resume=True) as partial,
        DatasetWriter(partial, CONTENTS) as writer,
    ):
        assert writer.progress.num_rows == 80
        assert writer.progress.num_bad_lines == 2
        assert writer.progress.position == {"row": 80}


@pytest.mark.parametrize("cut", [True, False])
def test_a_damaged_array_is_not_continued(tmp_path: Path, cut: bool) -> None:
    stop_after_blocks(tmp_path / "data", 2)
    path = tmp_path / "data.partial" / "data" / "days.i32"
    if cut:
        os.truncate(path, 100)
    else:
        path.write_bytes(b"\x07" + path.read_bytes()[1:])
    with pytest.raises(RunStateError, match=r"days\.i32 .* is not as it was written; begin anew"):
        write_small_dataset(tmp_path / "data")


@pytest.mark.parametrize("name", ["settings.json", "progress.json"])
def test_a_damaged_record_is_not_continued(tmp_path: Path, name: str) -> None:
    stop_after_blocks(tmp_path / "data", 2)
    (tmp_path / "data.partial" / name).write_text('{"num')
    with pytest.raises(RunStateError, match=f"{name} in data.partial is damaged"):
        write_small_dataset(tmp_path / "data")


@pytest.mark.parametrize("key", ["layout", "sources", "salt"])
def test_other_settings_are_not_continued(tmp_path: Path, key: str) -> None:
    stop_after_blocks(tmp_path / "data", 2)
    before = bytes_of(tmp_path / "data.partial" / "data")
    with (
        pytest.raises(RunStateError, match=f"begun with another {key}"),
        hold_partial(tmp_path / "data", {**SETTINGS, key: "other"}, resume=True),
    ):
        pass
    assert bytes_of(tmp_path / "data.partial" / "data") == before


def test_beginning_anew_forgets_what_was_there(tmp_path: Path) -> None:
    stop_after_blocks(tmp_path / "data", 2)
    settings = {**SETTINGS, "layout": "other"}
    with (
        hold_partial(tmp_path / "data", settings, resume=False) as partial,
        DatasetWriter(partial, CONTENTS) as writer,
    ):
        assert writer.progress.num_rows == 0
        writer.append(block(0, 40), position={"row": 40}, num_bad_lines=0)
        assert writer.finish({}).num_rows == 40


def test_a_dataset_is_never_written_over(tmp_path: Path) -> None:
    write_small_dataset(tmp_path / "data")
    with pytest.raises(RunStateError, match="data exists already"):
        write_small_dataset(tmp_path / "data")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data"]


def test_what_a_kill_left_beside_a_whole_dataset_is_cleared_away(tmp_path: Path) -> None:
    write_small_dataset(tmp_path / "data")
    (tmp_path / "data.partial").mkdir()
    (tmp_path / "data.partial" / "progress.json").touch()
    with pytest.raises(RunStateError, match="exists already"):
        write_small_dataset(tmp_path / "data")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data"]


def test_a_folder_made_meanwhile_does_not_cost_what_was_begun(tmp_path: Path) -> None:
    stop_after_blocks(tmp_path / "data", 2)
    (tmp_path / "data").mkdir()
    with pytest.raises(RunStateError, match="exists already"):
        write_small_dataset(tmp_path / "data")
    (tmp_path / "data").rmdir()
    with hold_partial(tmp_path / "data", SETTINGS, resume=True) as partial:
        assert partial.read_progress().num_rows == 80


def test_two_writers_of_one_dataset_are_refused(tmp_path: Path) -> None:
    with hold_partial(tmp_path / "data", SETTINGS, resume=True):
        with pytest.raises(RunStateError, match="being written by another process"):
            write_small_dataset(tmp_path / "data")
        write_small_dataset(tmp_path / "other")
    write_small_dataset(tmp_path / "data")


def test_a_writer_in_another_process_is_refused(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    with hold_partial(tmp_path / "data", SETTINGS, resume=True):
        process = context.Process(target=write_small_dataset, args=(tmp_path / "data",))
        process.start()
        process.join(timeout=HANG_S)
        assert process.exitcode == 1
    assert not (tmp_path / "data").exists()


def test_a_dataset_that_appears_meanwhile_is_not_written_over(tmp_path: Path) -> None:
    with (
        hold_partial(tmp_path / "data", SETTINGS, resume=True) as partial,
        DatasetWriter(partial, CONTENTS) as writer,
    ):
        writer.append(block(0, 40), position={"row": 40}, num_bad_lines=0)
        (tmp_path / "data").mkdir()
        (tmp_path / "data" / "mine").touch()
        with pytest.raises(RunStateError, match="cannot be put in place"):
            writer.finish({})
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["mine"]


def test_a_full_disk_is_an_error_that_says_how_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fsync, calls = os.fsync, []

    def fail_later(descriptor: int) -> None:
        calls.append(descriptor)
        if len(calls) > 15:  # in the second block
            raise OSError(28, "No space left on device")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", fail_later)
    with pytest.raises(RunStateError, match=r"No space left on device; .* it continues"):
        write_small_dataset(tmp_path / "data")
    monkeypatch.undo()
    write_small_dataset(tmp_path / "data").verify()


def test_no_row_makes_no_dataset(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no row"):
        write_small_dataset(tmp_path / "data", num_blocks=0)


def test_arrays_must_be_those_of_the_format(tmp_path: Path) -> None:
    with (
        hold_partial(tmp_path / "data", SETTINGS, resume=True) as partial,
        DatasetWriter(partial, CONTENTS) as writer,
    ):
        with pytest.raises(ConfigError, match="must be"):
            writer.append({"labels": np.zeros(3)}, position={}, num_bad_lines=0)
        short = block(0, 5) | {"days": np.zeros(4, np.int32)}
        with pytest.raises(ConfigError, match="array 'days' has shape"):
            writer.append(short, position={}, num_bad_lines=0)


def test_the_head_has_no_time_and_no_folder(tmp_path: Path) -> None:
    text = (write_small_dataset(tmp_path / "data").folder / "schema.json").read_text()
    assert str(tmp_path) not in text
    assert set(json.loads(text)) == {
        "format",
        "version",
        "schema",
        "features",
        "num_classes",
        "encoder_fingerprint",
        "vocabulary_event",
        "num_rows",
        "arrays",
        "provenance",
        "fingerprint",
    }
