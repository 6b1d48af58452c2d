"""A few hundred rows whose labels can be learnt: 3 public features, 2 sensitive ones."""

import dataclasses
import functools
import os
import signal
from collections.abc import Callable
from pathlib import Path

import numpy as np

from tulle.accounting.budget import Budget
from tulle.accounting.ledger import Ledger
from tulle.data.prepared.dataset import Contents, PreparedDataset
from tulle.data.prepared.feature import PreparedFeature
from tulle.data.prepared.writer import DatasetWriter, hold_partial
from tulle.data.schema import Schema
from tulle.privacy.units import Adjacency, Unit
from tulle.train.examples import ExampleSet
from tulle.train.methods.baseline import NonPrivateConfig
from tulle.train.methods.dp_sgd import DpSgdConfig
from tulle.train.methods.hybrid import HybridConfig
from tulle.train.methods.label_projection.method import LabelProjectionConfig, Projection
from tulle.train.methods.method import Method
from tulle.train.methods.randomized_labels import RandomizedLabelsConfig
from tulle.train.methods.train_plan import TrainPlan
from tulle.train.run_context import Progress
from tulle.train.settings.models import MLP, LogisticRegression
from tulle.train.settings.optimizers import Adam
from tulle.train.settings.phases import LabelPhase, PlainPhase, PrivatePhase
from tulle.train.settings.units import DataShape, ExampleLevel

PUBLIC = (("site", 6), ("slot", 4), ("hour", 5))
SENSITIVE = (("age", 4), ("visits", 5))
SCHEMA = Schema(
    label="click", public=("site", "slot", "hour"), sensitive=("age", "visits"), unit="user"
)
FEATURES = tuple(
    PreparedFeature(name=name, role=role, num_ids=num_ids, table=name)
    for role, named in (("public", PUBLIC), ("sensitive", SENSITIVE))
    for name, num_ids in named
)

SMALL_MLP = MLP(embedding_dim=4, public_hidden=(6,), sensitive_hidden=(5,), common_hidden=(4,))


def make_examples(num_rows: int = 400, *, seed: int = 0, rows_per_user: int = 1) -> ExampleSet:
    """Clicks that depend on the first public and the first sensitive feature."""
    rng = np.random.default_rng(seed)
    public = np.stack([rng.integers(0, size, num_rows) for _, size in PUBLIC], axis=1)
    sensitive = np.stack([rng.integers(0, size, num_rows) for _, size in SENSITIVE], axis=1)
    logits = 2.0 * (public[:, 0] - 2.5) + 2.0 * (sensitive[:, 0] - 1.5)
    labels = rng.random(num_rows) < 1 / (1 + np.exp(-logits))
    return ExampleSet(
        features=FEATURES,
        columns=SCHEMA.roles,
        public_features=public.astype(np.int32),
        sensitive_features=sensitive.astype(np.int32),
        labels=labels.astype(np.float32),
        units=np.arange(num_rows, dtype=np.int64) // rows_per_user,
    )


def make_shape(num_rows: int = 400, *, num_users: int | None = None) -> DataShape:
    """The shape of such data, of any size, without the data."""
    return DataShape(
        features=FEATURES,
        columns=SCHEMA.roles,
        num_label_rows=num_rows,
        num_private_rows=num_rows,
        num_users=num_users,
    )


@functools.cache
def planned(config: Method, num_rows: int = 400) -> TrainPlan:
    """The plan for such data without users. Accounting takes a while, so it is kept."""
    return config.make(make_shape(num_rows))


def make_ledger(folder: Path, *, epsilon: float = 50.0, delta: float = 1e-3) -> Ledger:
    """Books with one budget, 'all', for training on single examples."""
    ledger = Ledger.create(folder / "ledger.db")
    ledger.create_budget(
        Budget(
            name="all",
            unit=Unit.example(),
            adjacency=Adjacency.REPLACE,
            epsilon=epsilon,
            delta=delta,
            purpose="training",
        )
    )
    return ledger


def write_dataset(folder: Path, examples: ExampleSet) -> PreparedDataset:
    """The same rows as a prepared dataset on disk."""
    contents = Contents(
        schema=SCHEMA, features=FEATURES, num_classes=2, encoder_fingerprint="sha256:encoder"
    )
    settings = {"layout": "small"}
    with (
        hold_partial(folder, settings, resume=False) as partial,
        DatasetWriter(partial, contents) as writer,
    ):
        block = {
            "public_features": examples.public_features,
            "sensitive_features": examples.sensitive_features,
            "labels": examples.labels,
            "units": examples.units,
        }
        writer.append(block, position={"row": examples.num_rows}, num_bad_lines=0)
        return writer.finish({"sources": []})


def label_phase(**changes: object) -> LabelPhase:
    phase = LabelPhase(epochs=4.0, batch_size=64, optimizer=Adam(learning_rate=0.05))
    return dataclasses.replace(phase, **changes)


def private_phase(**changes: object) -> PrivatePhase:
    phase = PrivatePhase(
        epochs=2.0, batch_size=100, clip_norm=1.0, optimizer=Adam(learning_rate=0.05)
    )
    return dataclasses.replace(phase, **changes)


def plain_phase(**changes: object) -> PlainPhase:
    phase = PlainPhase(epochs=6.0, batch_size=64, optimizer=Adam(learning_rate=0.05))
    return dataclasses.replace(phase, **changes)


def two_phase(**changes: object) -> HybridConfig:
    """With its noise given, so that planning takes no search."""
    config = HybridConfig(
        model=LogisticRegression(),
        label_phase=label_phase(),
        private_phase=private_phase(noise_multiplier=1.0),
        unit=ExampleLevel(),
    ).calibrate(epsilon=5.0, delta=1e-5)
    return dataclasses.replace(config, **changes)


def randomized_labels(**changes: object) -> RandomizedLabelsConfig:
    config = RandomizedLabelsConfig(
        model=LogisticRegression(), label_phase=label_phase(), unit=ExampleLevel()
    )
    return dataclasses.replace(config.calibrate(epsilon=3.0), **changes)


def dp_sgd(**changes: object) -> DpSgdConfig:
    """With its noise given, so that planning takes no search."""
    config = DpSgdConfig(
        model=LogisticRegression(),
        private_phase=private_phase(noise_multiplier=1.0),
        unit=ExampleLevel(),
    ).calibrate(epsilon=5.0, delta=1e-5)
    return dataclasses.replace(config, **changes)


def label_projection(**changes: object) -> LabelProjectionConfig:
    """With its noise given, so that planning takes no search."""
    config = LabelProjectionConfig(
        model=LogisticRegression(),
        private_phase=private_phase(noise_multiplier=1.0),
        projection=Projection(public_batch_size=32),
        unit=ExampleLevel(),
    ).calibrate(epsilon=5.0, delta=1e-5)
    return dataclasses.replace(config, **changes)


def nonprivate(**changes: object) -> NonPrivateConfig:
    config = NonPrivateConfig(model=LogisticRegression(), phase=plain_phase())
    return dataclasses.replace(config, **changes)


def stop_at(step: int) -> Callable[[Progress], None]:
    """Watches a run and asks its process to stop after this step, as a user or a machine does."""

    def watch(progress: Progress) -> None:
        if progress.step == step:
            os.kill(os.getpid(), signal.SIGTERM)

    return watch
