"""Calls of compiled loops over rows, in threads, and what they are handed.

Threads are Python's, as a call of C code lets others run: each takes a range of the rows, with sums
of its own where there are sums. All numbers are whole, so that it does not matter who adds what. A
run uses as many threads as the process may use cores, or `OMP_NUM_THREADS` if that is less.
"""

import functools
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from tulle.compiled_code import address
from tulle.errors import DataError
from tulle.train.methods.mosaic.row_numbers import Weights

Number = TypeVar("Number", bound=np.integer[Any])

_ROWS_OF_THREAD = 1 << 17
"""Least number of rows that a thread is worth waking for."""


def called(
    function: Callable[..., int], num_rows: int, first: NDArray[Any], *arguments: Any
) -> int:
    """Runs a loop in threads, and returns what it has found wrong, or 0.

    Args:
      function: The loop, whose last two arguments are the range of rows.
      num_rows: Number of rows.
      first: First argument; sums of three dimensions have one block for each thread.
      arguments: All others. Arrays are passed by their addresses, and live as long as this call.
    """
    blocks = list(first) if first.ndim == 3 else [first] * num_threads(num_rows)
    edges = [num_rows * number // len(blocks) for number in range(len(blocks) + 1)]
    rest = [address(one) if isinstance(one, np.ndarray) else one for one in arguments]
    ranges = list(zip(blocks, edges[:-1], edges[1:], strict=True))

    def work(block: NDArray[Any], start: int, stop: int) -> int:
        return int(function(address(block), *rest, start, stop))

    others = [_pool(os.getpid(), len(ranges) - 1).submit(work, *one) for one in ranges[1:]]
    found = [work(*ranges[0])]
    found += [other.result() for other in others]
    return max(found)


def num_threads(num_rows: int) -> int:
    """How many threads share so many rows."""
    wanted = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    most = max(1, int(wanted)) if wanted.isdecimal() else num_rows
    return max(1, min(_num_cores(), most, num_rows // _ROWS_OF_THREAD))


def given(values: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """The same whole numbers as a contiguous array of this type.

    Raises:
      DataError: They are none, or not all of them fit the type.
    """
    if values.dtype != dtype:
        limits = np.iinfo(dtype)
        is_whole = np.issubdtype(values.dtype, np.integer)
        if not is_whole or (
            values.size and not limits.min <= values.min() <= values.max() <= limits.max
        ):
            raise DataError(f"numbers of rows must be whole numbers that fit {dtype}.")
    if values.ndim != 1:
        raise DataError("numbers of rows must have one dimension.")
    return np.ascontiguousarray(values, dtype)


def changed(values: NDArray[Number], dtype: np.dtype[Any]) -> NDArray[Number]:
    """An array that is changed in place, which cannot be converted."""
    flags = values.flags
    if values.dtype != dtype or values.ndim != 1 or not (flags.c_contiguous and flags.writeable):
        raise DataError(f"what is changed in place must be a contiguous array of {dtype}.")
    return values


def strided(values: Weights) -> tuple[NDArray[Any], int]:
    """Numbers of rows and their stride: 0 if all rows have the one number that is there."""
    if not isinstance(values, np.ndarray):
        return np.array([values], np.int64), 0
    if values.strides == (0,) and len(values):
        return given(values[:1], np.dtype(np.int64)), 0
    return given(values, np.dtype(np.int64)), 1


def _num_cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@functools.cache
def _pool(process: int, number: int) -> ThreadPoolExecutor:
    """Waiting threads of a process, which a process that was forked off does not have."""
    del process
    return ThreadPoolExecutor(number, thread_name_prefix="tulle-rows")
