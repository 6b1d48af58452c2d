"""The memory of a prepare does not grow with the log."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tulle.data.synth.shapes import DISPLAY
from tulle.data.synth.write_logs import write_log
from waiting import HANG_S

NUM_ROWS = 1_000_000

PREPARE = """
import resource, sys
from pathlib import Path
from tulle.data.features.feature_plan import hash_all
from tulle.data.formats.public import DISPLAY
from tulle.data.tables.sources import LogFiles
from tulle.data.preparation import prepare_log

log = LogFiles(paths=tuple(map(Path, sys.argv[2:])), layout=DISPLAY)
result = prepare_log(log, hash_all(DISPLAY.schema), Path(sys.argv[1]))
print(result.dataset.num_rows, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""


def measure(folder: Path, *logs: Path) -> tuple[int, int]:
    """Rows and peak bytes of memory of preparing a log of several files."""
    command = [sys.executable, "-c", PREPARE, str(folder), *map(str, logs)]
    shown = subprocess.run(command, capture_output=True, text=True, check=True, timeout=HANG_S)
    num_rows, peak = shown.stdout.split()
    return int(num_rows), int(peak)


@pytest.mark.long("needs logs so large that memory shows")
def test_three_times_the_rows_take_the_same_memory(tmp_path: Path) -> None:
    log = tmp_path / "display.tsv"
    write_log(DISPLAY, log, num_rows=NUM_ROWS, seed=1)
    num_rows, peak = measure(tmp_path / "one", log)
    assert num_rows == NUM_ROWS
    logs = [log, *(longer_log(log, tmp_path / f"longer-{more}.tsv", more) for more in (1, 2))]
    num_rows, peak_of_three = measure(tmp_path / "three", *logs)
    assert num_rows == 3 * NUM_ROWS + 3
    # The arrays of the two million more rows alone are 320 MB.
    assert peak_of_three < peak + 200e6
    assert peak_of_three < 2e9


def longer_log(log: Path, longer: Path, more: int) -> Path:
    """A log with its first line once more, or several times: a plain copy would be refused."""
    with log.open("rb") as lines:
        first = lines.readline()
    shutil.copy(log, longer)
    with longer.open("ab") as file:
        file.write(first * more)
    return longer
