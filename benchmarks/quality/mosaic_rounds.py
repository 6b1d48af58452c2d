"""What it changes to measure all tables of a round of Mosaic in one scan of the rows.

    python benchmarks/quality/mosaic_rounds.py FOLDER… --before PATH [--rows N] [--seeds 2]

Before, tables were measured one after the other: the model learnt from each table before the next
one was summed. PATH is a checkout of a version that does so; this version measures a whole round
with the same predictions. Both train with the same plans and seeds on the same rows, in turns, each
in a process of its own. FOLDER is made by method_jobs.py. As in mosaic_ablations.py, models are
trained on nine tenths of its training rows, or on N of them, and judged on the other tenth.

A scan is what one pass over the rows is enough for: sums with the same predictions. Where tables
were measured one after the other, each had a scan of its own. The last one corrects the overall
level.
"""

import argparse
import itertools
import json
import math
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from job_folders import read_jobs, unpacked
from mosaic_rounds_fit import rows_of

from record import PUBLISHED, earlier_rows, print_table, write_record
from tulle.train import ExampleLevel, MosaicConfig
from tulle.train.fitting import make_plan

ROOT = Path(__file__).resolve().parents[2]
RUN = Path(__file__).with_name("mosaic_rounds_fit.py")
DELTA = 1e-7
ONE_BY_ONE, ONE_SCAN = "one after the other", "one scan a round"
CHANGES = ("auc_loss", "log_loss", "cpu_seconds")
FIGURES = (*CHANGES, "calibration", "tables", "scans")
ALL_LOGS = "mean of all logs"
Row = dict


def main() -> None:
    options = _options()
    rows = earlier_rows(options.output) if options.missing else []
    done = {identity(row) for row in rows}
    facts = {"delta": DELTA, "rows_asked_for": options.rows, "commits": _commits(options.before)}
    facts["notes"] = options.note
    with unpacked(options.folders) as data:
        for task in tasks(options, data):
            if identity(task) in done:
                continue
            rows.append(run_task(task))
            print(json.dumps(rows[-1]), flush=True)
            summed = {"summary": summary(rows)}
            write_record(options.output, "one scan for all tables of a round", rows, facts | summed)
    print_table(summary(rows))


def tasks(options: argparse.Namespace, data: dict[Path, Path]) -> Iterator[Row]:
    """All runs, seed by seed: what is trained on, the plan, and the version that trains."""
    trees = {ONE_BY_ONE: options.before.resolve() / "src", ONE_SCAN: ROOT / "src"}
    plans = {}
    for folder, epsilon in itertools.product(options.folders, options.epsilons):
        job = read_jobs(folder)[0]
        train, _ = rows_of(str(data[folder]), job["split_key"], options.rows)
        config = MosaicConfig(unit=ExampleLevel()).calibrate(epsilon=epsilon, delta=DELTA)
        plan = json.loads(make_plan(train, config).to_json())
        plans[folder, epsilon] = {
            "source": job["source"],
            "epsilon": epsilon,
            "plan": plan,
            "data": str(data[folder]),
            "split_key": job["split_key"],
            "rows": options.rows,
        }
    for seed, plan, version in itertools.product(range(options.seeds), plans.values(), trees):
        yield plan | {
            "version": version,
            "seed": seed,
            "tree": str(trees[version]),
            "reports_scans": version == ONE_SCAN,
        }


def run_task(task: Row) -> Row:
    """Figures of one training, in a process that imports the version of the task."""
    environment = os.environ | {"PYTHONPATH": task["tree"]}
    command = [sys.executable, str(RUN), json.dumps(task)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode != 0:
        raise SystemExit(done.stderr)
    names = ("source", "version", "epsilon", "seed")
    return {name: task[name] for name in names} | json.loads(done.stdout.splitlines()[-1])


def identity(row: Row) -> tuple:
    """Which run a row or a task is of."""
    return tuple(row[key] for key in ("source", "version", "epsilon", "seed"))


def summary(rows: list[Row]) -> list[Row]:
    """Means over seeds of both versions, the changes in percent, and their means over all logs."""
    groups: dict[tuple, dict[str, dict[int, Row]]] = {}
    for row in rows:
        group = groups.setdefault((row["source"], row["epsilon"]), {})
        group.setdefault(row["version"], {})[row["seed"]] = row
    table = [
        {"source": source, "epsilon": epsilon} | _compared(group[ONE_BY_ONE], group[ONE_SCAN])
        for (source, epsilon), group in groups.items()
        if group.keys() >= {ONE_BY_ONE, ONE_SCAN}
    ]
    for epsilon in dict.fromkeys(row["epsilon"] for row in table):
        own = [row for row in table if row["epsilon"] == epsilon]
        table.append({"source": ALL_LOGS, "epsilon": epsilon} | _mean_of_logs(own))
    return table


def _compared(before: dict[int, Row], after: dict[int, Row]) -> Row:
    """Means of both versions, and of the changes of each seed with their standard deviations."""
    same = sorted(before.keys() & after.keys())
    means: Row = {}
    for name in FIGURES:
        means[f"{name}_before"] = statistics.mean(before[seed][name] for seed in same)
        means[name] = statistics.mean(after[seed][name] for seed in same)
    for name in CHANGES:
        changes = [100 * (after[seed][name] / before[seed][name] - 1) for seed in same]
        means[f"{name}_percent"] = statistics.mean(changes)
        if len(changes) > 1:
            means[f"{name}_percent_stddev"] = statistics.stdev(changes)
    return means | {"seeds": len(same)}


def _mean_of_logs(rows: list[Row]) -> Row:
    """Means over logs. Changes of two logs are independent, so that their deviations cancel."""
    return {
        name: math.hypot(*(row[name] for row in rows)) / len(rows)
        if name.endswith("_stddev")
        else statistics.mean(row[name] for row in rows)
        for name in rows[0]
        if name not in ("source", "epsilon") and all(name in row for row in rows)
    }


def _commits(before: Path) -> dict[str, str]:
    """The last commit that changed the code of each version."""
    ask = ["git", "log", "-1", "--format=%h", "--", "src"]
    return {
        version: subprocess.run(
            ask, cwd=tree, capture_output=True, text=True, check=True
        ).stdout.strip()
        for version, tree in ((ONE_BY_ONE, before), (ONE_SCAN, ROOT))
    }


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--before", type=Path, required=True, help="checkout of the older version")
    parser.add_argument("--rows", type=int, help="number of training rows [default: all]")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--epsilons", type=float, nargs="+", default=[1.0, 3.0])
    parser.add_argument("--note", action="append", default=[], help="what else was the case")
    parser.add_argument("--output", type=Path, default=PUBLISHED / "mosaic_rounds.json")
    parser.add_argument("--missing", action="store_true", help="run what the output lacks")
    return parser.parse_args()


if __name__ == "__main__":
    main()
