"""The same work in several threads, with the results in order and a bounded number ahead."""

import collections
import concurrent.futures
import os
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from tulle.errors import ConfigError

Item = TypeVar("Item")
Result = TypeVar("Result")

_MAX_THREADS = 8
"""Default for machines with many cores: results are taken one by one, and more threads would only
wait and hold memory."""
_AHEAD_PER_THREAD = 3
"""Results that wait for a slow taker: enough that no thread idles, few enough that memory is
bounded."""


def map_in_order(
    function: Callable[[Item], Result], items: Iterable[Item], num_threads: int | None = None
) -> Iterator[Result]:
    """Maps a function over items in threads, in order.

    It is worth it where numpy does the work and lets go of the interpreter's lock.

    Args:
      function: Function of one item, safe to call from several threads.
      items: Read only as far as results are asked for, and a few more.
      num_threads: Number of threads; by default one for each core, up to 8.
    """
    if num_threads is None:
        num_threads = min(_MAX_THREADS, os.cpu_count() or 1)
    if not num_threads >= 1:
        raise ConfigError(f"num_threads={num_threads} must be >= 1.")
    return _map(function, items, num_threads)


def _map(
    function: Callable[[Item], Result], items: Iterable[Item], num_threads: int
) -> Iterator[Result]:
    if num_threads == 1:
        yield from map(function, items)
        return
    with concurrent.futures.ThreadPoolExecutor(num_threads) as pool:
        waiting: collections.deque[concurrent.futures.Future[Result]] = collections.deque()
        try:
            for item in items:
                waiting.append(pool.submit(function, item))
                if len(waiting) > _AHEAD_PER_THREAD * num_threads:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()
