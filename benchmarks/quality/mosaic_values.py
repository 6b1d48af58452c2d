"""Expected sale amounts of clicks: Mosaic with a clip, label DP of the same epsilon, no privacy.

    python benchmarks/quality/mosaic_values.py CLICKS [--train 400000] [--test 100000] [--seeds 3]

CLICKS is clicks.parquet (an extract of the Criteo Sponsored Search Conversion Log). The label is
the sale amount, 0 where there was no sale, and counts as 400 euros above that. Training and test
rows are drawn from those of labels_data.py's 80/20 split, without the rows that settings were tried
on. Public and sensitive columns are those of method_jobs.py. Without CLICKS nothing is measured.

- Mosaic learns the expected amount directly, or rate and size by tables of their own, half of the
  budget each. Delta is 1e-7. One run at epsilon 1000 shows what it learns with hardly any noise.
- Label DP releases each amount by the unbiased randomizer, which docs/labels.md recommends for
  training, with a tenth of epsilon for its prior. A linear model with a ridge is trained on it, as
  in labels_values.py. Label DP does not protect columns, so the model sees public ones alone.
- Without privacy the same linear model is trained on the amounts, with public or with all columns.

Ridges are chosen on a fifth of the (noisy) training labels. Predictions of linear models are cut to
[0, 400]. Noise has fixed seeds; a release would not.
"""

import argparse
import dataclasses
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from labels_data import REAL, SALT, split_rows
from labels_ridge import choose_ridges, fit_ridge
from labels_values import GRID, PRIOR_CELLS, PRIOR_SHARE, one_hot_data
from method_jobs import CLICKS_SCHEMA

from record import PUBLISHED, print_table, versions, write_record
from tulle.data.features.feature_plan import FeaturePlan, HashedFeature, LogFeature
from tulle.data.preparation import PrepareConfig, prepare_log
from tulle.data.prepared.dataset import PreparedDataset
from tulle.data.schema import Schema
from tulle.data.tables.layout import layout_for
from tulle.data.tables.sources import LogFiles
from tulle.labels.mechanisms.label_prior import (
    LabelPriorConfig,
    raw_cell_counts,
    release_prior_of_counts,
)
from tulle.labels.mechanisms.unbiased_response import UnbiasedResponse
from tulle.mechanisms.entropy import SeededNoise
from tulle.quality.value_metrics import ValueMetrics, evaluate_values
from tulle.train import ExampleLevel, ExampleSet, MosaicConfig, RunOptions
from tulle.train.fitting import fit

FloatArray = NDArray[np.float64]
Row = dict[str, object]

EPSILONS = (1.0, 3.0, 8.0)
DELTA = 1e-7
AMPLE = 1000.0
"""An epsilon at which noise hardly matters."""
TRIED_SEED, NUM_TRIED = 20261118, 550_000
"""The rows that settings were tried on, which are left out here."""
DRAW_SEED = 20261119


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Clicks:
    """Training and test rows of the log. Raw data."""

    train: ExampleSet
    test: ExampleSet

    @property
    def test_amounts(self) -> FloatArray:
        """Clipped amounts of the test rows."""
        return clipped(self.test)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("clicks", nargs="?")
    parser.add_argument("--train", type=int, default=400_000)
    parser.add_argument("--test", type=int, default=100_000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--output", type=Path, default=PUBLISHED / "mosaic_values.json")
    options = parser.parse_args()
    if options.clicks is None:
        print("skipped: name clicks.parquet, which is research data and not part of this project.")
        return
    with tempfile.TemporaryDirectory() as work:
        clicks = read_clicks(Path(options.clicks), Path(work), options.train, options.test)
        rows = [
            *linear_rows(clicks, options.seeds),
            *(row for seed in range(options.seeds) for row in mosaic_rows(clicks, seed)),
        ]
    facts = {
        "versions": versions("numpy", "scipy"),
        "seeds": list(range(options.seeds)),
        "clip": GRID.high,
        "summary": summary(rows),
    }
    write_record(options.output, "expected sale amounts", rows, facts)
    print_table(facts["summary"])


def read_clicks(source: Path, work: Path, num_train: int, num_test: int) -> Clicks:
    """Draws rows of the log, and encodes them."""
    num_rows = pl.scan_parquet(source).select(pl.len()).collect().item()
    tried = np.random.default_rng(TRIED_SEED).choice(num_rows, NUM_TRIED, replace=False)
    rng = np.random.default_rng(DRAW_SEED)
    parts = [
        np.sort(rng.permutation(np.setdiff1d(part, tried))[:number])
        for part, number in zip(split_rows(num_rows), (num_train, num_test), strict=True)
    ]
    table = pl.read_parquet(source).with_columns(
        (pl.col("day") % 7).alias("day_of_week"),
        pl.when(pl.col("Sale") == 1).then(pl.col("SalesAmountInEuro")).otherwise(0).clip(0),
    )
    schema = Schema(
        label="SalesAmountInEuro",
        public=CLICKS_SCHEMA.public,
        sensitive=CLICKS_SCHEMA.sensitive,
        kinds=CLICKS_SCHEMA.kinds,
    )
    log = work / "log.parquet"
    table[np.concatenate(parts)].select(schema.used).write_parquet(log)
    dataset = prepared(log, schema, work)
    examples = ExampleSet.of(dataset, num_classes=None)
    places = np.arange(dataset.num_rows)
    return Clicks(
        train=examples.select(places[: len(parts[0])]),
        test=examples.select(places[len(parts[0]) :]),
    )


def prepared(log: Path, schema: Schema, work: Path) -> PreparedDataset:
    """Columns hashed as in method_jobs.py."""
    hashed = [HashedFeature(column=name, num_bins=100_000) for name in schema.public[1:]]
    hashed += [HashedFeature(column=name, num_bins=50_000) for name in schema.sensitive]
    features = (LogFeature(column=schema.public[0]), *hashed)
    plan = FeaturePlan(schema=schema, features=features, salt=SALT, shared_tables=True)
    files = LogFiles(paths=(log,), layout=layout_for(log, schema))
    config = PrepareConfig(num_classes=None)
    return prepare_log(files, plan, work / "prepared", config=config).dataset


def mosaic_rows(clicks: Clicks, seed: int) -> Iterator[Row]:
    """Mosaic at every epsilon."""
    for rate_share, name in ((None, "mosaic, direct"), (0.5, "mosaic, rate and size")):
        for epsilon in (*EPSILONS, *((AMPLE,) if seed == 0 else ())):
            config = MosaicConfig(unit=ExampleLevel(), clip=GRID.high, rate_share=rate_share)
            target = config.calibrate(epsilon=epsilon, delta=DELTA)
            result = fit(clicks.train, target, test=clicks.test, options=RunOptions(seed=seed))
            yield figures(name, epsilon, seed, clicks, result.value_metrics)


def linear_rows(clicks: Clicks, num_seeds: int) -> Iterator[Row]:
    """The linear model on amounts, and on those that label DP releases."""
    amounts = clipped(clicks.train)
    releases: list[tuple[str, float | None, int, FloatArray]] = [("no privacy", None, 0, amounts)]
    for epsilon in EPSILONS:
        for seed in range(num_seeds):
            releases.append(("label DP", epsilon, seed, released(amounts, epsilon, seed)))
    yield from linear_model(clicks, "public", releases)
    yield from linear_model(clicks, "all", releases[:1])


def linear_model(
    clicks: Clicks, columns: str, releases: list[tuple[str, float | None, int, FloatArray]]
) -> Iterator[Row]:
    """One ridge for each release, chosen by its own labels."""
    ids = np.concatenate([ids_of(part, columns) for part in (clicks.train, clicks.test)])
    amounts = np.concatenate([clipped(clicks.train), clicks.test_amounts])
    places, num_train = np.arange(len(ids)), clicks.train.num_rows
    data = one_hot_data(REAL, ids, amounts, (places[:num_train], places[num_train:]))
    labels = np.stack([noisy for *_, noisy in releases], axis=1)
    ridges = choose_ridges(data.train, labels)
    for place, (name, epsilon, seed, noisy) in enumerate(releases):
        weights = fit_ridge(data.train, noisy[:, None], float(ridges[place]))
        predicted = np.clip((data.test @ weights)[:, 0], 0.0, GRID.high)
        found = evaluate_values(data.test_values, predicted)
        full = f"{name}, linear, {columns} columns"
        yield figures(full, epsilon, seed, clicks, found) | {"ridge": float(ridges[place])}


def released(amounts: FloatArray, epsilon: float, seed: int) -> FloatArray:
    """Amounts as label DP releases them, with all of epsilon for each."""
    prior_epsilon = PRIOR_SHARE * epsilon
    config = LabelPriorConfig(epsilon=prior_epsilon, labels=GRID, num_cells=PRIOR_CELLS)
    rng = SeededNoise(7_000_003 * (seed + 1) + round(1000 * epsilon))
    counts = raw_cell_counts(amounts, config)
    prior = release_prior_of_counts(counts, config, rng=rng).weights
    mechanism = UnbiasedResponse(epsilon=epsilon - prior_epsilon, grid=GRID, prior=prior)
    noisy = mechanism.release(amounts, rng=SeededNoise(1_000_003 * seed + round(1000 * epsilon)))
    return noisy.labels.astype(np.float64)


def clipped(rows: ExampleSet) -> FloatArray:
    """Labels as everybody here counts them."""
    return np.minimum(rows.labels.astype(np.float64), GRID.high)


def ids_of(rows: ExampleSet, columns: str) -> NDArray[np.int32]:
    """Ids of public columns, or of all."""
    public = rows.public_features[rows.rows]
    if columns == "public":
        return public
    return np.concatenate([public, rows.sensitive_features[rows.rows]], axis=1)


def figures(
    method: str, epsilon: float | None, seed: int, clicks: Clicks, found: ValueMetrics
) -> Row:
    """One line of the record."""
    print(method, epsilon, seed, f"{found.r_squared:.4f}", flush=True)
    return {
        "method": method,
        "epsilon": epsilon,
        "seed": seed,
        "mean_squared_error": found.mean_squared_error,
        "mean_squared_error_standard_error": found.mean_squared_error_standard_error,
        "r_squared": found.r_squared,
        "calibration": found.calibration,
        "calibration_error": found.calibration_error,
        "bidding_over_constant": found.bidding_over_constant,
        "deciles": [list(group) for group in found.deciles],
        "train_rows": clicks.train.num_rows,
        "test_rows": clicks.test.num_rows,
    }


def summary(rows: list[Row]) -> list[Row]:
    """Means over seeds, and the spread of the explained variance."""
    keys = list(dict.fromkeys((row["method"], row["epsilon"]) for row in rows))
    means = []
    for method, epsilon in sorted(keys, key=lambda key: (key[1] is not None, key[1] or 0, key[0])):
        own = [row for row in rows if (row["method"], row["epsilon"]) == (method, epsilon)]
        figures_of = {
            name: float(np.mean([row[name] for row in own]))
            for name in (
                *("mean_squared_error", "r_squared", "calibration", "calibration_error"),
                "bidding_over_constant",
            )
        }
        spread = float(np.std([row["r_squared"] for row in own], ddof=1)) if len(own) > 1 else None
        means.append(
            {
                "method": method,
                "epsilon": epsilon,
                **figures_of,
                "r_squared_stddev": spread,
                "seeds": len(own),
            }
        )
    return means


if __name__ == "__main__":
    main()
