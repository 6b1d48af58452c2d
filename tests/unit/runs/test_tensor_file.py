import pathlib
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from safetensors.numpy import save_file

from tulle.errors import ConfigError, RunStateError
from tulle.runs.tensor_file import DamagedFileError, read_head, read_tensors, write_tensors

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
