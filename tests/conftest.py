"""What all tests need from the process they run in."""

import atexit
import gc
import os
import pathlib
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

# The files of tests lie in memory where there is room: ledgers, cards and records all wait for the
# disk, and no test can cut the power; that they wait is tested by watching their calls. What a
# test that passed wrote is removed after it, so that little lies there at a time.
_MEMORY = pathlib.Path("/dev/shm")  # noqa: S108
_ROOM_BYTES = 4 << 30
if os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free > _ROOM_BYTES:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(_MEMORY))

# Logs that commands prepare by themselves go here, and not to the cache of whoever runs the tests.
# The processes of one run share it: a synthetic log is written once.
if "PYTEST_XDIST_WORKER" not in os.environ:
    _cache = tempfile.mkdtemp(
        prefix="tulle-test-cache-", dir=os.environ.get("PYTEST_DEBUG_TEMPROOT")
    )
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
    again took a third of the time to collect them, and made each later walk long. The walk at the
    very end of the process sees them again: libraries in C complain of what nobody frees.
    """
    atexit.register(gc.unfreeze)
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()
