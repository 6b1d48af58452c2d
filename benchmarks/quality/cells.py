"""Quality of Hybrid, which trains on cells, beside what other methods got on the same rows.

    python benchmarks/quality/cells.py FOLDER… [--seeds 3] [--epsilons 0.5 1 2 3 5 8 12]

FOLDER is made by hybrid_jobs.py. The same split, features and roles; the settings are the
defaults, for all logs and all epsilons. Seeds are fixed, so that runs can be repeated; a release
would not do that.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from hybrid_runs import SPLIT_SHARES, Row, earlier_rows, identity, summary

from dataset_archive import unpack
from record import PUBLISHED, print_table, versions, write_record
from tulle.data.prepared.dataset import PreparedDataset
from tulle.data.splits import split_at_random
from tulle.train import ExampleSet, HybridConfig, RunOptions, fit
from tulle.train.fitting import make_plan

DELTA = 1e-7
OTHERS = ("hybrid_real.json", "hybrid_synth.json")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epsilons", type=float, nargs="+", default=[0.5, 1, 2, 3, 5, 8, 12])
    parser.add_argument("--output", type=Path, default=PUBLISHED / "cells.json")
    parser.add_argument("--keep", action="store_true", help="keep other rows of the output")
    options = parser.parse_args()
    rows = earlier_rows(options.output) if options.keep else []
    for folder in options.folders:
        for row in run_folder(folder, options.epsilons, options.seeds):
            rows = [other for other in rows if identity(other) != identity(row)] + [row]
            print(json.dumps(row), flush=True)
            write(options.output, rows)
    print_table(summary(rows + baselines()))


def run_folder(folder: Path, epsilons: list[float], num_seeds: int) -> Iterator[Row]:
    """One row for each epsilon and seed."""
    with tempfile.TemporaryDirectory() as work:
        data = Path(work) / "data"
        unpack(folder / "data.zip", data)
        dataset = PreparedDataset.open(data)
        with (folder / "jobs.jsonl").open(encoding="utf-8") as lines:
            job = json.loads(lines.readline())
        parts = split_at_random(
            dataset.num_rows, fractions=SPLIT_SHARES, key=bytes.fromhex(job["split_key"])
        )
        train, test = (ExampleSet.of(dataset, part) for part in parts)
        for epsilon in epsilons:
            plan = make_plan(train, HybridConfig().calibrate(epsilon=epsilon, delta=DELTA))
            for seed in range(num_seeds):
                result = fit(train, plan, test=test, options=RunOptions(seed=seed))
                yield {
                    "source": job["source"],
                    "method": "hybrid",
                    "epsilon": epsilon,
                    "delta": DELTA,
                    "seed": seed,
                    "auc_loss": result.metrics.auc_loss,
                    "auc_loss_standard_error": result.metrics.auc_loss_standard_error,
                    "log_loss": result.metrics.log_loss,
                    "calibration": result.metrics.calibration,
                    "noise_multiplier": plan.noise_multiplier,
                    "train_rows": train.num_rows,
                    "num_tables": len(result.model.model.tables),
                    "seconds": round(result.seconds, 2),
                }


def baselines() -> list[Row]:
    """Runs without privacy on the same rows, from the record of the other methods."""
    return [
        row for name in OTHERS for row in earlier_rows(PUBLISHED / name) if row["epsilon"] is None
    ]


def write(path: Path, rows: list[Row]) -> None:
    means = [row for row in summary(rows + baselines()) if row["epsilon"] is not None]
    facts = {"versions": versions("numpy"), "summary": means}
    write_record(path, "quality of training on cells", rows, facts)


if __name__ == "__main__":
    main()
