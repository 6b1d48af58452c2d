"""The memory of a prepare does not grow with the log."""

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
from tulle.data.formats.display import DISPLAY
from tulle.data.logs import LogFiles
from tulle.data.prepare import prepare

log = LogFiles(paths=(Path(sys.argv[1]),) * int(sys.argv[2]), layout=DISPLAY)
result = prepare(log, hash_all(DISPLAY.schema), Path(sys.argv[3]))
print(result.dataset.num_rows, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""


def measure(log: Path, times: int, folder: Path) -> tuple[int, int]:
    """Rows and peak bytes of memory of preparing a log several times over."""
    command = [sys.executable, "-c", PREPARE, str(log), str(times), str(folder)]
    shown = subprocess.run(command, capture_output=True, text=True, check=True, timeout=HANG_S)
    num_rows, peak = shown.stdout.split()
    return int(num_rows), int(peak)


@pytest.mark.slow
def test_three_times_the_rows_take_the_same_memory(tmp_path: Path) -> None:
    log = tmp_path / "display.tsv"
    write_log(DISPLAY, log, num_rows=NUM_ROWS, seed=1)
    num_rows, peak = measure(log, 1, tmp_path / "one")
    assert num_rows == NUM_ROWS
    num_rows, peak_of_three = measure(log, 3, tmp_path / "three")
    assert num_rows == 3 * NUM_ROWS
    # The arrays of the two million more rows alone are 320 MB.
    assert peak_of_three < peak + 200e6
    assert peak_of_three < 2e9
