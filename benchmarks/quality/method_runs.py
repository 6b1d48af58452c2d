"""Quality of all training methods from epsilon 0.5 to 12, from the plans of method_jobs.py.

    python benchmarks/quality/method_runs.py FOLDER… [--device cuda] [--processes 16] [--seeds 3]

Needs numpy, torch and safetensors alone. Hybrid runs on processor cores, the other methods on
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

from record import PUBLISHED, print_table, write_record
from tulle.train import RunOptions, fit
from tulle.train.plan_data import train_plan_from_json
from worker_processes import Crew, Job, run_side_by_side

Row = dict[str, object]
ON_CORES = "hybrid"
TYPICAL_SECONDS = {"hybrid": 80, "two-phase": 31, "dp-sgd": 21, "nonprivate": 15, "rr": 11}
"""By method, on the real log: longer runs are begun first."""


def main() -> None:
    options = _options()
    rows = earlier_rows(options.output) if options.keep else []
    has_failed = False
    with unpacked(options.folders) as data:
        jobs = make_jobs(options, data)
        crew = Crew(
            num_processes=options.processes,
            num_on_device=options.device_processes or options.processes,
            time_limit=options.time_limit,
        )
        num_done = 0
        for outcome in run_side_by_side(jobs, run_job, crew):
            num_done += 1
            if outcome.error:
                has_failed = True
                print(f"{outcome.job.task['name']}: {outcome.error}", file=sys.stderr, flush=True)
                continue
            row = outcome.result
            rows = [other for other in rows if identity(other) != identity(row)] + [row]
            print(json.dumps(row), flush=True)
            write(options.output, rows, options.device)
    if rows:
        print_table(summary(rows))
    if num_done < len(jobs):
        print(f"time limit reached: {len(jobs) - num_done} of {len(jobs)} runs were not begun")
    sys.exit(int(has_failed))


def earlier_rows(path: Path) -> list[Row]:
    """What an earlier run of this command has written."""
    return json.loads(path.read_text(encoding="utf-8"))["rows"] if path.exists() else []


def identity(row: Row) -> tuple:
    """Which run a row is of."""
    return tuple(row[key] for key in ("source", "method", "epsilon", "seed"))


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
    epsilon = job["plan"]["plan"]["guarantee"]["epsilon"]
    return (
        options.only in job["name"]
        and (options.methods is None or job["name"] in options.methods)
        and (options.epsilons is None or epsilon is None or epsilon in options.epsilons)
    )


def run_job(task: dict) -> Row:
    """Trains and evaluates one plan."""
    train, test = open_rows(task["data"], task["split_key"])
    plan = train_plan_from_json(json.dumps(with_initial_seed(task["plan"], task["seed"])))
    options = RunOptions(seed=task["seed"], device=task["device"])
    result = fit(train, plan, test=test, options=options)
    metrics, guarantee = result.metrics, task["plan"]["plan"]["guarantee"]
    return {
        "source": task["source"],
        "method": task["name"],
        "epsilon": guarantee["epsilon"],
        "delta": guarantee["delta"],
        "seed": task["seed"],
        "auc_loss": metrics.auc_loss,
        "auc_loss_standard_error": metrics.auc_loss_standard_error,
        "log_loss": metrics.log_loss,
        "calibration": metrics.calibration,
        "normalised_cross_entropy": metrics.normalised_cross_entropy,
        "label_epsilon": plan.label_epsilon,
        "noise_multiplier": plan.noise_multiplier,
        "steps": plan.num_private_steps,
        "train_rows": train.num_rows,
        "device": task["device"],
        "seconds": round(result.seconds, 2),
    }


def with_initial_seed(plan: dict, seed: int) -> dict:
    """The same plan with another start of the weights, if it has any."""
    if "initial_seed" not in plan["config"]:
        return plan
    settings = plan["plan"]["settings"] | {"initial_seed": seed}
    return plan | {
        "config": plan["config"] | {"initial_seed": seed},
        "plan": plan["plan"] | {"settings": settings},
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
    parser.add_argument("--output", type=Path, default=PUBLISHED / "hybrid.json")
    parser.add_argument("--keep", action="store_true", help="keep other rows of the output")
    parser.add_argument("--time-limit", type=float, default=float("inf"))
    return parser.parse_args()


def _with_seeds(job: dict, options: argparse.Namespace) -> Iterator[Job]:
    on_cores = job["plan"]["config"]["method"] == ON_CORES
    device = "cpu" if on_cores else options.device
    for seed in range(options.first_seed, options.first_seed + options.seeds):
        yield Job(task=job | {"seed": seed, "device": device}, on_device=device != "cpu")


def _typical_work(task: dict) -> float:
    plan = task["plan"]
    return TYPICAL_SECONDS[plan["config"]["method"]] * plan["shape"]["num_label_rows"]


if __name__ == "__main__":
    main()
