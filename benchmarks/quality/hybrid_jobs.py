"""Plans the runs of hybrid_runs.py and packs their data into one folder.

    python benchmarks/quality/hybrid_jobs.py SOURCE --output FOLDER [--rows N]

SOURCE is clicks.parquet (an extract of the Criteo Sponsored Search Conversion Log that
knows the click time to the day) or synth:search, synth:attribution, synth:display. The
folder can then be carried to a machine with a GPU, numpy, torch and safetensors alone.

Settings are those of the papers and of earlier trials on other rows of the same log:
hashing into 100,000 and 50,000 bins, the MLP of Chua et al. (AdKDD 2024), a random 80/20
split, batch 16384, clip norm 10, Adam with cosine decay, forward correction. None was chosen
by these figures. After a first run the label phase, and later the baseline, were made to start
at the label rate: randomized labels had not trained at all at epsilon 1 on the synthetic
Attribution log. What that touches was run again.
"""

import argparse
import dataclasses
import hashlib
import json
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import polars as pl

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from dataset_archive import pack
from tulle.data.features.feature_plan import (
    FeaturePlan,
    HashedFeature,
    LogFeature,
    hash_all,
)
from tulle.data.formats.attribution import ATTRIBUTION
from tulle.data.formats.display import DISPLAY
from tulle.data.formats.generic import layout_for
from tulle.data.formats.layout import Layout
from tulle.data.formats.search import SEARCH
from tulle.data.logs import LogFiles
from tulle.data.prepare import prepare
from tulle.data.prepared.dataset import PreparedDataset
from tulle.data.schema import Kind, Schema
from tulle.data.splits import split_at_random
from tulle.data.synth import shapes
from tulle.data.synth.write_logs import write_log
from tulle.train import (
    MLP,
    Adam,
    DpSgdConfig,
    ExampleSet,
    HybridConfig,
    LabelPhase,
    NonPrivateConfig,
    PaperSplit,
    PlainPhase,
    PrivatePhase,
    PublicTower,
    RandomizedLabelsConfig,
    RatioSplit,
    make_plan,
)
from tulle.train.configs import TrainConfig
from tulle.train.plan_data import train_plan_to_json

EPSILONS = (1.0, 3.0, 8.0)
DELTA = 1e-7
SALT = b"hybrid benchmark"
SPLIT_KEY = hashlib.sha256(b"80/20 split of the hybrid benchmark").digest()
TRAIN_SHARE = 0.8

SYNTH = {
    "synth:search": (shapes.SEARCH, SEARCH),
    "synth:attribution": (shapes.ATTRIBUTION, ATTRIBUTION),
    "synth:display": (shapes.DISPLAY, DISPLAY),
}
CLICKS_SCHEMA = Schema(
    label="Sale",
    public=(
        *("nb_clicks_1week", "product_age_group", "product_gender", "product_brand"),
        *(f"prod_category{number}" for number in range(1, 8)),
        *("product_country", "product_id", "product_title", "partner_id", "day_of_week"),
    ),
    sensitive=("device_type", "audience_id", "user_id"),
    kinds={"nb_clicks_1week": Kind.INTEGER},
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("source")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--epochs", type=float, default=16.0)
    options = parser.parse_args()
    options.output.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as work:
        dataset = prepare_source(options.source, options.rows, Path(work))
        pack(dataset.folder, options.output / "data.zip")
        train_rows, _ = split_rows(dataset)
        examples = ExampleSet.of(dataset, train_rows)
        with (options.output / "jobs.jsonl").open("w", encoding="utf-8") as out:
            for name, config in configs(options.source, options.epochs):
                plan = json.loads(train_plan_to_json(make_plan(examples, config)))
                job = {
                    "source": source_name(options.source),
                    "split_key": SPLIT_KEY.hex(),
                    "name": name,
                    "plan": plan,
                }
                out.write(json.dumps(job) + "\n")
                print(name, plan["noise_multiplier"])


def split_rows(dataset: PreparedDataset) -> list:
    """Training and test rows."""
    fractions = (TRAIN_SHARE, 1 - TRAIN_SHARE)
    return split_at_random(dataset.num_rows, fractions=fractions, key=SPLIT_KEY)


def source_name(source: str) -> str:
    """What the rows of the results say, without a path."""
    return source if source in SYNTH else "criteo search, real clicks"


def configs(source: str, epochs: float) -> Iterator[tuple[str, TrainConfig]]:
    """A name and a config for each run."""
    model = MLP.semi_sensitive_display() if "display" in source else MLP.semi_sensitive_search()
    yield "nonprivate", NonPrivateConfig(model=model, phase=PlainPhase(epochs=1.0))
    steps = PrivatePhase(epochs=epochs, optimizer=Adam(learning_rate=2e-3))
    warm = dataclasses.replace(steps, optimizer=Adam(learning_rate=1e-3))
    frozen = dataclasses.replace(warm, public_tower=PublicTower.FREEZE)
    hybrid = HybridConfig(model=model, label_phase=LabelPhase(epochs=1.0), private_phase=warm)
    for epsilon in EPSILONS:
        target = {"epsilon": epsilon, "delta": DELTA}
        yield "rr", RandomizedLabelsConfig(model=model).calibrate(epsilon=epsilon)
        yield "dp-sgd", DpSgdConfig(model=model, private_phase=steps).calibrate(**target)
        for name, split, phase in (
            ("hybrid, paper's split", PaperSplit(), warm),
            ("hybrid, a quarter on labels", RatioSplit(label_share=0.25), warm),
            ("hybrid, half on labels, frozen", RatioSplit(label_share=0.5), frozen),
        ):
            config = dataclasses.replace(hybrid, split=split, private_phase=phase)
            yield name, config.calibrate(**target)


def prepare_source(source: str, rows: int, work: Path) -> PreparedDataset:
    """The prepared dataset of a source."""
    if source in SYNTH:
        shape, layout = SYNTH[source]
        log = work / "log.parquet"
        write_log(shape, log, num_rows=rows, seed=20260115)
        return _prepare(log, layout, hash_all(layout.schema, salt=SALT), work)
    log = work / "clicks.parquet"
    table = pl.read_parquet(source)
    table.with_columns((pl.col("day") % 7).alias("day_of_week")).write_parquet(log)
    plan = FeaturePlan(
        schema=CLICKS_SCHEMA,
        features=(
            LogFeature(column="nb_clicks_1week"),
            *(HashedFeature(column=c, num_bins=100_000) for c in CLICKS_SCHEMA.public[1:]),
            *(HashedFeature(column=c, num_bins=50_000) for c in CLICKS_SCHEMA.sensitive),
        ),
        salt=SALT,
        shared_tables=True,
    )
    return _prepare(log, layout_for(log, CLICKS_SCHEMA), plan, work)


def _prepare(log: Path, layout: Layout, plan: FeaturePlan, work: Path) -> PreparedDataset:
    folder = work / "prepared"
    shutil.rmtree(folder, ignore_errors=True)
    return prepare(LogFiles(paths=(log,), layout=layout), plan, folder).dataset


if __name__ == "__main__":
    main()
