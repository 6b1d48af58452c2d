import dataclasses
import gc
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tulle.data.prepared.dataset import PreparedDataset
from tulle.errors import DataError
from tulle.privacy.events import Gaussian, event_to_dict
from unit.data.prepared.small_dataset import block, write_small_dataset
from waiting import HANG_S

ARRAYS = ("public_features", "sensitive_features", "labels", "units", "times", "days")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_small_dataset(tmp_path / "small").folder


def edit_head(folder: Path, edit: Callable[[dict[str, object]], None]) -> None:
    path = folder / "schema.json"
    data = json.loads(path.read_text())
    edit(data)
    path.write_text(json.dumps(data))


def test_arrays_come_back_as_they_were_written(folder: Path) -> None:
    dataset = PreparedDataset.open(folder)
    expected = block(0, 120)
    assert dataset.num_rows == 120
    for name in ARRAYS:
        found = getattr(dataset, name)
        np.testing.assert_array_equal(found, expected[name])
        assert found.dtype == expected[name].dtype
    dataset.verify()


def test_gathered_rows_have_public_columns_first(folder: Path) -> None:
    dataset = PreparedDataset.open(folder)
    assert [feature.role for feature in dataset.features] == ["public", "public", "sensitive"]
    rows = np.array([7, 7, 119])
    np.testing.assert_array_equal(dataset.gather(rows), [[7, 7, 7], [7, 7, 7], [19, 23, 2]])
    np.testing.assert_array_equal(dataset.gather(slice(0, 2)), [[0, 0, 0], [1, 1, 1]])


def test_arrays_cannot_be_written_to(folder: Path) -> None:
    dataset = PreparedDataset.open(folder)
    for name in ARRAYS:
        with pytest.raises(ValueError, match="read-only"):
            getattr(dataset, name)[0] = 1


def reachable_arrays(start: object) -> list[np.ndarray[tuple[int, ...], np.dtype[np.generic]]]:
    """Every array that an object holds on to, by whatever way."""
    seen: dict[int, object] = {}
    waiting = [start]
    while waiting:
        thing = waiting.pop()
        if id(thing) in seen or isinstance(thing, type) or callable(thing):
            continue
        seen[id(thing)] = thing
        waiting += gc.get_referents(thing)
        if isinstance(thing, np.ndarray) and thing.base is not None:
            waiting.append(thing.base)
    return [thing for thing in seen.values() if isinstance(thing, np.ndarray)]


def test_a_dataset_without_sensitive_columns_cannot_reach_them(folder: Path) -> None:
    dataset = PreparedDataset.open(folder)
    sensitive = dataset.sensitive_features
    assert any(np.shares_memory(a, sensitive) for a in reachable_arrays(dataset))  # it can fail
    public = dataset.without_sensitive()
    assert not any(np.shares_memory(a, sensitive) for a in reachable_arrays(public))
    assert [feature.name for feature in public.features] == ["site", "hour"]
    assert not {"sensitive_features", "folder", "head"} & {
        field.name for field in dataclasses.fields(public)
    }
    assert not hasattr(public.public_features, "filename")
    np.testing.assert_array_equal(public.public_features, dataset.public_features)
    np.testing.assert_array_equal(public.labels, dataset.labels)


@pytest.mark.parametrize("name", ARRAYS)
@pytest.mark.parametrize("change", [-1, -4, 1, 8])
def test_a_file_of_the_wrong_size_is_refused(folder: Path, name: str, change: int) -> None:
    (path,) = folder.glob(f"{name}.*")
    os.truncate(path, path.stat().st_size + change)
    with pytest.raises(DataError, match=f"{path.name} (is cut short|has bytes too many)"):
        PreparedDataset.open(folder)


@pytest.mark.parametrize("name", ["schema.json", "labels.f32", "sensitive_features.i32"])
def test_a_missing_file_is_refused(folder: Path, name: str) -> None:
    (folder / name).unlink()
    with pytest.raises(DataError, match=name):
        PreparedDataset.open(folder)


EDITS: dict[str, Callable[[dict[str, object]], None]] = {
    "another format": lambda head: head.update(format="something"),
    "an older version": lambda head: head.update(version=1),
    "a newer version": lambda head: head.update(version=3),
    "no version": lambda head: head.pop("version"),
    "an unknown key": lambda head: head.update(rows=1),
    "fewer rows": lambda head: head.update(num_rows=119),
    "rows that are text": lambda head: head.update(num_rows="120"),
    "another fingerprint": lambda head: head.update(fingerprint="sha256:" + "0" * 64),
    "no features": lambda head: head.update(features=[]),
    "a schema that is a list": lambda head: head.update(schema=[]),
    "arrays that are a list": lambda head: head.update(arrays=[]),
    "another number of classes": lambda head: head.update(num_classes=3),
    "no cost of vocabularies": lambda head: head.pop("vocabulary_event"),
    "another cost of vocabularies": lambda head: head.update(
        vocabulary_event=event_to_dict(Gaussian(noise_multiplier=9.0))
    ),
    "a cost that is no event": lambda head: head.update(vocabulary_event=1.0),
    "another encoder": lambda head: head.update(encoder_fingerprint="sha256:other"),
}


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS.keys())
def test_an_edited_schema_is_refused(
    folder: Path, edit: Callable[[dict[str, object]], None]
) -> None:
    edit_head(folder, edit)
    with pytest.raises(DataError, match=r"small/schema\.json cannot be used: .*; prepare it again"):
        PreparedDataset.open(folder)


def test_a_sensitive_feature_cannot_be_turned_into_a_public_one(folder: Path) -> None:
    def edit(head: dict[str, object]) -> None:
        head["features"][2]["role"] = "public"  # type: ignore[index]

    edit_head(folder, edit)
    with pytest.raises(DataError, match="array 'public_features'"):
        PreparedDataset.open(folder)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"version": NaN}', "\x00"])
def test_a_schema_that_is_no_json_object_is_refused(folder: Path, text: str) -> None:
    (folder / "schema.json").write_text(text)
    with pytest.raises(DataError):
        PreparedDataset.open(folder)


def test_a_changed_byte_is_found_by_verify(folder: Path) -> None:
    path = folder / "units.i64"
    raw = bytearray(path.read_bytes())
    raw[17] ^= 1
    path.write_bytes(raw)
    dataset = PreparedDataset.open(folder)
    with pytest.raises(DataError, match=r"units\.i64 was changed"):
        dataset.verify()


def test_a_folder_that_is_something_else_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing"):
        with pytest.raises(DataError, match="is not a prepared dataset"):
            PreparedDataset.open(path)
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match="is not a prepared dataset"):
        PreparedDataset.open(tmp_path / "file")


def test_the_fingerprint_follows_content_and_not_the_folder(tmp_path: Path) -> None:
    first = write_small_dataset(tmp_path / "a")
    again = write_small_dataset(tmp_path / "b", num_blocks=6, rows=20)
    other = write_small_dataset(tmp_path / "c", num_blocks=4)
    assert first.fingerprint == again.fingerprint
    assert first.fingerprint != other.fingerprint


def test_reading_needs_numpy_and_the_standard_library_alone(folder: Path) -> None:
    script = (
        "import sys\n"
        "from tulle.data.prepared.dataset import PreparedDataset\n"
        "PreparedDataset.open(sys.argv[1]).verify()\n"
        "known = set(sys.stdlib_module_names) | {'numpy', 'tulle'}\n"
        "tops = {name.partition('.')[0] for name in sys.modules}\n"
        "print(*sorted(top for top in tops - known if not top.startswith('_')))\n"
    )
    command = [sys.executable, "-c", script, str(folder)]
    shown = subprocess.run(command, capture_output=True, text=True, check=True, timeout=HANG_S)
    assert "polars" not in shown.stdout
    assert set(shown.stdout.split()) <= {"sitecustomize", "distutils-precedence"}
