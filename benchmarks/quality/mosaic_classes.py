"""Classes of clicks: Mosaic with classes, one model for each, label DP of the same epsilon.

    python benchmarks/quality/mosaic_classes.py CLICKS [--train 200000] [--test 100000] [--seeds 3]

CLICKS is clicks.parquet (an extract of the Criteo Sponsored Search Conversion Log). Training and
test rows are drawn from those of labels_data.py's 80/20 split, without the rows that settings were
tried on. Without CLICKS nothing is measured. There are two labels; the record is of the first, and
--labels category measures the second. With --methods, rows of the others are kept:

- "sale": none, a sale of less than 50 euros, or one of 50 euros or more. Public and sensitive
  columns are those of method_jobs.py.
- "category": the first category of the product, the ten most frequent ones or another one. Which
  these are follows from rows of users that have no row here. Columns that describe the product are
  left out.

And these are the methods:

- Mosaic learns all classes, each with half of the budget. Delta is 1e-7. One run at epsilon 1000
  shows what it learns with hardly any noise.
- One model of Mosaic for each class, whose releases together cost the same: each has a Kth part of
  the one Gaussian, so that its noise is sqrt(K) times as large. Their probabilities are divided by
  their sum.
- Label DP releases each label by K-ary randomized response. A multinomial logistic model is trained
  on the reports, whose law given the true class is known. Label DP does not protect columns, so the
  model sees public ones alone.
- Without privacy the same multinomial model is trained on the labels, with public or all columns,
  and the frequencies of classes are predicted for all rows.

Ridges are chosen on a fifth of the (noisy) training labels. Noise has fixed seeds; a release would
not.
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
from scipy.optimize import minimize
from scipy.sparse import csr_array

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from labels_data import REAL, SALT, split_rows
from labels_values import one_hot_data
from method_jobs import CLICKS_SCHEMA

from record import PUBLISHED, earlier_rows, print_table, versions, write_record
from tulle.data.features.feature_plan import FeaturePlan, HashedFeature, LogFeature
from tulle.data.preparation import PrepareConfig, prepare_log
from tulle.data.schema import Schema
from tulle.data.tables.layout import layout_for
from tulle.data.tables.sources import LogFiles
from tulle.labels.mechanisms.class_response import ClassResponse
from tulle.mechanisms.entropy import SeededNoise
from tulle.quality.class_metrics import ClassMetrics, evaluate_classes
from tulle.runs.records import StopRequest
from tulle.train import ExampleLevel, ExampleSet, MosaicConfig
from tulle.train.examples import TrainingRows, shape_of
from tulle.train.methods.mosaic.cell_training import train_on_cells
from tulle.train.methods.mosaic.trained_cells import TrainedCells
from tulle.train.run_context import RunContext

FloatArray = NDArray[np.float64]
Row = dict[str, object]

EPSILONS = (1.0, 3.0, 8.0)
DELTA = 1e-7
AMPLE = 1000.0
"""An epsilon at which noise hardly matters."""
TRIED_SEED, NUM_TRIED = 20261118, 550_000
"""The rows that settings were tried on, which are left out here."""
DRAW_SEED = 20261120
NUM_CATEGORIES = 10
LARGE_SALE = 50.0
"""Euros from which on a sale counts as large."""
RIDGES = (1.0, 10.0, 100.0)
MOST_ITERATIONS = 60
"""Steps of L-BFGS; the log loss on other rows no longer falls after some forty."""
METHODS = ("classes", "models", "others")
CLASSES, MODELS = "mosaic, classes", "mosaic, a model for each class"
SALES = ("none", "below 50", "50 and more")


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Clicks:
    """Training and test rows of one label. Raw data."""

    name: str
    classes: tuple[str, ...]
    train: ExampleSet
    test: ExampleSet

    def figures(self, method: str, epsilon: float | None, seed: int, found: FloatArray) -> Row:
        """One line of the record."""
        metrics = evaluate_classes(self.test.labels, found, classes=self.classes)
        print(self.name, method, epsilon, seed, f"{metrics.log_loss:.4f}", flush=True)
        return {
            "label": self.name,
            "method": method,
            "epsilon": epsilon,
            "seed": seed,
            **_shown(metrics),
            "train_rows": self.train.num_rows,
            "test_rows": self.test.num_rows,
        }


def _shown(found: ClassMetrics) -> Row:
    told = found.to_dict()
    told["classes"] = [dataclasses.asdict(one) for one in found.classes]
    return told


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("clicks", nargs="?")
    parser.add_argument("--train", type=int, default=200_000)
    parser.add_argument("--test", type=int, default=100_000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--labels", nargs="+", choices=("sale", "category"), default=["sale"])
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS)
    parser.add_argument("--output", type=Path, default=PUBLISHED / "mosaic_classes.json")
    options = parser.parse_args()
    if options.clicks is None:
        print("skipped: name clicks.parquet, which is research data and not part of this project.")
        return
    rows = [row for row in earlier_rows(options.output) if not is_measured(row, options)]
    for name in options.labels:
        with tempfile.TemporaryDirectory() as work:
            clicks = read_clicks(Path(options.clicks), Path(work), name, options)
            if "others" in options.methods:
                rows += label_rows(clicks, options.seeds)
            for seed in range(options.seeds):
                if "classes" in options.methods:
                    rows += class_rows(clicks, seed)
                if "models" in options.methods:
                    rows += model_rows(clicks, seed)
    facts = {
        "versions": versions("numpy", "scipy"),
        "seeds": list(range(options.seeds)),
        "summary": summary(rows),
    }
    write_record(options.output, "classes of clicks", rows, facts)
    print_table(facts["summary"])


def is_measured(row: Row, options: argparse.Namespace) -> bool:
    """Whether a row of an earlier record is measured again."""
    method = {CLASSES: "classes", MODELS: "models"}.get(str(row["method"]), "others")
    return row["label"] in options.labels and method in options.methods


def read_clicks(source: Path, work: Path, name: str, options: argparse.Namespace) -> Clicks:
    """Draws rows of the log, and encodes them."""
    table = pl.read_parquet(source)
    tried = np.random.default_rng(TRIED_SEED).choice(len(table), NUM_TRIED, replace=False)
    rng = np.random.default_rng(DRAW_SEED)
    parts = [
        np.sort(rng.permutation(np.setdiff1d(part, tried))[:number])
        for part, number in zip(split_rows(len(table)), (options.train, options.test), strict=True)
    ]
    label, classes = label_of(table, name, np.concatenate(parts))
    public = CLICKS_SCHEMA.public
    if name == "category":
        public = tuple(one for one in public if "prod" not in one)
    schema = Schema(
        label="class",
        public=public,
        sensitive=CLICKS_SCHEMA.sensitive,
        kinds=CLICKS_SCHEMA.kinds,
    )
    table = table.with_columns((pl.col("day") % 7).alias("day_of_week"), label.alias("class"))
    log = work / "log.parquet"
    table[np.concatenate(parts)].select(schema.used).write_parquet(log)
    config = PrepareConfig(num_classes=len(classes), classes=classes)
    files = LogFiles(paths=(log,), layout=layout_for(log, schema))
    dataset = prepare_log(files, plan_of(schema), work / "prepared", config=config).dataset
    examples = ExampleSet.of(dataset, num_classes=len(classes))
    places = np.arange(dataset.num_rows)
    return Clicks(
        name=name,
        classes=classes,
        train=examples.select(places[: len(parts[0])]),
        test=examples.select(places[len(parts[0]) :]),
    )


def label_of(
    table: pl.DataFrame, name: str, chosen: NDArray[np.int64]
) -> tuple[pl.Series, tuple[str, ...]]:
    """The class of each row, and the names of all classes."""
    if name == "sale":
        amount = pl.when(pl.col("Sale") == 1).then(pl.col("SalesAmountInEuro")).otherwise(0)
        size = pl.when(amount <= 0).then(0).when(amount < LARGE_SALE).then(1).otherwise(2)
        numbers = table.select(size).to_series()
        return numbers.replace_strict([0, 1, 2], list(SALES), return_dtype=pl.String), SALES
    users = table[chosen]["user_id"].unique()
    others = table.filter(~pl.col("user_id").is_in(users.implode()))["prod_category1"]
    counts = others.value_counts().sort(["count", "prod_category1"], descending=True)
    kept = counts["prod_category1"][:NUM_CATEGORIES].to_list()
    names = [f"category {one}" for one in kept]
    label = table["prod_category1"].replace_strict(
        kept, names, default="other", return_dtype=pl.String
    )
    return label, (*names, "other")


def plan_of(schema: Schema) -> FeaturePlan:
    """Columns hashed as in method_jobs.py."""
    hashed = [HashedFeature(column=name, num_bins=100_000) for name in schema.public[1:]]
    hashed += [HashedFeature(column=name, num_bins=50_000) for name in schema.sensitive]
    features = (LogFeature(column=schema.public[0]), *hashed)
    return FeaturePlan(schema=schema, features=features, salt=SALT, shared_tables=True)


def class_rows(clicks: Clicks, seed: int) -> Iterator[Row]:
    """Mosaic with classes, at every epsilon."""
    for epsilon in (*EPSILONS, *((AMPLE,) if seed == 0 else ())):
        found = learnt(clicks.train, clicks, epsilon, seed, classes=clicks.classes)
        yield clicks.figures(CLASSES, epsilon, seed, found)


def model_rows(clicks: Clicks, seed: int) -> Iterator[Row]:
    """A model of Mosaic for each class, at every epsilon."""
    num_classes = len(clicks.classes)
    for epsilon in EPSILONS:
        rates = []
        for number in range(num_classes):
            labels = (clicks.train.labels == number).astype(np.float32)
            rows = dataclasses.replace(clicks.train, labels=labels, num_classes=2)
            rates.append(learnt(rows, clicks, epsilon, num_classes * seed + number, num_classes))
        found = np.stack(rates, axis=1)
        found /= found.sum(axis=1, keepdims=True)
        yield clicks.figures(MODELS, epsilon, seed, found)


def learnt(
    rows: ExampleSet,
    clicks: Clicks,
    epsilon: float,
    seed: int,
    num_models: int = 1,
    classes: tuple[str, ...] | None = None,
) -> FloatArray:
    """What a model predicts that has a part of the one Gaussian of this epsilon."""
    config = MosaicConfig(unit=ExampleLevel(), classes=classes)
    plan = config.calibrate(epsilon=epsilon, delta=DELTA).make(shape_of(rows, TrainingRows()))
    noise = plan.noise_multiplier * np.sqrt(num_models)
    context = RunContext(rng=SeededNoise(seed), stop=StopRequest(), watch=None)
    model = train_on_cells(rows, dataclasses.replace(plan, noise_multiplier=noise), context)
    test = dataclasses.replace(clicks.test, labels=None)
    return TrainedCells.of(model, rows.features).predict(test)


def label_rows(clicks: Clicks, num_seeds: int) -> Iterator[Row]:
    """The multinomial model on labels, and on those that label DP releases; class frequencies."""
    labels, num_classes = clicks.train.labels.astype(np.int64), len(clicks.classes)
    rates = np.bincount(labels, minlength=num_classes) / len(labels)
    constant = np.tile(rates, (clicks.test.num_rows, 1))
    yield clicks.figures("class frequencies", None, 0, constant)
    exact = np.eye(num_classes)
    for columns in ("all", "public"):
        train, test = features_of(clicks, columns)
        found = multinomial(train, labels, exact, test)
        yield clicks.figures(f"no privacy, multinomial, {columns} columns", None, 0, found)
    for epsilon in EPSILONS:
        mechanism = ClassResponse(epsilon=epsilon, num_classes=num_classes)
        noise = mechanism.random_prob
        channel = (1 - noise) * exact + noise / num_classes
        for seed in range(num_seeds):
            rng = SeededNoise(1_000_003 * seed + round(1000 * epsilon))
            reports = np.asarray(mechanism.release(labels, rng=rng).labels, np.int64)
            found = multinomial(train, reports, channel, test)
            yield clicks.figures("label DP, multinomial, public columns", epsilon, seed, found)


def features_of(clicks: Clicks, columns: str) -> tuple[csr_array, csr_array]:
    """A column for each id that training rows have."""
    parts = [
        (part.public_features[part.rows], part.sensitive_features[part.rows])
        for part in (clicks.train, clicks.test)
    ]
    ids = np.concatenate(
        [
            public if columns == "public" else np.concatenate([public, own], axis=1)
            for public, own in parts
        ]
    )
    places, num_train = np.arange(len(ids)), clicks.train.num_rows
    data = one_hot_data(REAL, ids, np.zeros(len(ids)), (places[:num_train], places[num_train:]))
    return data.train, data.test


def multinomial(
    train: csr_array, reports: NDArray[np.int64], channel: FloatArray, test: csr_array
) -> FloatArray:
    """Probabilities of the classes of test rows, by the ridge that predicts reports best."""
    is_held = np.random.default_rng(3).random(len(reports)) < 0.2
    fitted, held = train[~is_held], train[is_held]
    losses = {}
    for ridge in RIDGES:
        weights = fit_multinomial(fitted, reports[~is_held], channel, ridge)
        told = chances(held, weights) @ channel
        losses[ridge] = -np.log(told[np.arange(len(told)), reports[is_held]]).mean()
    best = min(losses, key=losses.__getitem__)
    return chances(test, fit_multinomial(train, reports, channel, best))


def fit_multinomial(
    matrix: csr_array, reports: NDArray[np.int64], channel: FloatArray, ridge: float
) -> FloatArray:
    """Weights of the largest penalised likelihood of the reports; no penalty on the constants."""
    shape = (matrix.shape[1], len(channel))
    transposed = matrix.T.tocsr()

    def loss(flat: FloatArray) -> tuple[float, FloatArray]:
        weights = flat.reshape(shape)
        likely = chances(matrix, weights)
        joint = likely * channel[:, reports].T
        told = joint.sum(axis=1)
        penalised = weights.copy()
        penalised[0] = 0
        gradient = transposed @ (likely - joint / told[:, None]) + ridge * penalised
        value = -np.log(told).sum() + 0.5 * ridge * float((penalised**2).sum())
        return float(value), gradient.ravel()

    start = np.zeros(shape[0] * shape[1])
    found = minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": MOST_ITERATIONS})
    return found.x.reshape(shape)


def chances(matrix: csr_array, weights: FloatArray) -> FloatArray:
    """Softmax of the sums of weights of each row."""
    scores = matrix @ weights
    scores -= scores.max(axis=1, keepdims=True)
    odds = np.exp(scores)
    return odds / odds.sum(axis=1, keepdims=True)


def summary(rows: list[Row]) -> list[Row]:
    """Means over seeds, and the spread of the log loss."""
    names = ("log_loss", "normalised_cross_entropy", "accuracy", "auc", "calibration_error")
    keys = list(dict.fromkeys((row["label"], row["method"], row["epsilon"]) for row in rows))
    keys.sort(key=lambda key: (key[0] != "sale", key[2] is not None, key[2] or 0, key[1]))
    means = []
    for label, method, epsilon in keys:
        key = (label, method, epsilon)
        own = [row for row in rows if (row["label"], row["method"], row["epsilon"]) == key]
        losses = [row["log_loss"] for row in own]
        means.append(
            {
                "label": label,
                "method": method,
                "epsilon": epsilon,
                **{name: float(np.mean([row[name] for row in own])) for name in names},
                "log_loss_stddev": float(np.std(losses, ddof=1)) if len(own) > 1 else None,
                "seeds": len(own),
            }
        )
    return means


if __name__ == "__main__":
    main()
