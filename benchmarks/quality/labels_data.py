"""Packs a log for labels.py: public features, labels and owners of the rows.

    python benchmarks/quality/labels_data.py SOURCE --output FOLDER [--rows N]

SOURCE is clicks.parquet (an extract of the Criteo Sponsored Search Conversion Log) or
synth:attribution. Features, hashing and the random 80/20 split are those of method_jobs.py,
without the sensitive columns: label DP protects labels alone, so a model may see public
columns only. The user owns the rows and is no feature. The folder can be carried to a machine
with numpy, torch and safetensors alone; plans that need an accountant are made here.
"""

import argparse
import dataclasses
import functools
import json
import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from labels_settings import DELTA, REAL_EPSILONS, SPLIT_KEY, projection_config

from dataset_archive import pack, unpack
from tulle.data.prepared.dataset import PreparedDataset
from tulle.data.splits import split_at_random
from tulle.labels.unit_rows import UnitRows, group_rows, single_rows
from tulle.privacy.units import Owner, Unit
from tulle.train import ExampleSet

IntArray = NDArray[np.int64]

SYNTH = "synth:attribution"
REAL = "criteo search, real clicks"
SALT = b"hybrid benchmark"
SYNTH_SEED = 20260115
PARTNERS = {
    # The log has no publisher: a category with 11 values stands for it.
    SYNTH: {Owner.USER_ADVERTISER: "campaign", Owner.USER_PUBLISHER: "cat8"},
    REAL: {Owner.USER_ADVERTISER: "partner_id"},
}


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Source:
    """Training and test rows of one log, with the owners of the training rows."""

    name: str
    train: ExampleSet
    test: ExampleSet
    owners: IntArray
    partners: dict[Owner, IntArray]
    """The advertiser or publisher of each training row, for units of pairs."""
    plans: dict[str, dict]
    """Plans of label projection, by model and epsilon."""

    def unit_rows(self, owner: Owner) -> UnitRows:
        """The training rows of each unit, in the order of the log."""
        if owner is Owner.EXAMPLE:
            return single_rows(Unit.example(), self.train.num_rows)
        partners = self.partners.get(owner)
        return group_rows(Unit(owner), owner_ids=self.owners, partner_ids=partners)


@functools.cache
def open_source(folder: Path) -> Source:
    """What `main` packed, unpacked beside it the first time. One a process."""
    unpacked = folder / "unpacked"
    if not unpacked.exists():
        unpack(folder / "data.zip", folder / "unpacking")
        (folder / "unpacking").rename(unpacked)
    facts = json.loads((folder / "facts.json").read_text(encoding="utf-8"))
    dataset = PreparedDataset.open(unpacked)
    train, test = split_rows(dataset.num_rows)
    owners = np.load(folder / "owners.npz")["owners"].astype(np.int64)
    names = [feature.name for feature in dataset.features]
    partners = {
        owner: dataset.public_features[train, names.index(column)].astype(np.int64)
        for owner, column in PARTNERS[facts["source"]].items()
    }
    return Source(
        name=facts["source"],
        train=ExampleSet.of(dataset, train),
        test=ExampleSet.of(dataset, test),
        owners=owners[train],
        partners=partners,
        plans=facts["plans"],
    )


def split_rows(num_rows: int) -> tuple[IntArray, IntArray]:
    """Training and test rows."""
    train, test = split_at_random(num_rows, fractions=(0.8, 0.2), key=SPLIT_KEY)
    return train, test


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("source")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--rows", type=int, default=1_000_000, help="of a synthetic log")
    parser.add_argument("--seed", type=int, default=SYNTH_SEED, help="of a synthetic log")
    options = parser.parse_args()
    options.output.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as work:
        log = source_table(options.source, Path(work), options.rows, options.seed)
        dataset = prepare_public(log, options.source, Path(work))
        pack(dataset.folder, options.output / "data.zip")
        np.savez_compressed(options.output / "owners.npz", owners=owner_codes(log))
        facts = {
            "source": SYNTH if options.source == SYNTH else REAL,
            "plans": projection_plans(dataset, options.source),
        }
    (options.output / "facts.json").write_text(json.dumps(facts), encoding="utf-8")
    names = ", ".join(feature.name for feature in dataset.features)
    print(f"{dataset.num_rows:,} rows, features: {names}")


def source_table(source: str, work: Path, num_rows: int = 0, seed: int = 0) -> Path:
    """A Parquet file with the columns of the log and `owner`."""
    import polars as pl

    from tulle.data.synth.shapes import ATTRIBUTION
    from tulle.data.synth.write_logs import write_log

    log = work / "log.parquet"
    if source == SYNTH:
        write_log(ATTRIBUTION, log, num_rows=num_rows, seed=seed)
        table = pl.read_parquet(log).with_columns(pl.col("uid").alias("owner"))
    else:
        day_of_week = (pl.col("day") % 7).alias("day_of_week")
        table = pl.read_parquet(source).with_columns(day_of_week, pl.col("user_id").alias("owner"))
    table.write_parquet(log)
    return log


def prepare_public(log: Path, source: str, work: Path) -> PreparedDataset:
    """Public features and labels, prepared as method_jobs.py does."""
    from method_jobs import CLICKS_SCHEMA

    from tulle.data.features.column_features import HashedFeature, LogFeature
    from tulle.data.features.feature_plan import FeaturePlan, hash_all
    from tulle.data.formats.public import ATTRIBUTION
    from tulle.data.preparation import prepare_log
    from tulle.data.schema import Schema
    from tulle.data.tables.layout import layout_for
    from tulle.data.tables.sources import LogFiles

    if source == SYNTH:
        schema = Schema(label=ATTRIBUTION.schema.label, public=ATTRIBUTION.schema.public)
        plan = hash_all(schema, salt=SALT)
    else:
        public = CLICKS_SCHEMA.public
        schema = Schema(label=CLICKS_SCHEMA.label, public=public, kinds=CLICKS_SCHEMA.kinds)
        hashed = (HashedFeature(column=column, num_bins=100_000) for column in public[1:])
        features = (LogFeature(column=public[0]), *hashed)
        plan = FeaturePlan(schema=schema, features=features, salt=SALT, shared_tables=True)
    folder = work / "prepared"
    shutil.rmtree(folder, ignore_errors=True)
    files = LogFiles(paths=(log,), layout=layout_for(log, schema))
    return prepare_log(files, plan, folder).dataset


def owner_codes(log: Path) -> NDArray[np.int32]:
    """A number for each owner, in the order of first appearance."""
    import polars as pl

    owners = pl.read_parquet(log, columns=["owner"])["owner"]
    codes = owners.cast(pl.String).cast(pl.Categorical).to_physical()
    return codes.to_numpy().astype(np.int32)


def projection_plans(dataset: PreparedDataset, source: str) -> dict[str, dict]:
    """Plans of label projection for impressions, of real clicks alone."""
    from tulle.train.fitting import make_plan

    if source == SYNTH:
        return {}
    train = ExampleSet.of(dataset, split_rows(dataset.num_rows)[0])
    plans = {}
    for model in ("lr", "mlp"):
        for epsilon in REAL_EPSILONS:
            config = projection_config(model).calibrate(epsilon=epsilon, delta=DELTA)
            plan = json.loads(make_plan(train, config).to_json())
            plans[f"{model} {epsilon:g}"] = plan
            print(f"label projection, {model}, {epsilon:g}: {plan['noise_multiplier']:.3f}")
    return plans


if __name__ == "__main__":
    main()
