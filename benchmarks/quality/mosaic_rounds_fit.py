"""One training of Mosaic for mosaic_rounds.py, by the version of tulle that PYTHONPATH names.

Takes the task as JSON from the command line and prints the figures as JSON. It uses what both
versions have, so that it can also be run by a version that does not report its scans.
"""

import contextlib
import json
import os
import sys
import time
import unittest.mock
from collections.abc import Iterator
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from job_folders import open_development_rows

import tulle
from mosaic_scans import scans_and_tables
from tulle.train import ExampleSet, RunOptions
from tulle.train.fitting import fit
from tulle.train.methods.mosaic.cell_releases import CellReleases
from tulle.train.methods.train_plan import TrainPlan
from tulle.train.run_context import Progress

SUBSET_SEED = 20260115
"""Seed of the rows that `--rows` takes: any number, the same for all runs."""


def main() -> None:
    task = json.loads(sys.argv[1])
    if not Path(tulle.__file__).is_relative_to(task["tree"]):
        raise SystemExit("another version of tulle was imported than the task is for.")
    train, rest = rows_of(task["data"], task["split_key"], task["rows"])
    plan = TrainPlan.from_json(json.dumps(task["plan"]))
    reports: list[Progress] = []
    options = RunOptions(seed=task["seed"], watch=reports.append)
    with counted_tables() as tables:
        wall, cpu = time.perf_counter(), time.process_time()
        result = fit(train, plan, test=rest, options=options)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    scans = scans_and_tables(reports)[0] if task["reports_scans"] else len(tables) + 1
    figures = {
        "auc_loss": result.metrics.auc_loss,
        "log_loss": result.metrics.log_loss,
        "calibration": result.metrics.calibration,
        "tables": len(tables),
        "scans": scans,
        "cpu_seconds": round(cpu, 2),
        "wall_seconds": round(wall, 2),
        "train_rows": train.num_rows,
        "test_rows": rest.num_rows,
        "threads": os.environ.get("OMP_NUM_THREADS"),
    }
    print(json.dumps(figures))


def rows_of(data: str, split_key: str, num_rows: int | None) -> tuple[ExampleSet, ExampleSet]:
    """Development rows of a folder: to train on, some of them if a number is given, and to test.

    Args:
      data: Folder of the prepared dataset.
      split_key: Key of its split into training and test rows.
      num_rows: Number of rows to train on; None: all.
    """
    train, rest = open_development_rows(data, split_key)
    if num_rows is not None and num_rows < train.num_rows:
        rng = np.random.default_rng(SUBSET_SEED)
        train = train.select(np.sort(rng.choice(train.num_rows, num_rows, replace=False)))
    return train, rest


@contextlib.contextmanager
def counted_tables() -> Iterator[list[str]]:
    """Notes each release of the sums of a table; reports of older versions do not tell of them."""
    found: list[str] = []
    with contextlib.ExitStack() as patches:
        for name in ("noisy_labels", "noisy_rows"):
            real = getattr(CellReleases, name)

            def noted(*args: object, name: str = name, real=real, **more: object) -> object:
                found.append(name)
                return real(*args, **more)

            patches.enter_context(unittest.mock.patch.object(CellReleases, name, noted))
        yield found


if __name__ == "__main__":
    main()
