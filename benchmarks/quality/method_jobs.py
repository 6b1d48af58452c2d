"""Plans the runs of method_runs.py and packs their data into one folder.

    python benchmarks/quality/method_jobs.py SOURCE --output FOLDER [--rows N]

SOURCE is clicks.parquet (an extract of the Criteo Sponsored Search Conversion Log that
knows the click time to the day) or synth:search, synth:attribution, synth:display. The
folder can then be carried to a machine with a GPU, numpy, torch and safetensors alone. One
that has data already keeps them, and its plans are made anew.

Mosaic has its defaults everywhere. They were chosen on a part of the training rows; see
docs/mosaic.md. Settings of the other methods are those of the papers and of earlier trials on
other rows of the same log: hashing into 100,000 and 50,000 bins, the MLP of Chua et al. (AdKDD
2024), a random 80/20 split, batch 16384, clip norm 10, Adam with cosine decay, forward
correction. None was chosen by these figures. After a first run the label phase, and later the
baseline, were made to start at the label rate: randomized labels had not trained at all at
epsilon 1 on the synthetic Attribution log. What that touches was run again.
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

from job_folders import SPLIT_SHARES

from dataset_archive import pack, unpack
from tulle.data.features.column_features import HashedFeature, LogFeature
from tulle.data.features.feature_plan import FeaturePlan, hash_all
from tulle.data.formats.public import ATTRIBUTION, DISPLAY, SEARCH
from tulle.data.preparation import prepare_log
from tulle.data.prepared.dataset import PreparedDataset
from tulle.data.schema import Kind, Schema
from tulle.data.splits import split_at_random
from tulle.data.synth import shapes
from tulle.data.synth.write_logs import write_log
from tulle.data.tables.layout import Layout, layout_for
from tulle.data.tables.sources import LogFiles
from tulle.train import (
    MLP,
    Adam,
    BandedNoise,
    DpSgdConfig,
    ExampleLevel,
    ExampleSet,
    HybridConfig,
    LabelPhase,
    MosaicConfig,
    NonPrivateConfig,
    PlainPhase,
    PrivatePhase,
    PublicTower,
    RandomizedLabelsConfig,
    RatioSplit,
)
from tulle.train.fitting import make_plan
from tulle.train.methods.method import Method

EPSILONS = (0.5, 1.0, 3.0, 8.0, 12.0)
VARIANT_EPSILONS = (1.0, 3.0, 8.0)
"""Of variants of the algorithms, as in earlier trials."""
LARGE_BATCH = 65_536
DELTA = 1e-7
UNIT = ExampleLevel()
"""Each row on its own, also where a log says whose it is."""
SALT = b"hybrid benchmark"
SPLIT_KEY = hashlib.sha256(b"80/20 split of the hybrid benchmark").digest()

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
    options.output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as work:
        dataset = packed_dataset(options, Path(work))
        train_rows, _ = split_at_random(dataset.num_rows, fractions=SPLIT_SHARES, key=SPLIT_KEY)
        examples = ExampleSet.of(dataset, train_rows)
        with (options.output / "jobs.jsonl").open("w", encoding="utf-8") as out:
            for name, config in configs(options.source, options.epochs, examples.num_rows):
                plan = json.loads(make_plan(examples, config).to_json())
                job = {
                    "source": source_name(options.source),
                    "split_key": SPLIT_KEY.hex(),
                    "name": name,
                    "plan": plan,
                }
                out.write(json.dumps(job) + "\n")
                print(name, plan["epsilon"], plan["noise_multiplier"])


def packed_dataset(options: argparse.Namespace, work: Path) -> PreparedDataset:
    """The data that the folder has, or that are prepared and packed into it now."""
    archive = options.output / "data.zip"
    if archive.exists():
        unpack(archive, work / "data")
        return PreparedDataset.open(work / "data")
    dataset = prepare_source(options.source, options.rows, work)
    pack(dataset.folder, archive)
    return dataset


def source_name(source: str) -> str:
    """What the rows of the results say, without a path."""
    return source if source in SYNTH else "criteo search, real clicks"


def configs(source: str, epochs: float, num_rows: int) -> Iterator[tuple[str, Method]]:
    """A name and a config for each run."""
    model = MLP.semi_sensitive_display() if "display" in source else MLP.semi_sensitive_search()
    yield "nonprivate", NonPrivateConfig(model=model, phase=PlainPhase(epochs=1.0))
    steps = PrivatePhase(epochs=epochs, batch_size=16384, optimizer=Adam(learning_rate=2e-3))
    warm = dataclasses.replace(steps, optimizer=Adam(learning_rate=1e-3))
    dpsgd = DpSgdConfig(model=model, private_phase=steps, unit=UNIT)
    hybrid = HybridConfig(
        model=model, label_phase=LabelPhase(epochs=1.0), private_phase=warm, unit=UNIT
    )
    for epsilon in EPSILONS:
        target = {"epsilon": epsilon, "delta": DELTA}
        yield "rr", RandomizedLabelsConfig(model=model, unit=UNIT).calibrate(epsilon=epsilon)
        yield "dp-sgd", dpsgd.calibrate(**target)
        yield "hybrid, paper's split", hybrid.calibrate(**target)
        yield "mosaic", MosaicConfig(unit=UNIT).calibrate(**target)
        if epsilon in VARIANT_EPSILONS:
            for name, config in (*dpsgd_variants(dpsgd, num_rows), *hybrid_variants(hybrid)):
                yield name, config.calibrate(**target)


def dpsgd_variants(config: DpSgdConfig, num_rows: int) -> Iterator[tuple[str, DpSgdConfig]]:
    """Larger batches and correlated noise; small data allow neither."""
    if num_rows < LARGE_BATCH:
        return
    phase = config.private_phase
    large = dataclasses.replace(phase, batch_size=LARGE_BATCH, optimizer=Adam(learning_rate=4e-3))
    banded = dataclasses.replace(phase, noise=BandedNoise(num_bands=4))
    yield f"dp-sgd, batch {LARGE_BATCH}", dataclasses.replace(config, private_phase=large)
    yield "dp-sgd, 4 bands", dataclasses.replace(config, private_phase=banded)


def hybrid_variants(config: HybridConfig) -> Iterator[tuple[str, HybridConfig]]:
    """Other splits than the paper's."""
    quarter, half = RatioSplit(label_share=0.25), RatioSplit(label_share=0.5)
    frozen = dataclasses.replace(config.private_phase, public_tower=PublicTower.FREEZE)
    yield "hybrid, a quarter on labels", dataclasses.replace(config, split=quarter)
    yield (
        "hybrid, half on labels, frozen",
        dataclasses.replace(config, split=half, private_phase=frozen),
    )


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
    return prepare_log(LogFiles(paths=(log,), layout=layout), plan, folder).dataset


if __name__ == "__main__":
    main()
