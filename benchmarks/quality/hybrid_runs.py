"""Quality of the four methods at epsilon 1, 3 and 8, from the plans of hybrid_jobs.py.

    python benchmarks/quality/hybrid_runs.py FOLDER… [--device cuda] [--seeds 3] [--output FILE]

Needs numpy, torch and safetensors alone. Runs use fixed seeds, so that they can be
repeated; a release would not.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from dataset_archive import unpack
from record import PUBLISHED, print_table, write_record
from tulle.data.prepared.dataset import PreparedDataset
from tulle.data.splits import split_at_random
from tulle.train import ExampleSet, RunOptions, fit
from tulle.train.plan_data import train_plan_from_json

SPLIT_SHARES = (0.8, 0.2)
Row = dict[str, object]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--only", default="", help="run jobs whose name has this in it")
    parser.add_argument("--output", type=Path, default=PUBLISHED / "hybrid.json")
    parser.add_argument("--keep", action="store_true", help="keep other rows of the output")
    parser.add_argument("--time-limit", type=float, default=1e9)
    options = parser.parse_args()
    start = time.monotonic()
    rows = earlier_rows(options.output) if options.keep else []
    for folder in options.folders:
        seeds = range(options.first_seed, options.first_seed + options.seeds)
        for row in run_jobs(folder, seeds, options.device, options.only):
            rows = [other for other in rows if identity(other) != identity(row)] + [row]
            print(json.dumps(row), flush=True)
            write(options.output, rows, options.device)
            if time.monotonic() - start > options.time_limit:
                print("time limit reached", flush=True)
                return
    print_table(summary(rows))


def earlier_rows(path: Path) -> list[Row]:
    """What an earlier run of this command has written."""
    return json.loads(path.read_text(encoding="utf-8"))["rows"] if path.exists() else []


def identity(row: Row) -> tuple:
    """Which run a row is of."""
    return tuple(row[key] for key in ("source", "method", "epsilon", "seed"))


def run_jobs(folder: Path, seeds: range, device: str, only: str) -> Iterator[Row]:
    """One row for each job and seed."""
    with tempfile.TemporaryDirectory() as work:
        data = Path(work) / "data"
        unpack(folder / "data.zip", data)
        dataset = PreparedDataset.open(data)
        jobs = [json.loads(line) for line in (folder / "jobs.jsonl").read_text().splitlines()]
        train_rows, test_rows = split_at_random(
            dataset.num_rows, fractions=SPLIT_SHARES, key=bytes.fromhex(jobs[0]["split_key"])
        )
        train, test = ExampleSet.of(dataset, train_rows), ExampleSet.of(dataset, test_rows)
        for seed in seeds:
            for job in jobs:
                if only in job["name"]:
                    yield run_job(job, train, test, seed, device)


def run_job(job: dict, train: ExampleSet, test: ExampleSet, seed: int, device: str) -> Row:
    """Trains and evaluates one plan."""
    # Another start of the weights for each seed, with the same plan otherwise.
    config = job["plan"]["config"] | {"initial_seed": seed}
    settings = job["plan"]["plan"]["settings"] | {"initial_seed": seed}
    privacy = job["plan"]["plan"] | {"settings": settings}
    text = json.dumps(job["plan"] | {"config": config, "plan": privacy})
    plan = train_plan_from_json(text)
    result = fit(train, plan, test=test, options=RunOptions(seed=seed, device=device))
    metrics = result.metrics
    return {
        "source": job["source"],
        "method": job["name"],
        "epsilon": privacy["guarantee"]["epsilon"],
        "delta": privacy["guarantee"]["delta"],
        "seed": seed,
        "auc_loss": metrics.auc_loss,
        "auc_loss_standard_error": metrics.auc_loss_standard_error,
        "log_loss": metrics.log_loss,
        "calibration": metrics.calibration,
        "normalised_cross_entropy": metrics.normalised_cross_entropy,
        "label_epsilon": plan.label_epsilon,
        "noise_multiplier": plan.noise_multiplier,
        "steps": plan.num_private_steps,
        "train_rows": train.num_rows,
        "seconds": round(result.seconds, 2),
    }


def summary(rows: list[Row]) -> list[Row]:
    """Means over seeds, with the relative loss against the non-private runs of the source."""
    groups: dict[tuple, list[Row]] = {}
    for row in rows:
        groups.setdefault((row["source"], row["method"], row["epsilon"]), []).append(row)
    table = []
    for (source, method, epsilon), group in groups.items():
        base = [r["auc_loss"] for r in rows if r["source"] == source and r["epsilon"] is None]
        losses = [row["auc_loss"] for row in group]
        mean = statistics.mean(losses)
        relative = 100 * (mean / statistics.mean(base) - 1) if base else None
        table.append(
            {
                "source": source,
                "method": method,
                "epsilon": epsilon,
                "auc_loss": mean,
                "stddev": statistics.stdev(losses) if len(losses) > 1 else None,
                "relative_percent": relative,
                "log_loss": statistics.mean(row["log_loss"] for row in group),
                "calibration": statistics.mean(row["calibration"] for row in group),
                "seeds": len(group),
            }
        )
    return table


def write(path: Path, rows: list[Row], device: str) -> None:
    """Keeps what is there so far."""
    name = torch.cuda.get_device_name() if device.startswith("cuda") else "cpu"
    facts = {"device": name, "torch": torch.__version__, "summary": summary(rows)}
    write_record(path, "quality of training methods", rows, facts)


if __name__ == "__main__":
    main()
