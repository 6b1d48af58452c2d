"""Answers on threads of their own, so that a slow one holds up nobody; the latest are kept."""

import asyncio
import contextlib
import functools
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from tulle.errors import ConfigError, RunInterruptedError
from tulle.studio.labels_panel import LABELS
from tulle.studio.measure_panel import MEASURE
from tulle.studio.panel import Panel, read_fields
from tulle.studio.select_panel import SELECT
from tulle.studio.train_panel import TRAIN

PANELS = (TRAIN, MEASURE, SELECT, LABELS)

_MOST_AT_ONCE = 4
"""Answers in work; a further one waits, so that many open pages cannot take all cores from the
first."""
_NUM_KEPT = 256
"""Answers that are kept: a slider that moves back and forth computes nothing twice, and memory
stays bounded."""

Pairs = tuple[tuple[str, str], ...]


class Answers:
    """Asks panels, a few at a time."""

    def __init__(self, panels: Sequence[Panel] = PANELS) -> None:
        self._panels = {panel.name: panel for panel in panels}
        self._kept = functools.lru_cache(maxsize=_NUM_KEPT)(self._answer)
        self._room = asyncio.Semaphore(_MOST_AT_ONCE)
        self._awaited: set[asyncio.Future[Any]] = set()
        self._threads: weakref.WeakSet[threading.Thread] = weakref.WeakSet()
        self._is_stopped = False

    @property
    def is_busy(self) -> bool:
        """Whether something is still being computed, also after `stop`."""
        return any(thread.is_alive() for thread in self._threads)

    def panel(self, name: str) -> Panel | None:
        """The panel of this name, if there is one."""
        return self._panels.get(name)

    async def ask(self, panel: Panel, given: Pairs) -> Any:
        """The answer of a panel to settings as text.

        Raises:
          ConfigError: A setting cannot be used.
          RunInterruptedError: The studio was stopped meanwhile.
        """
        return await self.run(functools.partial(self._kept, panel.name, given))

    async def run(self, work: Callable[[], Any]) -> Any:
        """Anything else that takes time, such as reading files."""
        async with self._room:
            if self._is_stopped:
                raise _stopped()
            loop = asyncio.get_running_loop()
            result: asyncio.Future[Any] = loop.create_future()
            thread = threading.Thread(target=_work, args=(work, loop, result), daemon=True)
            thread.start()
            self._threads.add(thread)
            self._awaited.add(result)
            try:
                return await result
            finally:
                self._awaited.discard(result)

    def stop(self) -> None:
        """Answers all that are waiting with an error. Called from the loop they wait in."""
        self._is_stopped = True
        for result in tuple(self._awaited):
            _settle(result, result.set_exception, _stopped())

    def _answer(self, name: str, given: Pairs) -> Any:
        panel = self._panels[name]
        try:
            return panel.answer(read_fields(panel.fields, given))
        except OverflowError as error:
            raise ConfigError(
                f"these settings lead out of the range of numbers ({error}); move one of them "
                "towards its default."
            ) from error


def _work(
    work: Callable[[], Any], loop: asyncio.AbstractEventLoop, result: asyncio.Future[Any]
) -> None:
    found: tuple[Callable[[Any], None], Any]
    try:
        found = result.set_result, work()
    except Exception as error:
        found = result.set_exception, error
    with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
        loop.call_soon_threadsafe(_settle, result, *found)


def _settle(result: asyncio.Future[Any], set_it: Callable[[Any], None], found: Any) -> None:
    if not result.done():
        set_it(found)


def _stopped() -> RunInterruptedError:
    return RunInterruptedError("the studio was stopped; start it again.")
