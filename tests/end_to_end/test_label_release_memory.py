"""The memory of a release does not grow with the table."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from waiting import HANG_S

NUM_ROWS = 2_000_000

RELEASE = """
import sys
from pathlib import Path
from tulle.data.tables.layout import layout_for
from tulle.data.schema import Schema
from tulle.labels.mechanisms.class_response import BinaryResponse
from tulle.labels.label_noise import RowNoise
from tulle.labels.label_table import LabelTable
from tulle.labels.label_release import release_labels
from tulle.mechanisms.entropy import release_rng
from tulle.privacy.units import Unit

paths = tuple(map(Path, sys.argv[2:]))
schema = Schema(label="sale", public=("first", "second", "third"))
table = LabelTable(paths=paths, layout=layout_for(paths[0], schema), unit=Unit.example())
noise = RowNoise(mechanism=BinaryResponse(epsilon=1.0))
result = release_labels(table, noise, Path(sys.argv[1]), rng=release_rng())
# Unlike getrusage it forgets the size of the process that started this one.
(peak,) = [line for line in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in line]
print(result.record.num_rows, int(peak.split()[1]) * 1024)
"""


def measure(out: Path, *tables: Path) -> tuple[int, int]:
    """Rows and peak bytes of memory of releasing some tables as one."""
    command = [sys.executable, "-c", RELEASE, str(out), *map(str, tables)]
    shown = subprocess.run(command, capture_output=True, text=True, check=True, timeout=HANG_S)
    num_rows, peak = shown.stdout.split()
    return int(num_rows), int(peak)


@pytest.mark.long("needs tables so large that memory shows")
def test_five_times_the_rows_take_the_same_memory(tmp_path: Path) -> None:
    tables = [tmp_path / f"clicks{number}.parquet" for number in range(5)]
    for number, path in enumerate(tables):
        rng = np.random.default_rng(number)
        pl.DataFrame(
            {
                "first": rng.integers(0, 10**6, NUM_ROWS),
                "second": rng.random(NUM_ROWS),
                "third": rng.integers(0, 10**6, NUM_ROWS),
                "sale": rng.integers(0, 2, NUM_ROWS),
            }
        ).write_parquet(path)
    num_rows, peak = measure(tmp_path / "one.parquet", tables[0])
    assert num_rows == NUM_ROWS
    num_rows, peak_of_five = measure(tmp_path / "five.parquet", *tables)
    assert num_rows == 5 * NUM_ROWS
    # The columns of the eight million more rows are 530 MB in memory.
    assert peak_of_five < peak + 200e6
    assert peak_of_five < 1e9
