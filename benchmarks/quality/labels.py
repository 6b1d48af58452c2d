"""Quality of label DP: corrections, units and caps, on packed logs of labels_data.py.

    python benchmarks/quality/labels.py FOLDER… --output FILE [--device cuda] [--workers 6]

Needs numpy, torch and safetensors alone; several runs share a GPU. Models see public columns
only. Nothing is tuned on test rows: batches, epochs and the perceptron are those of
method_jobs.py, and learning rates of the logistic regression were chosen by labels_rates.py on
noisy labels that were held back. Runs use fixed seeds; a release would not.

The record has one row a run, means over seeds, and verdicts: which orderings of published
tables held on these rows.
"""

import argparse
import dataclasses
import functools
import itertools
import json
import multiprocessing
import os
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from labels_data import SYNTH, open_source
from labels_jobs import (
    CALIBRATED,
    DEBIASED,
    FORWARD,
    JOINT,
    OWN_SHARE,
    PROJECTION,
    ROW,
    SUMS,
    Job,
    Row,
    cap,
    run_job,
)
from labels_settings import DEEP_EPSILONS, LINEAR_EPSILONS, REAL_EPSILONS
from labels_verdicts import verdicts

from record import PUBLISHED, earlier_rows, print_table, versions, write_record
from tulle.errors import TulleError
from tulle.privacy.units import Owner

USER = Owner.USER.value
PAIRS = (Owner.USER_ADVERTISER.value, Owner.USER_PUBLISHER.value)
IDENTITY = ("source", "model", "unit", "noise", "correction", "epsilon", "seed")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--only", default="", help="run jobs with this noise, model or correction")
    parser.add_argument("--without", action="append", default=[], help="leave such jobs out")
    parser.add_argument("--keep", action="store_true", help="run what the output lacks")
    parser.add_argument(
        "--with",
        dest="others",
        type=Path,
        action="append",
        default=[],
        help="take in the rows of another output, e.g. of another machine",
    )
    parser.add_argument("--note", action="append", default=[], help="for the record")
    parser.add_argument("--time-limit", type=float, default=1e9)
    parser.add_argument("--output", type=Path, default=PUBLISHED / "labels.json")
    options = parser.parse_args()
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    jobs = [
        job
        for folder in options.folders
        for job in jobs_of(folder, open_source(folder).name, seeds, options.device)
        if options.only in (*_words(job), "") and not set(options.without) & set(_words(job))
    ]
    rows = earlier_rows(options.output) if options.keep else []
    for other in options.others:
        taken = {identity(row) for row in rows}
        rows += [row for row in earlier_rows(other) if identity(row) not in taken]
    write(options.output, rows, options.note)
    found = {identity(row) for row in rows}
    jobs = [job for job in jobs if identity_of(job) not in found]
    for new in run_all(jobs, options.workers, options.time_limit):
        for row in new:
            print(json.dumps(row), flush=True)
        rows += new
        write(options.output, rows, options.note)
    print_table(summary(rows))
    for verdict in verdicts(summary(rows)):
        print("holds " if verdict["holds"] else "FAILS ", verdict["claim"])


def jobs_of(folder: Path, source: str, seeds: range, device: str) -> Iterator[Job]:
    """All runs on one log. Slow ones come first, and on real clicks with the first seed alone."""
    for seed in seeds:
        make = functools.partial(Job, folder=folder, seed=seed)
        if source == SYNTH:
            jobs = _synth_jobs(make)
        else:
            slow = _slow_real_jobs(make) if seed == seeds[0] else ()
            jobs = itertools.chain(slow, _real_jobs(make))
        for job in jobs:
            # Steps of a logistic regression are as quick on a processor, and leave the GPU free.
            is_quick = job.model == "lr" and job.noise != PROJECTION
            yield job if is_quick else dataclasses.replace(job, device=device)


def _slow_real_jobs(make: functools.partial) -> Iterator[Job]:
    for unit, epsilon in itertools.product((Owner.EXAMPLE.value, USER), REAL_EPSILONS):
        yield make(model="lr", unit=unit, noise=SUMS, correction="box", epsilon=epsilon)
    for model, epsilon in itertools.product(("mlp", "lr"), REAL_EPSILONS):
        yield make(model=model, noise=PROJECTION, correction="projection", epsilon=epsilon)


def _real_jobs(make: functools.partial) -> Iterator[Job]:
    for model in ("mlp", "lr"):
        yield make(model=model)
        for epsilon in REAL_EPSILONS:
            for correction in (CALIBRATED, DEBIASED, FORWARD):
                yield make(model=model, noise=ROW, correction=correction, epsilon=epsilon)
            for noise in (cap(1), OWN_SHARE, JOINT):
                yield make(model=model, unit=USER, noise=noise, correction=FORWARD, epsilon=epsilon)


def _synth_jobs(make: functools.partial) -> Iterator[Job]:
    for unit, epsilon in itertools.product((Owner.EXAMPLE.value, USER), LINEAR_EPSILONS):
        yield make(model="lr", unit=unit, noise=SUMS, correction="box", epsilon=epsilon)
    yield make(model="lr")
    yield make(model="mlp")
    for epsilon in LINEAR_EPSILONS:
        linear = functools.partial(make, model="lr", epsilon=epsilon)
        for correction in (CALIBRATED, DEBIASED, FORWARD):
            yield linear(noise=ROW, correction=correction)
            yield linear(unit=USER, noise=cap(1), correction=correction)
        for correction, most in itertools.product((CALIBRATED, FORWARD), (2, 5, 10)):
            yield linear(unit=USER, noise=cap(most), correction=correction)
        for noise in (OWN_SHARE, JOINT):
            yield linear(unit=USER, noise=noise, correction=FORWARD)
    for epsilon in DEEP_EPSILONS:
        deep = functools.partial(make, model="mlp", epsilon=epsilon, correction=FORWARD)
        yield deep(noise=ROW)
        for unit in PAIRS:
            yield deep(unit=unit, noise=cap(1))
        for noise in (*map(cap, (1, 2, 5, 10)), OWN_SHARE, JOINT):
            yield deep(unit=USER, noise=noise)


def run_all(jobs: list[Job], num_workers: int, time_limit: float) -> Iterator[list[Row]]:
    """The rows of each job as it ends; stops at the limit."""
    start = time.monotonic()
    # A worker inherits this; one thread each, since there are several.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with multiprocessing.get_context("spawn").Pool(num_workers) as pool:
        results = pool.imap_unordered(run_job, jobs)
        for _ in jobs:
            left = time_limit - (time.monotonic() - start)
            try:
                yield results.next(timeout=max(left, 0.01))
            except multiprocessing.TimeoutError:
                print("time limit reached", flush=True)
                return
            except TulleError as error:
                print(f"a run failed: {error}", flush=True)


def summary(rows: list[Row]) -> list[Row]:
    """Means and deviations over seeds, with the loss above the same model without noise."""
    groups: dict[tuple, list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[key] for key in IDENTITY[:-1]), []).append(row)
    table = []
    for key, group in sorted(groups.items(), key=lambda item: str(item[0])):
        first = group[0]
        base = [
            row["auc_loss"]
            for row in rows
            if row["epsilon"] is None
            and (row["source"], row["model"]) == (first["source"], first["model"])
        ]
        losses = [row["auc_loss"] for row in group]
        mean = statistics.mean(losses)
        table.append(
            dict(zip(IDENTITY, key, strict=False))
            | {
                "auc_loss": mean,
                "stddev": statistics.stdev(losses) if len(losses) > 1 else None,
                "relative_percent": 100 * (mean / statistics.mean(base) - 1) if base else None,
                "relative_log_likelihood": _mean(group, "relative_log_likelihood"),
                "likelihood_stddev": _stddev(group, "relative_log_likelihood"),
                "calibration": _mean(group, "calibration"),
                "bidding_over_constant": _mean(group, "bidding_over_constant"),
                "seeds": len(group),
            }
        )
    return table


def identity(row: Row) -> tuple:
    """Which run a row is of."""
    return tuple(row[key] for key in IDENTITY)


def identity_of(job: Job) -> tuple:
    """Which run a job is; its first row has the same."""
    source = open_source(job.folder).name
    return (source, *(getattr(job, key) for key in IDENTITY[1:]))


def write(path: Path, rows: list[Row], notes: list[str]) -> None:
    """Keeps what is there so far."""
    rows = [_rounded(row) for row in rows]
    means = [_rounded(row) for row in summary(rows)]
    facts = {
        "versions": versions("numpy", "torch"),
        "seeds": sorted({row["seed"] for row in rows}),
        "summary": means,
        "verdicts": verdicts(means),
        "notes": notes,
    }
    write_record(path, "quality of label DP", rows, facts)


def _rounded(row: Row) -> Row:
    """Figures to six digits: what lies beyond is noise, and a record is read by people."""
    return {k: float(f"{v:.6g}") if isinstance(v, float) else v for k, v in row.items()}


def _words(job: Job) -> tuple[str, ...]:
    return (job.model, job.noise, job.correction)


def _mean(group: list[Row], key: str) -> float:
    return statistics.mean(row[key] for row in group)


def _stddev(group: list[Row], key: str) -> float | None:
    values = [row[key] for row in group]
    return statistics.stdev(values) if len(values) > 1 else None


if __name__ == "__main__":
    main()
