"""Speed of feature encoding: python benchmarks/speed/encoding.py [--output FILE].

A table of text in the Criteo Display layout (13 integers, 26 categoricals of 8
hexadecimal digits, a tenth missing) becomes feature ids, on one thread; beside
it polars' own `.hash` of the same columns, which is not stable across versions
and takes no account of kinds. The median of several repeats, taken in turns.
"""

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

os.environ["POLARS_MAX_THREADS"] = "1"
os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np
import polars as pl

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from record import PUBLISHED, print_table, versions, write_record
from tulle.data.features.column_features import HashedFeature, LogFeature, VocabularyFeature
from tulle.data.features.encoder import build_encoder
from tulle.data.features.feature_plan import FeaturePlan, hash_all
from tulle.data.features.hashing import ValueHasher
from tulle.data.features.vocabulary import fit_vocabularies
from tulle.data.schema import Kind, Schema

NUM_ROWS = 131_072
NUM_REPEATS = 9
SALT = bytes(range(16))
INTEGERS = tuple(f"I{number}" for number in range(1, 14))
CATEGORICALS = tuple(f"C{number}" for number in range(1, 27))
TARGETS = {"13 log, 26 hashed (rows/s)": 400_000, "8-digit hexadecimal (values/s)": 10_000_000}

Work = Callable[[], object]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=PUBLISHED / "encoding.json")
    output = parser.parse_args().output
    table = display_table(NUM_ROWS)
    rows = [measure(what, *pair) for what, pair in workloads(table).items()]
    print_table(rows)
    reached = {str(row["what"]): float(str(row["per_second"])) for row in rows}
    met = {what: reached[what] >= target for what, target in TARGETS.items()}
    facts = {
        "versions": versions("numpy", "polars"),
        "num_rows": NUM_ROWS,
        "num_threads": 1,
        "num_repeats": NUM_REPEATS,
        "targets_per_second": TARGETS,
        "targets_met": met,
    }
    write_record(output, "feature encoding", rows, facts)
    print(f"targets met: {met}; wrote {output.name}")


def workloads(table: pl.DataFrame) -> dict[str, tuple[Work, Work]]:
    """What is measured, and polars' hash of the same columns."""
    schema = Schema(
        label="label",
        public=(*INTEGERS, *CATEGORICALS),
        kinds=dict.fromkeys(INTEGERS, Kind.INTEGER),
    )
    logs = tuple(LogFeature(column=column) for column in INTEGERS)
    hashed = tuple(HashedFeature(column=column, num_bins=100_000) for column in CATEGORICALS)
    kept = tuple(VocabularyFeature(column=column, min_count=4) for column in CATEGORICALS)
    display = FeaturePlan(schema=schema, features=(*logs, *hashed), salt=SALT)
    thresholded = FeaturePlan(schema=schema, features=(*logs, *kept), salt=SALT)
    vocabularies = fit_vocabularies(lambda: iter([table]), thresholded)
    hashing, hashing_all = build_encoder(display), build_encoder(hash_all(schema, salt=SALT))
    looking_up = build_encoder(thresholded, vocabularies)
    whole = (*INTEGERS, *CATEGORICALS)
    work: dict[str, tuple[Work, Work]] = {
        "13 log, 26 hashed (rows/s)": (
            lambda: hashing.encode(table),
            lambda: hash_columns(table, whole),
        ),
        "39 hashed (rows/s)": (
            lambda: hashing_all.encode(table),
            lambda: hash_columns(table, whole),
        ),
        "13 log, 26 vocabularies (rows/s)": (
            lambda: looking_up.encode(table),
            lambda: hash_columns(table, whole),
        ),
        "fitting 26 vocabularies (rows/s)": (
            lambda: fit_vocabularies(lambda: iter([table]), thresholded),
            lambda: hash_columns(table, CATEGORICALS),
        ),
    }
    for what, column in {
        "8-digit hexadecimal (values/s)": "C1",
        "integers as text (values/s)": "I1",
    }.items():
        hasher = ValueHasher(column=column, salt=SALT)
        work[what] = (
            lambda hasher=hasher, values=table[column]: hasher.hashes(values),
            lambda values=table[column]: values.hash(),
        )
    return work


def measure(what: str, own: Work, peer: Work) -> dict[str, object]:
    turns = [(seconds(own), seconds(peer)) for _ in range(NUM_REPEATS + 1)][1:]
    return {
        "what": what,
        "per_second": round(NUM_ROWS / statistics.median(mine for mine, _ in turns)),
        "ratio_to_polars_hash": round(
            statistics.median(theirs / mine for mine, theirs in turns), 3
        ),
    }


def display_table(num_rows: int) -> pl.DataFrame:
    """Random text in the Display layout, with cardinalities from tens to millions."""
    generator = np.random.default_rng(1)
    columns: dict[str, pl.Series] = {}
    for number, name in enumerate(INTEGERS):
        values = np.exp(generator.normal(1 + number % 5, 1.5, num_rows)).astype(np.int64) - 1
        columns[name] = pl.Series(values).cast(pl.String)
    for number, name in enumerate(CATEGORICALS):
        ranks = generator.zipf(1.1 + 0.05 * (number % 8), num_rows) % 10 ** (2 + number % 6)
        codes = (ranks.astype(np.uint64) * np.uint64(2654435761)) % np.uint64(2**32)
        digits = np.char.zfill(np.array([f"{code:x}" for code in codes]), 8)
        columns[name] = pl.Series(digits.tolist())
    table = pl.DataFrame(columns)
    is_missing = generator.random((num_rows, table.width)) < 0.1
    return table.with_columns(
        pl.when(pl.Series(is_missing[:, place])).then(None).otherwise(pl.col(name)).alias(name)
        for place, name in enumerate(table.columns)
    )


def hash_columns(table: pl.DataFrame, columns: tuple[str, ...]) -> None:
    for column in columns:
        table[column].hash()


def seconds(work: Work) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
