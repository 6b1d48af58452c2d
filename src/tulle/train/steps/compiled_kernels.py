"""The inner loops of a private step in C, for machines that have a compiler.

They are compiled once in a process, in a folder that nobody else can write and that is gone
before they run, so that no file of another time or user is ever loaded. A process that is killed
while it compiles leaves that folder behind, and the next one that compiles removes it. Without a
compiler everything works, slower: each loop has a twin in Python with the same results.
"""

import ctypes
import functools
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tulle.mechanisms.entropy import Words
from tulle.scratch_folders import scratch_folder
from tulle.train.steps.normal_stream import PAIRS_AT_A_TIME, Floats, Halves, MoreWords

_SOURCE = Path(__file__).with_name("kernels.c")
_FLAGS = ("-O3", "-fno-math-errno", "-fno-trapping-math", "-fPIC")
# Linked without a library of threads of their own: the loops find that of torch, whose threads
# are there already. Where they do not, they run in one thread.
_WAYS = (("-march=native", "-fopenmp"), ("-march=native",), ())
# A compiler that hangs must not hold up a run: after this the next way is tried, and in the end
# Python does the work.
_SECONDS_TO_COMPILE = 60.0
_SMALL = 1 << 16
"""Number of entries up to which one thread is faster than several."""

# Philox 4x64 makes four words from one value of its counter. A place of 4 in the state says, as in
# numpy, that none of them is left.
_WORDS_IN_BLOCK = 4
_POINTER, _COUNT, _SMALL_COUNT = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int


class Kernels:
    """The compiled loops, for float32 tensors and arrays of the CPU.

    They trust what they are given: contiguous memory, and rows that the table has.
    """

    def __init__(self, library: ctypes.CDLL) -> None:
        self._next_words = library.next_words
        self._count_ends = library.count_ends
        self._make_pairs = library.make_pairs
        self._fill_streams = library.fill_streams
        self._move_rows = library.move_rows
        self._write_rows = library.write_rows
        self._next_words.argtypes = [_POINTER, _POINTER, _COUNT]
        self._count_ends.argtypes = [_POINTER, _COUNT]
        self._make_pairs.argtypes = [*[_POINTER] * 4, _COUNT, _POINTER]
        self._fill_streams.argtypes = [
            *(_POINTER, _COUNT, _POINTER, _COUNT, _COUNT),
            _SMALL_COUNT,
        ]
        self._move_rows.argtypes = [*[_POINTER] * 3, _COUNT, _COUNT, *[_POINTER] * 7, _SMALL_COUNT]
        self._write_rows.argtypes = [
            *(_POINTER, _POINTER, _COUNT, _COUNT, _POINTER, _POINTER),
            *(ctypes.c_float, _SMALL_COUNT),
        ]
        self._count_ends.restype, self._fill_streams.restype = _COUNT, _SMALL_COUNT
        for function in (self._next_words, self._make_pairs, self._move_rows, self._write_rows):
            function.restype = None

    def stream(self, key: Words, counter: Words) -> Words:
        """The state of a stream that begins where numpy's Philox of this key would."""
        block = np.zeros(_WORDS_IN_BLOCK, np.uint64)
        return np.concatenate([counter, key, block, np.array([_WORDS_IN_BLOCK], np.uint64)])

    def words(self, stream: Words) -> MoreWords:
        """Draws the next words of a stream, whose state it changes in place."""

        def draw(count: int) -> Words:
            out = np.empty(count, np.uint64)
            self._next_words(_of_array(stream), _of_array(out), count)
            return out

        return draw

    def fill_pairs(self, values: Floats, words: Halves, more_words: MoreWords) -> None:
        """Makes normals of random bits, as `normal_stream.fill_pairs` does.

        Args:
          values: Array that gets the normals.
          words: Random words of 32 bits: first those of radii, then those of angles.
          more_words: Source of 64 more random bits for each uniform that needs them.
        """
        num_pairs = len(words) // 2
        uniforms, angles = words[:num_pairs], words[num_pairs:]
        more = more_words(int(self._count_ends(_of_array(uniforms), num_pairs)))
        second = values[num_pairs:]
        # An odd number of entries leaves the last sine without a place.
        sines = second if len(second) == num_pairs else np.empty(num_pairs, np.float32)
        addresses = [_of_array(array) for array in (values, sines, uniforms, angles)]
        self._make_pairs(*addresses, num_pairs, _of_array(more))
        if sines is not second:
            second[:] = sines[: len(second)]

    def fill_streams(self, values: Floats, streams: Words) -> None:
        """Fills equal parts with normals, as `NormalStream.fill` of each stream does.

        Args:
          values: A contiguous array, which is overwritten.
          streams: [streams, state]: states of the streams, changed in place.
        """
        is_done = self._fill_streams(
            _of_array(values),
            len(values),
            _of_array(streams),
            len(streams),
            PAIRS_AT_A_TIME,
            _num_threads(values.size),
        )
        if not is_done:
            raise MemoryError("there is no memory for the random bits of noise.")

    def move_rows(
        self,
        weights: Tensor,
        means: Tensor,
        rows: Tensor,
        coefficients: Sequence[Tensor | None],
        normals: Tensor,
        moved: Tensor,
    ) -> None:
        """Moves the weights of some rows in place, and writes their new means to `moved`.

        Args:
          weights: [table rows, dim]: weights, changed in place.
          means: [table rows, dim]: mean momentum.
          rows: Distinct rows, int64.
          coefficients: Five tensors with one number for each row: lost or None, minus_drift,
            memory, weight_noise, mean_noise.
          normals: [rows, dim]: standard normals.
          moved: [rows, dim]: gets memory * mean + mean_noise * normal.
        """
        rows = rows.contiguous()
        self._move_rows(
            weights.data_ptr(),
            means.data_ptr(),
            rows.data_ptr(),
            len(rows),
            weights.shape[1],
            *(None if values is None else values.data_ptr() for values in coefficients),
            normals.data_ptr(),
            moved.data_ptr(),
            _num_threads(moved.numel()),
        )

    def write_rows(
        self,
        table: Tensor,
        rows: Tensor,
        values: Tensor,
        added: Tensor | None = None,
        scale: float = 1.0,
    ) -> None:
        """Overwrites distinct rows of a table with values + scale * added.

        Args:
          table: [table rows, dim], changed in place.
          rows: Distinct rows, int64.
          values: [rows, dim]: new values.
          added: [rows, dim]: what is added to them; None for nothing.
          scale: Factor of `added`.
        """
        rows = rows.contiguous()
        self._write_rows(
            table.data_ptr(),
            rows.data_ptr(),
            len(rows),
            table.shape[1],
            values.data_ptr(),
            None if added is None else added.data_ptr(),
            scale,
            _num_threads(values.numel()),
        )


@functools.cache
def compiled_kernels() -> Kernels | None:
    """The kernels of this process; None where no compiler makes them."""
    compiler = shutil.which("cc")
    if compiler is None:
        return None
    with scratch_folder("tulle-kernels-") as folder:
        for number, flags in enumerate(_WAYS):
            compiled, linked = (f"{folder}/kernels{number}.{end}" for end in ("o", "so"))
            commands = (
                [compiler, *_FLAGS, *flags, "-c", str(_SOURCE), "-o", compiled],
                [compiler, "-shared", compiled, "-o", linked, "-lm"],
            )
            try:
                for command in commands:
                    subprocess.run(  # noqa: S603
                        command, check=True, capture_output=True, timeout=_SECONDS_TO_COMPILE
                    )
                return Kernels(ctypes.CDLL(linked))
            except (OSError, subprocess.SubprocessError):
                continue
    return None


def _num_threads(num_entries: int) -> int:
    return 1 if num_entries <= _SMALL else torch.get_num_threads()


def _of_array(values: NDArray[Any]) -> int:
    # Several times faster than values.ctypes.data.
    address, _ = values.__array_interface__["data"]
    return int(address)
