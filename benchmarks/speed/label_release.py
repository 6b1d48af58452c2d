"""Speed and memory of releasing labels: python benchmarks/speed/label_release.py [--rows N].

A table of public columns and a binary label is released with randomized response, and, in
turns in the same run, copied to Parquet by polars (scan to sink_parquet), which reads and
writes the same columns and draws no noise. A release reads labels twice, since all are checked
before the first is noised, and writes five columns more. Joint randomized response by user and
a text table are measured beside it. Each turn is a process of its own, so that its peak memory
is known. The median of several repeats.
"""

import argparse
import dataclasses
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import polars as pl

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from record import PUBLISHED, print_table, versions, write_record

TARGET_ROWS_PER_SECOND = 2_000_000
"""Of binary randomized response on a Parquet table, with two cores."""

EPSILON = 2.0
LABEL_RATE = 0.05
ROWS_PER_USER = 3

RELEASE = """
from tulle.data.tables.layout import layout_for
from tulle.data.schema import Schema
from tulle.labels.mechanisms.class_response import BinaryResponse
from tulle.labels.label_noise import RowNoise
from tulle.labels.mechanisms.unit_noise import UnitNoise
from tulle.labels.label_table import LabelTable
from tulle.labels.label_release import release_labels
from tulle.labels.mechanisms.unit_response import JointResponse
from tulle.mechanisms.entropy import release_rng
from tulle.privacy.units import Unit
names = tuple(sys.argv[4].split(","))
def by_row():
    schema = Schema(label="label", public=names)
    table = LabelTable(paths=(source,), layout=layout_for(source, schema), unit=Unit.example())
    return table, RowNoise(mechanism=BinaryResponse(epsilon={epsilon}))
def by_user():
    schema = Schema(label="label", public=names, unit="user")
    table = LabelTable(paths=(source,), layout=layout_for(source, schema), unit=Unit.user())
    return table, UnitNoise(mechanism=JointResponse(epsilon={epsilon}))
def work():
    table, noise = by_user() if sys.argv[3] == "user" else by_row()
    release_labels(table, noise, target, rng=release_rng())
"""
COPY = """
import polars as pl
names = ["label", *sys.argv[4].split(","), *(["user"] if sys.argv[3] == "user" else [])]
scan = pl.scan_csv if source.suffix == ".csv" else pl.scan_parquet
def work():
    scan(source).select(names).sink_parquet(target)
"""
MEASURE = """
import resource, sys, time
from pathlib import Path
source, target = Path(sys.argv[1]), Path(sys.argv[2])
{setting_up}
start = time.perf_counter()
work()
seconds = time.perf_counter() - start
print(seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Case:
    """What is released, and from which kind of file."""

    name: str
    num_columns: int
    unit: str = "example"
    suffix: str = ".parquet"

    @property
    def is_target(self) -> bool:
        """True if the speed that was asked for is asked of this case."""
        return self.unit == "example" and self.suffix == ".parquet"


CASES = (
    Case(name="rr", num_columns=6),
    Case(name="rr", num_columns=1),
    Case(name="joint rr by user", num_columns=6, unit="user"),
    Case(name="rr from text", num_columns=6, suffix=".csv"),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="for tables and results; needs space")
    parser.add_argument("--output", type=Path, default=PUBLISHED / "label_release.json")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as temporary:
        folder = Path(temporary)
        write_tables(folder, options.rows)
        rows = [measure(case, folder, options.rows, options.repeats) for case in CASES]
    print_table(rows)
    reached = min(
        row["rows_per_second"] for row, case in zip(rows, CASES, strict=True) if case.is_target
    )
    facts = {
        "versions": versions("numpy", "polars"),
        "targets": {"rows_per_second": TARGET_ROWS_PER_SECOND},
        "targets_met": {"rows_per_second": reached >= TARGET_ROWS_PER_SECOND},
    }
    write_record(options.output, "release of labels", rows, facts)
    print(f"targets met: {facts['targets_met']}; wrote {options.output.name}")


def write_tables(folder: Path, num_rows: int) -> None:
    """The same rows as Parquet and as text: a label, a user and six public columns."""
    rng = np.random.default_rng(1)
    sizes = (7, 30, 700, 9_000, 60_000, 1_000_000)
    columns = {
        "label": (rng.random(num_rows) < LABEL_RATE).astype(np.uint8),
        "user": rng.integers(0, max(1, num_rows // ROWS_PER_USER), num_rows),
        **{
            name: rng.integers(0, size, num_rows, dtype=np.int32)
            for name, size in zip(column_names(6), sizes, strict=True)
        },
    }
    table = pl.DataFrame(columns)
    table.write_parquet(folder / "table.parquet")
    table.write_csv(folder / "table.csv")


def column_names(num_columns: int) -> list[str]:
    """Of the public columns."""
    return [f"public_{number}" for number in range(num_columns)]


def measure(case: Case, folder: Path, num_rows: int, num_repeats: int) -> dict[str, object]:
    """Both in turns."""
    release = RELEASE.format(epsilon=EPSILON)
    turns = [(run(release, case, folder), run(COPY, case, folder)) for _ in range(num_repeats)]
    speed = num_rows / statistics.median(own for (own, _), _ in turns)
    return {
        "case": case.name,
        "num_columns": case.num_columns,
        "num_rows": num_rows,
        "num_repeats": num_repeats,
        "rows_per_second": round(speed),
        "times_the_limit": round(speed / TARGET_ROWS_PER_SECOND, 3),
        "ratio_to_polars_copy": round(
            statistics.median(peer / own for (own, _), (peer, _) in turns), 3
        ),
        "peak_bytes": max(peak for (_, peak), _ in turns),
        "polars_peak_bytes": max(peak for _, (_, peak) in turns),
    }


def run(setting_up: str, case: Case, folder: Path) -> tuple[float, int]:
    """Seconds and peak memory of one piece of work, whose result is thrown away."""
    results = folder / "results"
    results.mkdir()
    names = ",".join(column_names(case.num_columns))
    paths = (str(folder / f"table{case.suffix}"), str(results / "noisy.parquet"))
    command = [sys.executable, "-c", MEASURE.format(setting_up=setting_up), *paths, case.unit]
    shown = subprocess.run([*command, names], capture_output=True, text=True, check=True)
    shutil.rmtree(results)
    seconds, peak = shown.stdout.split()
    return float(seconds), int(peak)


if __name__ == "__main__":
    main()
