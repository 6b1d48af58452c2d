import signal
import threading
from collections.abc import Iterator

import pytest

from tulle.runs.interruption import StopRequest, stop_signals


@pytest.fixture(autouse=True)
def _plain_handlers() -> Iterator[None]:
    old = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    for number, handler in old.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_becomes_a_request(number: signal.Signals) -> None:
    with stop_signals() as stop:
        assert not stop.requested
        signal.raise_signal(number)
        assert stop.requested


def test_a_second_interrupt_stops_at_once() -> None:
    with pytest.raises(KeyboardInterrupt), stop_signals() as stop:  # noqa: PT012
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGINT)
        assert stop.requested
        signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_the_old_handlers_come_back() -> None:
    with pytest.raises(ValueError, match="any"), stop_signals():
        raise ValueError("any")
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_signal_that_was_ignored_stays_ignored() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with stop_signals() as stop:
        signal.raise_signal(signal.SIGINT)
        assert not stop.requested
        signal.raise_signal(signal.SIGTERM)
        assert stop.requested
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_requests_do_not_mix() -> None:
    with stop_signals() as outer:
        with stop_signals() as inner:
            signal.raise_signal(signal.SIGTERM)
        assert inner.requested
        assert not outer.requested


def test_in_another_thread_it_does_nothing() -> None:
    seen: list[StopRequest] = []

    def work() -> None:
        with stop_signals() as stop:
            seen.append(stop)
            assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [StopRequest(requested=False)]
