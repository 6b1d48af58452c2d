"""How much quality a smaller private model costs (Chua et al., AdKDD 2024, section 5.4.4).

    python benchmarks/quality/model_size.py [--rows N] [--epsilon E] [--models fm mlp] [--seeds N]

The size of the sensitive tower is set by its vocabulary: values of sensitive categories are
kept if their noisy count reaches a threshold. The counts are charged to a ledger and are part
of the plan of every run, so epsilon is that of everything together.

As in the paper: the Display log (a synthetic one), thresholds 16 to 4096, epsilon 12, public
tower fine-tuned or frozen. Unlike it: which values exist is protected too, which noise allows
from a count of about 60 on, so threshold 16 is raised to that; numbers become logarithmic
buckets, which need no vocabulary. Settings are those of method_jobs.py with fewer epochs; after
a trial on 30,000 rows, epochs went from 4 to 8 and log buckets from 32 to 16, and nothing else
was tried. Training has fixed seeds; vocabularies are drawn anew each time.
"""

import argparse
import dataclasses
import hashlib
import itertools
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import polars as pl

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from record import PUBLISHED, print_table, versions, write_record
from tulle.accounting.accountant import pld_epsilon
from tulle.accounting.budget import Budget
from tulle.accounting.ledger import Ledger
from tulle.data.features.column_features import LogFeature, VocabularyFeature
from tulle.data.features.encoder import Encoder
from tulle.data.features.feature_plan import FeaturePlan
from tulle.data.features.private_vocabulary import PrivateVocabularyConfig
from tulle.data.features.vocabulary import PURPOSE as VOCABULARY
from tulle.data.formats.public import DISPLAY
from tulle.data.preparation import VocabularyPayment, prepare_log
from tulle.data.schema import Kind
from tulle.data.splits import split_at_random
from tulle.data.synth import shapes
from tulle.data.synth.write_logs import write_log
from tulle.data.tables.sources import LogFiles
from tulle.privacy.codec import plain_data
from tulle.privacy.events import Composed, Event
from tulle.privacy.units import Adjacency, Unit
from tulle.runs.charging import ReleaseCharge
from tulle.train import (
    MLP,
    Adam,
    ExampleSet,
    FactorizationMachine,
    FitResult,
    HybridConfig,
    LabelPhase,
    PrivatePhase,
    PublicTower,
    RunOptions,
    fit,
)
from tulle.train.methods.private_training import step_settings

THRESHOLDS = (16, 64, 256, 1024, 4096)
PUBLIC_MIN_COUNT = 16
LOG_BUCKETS = 16
TRAIN_SHARE = 0.8
DELTA = 1e-7
VOCABULARY_DELTA = 1e-8
VOCABULARY_NOISE = 2.6
"""Over the L2 contribution of a row. Lets values show from a noisy count of 60 on."""
SALT = b"model size, public"
SPLIT_KEY = hashlib.sha256(b"80/20 split of the model size benchmark").digest()
MODELS = {
    "fm": FactorizationMachine(),
    "mlp": MLP(embedding_dim=16, public_hidden=(64,), common_hidden=(64, 64)),
}
TOWERS = {"fine-tuned": PublicTower.FINE_TUNE, "frozen": PublicTower.FREEZE}
Row = dict[str, object]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=300_000)
    parser.add_argument("--epsilon", type=float, default=12.0)
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=["fm"])
    parser.add_argument("--epochs", type=float, default=8.0, help="of the private steps")
    parser.add_argument("--label-epochs", type=float, default=1.0)
    parser.add_argument("--batch-size", type=int, default=16_384, help="of the private steps")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--output", type=Path, default=PUBLISHED / "model_size.json")
    options = parser.parse_args()
    configs = {name: make_config(name, options) for name in options.models}
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as work:
        train_log, test_log = write_logs(Path(work), options.rows)
        rows: list[Row] = []
        for threshold in THRESHOLDS:
            folder = Path(work) / str(threshold)
            folder.mkdir()
            data = prepare_data(train_log, test_log, folder, threshold, options.epsilon)
            for row in run_all(data, configs, range(options.seeds)):
                rows.append({"threshold": threshold} | row)
                print(json.dumps(rows[-1]), flush=True)
    facts = {
        "versions": versions("numpy", "torch"),
        "source": "synth:display",
        "num_rows": options.rows,
        "train_share": TRAIN_SHARE,
        "epsilon": options.epsilon,
        "delta": DELTA,
        "vocabulary_noise_multiplier": VOCABULARY_NOISE,
        "models": {name: plain_data(MODELS[name]) for name in configs},
        "private_epochs": options.epochs,
        "label_epochs": options.label_epochs,
        "batch_size": options.batch_size,
        "seeds": options.seeds,
        "minutes": round((time.monotonic() - start) / 60, 1),
        "summary": summary(rows),
    }
    write_record(options.output, "quality by size of the private model", rows, facts)
    print_table(summary(rows))


def make_config(model: str, options: argparse.Namespace) -> HybridConfig:
    """Hybrid as in the other benchmarks, with fewer epochs."""
    return HybridConfig(
        model=MODELS[model],
        label_phase=LabelPhase(epochs=options.label_epochs),
        private_phase=PrivatePhase(
            epochs=options.epochs,
            batch_size=options.batch_size,
            optimizer=Adam(learning_rate=1e-3),
        ),
    ).calibrate(epsilon=options.epsilon, delta=DELTA)


def write_logs(work: Path, num_rows: int) -> tuple[Path, Path]:
    """Training and test rows in a file each: vocabularies must not see the test rows."""
    whole = work / "log.parquet"
    write_log(shapes.DISPLAY, whole, num_rows=num_rows, seed=20260115)
    table = pl.read_parquet(whole)
    parts = split_at_random(table.height, fractions=(TRAIN_SHARE, 1 - TRAIN_SHARE), key=SPLIT_KEY)
    paths = (work / "train.parquet", work / "test.parquet")
    for path, rows in zip(paths, parts, strict=True):
        table[rows].write_parquet(path)
    return paths


def feature_plan(threshold: int) -> FeaturePlan:
    """Logarithmic buckets of numbers, vocabularies of categories."""
    schema = DISPLAY.schema
    features = []
    for column in schema.features:
        if schema.kind(column) is Kind.INTEGER:
            features.append(LogFeature(column=column, num_buckets=LOG_BUCKETS))
        else:
            min_count = threshold if column in schema.sensitive else PUBLIC_MIN_COUNT
            features.append(VocabularyFeature(column=column, min_count=min_count))
    return FeaturePlan(schema=schema, features=tuple(features), salt=SALT, shared_tables=True)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class PaidData:
    """Rows whose vocabularies were charged to a ledger."""

    train: ExampleSet
    test: ExampleSet
    ledger: Ledger
    used_threshold: int
    """What the noise allows, if that is more than was asked for."""
    vocabulary_epsilon: float


def prepare_data(
    train_log: Path, test_log: Path, folder: Path, threshold: int, epsilon: float
) -> PaidData:
    """Counts, charges and encodes; test rows with the encoder of the training rows."""
    ledger = Ledger.create(folder / "ledger.db")
    create_budget(ledger, VOCABULARY, epsilon)
    private = PrivateVocabularyConfig(
        unit=Unit.example(), noise_multiplier=VOCABULARY_NOISE, delta=VOCABULARY_DELTA
    )
    plan = feature_plan(threshold)
    payment = VocabularyPayment(private=private, ledger=ledger)
    log = LogFiles(paths=(train_log,), layout=DISPLAY)
    train = prepare_log(log, plan, folder / "train", payment=payment).dataset
    encoder = Encoder.from_files(folder / "train")
    log = LogFiles(paths=(test_log,), layout=DISPLAY)
    test = prepare_log(log, encoder, folder / "test").dataset
    return PaidData(
        train=ExampleSet.of(train),
        test=ExampleSet.of(test),
        ledger=ledger,
        used_threshold=max(private.thresholds(plan).values()),
        vocabulary_epsilon=pld_epsilon(train.vocabulary_event, DELTA, Adjacency.REPLACE),
    )


def create_budget(ledger: Ledger, purpose: str, epsilon: float) -> None:
    """One budget for each purpose: the runs of a benchmark are alternatives, not a sequence."""
    ledger.create_budget(
        Budget(
            name=purpose,
            purpose=purpose,
            unit=Unit.example(),
            adjacency=Adjacency.REPLACE,
            epsilon=epsilon,
            delta=DELTA,
        )
    )


def run_all(data: PaidData, configs: dict[str, HybridConfig], seeds: range) -> Iterator[Row]:
    """One row for each model, treatment of the public tower and seed."""
    for (model, config), (name, tower), seed in itertools.product(
        configs.items(), TOWERS.items(), seeds
    ):
        purpose = f"training {model}, {name}, seed {seed}"
        create_budget(data.ledger, purpose, config.target.epsilon)
        phase = dataclasses.replace(config.private_phase, public_tower=tower)
        chosen = dataclasses.replace(config, private_phase=phase, initial_seed=seed)
        charge = ReleaseCharge(ledger=data.ledger, purpose=purpose)
        options = RunOptions(seed=seed, charge=charge)
        result = fit(data.train, chosen, test=data.test, options=options)
        check_charged_once(data.ledger, purpose, result.plan.privacy.event)
        yield {"model": model, "public_tower": name, "seed": seed} | describe(data, result)


def check_charged_once(ledger: Ledger, purpose: str, event: Event) -> None:
    """Vocabulary and training, each charged once, are what the plan claims."""
    (vocabulary,), (training,) = ledger.spends(VOCABULARY), ledger.spends(purpose)
    parts = training.request.event
    if event != Composed((vocabulary.request.event, *parts.events)):
        raise SystemExit("the ledger and the plan disagree about what was spent")


def describe(data: PaidData, result: FitResult) -> Row:
    """Size, quality and cost of one run."""
    plan, metrics, parameters = result.plan, result.metrics, result.model.model.parameters
    tables = {f.table: f.num_ids for f in plan.shape.features if f.role == "sensitive"}
    return {
        "used_threshold": data.used_threshold,
        "sensitive_ids": sum(tables.values()),
        "parameters": sum(values.numel() for values in parameters.values()),
        "sensitive_parameters": sum(
            values.numel() for name, values in parameters.items() if name.startswith("sensitive.")
        ),
        "private_parameters": sum(
            values.numel()
            for name, values in parameters.items()
            if name.partition(".")[0] in step_settings(plan).towers
        ),
        "auc_loss": metrics.auc_loss,
        "auc_loss_standard_error": metrics.auc_loss_standard_error,
        "log_loss": metrics.log_loss,
        "log_loss_standard_error": metrics.log_loss_standard_error,
        "vocabulary_epsilon": data.vocabulary_epsilon,
        "label_epsilon": plan.method.label_epsilon,
        "epsilon": plan.privacy.guarantee.epsilon,
        "noise_multiplier": plan.noise_multiplier,
        "steps": plan.num_private_steps,
        "seconds": round(result.seconds, 1),
    }


def summary(rows: list[Row]) -> list[Row]:
    """Means over seeds, in percent of the largest model of the same kind."""
    groups: dict[tuple, list[Row]] = {}
    for row in rows:
        groups.setdefault((row["model"], row["public_tower"], row["threshold"]), []).append(row)
    table = []
    for (model, tower, threshold), group in groups.items():
        largest = groups[model, tower, THRESHOLDS[0]]
        auc_loss, log_loss = mean(group, "auc_loss"), mean(group, "log_loss")
        ids = mean(group, "sensitive_ids")
        table.append(
            {
                "model": model,
                "public_tower": tower,
                "threshold": threshold,
                "sensitive_ids": round(ids),
                "times_smaller": mean(largest, "sensitive_ids") / ids,
                "auc_loss": auc_loss,
                "auc_loss_percent": 100 * (auc_loss / mean(largest, "auc_loss") - 1),
                "auc_loss_stddev": spread(group, "auc_loss"),
                "log_loss": log_loss,
                "log_loss_percent": 100 * (log_loss / mean(largest, "log_loss") - 1),
                "epsilon": group[0]["epsilon"],
            }
        )
    return table


def mean(rows: list[Row], key: str) -> float:
    """Over the seeds."""
    return statistics.mean(row[key] for row in rows)


def spread(rows: list[Row], key: str) -> float | None:
    """Standard deviation over the seeds; None if there is one."""
    return statistics.stdev(row[key] for row in rows) if len(rows) > 1 else None


if __name__ == "__main__":
    main()
