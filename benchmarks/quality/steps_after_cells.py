"""Whether DP-SGD after Hybrid, or beside it, helps at the same total epsilon.

    python benchmarks/quality/steps_after_cells.py FOLDER [--device cuda] [--plans FILE]

FOLDER is made by method_jobs.py. Models are trained on nine tenths of its training rows and
judged on the other tenth; test rows are not touched. Hybrid gets a part of the squared noise
budget, and a small perceptron learns what its log odds leave over by steps with the least noise
at which both together cost the epsilon. Where the accountant is not installed, give the plans
that --write-plans has written elsewhere. Seeds are fixed, so that runs can be repeated.
"""

import argparse
import dataclasses
import json
import math
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from job_folders import open_development_rows, read_jobs, unpacked
from offset_steps import OffsetNet, StepSettings

from record import PUBLISHED, device_name, print_table, write_record
from tulle.privacy.events import Composed
from tulle.privacy.units import Adjacency
from tulle.quality.metrics import evaluate_predictions
from tulle.train import ExampleSet, HybridConfig, RunOptions, fit, make_plan
from tulle.train.plan_data import train_plan_from_json, train_plan_to_json
from tulle.train.train_plan import TrainPlan
from worker_processes import Crew, Job, collect_results

EPSILON, DELTA = 3.0, 1e-7
HYBRID_PARTS = (1.0, 0.75, 0.5, 0.0)
"""Of the squared noise budget; the rest is for steps."""
BATCH_SIZE, EPOCHS = 65_536, 16.0
RATES = {1.0: (), 0.75: (5e-4, 2e-3), 0.5: (5e-4, 2e-3), 0.0: (4e-3,)}
"""Learning rates by Hybrid's part: a net that starts from scratch needs a larger one."""
BESIDE_RATE = 4e-3
Row = dict[str, object]
FloatArray = NDArray[np.float64]


def main() -> None:
    options = _options()
    with unpacked([options.folder]) as data:
        place = {
            "data": str(data[options.folder]),
            "split_key": read_jobs(options.folder)[0]["split_key"],
        }
        tasks = (
            json.loads(options.plans.read_text(encoding="utf-8"))
            if options.plans
            else list(make_tasks(options.folder, place))
        )
        if options.write_plans:
            options.write_plans.write_text(json.dumps(tasks) + "\n", encoding="utf-8")
            return
        status = run_all(make_jobs(tasks, place, options), options)
    sys.exit(status)


def make_tasks(folder: Path, place: dict) -> Iterator[dict]:
    """Hybrid's plan and the noise of steps, for each division of the budget."""
    train, _ = open_development_rows(place["data"], place["split_key"])
    whole = _hybrid_plan(train, EPSILON)
    for part in HYBRID_PARTS:
        plan = None if part == 0 else whole
        if 0 < part < 1:
            plan = _hybrid_plan(train, _epsilon_of_part(whole, part))
        yield {
            "source": read_jobs(folder)[0]["source"],
            "hybrid_part": part,
            "plan": None if plan is None else json.loads(train_plan_to_json(plan)),
            "steps": _least_noise_steps(train.num_rows, plan) if part < 1 else None,
        }


def make_jobs(tasks: list[dict], place: dict, options: argparse.Namespace) -> list[Job]:
    """One for each division of the budget and seed."""
    own = place | {"device": options.device}
    return [
        Job(
            name=f"Hybrid with {task['hybrid_part']:g} of the budget",
            task=task | own | {"seed": seed},
            on_device=True,
        )
        for seed in range(options.seeds)
        for task in tasks
    ]


def run_all(jobs: list[Job], options: argparse.Namespace) -> int:
    """Runs the jobs, writes rows as they come, and returns the exit status."""
    rows: list[Row] = []

    def keep(found: list[Row]) -> None:
        rows.extend(found)
        print_table(found)
        facts = {"epsilon": EPSILON, "delta": DELTA, "device": device_name(options.device)}
        write_record(options.output, "private steps after Hybrid", rows, facts)

    crew = Crew(num_processes=options.processes, num_on_device=options.processes)
    return collect_results(jobs, run_task, crew, keep)


def run_task(task: dict) -> list[Row]:
    """Trains Hybrid with its part of the budget, and nets on the rest: one row for each model."""
    torch.backends.cuda.matmul.allow_tf32 = True
    start, part = time.monotonic(), task["hybrid_part"]
    sets = open_development_rows(task["data"], task["split_key"])
    nothing = [np.zeros(examples.num_rows) for examples in sets]
    offsets, rows = nothing, []

    def note(name: str, rate: float | None, log_odds: FloatArray) -> None:
        rows.append(_row(task, sets[1], log_odds) | {"model": name, "learning_rate": rate})
        rows[-1]["seconds"] = round(time.monotonic() - start, 2)

    if task["plan"] is not None:
        plan = train_plan_from_json(json.dumps(task["plan"]))
        model = fit(sets[0], plan, options=RunOptions(seed=task["seed"])).model
        offsets = [_log_odds(model.predict_proba(examples)) for examples in sets]
        note("hybrid", None, offsets[1])
    for rate in RATES[part]:
        name = "dp-sgd" if part == 0 else "dp-sgd after hybrid"
        note(name, rate, _stepped(task, rate, sets, offsets))
    if 0 < part < 1:
        alone = _stepped(task, BESIDE_RATE, sets, nothing)
        note("mean of hybrid and dp-sgd", BESIDE_RATE, (alone + offsets[1]) / 2)
    return rows


def _stepped(
    task: dict, rate: float, sets: Sequence[ExampleSet], offsets: Sequence[FloatArray]
) -> FloatArray:
    """Log odds of the second set, after steps on the first."""
    device = task["device"]
    settings = StepSettings(learning_rate=rate, **task["steps"])
    net = OffsetNet(sets[0], settings, seed=task["seed"], device=device)
    ids = [_ids(examples, device) for examples in sets]
    given = [torch.from_numpy(values).float().to(device) for values in offsets]
    labels = torch.from_numpy(np.array(sets[0].labels)).to(device)
    net.train(ids[0], labels, given[0])
    return net.log_odds(ids[1], given[1]).double().cpu().numpy()


def _ids(examples: ExampleSet, device: str) -> torch.Tensor:
    batch = examples.batch(np.arange(examples.num_rows), torch.device("cpu"))
    return torch.cat([batch.public_ids, batch.sensitive_ids], dim=1).int().to(device)


def _row(task: dict, examples: ExampleSet, log_odds: FloatArray) -> Row:
    metrics = evaluate_predictions(examples.labels, 1 / (1 + np.exp(-log_odds)))
    return {
        "source": task["source"],
        "model": None,
        "hybrid_part": task["hybrid_part"],
        "learning_rate": None,
        "seed": task["seed"],
        "auc_loss": metrics.auc_loss,
        "log_loss": metrics.log_loss,
        "calibration": metrics.calibration,
        "hybrid_noise": task["plan"] and task["plan"]["noise_multiplier"],
        "steps_noise": task["steps"] and task["steps"]["noise_multiplier"],
    }


def _log_odds(chances: FloatArray) -> FloatArray:
    return np.log(chances) - np.log1p(-chances)


def _hybrid_plan(train: ExampleSet, epsilon: float) -> TrainPlan:
    return make_plan(train, HybridConfig().calibrate(epsilon=epsilon, delta=DELTA))


def _epsilon_of_part(whole: TrainPlan, part: float) -> float:
    """What Hybrid costs with a part of the squared noise budget, which is more noise."""
    from tulle.accounting.accountant import pld_epsilon

    noise = whole.noise_multiplier / math.sqrt(part)
    event = dataclasses.replace(whole.plan.event, noise_multiplier=noise)
    return pld_epsilon(event, DELTA, Adjacency.REPLACE)


def _least_noise_steps(num_rows: int, plan: TrainPlan | None) -> dict:
    """Steps that cost the whole epsilon, together with a plan."""
    from tulle.accounting.calibration import calibrate_noise
    from tulle.accounting.training_events import BatchSampling, dpsgd_event, steps_of_epochs

    batch_size = min(BATCH_SIZE, num_rows // 4)
    steps = steps_of_epochs(EPOCHS, num_examples=num_rows, batch_size=batch_size)
    sampling = BatchSampling(num_examples=num_rows, batch_size=batch_size, steps=steps)
    first = () if plan is None else (plan.plan.event,)
    noise = calibrate_noise(
        lambda noise: Composed((*first, dpsgd_event(sampling, noise))),
        epsilon=EPSILON,
        delta=DELTA,
        adjacency=Adjacency.REPLACE,
    )
    return {
        "noise_multiplier": noise,
        "sampling_prob": sampling.sampling_prob,
        "num_steps": steps,
    }


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--plans", type=Path, help="made by --write-plans")
    parser.add_argument("--write-plans", type=Path, help="write plans, and run nothing")
    parser.add_argument("--output", type=Path, default=PUBLISHED / "steps_after_cells.json")
    return parser.parse_args()


if __name__ == "__main__":
    main()
