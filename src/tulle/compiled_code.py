"""C code of the package that is compiled when it is first needed, if the machine has a compiler.

Compiling takes about half a second, once in a process. Wheels for every platform would need a build
machine for each, and a just-in-time compiler such as numba brings a hundred megabytes and holds
numpy back; a compiler is on most machines that train. Where there is none, everything works,
slower: each compiled loop has a twin in Python with the same results.

The library is made in a folder that nobody else can write and that is gone before it runs, so that
no file of another time or user is ever loaded. A process that is killed while it compiles leaves
that folder behind, and the next one that compiles removes it.
"""

import ctypes
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from tulle.scratch_folders import scratch_folder

_FLAGS = ("-O3", "-fno-math-errno", "-fno-trapping-math", "-fPIC")
# A compiler that hangs must not hold up a run: after this the next way is tried, and in the end
# Python does the work.
_SECONDS_TO_COMPILE = 60.0


def compiled_library(source: Path, ways: Sequence[Sequence[str]]) -> ctypes.CDLL | None:
    """Compiles one C file and loads it; None where that is not possible.

    Args:
      source: The C file.
      ways: Further options of the compiler, the best ones first; the first that work are taken.
    """
    compiler = shutil.which("cc")
    if compiler is None:
        return None
    with scratch_folder("tulle-kernels-") as folder:
        for number, flags in enumerate(ways):
            compiled, linked = (f"{folder}/kernels{number}.{end}" for end in ("o", "so"))
            commands = (
                [compiler, *_FLAGS, *flags, "-c", str(source), "-o", compiled],
                [compiler, "-shared", compiled, "-o", linked, "-lm"],
            )
            try:
                for command in commands:
                    subprocess.run(  # noqa: S603
                        command, check=True, capture_output=True, timeout=_SECONDS_TO_COMPILE
                    )
                return ctypes.CDLL(linked)
            except (OSError, subprocess.SubprocessError):
                continue
    return None


def address(values: NDArray[Any]) -> int:
    """Where the numbers of a contiguous array begin in memory."""
    # Several times faster than values.ctypes.data.
    first, _ = values.__array_interface__["data"]
    return int(first)
