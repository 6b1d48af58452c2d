"""A model for each day at epsilon 1: from scratch, and continued from that of the day before.

    python benchmarks/quality/mosaic_daily.py CLICKS.parquet --output FILE
    python benchmarks/quality/mosaic_daily.py CLICKS.parquet --output FILE --tune

CLICKS.parquet is an extract of the Criteo Sponsored Search Conversion Log. A model is trained on
the rows of a day, one row as unit, and tested on all rows of the next day, for a quarter of the
users. What fraction of the evidence is kept, and how few rows divide the budget, was chosen on
another quarter of the users, whom --tune measures. Means are over all days after the first seven.
"""

import argparse
import itertools
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import polars as pl

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from record import write_record
from tulle.data.formats.public import SEARCH
from tulle.data.schema import Schema
from tulle.train import ExampleLevel, ExampleSet, MosaicConfig
from tulle.train.fitting import FitResult, fit
from tulle.train.methods.mosaic.earlier_model import EarlierModel, StartModel
from tulle.train.run_context import RunOptions
from tulle.train.training_data import DataChoice, TrainingData

EPSILON, DELTA = 1.0, 1e-7
# Ids of users are codes: a multiplicative hash divides users into four parts.
HASH, PARTS, TUNED_ON, REPORTED_ON = 2_654_435_761, 4, 1, 0
TUNED_DAYS, FIRST_DAYS = 30, 7
KEPT = (0.5, 0.7, 0.8, 0.9, 0.95, 1.0)
FIGURES = ("auc_loss", "log_loss", "calibration")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("clicks", type=Path)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--days", type=int)
    parser.add_argument("--keep", type=float, nargs="+")
    parser.add_argument("--tune", action="store_true")
    options = parser.parse_args()
    days = rows_of_days(options.clicks, tune=options.tune)
    days = days[: options.days or (TUNED_DAYS if options.tune else len(days))]
    kept = options.keep or (KEPT if options.tune else (StartModel.keep_evidence,))
    rows: list[dict[str, object]] = []
    modes = [("from scratch", None), *(("continued", keep) for keep in kept)]
    for seed in range(options.seeds):
        for mode, keep in modes:
            for row in measured(days, keep, seed):
                rows.append({"training": mode, "keep_evidence": keep, "seed": seed} | row)
            means = summary(rows)
            print(seed, means, flush=True)
            write_record(
                options.output,
                "a model for each day, from scratch and continued",
                rows,
                {
                    "epsilon": EPSILON,
                    "delta": DELTA,
                    "unit": "example",
                    "first_days_left_out": FIRST_DAYS,
                    "users": "the quarter to tune on" if options.tune else "another quarter",
                    "summary": means,
                },
            )


def rows_of_days(path: Path, *, tune: bool) -> list[ExampleSet]:
    """The rows of each day, with the roles of the paper. Ids are the same on all days."""
    part = pl.col("user_id") * HASH % 2**32 % PARTS
    table = pl.read_parquet(path).filter(part == (TUNED_ON if tune else REPORTED_ON))
    public = [name for name in SEARCH.schema.public if name in table.columns]
    sensitive = ["device_type", "audience_id"]
    kinds = dict.fromkeys((*public, *sensitive), "categorical") | {"nb_clicks_1week": "integer"}
    schema = Schema(label="Sale", public=tuple(public), sensitive=tuple(sensitive), kinds=kinds)
    days, encoder = [], None
    for day in range(int(table["day"].max()) + 1):
        rows = table.filter(pl.col("day") == day)
        data = TrainingData(DataChoice(source=rows, schema=schema, test=0, encoder=encoder))
        # Of the first day, as the encoder of the first model goes with all that continue from it.
        encoder = data.encoder
        days.append(data.examples()[0])
    return days


def measured(
    days: Sequence[ExampleSet], keep: float | None, seed: int
) -> Iterator[dict[str, object]]:
    """One row for each day: the model of that day on all rows of the next."""
    earlier, start = None, None
    for day, (train, test) in enumerate(itertools.pairwise(days)):
        config = MosaicConfig(unit=ExampleLevel(), start=start)
        made = config.calibrate(epsilon=EPSILON, delta=DELTA)
        options = RunOptions(seed=1000 * seed + day, earlier=earlier)
        result = fit(train, made, test=test, options=options)
        if keep is not None:
            start = StartModel(
                digest=f"day {day}",
                epsilon=EPSILON,
                delta=DELTA,
                unit="example",
                is_private=False,
                keep_evidence=keep,
            )
            earlier = EarlierModel(
                model=result.model.model, features=result.model.features, start=start
            )
        yield {"day": day, "num_rows": train.num_rows, "num_test_rows": test.num_rows} | figures(
            result
        )


def figures(result: FitResult) -> dict[str, object]:
    metrics = result.metrics.to_dict()
    found = {name: round(metrics[name], 6) for name in FIGURES}
    return found | {
        "num_tables": len(result.model.model.tables),
        "seconds": round(result.seconds, 2),
    }


def summary(rows: Sequence[dict[str, object]]) -> list[dict[str, object]]:
    """Means over days and seeds of each kind of training, without the first days."""
    keys = dict.fromkeys((row["training"], row["keep_evidence"]) for row in rows)
    found = []
    for training, keep in keys:
        own = [
            row
            for row in rows
            if (row["training"], row["keep_evidence"]) == (training, keep)
            and row["day"] >= FIRST_DAYS
        ]
        seeds = sorted({row["seed"] for row in own})
        by_seed = [
            np.mean([row["auc_loss"] for row in own if row["seed"] == seed]) for seed in seeds
        ]
        means = {name: float(np.mean([row[name] for row in own])) for name in FIGURES}
        off = float(np.mean([abs(np.log(row["calibration"])) for row in own]))
        found.append(
            {"training": training, "keep_evidence": keep, "seeds": len(seeds)}
            | means
            | {"auc_loss_stddev_of_seeds": float(np.std(by_seed)), "mean_miscalibration": off}
        )
    return found


if __name__ == "__main__":
    main()
