"""Speed and memory of preparing a log: python benchmarks/speed/prepare.py [--rows N].

A synthetic log in the layout of Criteo Display is prepared with hashed features, and,
in turns in the same run, converted to Parquet by polars (scan_csv to sink_parquet),
which reads the same bytes but encodes nothing. Each turn is a process of its own, so
that its peak memory is known. The median of several repeats; one for long logs.
"""

import argparse
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from record import PUBLISHED, print_table, versions, write_record
from tulle.data.synth.shapes import DISPLAY
from tulle.data.synth.write_logs import write_log

TARGET_ROWS_PER_SECOND = 300_000
TARGET_PEAK_BYTES = 2e9
"""Also at 40 million rows."""

LONG = 10_000_000

PREPARE = """
from tulle.data.features.feature_plan import hash_all
from tulle.data.formats.public import DISPLAY
from tulle.data.tables.sources import LogFiles
from tulle.data.preparation import prepare_log
log = LogFiles(paths=(source,), layout=DISPLAY)
plan = hash_all(DISPLAY.schema)
def work():
    prepare_log(log, plan, target)
"""
CONVERT = """
import polars as pl
def work():
    table = pl.scan_csv(source, separator="\\t", has_header=False, infer_schema=False)
    table.sink_parquet(target)
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, action="append", help="[default: 1000000, 4000000]")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="for the log and the results; needs space")
    parser.add_argument("--output", type=Path, default=PUBLISHED / "prepare.json")
    options = parser.parse_args()
    rows = [
        measure(num_rows, options.repeats if num_rows < LONG else 1, options.folder)
        for num_rows in options.rows or (1_000_000, 4_000_000)
    ]
    print_table(rows)
    met = {
        "rows_per_second": all(r["rows_per_second"] >= TARGET_ROWS_PER_SECOND for r in rows),
        "peak_bytes": all(r["peak_bytes"] < TARGET_PEAK_BYTES for r in rows),
    }
    facts = {
        "versions": versions("numpy", "polars"),
        "targets": {
            "rows_per_second": TARGET_ROWS_PER_SECOND,
            "peak_bytes": TARGET_PEAK_BYTES,
        },
        "targets_met": met,
    }
    write_record(options.output, "prepare, Display layout, hashed features", rows, facts)
    print(f"targets met: {met}; wrote {options.output.name}")


def measure(num_rows: int, num_repeats: int, folder: Path | None) -> dict[str, object]:
    with tempfile.TemporaryDirectory(dir=folder) as temporary:
        log = Path(temporary) / "display.tsv"
        write_log(DISPLAY, log, num_rows=num_rows, seed=1)
        num_bytes = log.stat().st_size
        turns = [
            (run(PREPARE, log, Path(temporary)), run(CONVERT, log, Path(temporary)))
            for _ in range(num_repeats)
        ]
    seconds = statistics.median(own for (own, _), _ in turns)
    return {
        "num_rows": num_rows,
        "log_bytes": num_bytes,
        "num_repeats": num_repeats,
        "rows_per_second": round(num_rows / seconds),
        "megabytes_per_second": round(num_bytes / seconds / 1e6, 1),
        "peak_bytes": max(peak for (_, peak), _ in turns),
        "ratio_to_polars_conversion": round(
            statistics.median(peer / own for (own, _), (peer, _) in turns), 3
        ),
        "polars_peak_bytes": max(peak for _, (_, peak) in turns),
    }


def run(setting_up: str, log: Path, folder: Path) -> tuple[float, int]:
    """Seconds and peak memory of one piece of work, whose result is thrown away."""
    target = folder / "result"
    script = MEASURE.format(setting_up=setting_up)
    command = [sys.executable, "-c", script, str(log), str(target)]
    shown = subprocess.run(command, capture_output=True, text=True, check=True)
    seconds, peak = shown.stdout.split()
    if target.is_dir():
        shutil.rmtree(target)
    else:
        target.unlink()
    return float(seconds), int(peak)


if __name__ == "__main__":
    main()
