import threading
import time

import pytest

from tulle.data.threads import map_in_order
from tulle.errors import ConfigError


@pytest.mark.parametrize("num_threads", [1, 4])
def test_results_come_in_order(num_threads: int) -> None:
    def slow_at_first(number: int) -> int:
        time.sleep(0.01 if number == 0 else 0)
        return number * number

    assert list(map_in_order(slow_at_first, range(50), num_threads)) == [n * n for n in range(50)]


def test_only_a_few_items_are_read_ahead() -> None:
    read = []

    def items() -> object:
        for number in range(1000):
            read.append(number)
            yield number

    results = map_in_order(lambda number: number, items(), 2)
    assert next(results) == 0
    assert len(read) <= 8
    results.close()


def test_an_error_in_a_thread_reaches_the_caller_and_ends_the_threads() -> None:
    def fail(number: int) -> int:
        raise ValueError(number)

    before = threading.active_count()
    with pytest.raises(ValueError, match="0"):
        list(map_in_order(fail, range(100), 2))
    assert threading.active_count() == before


def test_no_threads_at_all_are_refused() -> None:
    with pytest.raises(ConfigError, match="num_threads=0"):
        map_in_order(str, range(3), 0)
