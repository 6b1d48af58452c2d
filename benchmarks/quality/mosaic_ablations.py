"""What each part of Mosaic is worth: the same training with one part changed.

    python benchmarks/quality/mosaic_ablations.py FOLDER… [--processes 16] [--plans FILE]

FOLDER is made by method_jobs.py. Models are trained on nine tenths of its training rows and
judged on the other tenth; test rows are not touched. Where the accountant is not installed, give
the plans that --write-plans has written elsewhere. Seeds are fixed, so that runs can be repeated.
"""

import argparse
import itertools
import json
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from job_folders import open_development_rows, read_jobs, unpacked

from record import PUBLISHED, earlier_rows, print_table, write_record
from tulle.train import ExampleLevel, MosaicConfig, RunOptions
from tulle.train.fitting import fit, make_plan
from tulle.train.methods.mosaic.method import (
    STAGES,
    CellSettings,
    ScreeningParts,
    StageShares,
)
from tulle.train.methods.train_plan import TrainPlan
from worker_processes import Crew, Job, collect_results

DELTA = 1e-7
AS_IT_IS = "as it is"
Row = dict[str, object]


def _stages(*shares: float) -> StageShares:
    total = sum(shares)
    return StageShares(**{name: share / total for name, share in zip(STAGES, shares, strict=True)})


VARIANTS = {
    AS_IT_IS: CellSettings(),
    "no table is looked at twice": CellSettings(
        screening=ScreeningParts(**dict.fromkeys(STAGES, 1.0))
    ),
    "all rows spend alike": CellSettings(row_steps=0),
    "no evidence needed": CellSettings(least_evidence=0.0),
    "twice as much evidence needed": CellSettings(least_evidence=6.0),
    "no tables of three columns": CellSettings(
        num_crossed_pairs=0, stages=_stages(0.3, 0.1, 0.25, 0.2, 0.0)
    ),
    "no tables of two or three columns": CellSettings(
        num_crossed_pairs=0, stages=_stages(0.3, 0.0, 0.25, 0.0, 0.0)
    ),
    "public columns alone": CellSettings(stages=_stages(0.3, 0.1, 0.0, 0.0, 0.15)),
    "more for public columns": CellSettings(stages=_stages(0.45, 0.1, 0.15, 0.2, 0.1)),
    "less for public columns": CellSettings(stages=_stages(0.15, 0.1, 0.35, 0.25, 0.15)),
    "equal shares of all stages": CellSettings(stages=_stages(1, 1, 1, 1, 1)),
    "smaller tables": CellSettings(max_cells_per_table=1 << 14),
    "sensitive values counted less well": CellSettings(most_count_share=0.003),
    "pairs expected to differ as much as any": CellSettings(heredity=(100.0, 100.0)),
}


def main() -> None:
    options = _options()
    with unpacked(options.folders) as data:
        tasks = _read(options.plans) if options.plans else list(make_tasks(options, data))
        if options.write_plans:
            lines = "".join(json.dumps(task) + "\n" for task in tasks)
            options.write_plans.write_text(lines, encoding="utf-8")
            return
        status = run_all(make_jobs(tasks, options, data), options)
    sys.exit(status)


def make_tasks(options: argparse.Namespace, data: dict[Path, Path]) -> Iterator[dict]:
    """The source, the variant and the plan of each run, without its seed."""
    for folder, epsilon in itertools.product(options.folders, options.epsilons):
        job = read_jobs(folder)[0]
        train, _ = open_development_rows(str(data[folder]), job["split_key"])
        for variant, cells in VARIANTS.items():
            config = MosaicConfig(cells=cells, unit=ExampleLevel())
            config = config.calibrate(epsilon=epsilon, delta=DELTA)
            plan = json.loads(make_plan(train, config).to_json())
            yield {"source": job["source"], "variant": variant, "epsilon": epsilon, "plan": plan}


def make_jobs(tasks: list[dict], options: argparse.Namespace, data: dict[Path, Path]) -> list[Job]:
    """All runs of the folders that were asked for: seed by seed, those of most rows first."""
    first = {folder: read_jobs(folder)[0] for folder in options.folders}
    places = {
        job["source"]: {"data": str(data[folder]), "split_key": job["split_key"]}
        for folder, job in first.items()
    }
    jobs = [
        Job(name=task["variant"], task=task | places[task["source"]] | {"seed": seed})
        for seed in range(options.seeds)
        for task in tasks
        if task["source"] in places
        and task["epsilon"] in options.epsilons
        and options.only in task["variant"]
    ]
    return sorted(
        jobs,
        key=lambda job: (job.task["seed"], -job.task["plan"]["shape"]["num_label_rows"]),
    )


def run_all(jobs: list[Job], options: argparse.Namespace) -> int:
    """Runs the jobs, writes rows as they come, and returns the exit status."""
    rows = earlier_rows(options.output) if options.keep else []

    def keep(row: Row) -> None:
        rows[:] = [other for other in rows if identity(other) != identity(row)] + [row]
        print(json.dumps(row), flush=True)
        facts = {"summary": summary(rows)}
        write_record(options.output, "what the parts of Mosaic are worth", rows, facts)

    crew = Crew(num_processes=options.processes, time_limit=options.time_limit)
    status = collect_results(jobs, run_task, crew, keep)
    if rows:
        print_table(summary(rows))
    return status


def identity(row: Row) -> tuple:
    """Which run a row is of."""
    return tuple(row[key] for key in ("source", "variant", "epsilon", "seed"))


def run_task(task: dict) -> Row:
    """Trains one variant and evaluates it on the rows that were set aside."""
    train, rest = open_development_rows(task["data"], task["split_key"])
    plan = TrainPlan.from_json(json.dumps(task["plan"]))
    result = fit(train, plan, test=rest, options=RunOptions(seed=task["seed"]))
    return {
        "source": task["source"],
        "variant": task["variant"],
        "epsilon": task["epsilon"],
        "delta": DELTA,
        "seed": task["seed"],
        "auc_loss": result.metrics.auc_loss,
        "log_loss": result.metrics.log_loss,
        "calibration": result.metrics.calibration,
        "train_rows": train.num_rows,
        "seconds": round(result.seconds, 2),
    }


def summary(rows: list[Row]) -> list[Row]:
    """Means over seeds, and the change that a variant makes on the seeds that it was run with."""
    groups: dict[tuple, dict[object, Row]] = {}
    for row in rows:
        key = (row["source"], row["variant"], row["epsilon"])
        groups.setdefault(key, {})[row["seed"]] = row
    table = []
    for (source, variant, epsilon), group in groups.items():
        base = groups.get((source, AS_IT_IS, epsilon), {})
        mean = {
            key: statistics.mean(row[key] for row in group.values())
            for key in ("auc_loss", "log_loss", "calibration")
        }
        changes = {
            f"{key}_percent": _change([(group[seed][key], base[seed][key]) for seed in same])
            for key in ("auc_loss", "log_loss")
            for same in [sorted(group.keys() & base.keys())]
        }
        table.append(
            {"source": source, "variant": variant, "epsilon": epsilon}
            | mean
            | changes
            | {"seeds": len(group)}
        )
    return table


def _change(pairs: list[tuple[float, float]]) -> float | None:
    if not pairs:
        return None
    return statistics.mean(100 * (changed / base - 1) for changed, base in pairs)


def _read(plans: Path) -> list[dict]:
    return [json.loads(line) for line in plans.read_text(encoding="utf-8").splitlines()]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--epsilons", type=float, nargs="+", default=[1.0, 3.0])
    parser.add_argument("--only", default="", help="run variants whose name has this in it")
    parser.add_argument("--plans", type=Path, help="made by --write-plans")
    parser.add_argument("--write-plans", type=Path, help="write plans, and run nothing")
    parser.add_argument("--time-limit", type=float, default=float("inf"))
    parser.add_argument("--output", type=Path, default=PUBLISHED / "hybrid_ablations.json")
    parser.add_argument("--keep", action="store_true", help="keep other rows of the output")
    return parser.parse_args()


if __name__ == "__main__":
    main()
