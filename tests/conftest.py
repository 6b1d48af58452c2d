"""What all tests need from the process they run in."""

import atexit
import gc
import os
import shutil
import signal
import tempfile
from collections.abc import Generator

import pytest
from hypothesis import HealthCheck, settings

# A shell that starts a command in the background has it ignore SIGINT, and its children too.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A busy machine makes examples slow, not wrong: the outcome of a property depends on no clock.
settings.register_profile(
    "without clocks",
    parent=settings.default,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("without clocks")

# Logs that commands prepare by themselves go here, and not to the cache of whoever runs the tests.
_cache = tempfile.mkdtemp(prefix="tulle-test-cache-")
os.environ["TULLE_CACHE"] = _cache
atexit.register(shutil.rmtree, _cache, ignore_errors=True)

# Spark's queries are small here: what the second compiler of Java and its parallel collector do
# takes more time than it saves, half of a whole run.
os.environ.setdefault(
    "PYSPARK_SUBMIT_ARGS",
    '--driver-java-options "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC" pyspark-shell',
)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collects with the garbage collector off, and then hides from it what was collected.

    Items and modules are millions of objects that stay until the end. Walking over them again and
    again took a third of the time to collect them, and made each later walk long.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


def pytest_sessionfinish() -> None:
    gc.unfreeze()
