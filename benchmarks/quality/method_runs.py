"""Quality of all training methods from epsilon 0.5 to 12, from the plans of method_jobs.py.

    python benchmarks/quality/method_runs.py FOLDER… [--device cuda] [--processes 16] [--seeds 3]

In a reduced form, on two cores, which took 7 minutes:

    python benchmarks/quality/method_jobs.py synth:attribution --rows 100000 --output FOLDER
    python benchmarks/quality/method_runs.py FOLDER --processes 2 --epsilons 1 8 --output FILE

Needs numpy, torch and safetensors alone. Mosaic runs on processor cores, the other methods on
the device. Runs use fixed seeds, so that they can be repeated; a release would not.
"""

import argparse
import json
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from job_folders import open_rows, read_jobs, unpacked

from record import (
    PUBLISHED,
    device_name,
    earlier_rows,
    machine,
    print_table,
    write_record,
)
from tulle.train import RunOptions
from tulle.train.fitting import fit
from tulle.train.methods.train_plan import TrainPlan
from worker_processes import Crew, Job, collect_results

Row = dict[str, object]
ON_CORES = "mosaic"
TYPICAL_SECONDS = {"mosaic": 80, "hybrid": 31, "dp-sgd": 21, "nonprivate": 15, "rr": 11}
"""By method, on the real log: longer runs are begun first."""


def main() -> None:
    options = _options()
    rows = earlier_rows(options.output) if options.keep or options.missing else []

    def keep(row: Row) -> None:
        rows[:] = [other for other in rows if identity(other) != identity(row)] + [row]
        print(json.dumps(row), flush=True)
        write(options.output, rows)

    crew = Crew(
        num_processes=options.processes,
        num_on_device=options.device_processes or options.processes,
        time_limit=options.time_limit,
    )
    with unpacked(options.folders) as data:
        done = {identity(row) for row in rows} if options.missing else set()
        jobs = [job for job in make_jobs(options, data) if job_identity(job) not in done]
        status = collect_results(jobs, run_job, crew, keep)
    if rows:
        print_table(summary(rows))
    sys.exit(status)


def identity(row: Row) -> tuple:
    """Which run a row is of."""
    return tuple(row[key] for key in ("source", "method", "epsilon", "seed"))


def job_identity(job: Job) -> tuple:
    """Which run a job is."""
    task = job.task
    return task["source"], task["name"], _epsilon(task), task["seed"]


def make_jobs(options: argparse.Namespace, data: dict[Path, Path]) -> list[Job]:
    """All runs that were asked for: seed by seed, and the longest of a seed first."""
    jobs = []
    for folder in options.folders:
        for job in read_jobs(folder):
            if is_asked_for(job, options):
                jobs += _with_seeds(job | {"data": str(data[folder])}, options)
    return sorted(jobs, key=lambda job: (job.task["seed"], -_typical_work(job.task)))


def is_asked_for(job: dict, options: argparse.Namespace) -> bool:
    """Whether a job's name and epsilon are among those to run."""
    epsilon = _epsilon(job)
    return (
        options.only in job["name"]
        and (options.methods is None or job["name"] in options.methods)
        and (options.epsilons is None or epsilon is None or epsilon in options.epsilons)
    )


def run_job(task: dict) -> Row:
    """Trains and evaluates one plan."""
    train, test = open_rows(task["data"], task["split_key"])
    plan = TrainPlan.from_json(json.dumps(with_initial_seed(task["plan"], task["seed"])))
    options = RunOptions(seed=task["seed"], device=task["device"])
    result = fit(train, plan, test=test, options=options)
    metrics = result.metrics
    return {
        "source": task["source"],
        "method": task["name"],
        "epsilon": _epsilon(task),
        "delta": plan.delta,
        "seed": task["seed"],
        "auc_loss": metrics.auc_loss,
        "auc_loss_standard_error": metrics.auc_loss_standard_error,
        "log_loss": metrics.log_loss,
        "calibration": metrics.calibration,
        "normalised_cross_entropy": metrics.normalised_cross_entropy,
        "label_epsilon": plan.method.label_epsilon,
        "noise_multiplier": plan.noise_multiplier,
        "steps": plan.num_private_steps,
        "train_rows": train.num_rows,
        "device": device_name(task["device"]),
        "torch": torch.__version__,
        "num_cores": machine()["num_cores"],
        "seconds": round(result.seconds, 2),
    }


def with_initial_seed(plan: dict, seed: int) -> dict:
    """The same plan with another start of the weights, if it has any."""
    if "initial_seed" not in plan["method"]:
        return plan
    return plan | {"method": plan["method"] | {"initial_seed": seed}}


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


def write(path: Path, rows: list[Row]) -> None:
    """Keeps what is there so far."""
    write_record(path, "quality of training methods", rows, {"summary": summary(rows)})


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument(
        "--device-processes", type=int, help="those that take runs on the device; all if left out"
    )
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--only", default="", help="run jobs whose name has this in it")
    parser.add_argument("--methods", nargs="+", help="run jobs of these names")
    parser.add_argument("--epsilons", type=float, nargs="+")
    parser.add_argument("--output", type=Path, default=PUBLISHED / "mosaic.json")
    parser.add_argument("--keep", action="store_true", help="keep other rows of the output")
    parser.add_argument("--missing", action="store_true", help="run what the output lacks alone")
    parser.add_argument("--time-limit", type=float, default=float("inf"))
    return parser.parse_args()


def _with_seeds(job: dict, options: argparse.Namespace) -> Iterator[Job]:
    on_cores = job["plan"]["method"]["method"] == ON_CORES
    device = "cpu" if on_cores else options.device
    for seed in range(options.first_seed, options.first_seed + options.seeds):
        task = job | {"seed": seed, "device": device}
        yield Job(name=job["name"], task=task, on_device=device != "cpu")


def _epsilon(job: dict) -> float | None:
    return job["plan"]["epsilon"]


def _typical_work(task: dict) -> float:
    shape = task["plan"]["shape"]
    size = shape["num_label_rows"] * len(shape["features"])
    return TYPICAL_SECONDS[task["plan"]["method"]["method"]] * size


if __name__ == "__main__":
    main()
