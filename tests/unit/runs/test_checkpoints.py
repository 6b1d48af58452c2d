import os
import pathlib
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from safetensors.numpy import save_file

from tulle.errors import ConfigError, RunStateError
from tulle.runs.checkpoints import (
    Checkpoints,
    DamagedFileError,
    read_head,
    read_tensors,
    write_tensors,
)


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
    return tmp_path / "checkpoints"


def save(checkpoints: Checkpoints, step: int, phase: str = "private") -> pathlib.Path:
    return checkpoints.save(step, phase, {"w": np.full(3, step, np.float32)}, {"loss": step / 2})


def names(folder: pathlib.Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_the_latest_is_what_was_saved(folder: pathlib.Path) -> None:
    checkpoints = Checkpoints(folder)
    assert checkpoints.latest() is None
    save(checkpoints, 7)
    latest = Checkpoints(folder).latest()
    assert latest is not None
    assert (latest.phase, latest.step, dict(latest.facts)) == ("private", 7, {"loss": 3.5})
    assert latest.path.name == "private-000000007.safetensors"
    np.testing.assert_array_equal(latest.tensors["w"], np.full(3, 7, np.float32))


def test_the_newest_two_are_kept(folder: pathlib.Path) -> None:
    checkpoints = Checkpoints(folder)
    for step in range(5):
        save(checkpoints, step)
    assert names(folder) == ["private-000000003.safetensors", "private-000000004.safetensors"]
    save(Checkpoints(folder, keep=1), 5)
    assert names(folder) == ["private-000000005.safetensors"]


def test_a_later_phase_is_newer_whatever_its_step_and_name(folder: pathlib.Path) -> None:
    checkpoints = Checkpoints(folder)
    for phase, step in (("warm-start", 900), ("private", 0), ("private", 5)):
        save(checkpoints, step, phase)
        latest = checkpoints.latest()
        assert latest is not None
        assert (latest.phase, latest.step) == (phase, step)
    assert names(folder) == ["private-000000000.safetensors", "private-000000005.safetensors"]


def test_the_same_step_saved_again_replaces_itself_alone(folder: pathlib.Path) -> None:
    checkpoints = Checkpoints(folder)
    for step in (1, 2, 2, 1):
        save(checkpoints, step)
        latest = checkpoints.latest()
        assert latest is not None
        assert latest.step == step
    assert names(folder) == ["private-000000001.safetensors", "private-000000002.safetensors"]
    for _ in range(2):
        save(Checkpoints(folder, keep=1), 1)
        assert names(folder) == ["private-000000001.safetensors"]


def test_the_old_one_goes_only_when_the_new_one_is_durable(
    folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoints = Checkpoints(folder, keep=1)
    save(checkpoints, 1)

    def disk_fails(_descriptor: int) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", disk_fails)
        with pytest.raises(RunStateError, match="Input/output error"):
            save(checkpoints, 2)
    assert names(folder) == ["private-000000001.safetensors"]


def test_what_a_killed_process_left_is_ignored_and_cleared(folder: pathlib.Path) -> None:
    checkpoints = Checkpoints(folder)
    save(checkpoints, 1)
    (folder / ".private-000000002.safetensors.0123.tmp").write_bytes(b"half")
    latest = checkpoints.latest()
    assert latest is not None
    assert latest.step == 1
    save(checkpoints, 2)
    assert names(folder) == ["private-000000001.safetensors", "private-000000002.safetensors"]


@pytest.mark.parametrize("damage", ["cut", "flipped", "renamed"])
def test_a_damaged_newest_one_is_refused_and_can_be_deleted(
    folder: pathlib.Path, damage: str
) -> None:
    checkpoints = Checkpoints(folder)
    save(checkpoints, 1)
    path = save(checkpoints, 2)
    content = path.read_bytes()
    if damage == "cut":
        path.write_bytes(content[:-1])
    elif damage == "flipped":
        path.write_bytes(content[:-1] + b"\x01")
    else:
        path = path.rename(folder / "private-000000003.safetensors")
    with pytest.raises(RunStateError, match=rf"checkpoints/{path.name} .*delete it to go on"):
        checkpoints.latest()
    path.unlink()
    latest = checkpoints.latest()
    assert latest is not None
    assert latest.step == 1


def test_a_checkpoint_of_another_run_is_refused(folder: pathlib.Path) -> None:
    save(Checkpoints(folder, run_id="a" * 32), 1)
    assert Checkpoints(folder, run_id="a" * 32).latest() is not None
    with pytest.raises(RunStateError, match="not as this run wrote it"):
        Checkpoints(folder, run_id="b" * 32).latest()


@pytest.mark.parametrize("name", ["rng", "noise.RNG_state", "Generator.0", "philox_key"])
def test_state_of_a_generator_is_never_saved(folder: pathlib.Path, name: str) -> None:
    checkpoints = Checkpoints(folder)
    with pytest.raises(ConfigError, match="never saved"):
        checkpoints.save(1, "private", {"w": np.zeros(1), name: np.zeros(1)}, {})
    with pytest.raises(ConfigError, match="never saved"):
        checkpoints.save(1, "private", {"w": np.zeros(1)}, {name: 1})
    assert not folder.exists()


@pytest.mark.parametrize("phase", ["", "a/b", "..", "Phase", "a--b", "-a", "a b", None])
def test_a_phase_must_be_a_plain_word(folder: pathlib.Path, phase: str) -> None:
    with pytest.raises(ConfigError, match="phase="):
        save(Checkpoints(folder), 1, phase)


@pytest.mark.parametrize("step", [-1, 10**9, 1.0, True])
def test_a_step_must_fit_into_its_name(folder: pathlib.Path, step: int) -> None:
    with pytest.raises(ConfigError, match="step="):
        save(Checkpoints(folder), step)


def test_a_checkpoint_needs_a_tensor_and_a_place(folder: pathlib.Path) -> None:
    with pytest.raises(ConfigError, match="at least one tensor"):
        Checkpoints(folder).save(1, "private", {}, {})
    with pytest.raises(ConfigError, match="keep=0"):
        Checkpoints(folder, keep=0)


DTYPES = [np.float32, np.float64, np.float16, np.int64, np.int32, np.int8, np.uint8, np.bool_]


@given(st.sampled_from(DTYPES).flatmap(lambda d: npst.arrays(d, npst.array_shapes(min_dims=0))))
def test_an_array_comes_back_bit_by_bit(
    tmp_path_factory: pytest.TempPathFactory, array: np.ndarray
) -> None:
    path = tmp_path_factory.getbasetemp() / "one.safetensors"
    write_tensors(path, {"x": array}, {})
    back = read_tensors(path).tensors["x"]
    assert (back.dtype, back.shape, back.tobytes()) == (array.dtype, array.shape, array.tobytes())


@pytest.mark.parametrize(
    "array",
    [
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.arange(12, dtype=np.int32).reshape(3, 4).T,
        np.arange(10)[::-2],
        np.arange(5, dtype=">i4"),
        np.empty((0, 4), np.float32),
        np.broadcast_to(np.float32(2), (3, 2)),
    ],
)
def test_the_order_in_memory_does_not_matter(tmp_path: pathlib.Path, array: np.ndarray) -> None:
    path = tmp_path / "x.safetensors"
    write_tensors(path, {"x": array}, {"step": 3})
    stored = read_tensors(path)
    np.testing.assert_array_equal(stored.tensors["x"], array)
    assert stored.tensors["x"].shape == array.shape
    assert stored.head == read_head(path) == {"step": 3}


def test_any_changed_byte_is_noticed(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "x.safetensors"
    tensors = {"weight": np.arange(8, dtype=np.float32), "bias": np.zeros(8, np.float32)}
    write_tensors(path, tensors, {"step": 3, "phase": "private"})
    whole = path.read_bytes()
    chance = random.Random(5)  # noqa: S311
    harmless = 0
    for position in range(len(whole)):
        changed = bytearray(whole)
        changed[position] ^= chance.randint(1, 255)
        path.write_bytes(changed)
        try:
            stored = read_tensors(path)
        except DamagedFileError:
            continue
        # A space that JSON ignores: what is read is still what was written.
        harmless += 1
        assert stored.head == {"step": 3, "phase": "private"}
        assert all((stored.tensors[name] == tensors[name]).all() for name in tensors)
    assert harmless < 8


@pytest.mark.parametrize("size", [0, 7, 100, -1])
def test_a_cut_file_is_refused_by_name(tmp_path: pathlib.Path, size: int) -> None:
    path = tmp_path / "x.safetensors"
    write_tensors(path, {"x": np.arange(9)}, {})
    path.write_bytes(path.read_bytes()[:size])
    for read in (read_tensors, read_head):
        with pytest.raises(DamagedFileError, match=r"x\.safetensors is not as it was written"):
            read(path)


def test_swapped_tensors_are_noticed(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "x.safetensors"
    write_tensors(path, {"a": np.zeros(2), "b": np.ones(2)}, {})
    content = path.read_bytes()
    path.write_bytes(
        content.replace(b'"a"', b'"c"').replace(b'"b"', b'"a"').replace(b'"c"', b'"b"')
    )
    with pytest.raises(DamagedFileError):
        read_tensors(path)


def test_a_missing_or_foreign_file_is_refused(tmp_path: pathlib.Path) -> None:
    with pytest.raises(RunStateError, match="cannot be used: No such file"):
        read_tensors(tmp_path / "none.safetensors")
    save_file({"x": np.zeros(2)}, tmp_path / "foreign.safetensors")
    for read in (read_tensors, read_head):
        with pytest.raises(DamagedFileError):
            read(tmp_path / "foreign.safetensors")


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({"x": np.array(["a"])}, "array of numbers"),
        ({"x": np.array([object()])}, "array of numbers"),
        ({"x": [1.0]}, "numpy array"),
        ({"": np.zeros(1)}, "name of a tensor"),
        ({"__metadata__": np.zeros(1)}, "uses that name"),
    ],
)
def test_what_is_no_plain_array_is_refused(
    tmp_path: pathlib.Path, tensors: dict[str, np.ndarray], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        write_tensors(tmp_path / "x.safetensors", tensors, {})
    assert list(tmp_path.iterdir()) == []
