"""The inner loops of a private step in C, for machines that have a compiler (`compiled_code`).

Without a compiler everything works, slower: each loop has a twin in Python with the same results.
"""

import ctypes
import functools
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from tulle.compiled_code import address, compiled_library
from tulle.mechanisms.entropy import Words
from tulle.train.steps.normal_stream import PAIRS_AT_A_TIME, Floats, Halves, MoreWords

_SOURCE = Path(__file__).with_name("kernels.c")
# Linked without a library of threads of their own: the loops find that of torch, whose threads
# are there already. Where they do not, they run in one thread.
_WAYS = (("-march=native", "-fopenmp"), ("-march=native",), ())
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
            self._next_words(address(stream), address(out), count)
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
        more = more_words(int(self._count_ends(address(uniforms), num_pairs)))
        second = values[num_pairs:]
        # An odd number of entries leaves the last sine without a place.
        sines = second if len(second) == num_pairs else np.empty(num_pairs, np.float32)
        addresses = [address(array) for array in (values, sines, uniforms, angles)]
        self._make_pairs(*addresses, num_pairs, address(more))
        if sines is not second:
            second[:] = sines[: len(second)]

    def fill_streams(self, values: Floats, streams: Words) -> None:
        """Fills equal parts with normals, as `NormalStream.fill` of each stream does.

        Args:
          values: A contiguous array, which is overwritten.
          streams: [streams, state]: states of the streams, changed in place.
        """
        is_done = self._fill_streams(
            address(values),
            len(values),
            address(streams),
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
    library = compiled_library(_SOURCE, _WAYS)
    return None if library is None else Kernels(library)


def _num_threads(num_entries: int) -> int:
    return 1 if num_entries <= _SMALL else torch.get_num_threads()
