"""The loops in C do what their twins in Python do, and nobody needs them."""

import os
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import pytest
import torch
from torch import Tensor

from tulle import compiled_code
from tulle.mechanisms.entropy import SeededNoise
from tulle.train.steps import compiled_kernels as kernels_module
from tulle.train.steps import lazy_rows
from tulle.train.steps import training_noise as noise_module
from tulle.train.steps.age_table import AgeTable
from tulle.train.steps.compiled_kernels import Kernels, compiled_kernels
from tulle.train.steps.lazy_rows import LazyRows
from tulle.train.steps.normal_stream import fill_pairs
from tulle.train.steps.training_noise import TrainingNoise
from unit.train.steps.test_normal_stream import EDGES

NUM_ROWS, DIM = 400, 5


@pytest.fixture
def kernels() -> Kernels:
    found = compiled_kernels()
    if found is None:
        pytest.skip("needs a C compiler")
    return found


@pytest.mark.parametrize("sizes", [[1] * 9, [4, 4], [3, 6, 1, 2, 1000, 5], [0, 7, 0, 9]])
@pytest.mark.parametrize("first", [0, 7, 2**64 - 2])
def test_words_are_those_of_numpy(kernels: Kernels, sizes: list[int], first: int) -> None:
    key = np.array([2**63 + 11, 5], np.uint64)
    counter = np.array([first, 2**64 - 1, 3, 4], np.uint64)
    draw, wanted = (
        kernels.words(kernels.stream(key, counter)),
        np.random.Philox(key=key, counter=counter),
    )
    for size in sizes:
        np.testing.assert_array_equal(draw(size), wanted.random_raw(size))


def test_a_stream_has_a_state_of_its_own(kernels: Kernels) -> None:
    key, counter = np.array([1, 2], np.uint64), np.zeros(4, np.uint64)
    first, second = (kernels.words(kernels.stream(key, counter)) for _ in range(2))
    np.testing.assert_array_equal(first(10), second(10))
    assert counter.tolist() == [0] * 4


def more_words(count: int) -> np.ndarray:
    return np.random.Philox(3).random_raw(count)


@pytest.mark.parametrize("size", [1, 2, 3, 1023, 1024, 1025, 5000, 100_001])
def test_random_words_give_the_same_normals(kernels: Kernels, size: int) -> None:
    words = np.random.Philox(1).random_raw((size + 1) // 2).view(np.uint32)
    found, wanted = np.empty(size, np.float32), np.empty(size, np.float32)
    kernels.fill_pairs(found, words, more_words)
    fill_pairs(wanted, words, more_words)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=3e-6)


def test_words_at_all_edges_give_the_same_normals(kernels: Kernels) -> None:
    uniforms, angles = (axis.ravel() for axis in np.meshgrid(EDGES, EDGES))
    words = np.concatenate([uniforms, angles]).astype(np.uint32)
    found, wanted = np.empty(len(words), np.float32), np.empty(len(words), np.float32)
    kernels.fill_pairs(found, words, more_words)
    fill_pairs(wanted, words, more_words)
    np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-6)


def lazy_run(*, momentum: float, weight_decay: float) -> list[Tensor]:
    """Some steps on rows of all ages; weights, means and variances at the end."""
    generator = torch.Generator().manual_seed(1)
    weights = torch.randn(NUM_ROWS, DIM, generator=generator)
    ages = AgeTable(momentum=momentum, weight_decay=weight_decay)
    noise = TrainingNoise(SeededNoise(2))
    table = LazyRows(weights, ages, noise=noise, noise_stddev=0.3)
    for step in range(8):
        rows = torch.randperm(NUM_ROWS, generator=generator)[: 40 * step]
        table.catch_up(rows)
        gradient = torch.randn(len(rows), DIM, generator=generator)
        table.add_gradient(rows if step % 2 else rows.clone(), gradient, 0.5)
        ages.end_step(0.1 * (step + 1))
    table.catch_up(torch.arange(NUM_ROWS))
    table._write_means()
    return [weights, table._mean, table._variance]


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("num_threads", [1, 3])
@pytest.mark.parametrize("weight_decay", [0.0, 0.2])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_rows_end_where_they_end_without_kernels(
    momentum: float, weight_decay: float, num_threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernels_module, "_SMALL", 0)
    monkeypatch.setattr(torch, "get_num_threads", lambda: num_threads)
    found = lazy_run(momentum=momentum, weight_decay=weight_decay)
    for module in (noise_module, lazy_rows):
        monkeypatch.setattr(module, "compiled_kernels", lambda: None)
    wanted = lazy_run(momentum=momentum, weight_decay=weight_decay)
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=3e-6)


def test_a_move_that_forgets_the_noise_would_be_seen(
    kernels: Kernels, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Forgets:
        write_rows = kernels.write_rows

        def move_rows(self, *arguments: object) -> None:
            *others, normals, moved = arguments
            kernels.move_rows(*others, torch.zeros_like(normals), moved)  # type: ignore

    right = lazy_run(momentum=0.9, weight_decay=0.0)
    monkeypatch.setattr(lazy_rows, "compiled_kernels", Forgets)
    wrong = lazy_run(momentum=0.9, weight_decay=0.0)
    assert not torch.allclose(right[0], wrong[0], atol=1e-2)


def test_tables_of_other_types_do_without_kernels() -> None:
    weights = torch.zeros(3, 2, dtype=torch.float64)
    noise = TrainingNoise(SeededNoise(1))
    table = LazyRows(weights, AgeTable(momentum=0.9), noise=noise, noise_stddev=0.1)
    assert table._kernels is None


def test_without_a_compiler_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled_code.shutil, "which", lambda _: None)
    assert compiled_kernels.__wrapped__() is None


def test_a_compiler_that_fails_gives_none(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []

    def fail(command: list[str], **_: object) -> None:
        asked.append(command)
        raise subprocess.CalledProcessError(1, command)

    monkeypatch.setattr(compiled_code.shutil, "which", lambda _: "/usr/bin/cc")
    monkeypatch.setattr(compiled_code.subprocess, "run", fail)
    assert compiled_kernels.__wrapped__() is None
    assert ["-fopenmp" in command for command in asked] == [True, False, False]


@pytest.mark.usefixtures("kernels")
def test_nothing_stays_on_disk(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert compiled_kernels.__wrapped__() is not None
    assert list(tmp_path.iterdir()) == []


DIE_WHILE_COMPILING = """
import os
from tulle import compiled_code
from tulle.train.steps import compiled_kernels as kernels

compiled_code.subprocess.run = lambda *_, **__: os._exit(9)
kernels.compiled_kernels()
"""


@pytest.mark.usefixtures("kernels")
def test_the_next_process_removes_what_one_left_that_was_killed_while_it_compiled(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed = subprocess.run(
        [sys.executable, "-c", DIE_WHILE_COMPILING],
        env=os.environ | {"TMPDIR": str(tmp_path)},
        check=False,
    )
    assert killed.returncode == 9
    assert [path.name.startswith("tulle-kernels-") for path in tmp_path.iterdir()] == [True]
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert compiled_kernels.__wrapped__() is not None
    assert list(tmp_path.iterdir()) == []


def test_a_process_compiles_once() -> None:
    assert compiled_kernels() is compiled_kernels()


def test_rows_may_lie_anywhere_in_memory(kernels: Kernels) -> None:
    table = torch.zeros(10, 2)
    rows = torch.tensor([1, 0, 7, 0, 4, 0])[::2]
    kernels.write_rows(table, rows, torch.arange(6.0).view(3, 2), torch.ones(3, 2), 0.5)
    assert table[[1, 7, 4]].tolist() == [[0.5, 1.5], [2.5, 3.5], [4.5, 5.5]]
    assert int((table != 0).any(1).sum()) == 3


@pytest.mark.parametrize("num_threads", [1, 2, 5])
@pytest.mark.parametrize("size", [200_000, 300_001, 3_000_000])
def test_large_tensors_have_the_noise_that_they_have_without_kernels(
    size: int, num_threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: num_threads)
    found, wanted = torch.zeros(size), torch.zeros(size)
    noise = TrainingNoise(SeededNoise(4))
    noise.add_to(found, 1.5)
    noise.add_to(found[:10], 1.0)
    monkeypatch.setattr(noise_module, "compiled_kernels", lambda: None)
    noise = TrainingNoise(SeededNoise(4))
    noise.add_to(wanted, 1.5)
    noise.add_to(wanted[:10], 1.0)
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-5)
