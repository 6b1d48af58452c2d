"""What it costs Mosaic to protect whole users and not single rows, on the same rows.

    python benchmarks/quality/mosaic_users.py [CLICKS.parquet] --output FILE

CLICKS.parquet is an extract of the Criteo Sponsored Search Conversion Log; without it only the
synthetic Attribution log is measured, where users have many rows. Settings are the defaults, test
rows are those of other users, and nothing was chosen by these figures.
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from record import earlier_rows, versions, write_record
from tulle.data.formats.public import SEARCH
from tulle.data.schema import Schema
from tulle.train import (
    MLP,
    ExampleLevel,
    ExampleSet,
    MosaicConfig,
    NonPrivateConfig,
    PlainPhase,
    UserLevel,
)
from tulle.train.fitting import FitResult, fit
from tulle.train.run_context import RunOptions
from tulle.train.training_data import DataChoice, TrainingData

ATTRIBUTION, CLICKS = "synth:attribution", "criteo search, real clicks"
EPSILONS = {ATTRIBUTION: (1.0, 3.0, 5.0), CLICKS: (1.0, 3.0, 8.0)}
DELTA = 1e-7
UNITS = {"row": ExampleLevel(), "user": UserLevel()}
# Ids of users are codes: a quarter of them by a multiplicative hash, to be done in minutes.
HASH, KEPT = 2_654_435_761, 4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("clicks", type=Path, nargs="?")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    sources = [(ATTRIBUTION, DataChoice(source=ATTRIBUTION, rows=options.rows))]
    if options.clicks is not None:
        sources.append((CLICKS, clicks(options.clicks)))
    rows = earlier_rows(options.output)
    done = {row["log"] for row in rows}
    for name, choice in sources:
        if name in done:
            continue
        train, test = TrainingData(choice).examples()
        if test is None:
            raise SystemExit("there are no test rows.")
        for row in measured(name, train, test, options.seeds):
            rows.append(row)
            print(row, flush=True)
            write_record(
                options.output,
                "cost of whole users as units",
                rows,
                {"delta": DELTA, "versions": versions("numpy", "torch")},
            )


def clicks(path: Path) -> DataChoice:
    """A quarter of the users of the real log, with the roles of the paper and the user as unit."""
    table = pl.read_parquet(path).filter((pl.col("user_id") * HASH % 2**32) % KEPT == 0)
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
    return DataChoice(source=table, schema=schema)


def measured(
    name: str, train: ExampleSet, test: ExampleSet, num_seeds: int
) -> Iterator[dict[str, object]]:
    """One row for each unit, epsilon and seed; for the synthetic log also without privacy."""
    _, sizes = np.unique(train.units, return_counts=True)
    facts = {"log": name, "num_rows": train.num_rows, "num_users": len(sizes)}
    if name == ATTRIBUTION:
        config = NonPrivateConfig(model=MLP.semi_sensitive_search(), phase=PlainPhase(epochs=1.0))
        result = fit(train, config, test=test, options=RunOptions(seed=0))
        yield facts | {"unit": "none", "epsilon": None, "seed": 0} | figures(result)
    for epsilon in EPSILONS[name]:
        for unit, level in UNITS.items():
            for seed in range(num_seeds):
                config = MosaicConfig(unit=level).calibrate(epsilon=epsilon, delta=DELTA)
                result = fit(train, config, test=test, options=RunOptions(seed=seed))
                # One seed shows which users a model thinks too likely; more would say the same.
                more = {} if seed else {"calibration_by_rows": calibration_by_rows(result, test)}
                names = {"unit": unit, "epsilon": epsilon, "seed": seed}
                yield facts | names | figures(result) | more


def figures(result: FitResult) -> dict[str, object]:
    metrics = result.metrics.to_dict()
    names = ("auc_loss", "log_loss", "calibration")
    return {name: metrics[name] for name in names} | {"seconds": round(result.seconds, 1)}


def calibration_by_rows(result: FitResult, test: ExampleSet) -> list[float]:
    """Mean prediction over mean label of the rows of users with 1, 2, and 3 or more rows."""
    _, owners, numbers = np.unique(test.units, return_inverse=True, return_counts=True)
    classes = np.minimum(numbers[owners], 3) - 1
    sums = np.bincount(classes, result.model.predicted(test)) / np.bincount(classes, test.labels)
    return [round(float(one), 4) for one in sums]


if __name__ == "__main__":
    main()
