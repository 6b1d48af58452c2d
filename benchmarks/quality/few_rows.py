"""Mosaic, randomized labels and the label rate on few rows, and what the plan says beforehand.

    python benchmarks/quality/few_rows.py [CLICKS.parquet] --output FILE

CLICKS.parquet is an extract of the Criteo Sponsored Search Conversion Log; without it only the
synthetic logs are measured. Each seed draws other training rows; the test rows are many and always
the same. Methods have their defaults, each row is a unit. Mosaic may see all columns, randomized
labels the public ones. With `--development` other synthetic rows and the other users of the real
log are used: thresholds of the plan were chosen on those, and never on what is published.
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from record import earlier_rows, print_table, versions, write_record
from tulle.data.formats.public import SEARCH
from tulle.data.schema import Schema
from tulle.train import ExampleLevel, ExampleSet, MosaicConfig, RandomizedLabelsConfig
from tulle.train.fitting import fit
from tulle.train.run_context import RunOptions
from tulle.train.training_data import DataChoice, TrainingData

SYNTHETIC = ("synth:search", "synth:display", "synth:attribution")
CLICKS = "criteo search, real clicks"
NUM_ROWS = (2_000, 5_000, 10_000, 25_000, 100_000)
EPSILONS = (1.0, 3.0, 8.0)
DELTA = 1e-7
METHODS = ("label rate", "rr", "mosaic")
POOL = 300_000
"""Rows that training rows are drawn from, and test rows together."""
TEST_FRACTION = 1 / 3
SYNTH_SEED, DEVELOPMENT_SEED = 0, 100
# Ids of users are codes: halves of the users by the parity of a multiplicative hash.
HASH = 2_654_435_761


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("clicks", type=Path, nargs="?")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--rows", type=int, nargs="+", default=NUM_ROWS)
    parser.add_argument("--epsilons", type=float, nargs="+", default=EPSILONS)
    parser.add_argument("--logs", nargs="+", default=[*SYNTHETIC, CLICKS])
    parser.add_argument("--methods", nargs="+", default=METHODS, choices=METHODS)
    parser.add_argument("--development", action="store_true")
    parser.add_argument("--check", action="store_true", help="judge what is there, run nothing")
    options = parser.parse_args()
    rows = earlier_rows(options.output)
    if options.check:
        raise SystemExit(judged(rows))
    done = {_key(row) for row in rows}
    for log in options.logs:
        if log == CLICKS and options.clicks is None:
            continue
        train, test = examples(log, options.clicks, is_development=options.development)
        for num_rows in options.rows:
            for row in measured(log, train, test, num_rows, options, done):
                rows.append(row)
                print(row, flush=True)
            facts = {"delta": DELTA, "versions": versions("numpy", "torch")}
            write_record(options.output, "few rows", rows, facts)
    raise SystemExit(judged(rows))


def examples(
    log: str, clicks: Path | None, *, is_development: bool
) -> tuple[ExampleSet, ExampleSet]:
    """Rows that training rows are drawn from, and the test rows."""
    if log != CLICKS:
        seed = DEVELOPMENT_SEED if is_development else SYNTH_SEED
        choice = DataChoice(source=log, rows=POOL, synth_seed=seed, test=TEST_FRACTION)
        return TrainingData(choice).examples()
    table = pl.read_parquet(clicks)
    hashed = (pl.col("user_id") * HASH % 2**32) // 2**16
    table = table.filter(hashed % 2 == (1 if is_development else 0))
    table = table.filter((hashed // 2) % 4 == 0)
    public = [name for name in SEARCH.schema.public if name in table.columns]
    sensitive = ["device_type", "audience_id"]
    kinds = dict.fromkeys((*public, *sensitive), "categorical")
    schema = Schema(
        label="Sale",
        public=tuple(public),
        sensitive=tuple(sensitive),
        unit="user_id",
        kinds=kinds | {"nb_clicks_1week": "integer", "user_id": "integer"},
    )
    return TrainingData(DataChoice(source=table, schema=schema, test=TEST_FRACTION)).examples()


def measured(
    log: str,
    train: ExampleSet,
    test: ExampleSet,
    num_rows: int,
    options: argparse.Namespace,
    done: set[tuple[object, ...]],
) -> Iterator[dict[str, object]]:
    """One row for each epsilon, method and seed that is not done yet."""
    first = 1000 if options.development else 0
    for seed in range(first, first + options.seeds):
        drawn = np.random.default_rng(seed).permutation(train.num_rows)[:num_rows]
        chosen = train.select(np.sort(drawn))
        for epsilon in options.epsilons:
            for method in options.methods:
                row = {"log": log, "num_rows": num_rows, "epsilon": epsilon}
                row |= {"method": method, "seed": seed}
                if _key(row) not in done:
                    yield row | figures(method, epsilon, chosen, test, seed)


def figures(
    method: str, epsilon: float, train: ExampleSet, test: ExampleSet, seed: int
) -> dict[str, object]:
    """Losses on the test rows; those of the label rate are of the rate without noise."""
    if method == "label rate":
        rate, positives = float(train.labels.mean()), float(test.labels.mean())
        loss = -positives * np.log(rate) - (1 - positives) * np.log1p(-rate)
        return {"auc_loss": 0.5, "log_loss": float(loss)}
    # What would be refused is measured as what it is if it is asked for: a constant.
    settings = MosaicConfig(unit=ExampleLevel(), allow_constant=True)
    if method == "rr":
        settings = RandomizedLabelsConfig(unit=ExampleLevel())
    config = settings.calibrate(epsilon=epsilon, delta=DELTA)
    result = fit(train, config, test=test, options=RunOptions(seed=seed))
    metrics = result.metrics.to_dict()
    found = {name: metrics[name] for name in ("auc_loss", "log_loss", "calibration")}
    if method == "rr":
        return found
    plan = result.plan
    return found | {
        "num_tables": len(result.model.model.tables),
        "plan_says_few": bool(config.remark(plan.shape, plan.noise_multiplier)),
        "is_refused": settings.learns_rate_alone(plan.shape, plan.noise_multiplier),
    }


def judged(rows: list[dict[str, object]]) -> int:
    """Prints means of all cells, and returns 1 if Mosaic is worse where its plan said nothing.

    Worse means: by more than two standard errors of the difference between the same draws of rows,
    in AUC loss or in log loss, than the better one of randomized labels and the label rate.
    """
    cells: dict[tuple[object, ...], dict[str, list[dict[str, object]]]] = {}
    for row in sorted(rows, key=lambda row: row["seed"]):
        place = (row["log"], row["num_rows"], row["epsilon"])
        cells.setdefault(place, {}).setdefault(row["method"], []).append(row)
    table, is_wrong = [], False
    for (log, num_rows, epsilon), found in cells.items():
        if set(found) != set(METHODS) or len({len(some) for some in found.values()}) != 1:
            continue
        line = {"log": log, "rows": num_rows, "epsilon": epsilon}
        worse = []
        for name in ("auc_loss", "log_loss"):
            losses = {m: np.array([row[name] for row in found[m]]) for m in METHODS}
            better = min(("rr", "label rate"), key=lambda m: losses[m].mean())
            above = losses["mosaic"] - losses[better]
            error = above.std(ddof=1) / np.sqrt(len(above))
            worse += [name] if above.mean() > 2 * error else []
            line |= {f"{name} {m}": round(float(losses[m].mean()), 4) for m in METHODS}
        told = all(row["plan_says_few"] for row in found["mosaic"])
        is_refused = all(row["is_refused"] for row in found["mosaic"])
        line["plan"] = "refused" if is_refused else "few" if told else ""
        line["worse"] = " and ".join(worse)
        is_wrong |= bool(worse) and not told
        table.append(line)
    print_table(table)
    print("Mosaic is worse somewhere, and its plan did not say so" if is_wrong else "as promised")
    return int(is_wrong)


def _key(row: dict[str, object]) -> tuple[object, ...]:
    return tuple(row[name] for name in ("log", "num_rows", "epsilon", "method", "seed"))


if __name__ == "__main__":
    main()
