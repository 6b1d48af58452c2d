"""Speed of the synthetic logs: python benchmarks/speed/synth.py [--output FILE] [--rows N].

Rows a second that arrays are generated and files are written with, on all cores, for
each shape; the limit of the arrays is the rate at which numpy gives the random words
they are made of. The best of three runs: other work on the machine only slows a run.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from record import PUBLISHED, print_table, versions, write_record
from tulle.data.synth.auctions import AuctionConfig, generate_auction_blocks
from tulle.data.synth.clicks import generate_blocks, world_of
from tulle.data.synth.impressions import ImpressionConfig, generate_impression_blocks
from tulle.data.synth.shapes import ATTRIBUTION, DISPLAY, SEARCH, TAOBAO, SynthShape
from tulle.data.synth.write_logs import write_log

NUM_REPEATS = 3
TARGET_ROWS_PER_SECOND = 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=PUBLISHED / "synth_speed.json")
    parser.add_argument("--rows", type=int, default=2_000_000)
    arguments = parser.parse_args()
    rows = [measure(shape, arguments.rows) for shape in (DISPLAY, ATTRIBUTION, SEARCH, TAOBAO)]
    print_table(rows)
    others = {"impressions_per_second": impressions(), "auctions_per_second": auctions()}
    print(others)
    facts = {
        "target_rows_per_second": TARGET_ROWS_PER_SECOND,
        "target_met": all(row["rows_per_second"] >= TARGET_ROWS_PER_SECOND for row in rows),
        "load_at_end": os.getloadavg()[0],
        "versions": versions("numpy", "polars", "zstandard"),
        **others,
    }
    write_record(arguments.output, "speed of the synthetic logs", rows, facts)


def measure(shape: SynthShape, num_rows: int) -> dict[str, object]:
    world_of(shape)
    rate = num_rows / seconds(lambda: drain(shape, num_rows))
    one_thread = num_rows / seconds(lambda: drain(shape, num_rows, 1), time.process_time)
    row: dict[str, object] = {
        "shape": shape.name,
        "features": len(shape.features),
        "rows_per_second": rate,
        "rows_per_cpu_second": one_thread,
        "cpu_rate_over_limit": one_thread / words_limit(len(shape.features) + 2),
    }
    num_written = num_rows // 4
    with tempfile.TemporaryDirectory() as folder:
        for suffix in (".txt", ".txt.gz", ".txt.zst", ".parquet"):
            path = Path(folder) / f"log{suffix}"
            spent = seconds(lambda path=path: write_log(shape, path, num_rows=num_written, seed=1))
            row[f"written{suffix.replace('.', '_')}"] = num_written / spent
            row[f"bytes_per_row{suffix.replace('.', '_')}"] = path.stat().st_size / num_written
    return row


def drain(shape: SynthShape, num_rows: int, num_threads: int | None = None) -> None:
    for _ in generate_blocks(shape, num_rows=num_rows, seed=1, num_threads=num_threads):
        pass


def words_limit(words_per_row: int) -> float:
    size = 1 << 19
    generator = np.random.Philox(key=1)
    return size * 2 / words_per_row / seconds(lambda: generator.random_raw(size), time.process_time)


def impressions() -> float:
    config = ImpressionConfig(num_users=200_000)
    count = sum(len(b.campaign) for b in generate_impression_blocks(config, seed=1))
    return count / seconds(lambda: list(generate_impression_blocks(config, seed=1)))


def auctions() -> float:
    config = AuctionConfig(num_auctions=200_000)
    return config.num_auctions / seconds(lambda: list(generate_auction_blocks(config, seed=1)))


def seconds(
    function: Callable[[], object], clock: Callable[[], float] = time.perf_counter
) -> float:
    spent = []
    for _ in range(NUM_REPEATS):
        start = clock()
        function()
        spent.append(clock() - start)
    return min(spent)


if __name__ == "__main__":
    main()
