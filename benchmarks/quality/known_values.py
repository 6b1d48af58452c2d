"""What a public table of a sensitive column's values is worth to Mosaic, on real clicks.

    python benchmarks/quality/known_values.py CLICKS.parquet --output FILE

CLICKS.parquet is an extract of the Criteo Sponsored Search Conversion Log. In life the table comes
from the catalogue of audiences, which that log does not have. So it is made here from half of the
users, who are neither trained nor tested on: which audiences there are, the advertiser (partner) of
each, the gender and the first category of the products that it clicks most, and a class of its
size. No label is used for it. Rows to train and to test on are those of other users, who share no
row with it and none with each other.

Three ways are compared: audiences hashed, as without a table; their values known; and the facts
known too. In this log an audience belongs to the advertiser whose ad was clicked, so that public
columns of the row say much of what the facts say. So everything is measured a second time without
the columns of advertiser and product, as in a log where an audience is offered to other
advertisers. Settings of Mosaic are the defaults.
"""

import argparse
import itertools
import sys
from pathlib import Path

import polars as pl

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from record import earlier_rows, versions, write_record
from tulle.data.formats.public import SEARCH
from tulle.data.schema import Schema
from tulle.train import ExampleLevel, MosaicConfig
from tulle.train.fitting import fit
from tulle.train.run_context import RunOptions
from tulle.train.training_data import DataChoice, TrainingData

EPSILONS, DELTA = (0.5, 1.0, 3.0), 1e-7
SENSITIVE = ("device_type", "audience_id")
FACTS = ("partner_id", "product_gender", "prod_category1")
PUBLIC = {
    "all": SEARCH.schema.public,
    "without advertiser and product": ("nb_clicks_1week", "product_country"),
}
# Ids of users are codes: parts of them by a multiplicative hash, to be done in minutes.
HASH, PARTS = 2_654_435_761, 20
CATALOGUE, TRAIN, TEST = tuple(range(10)), (10, 11), (12, 13)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("clicks", type=Path)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    table = pl.read_parquet(options.clicks).with_columns(
        part=(pl.col("user_id").cast(pl.UInt64) * HASH % 2**32) * PARTS // 2**32
    )
    parts = {
        name: table.filter(pl.col("part").is_in(numbers)).drop("part")
        for name, numbers in (("table", CATALOGUE), ("train", TRAIN), ("test", TEST))
    }
    catalogue = catalogue_of(parts["table"])
    known = {"hashed": None, "values": catalogue.select("audience_id"), "facts": catalogue}
    rows = earlier_rows(options.output)
    done = {(row["public"], row["known"], row["epsilon"], row["seed"]) for row in rows}
    facts = {
        "delta": DELTA,
        "num_rows": len(parts["train"]),
        "num_test_rows": len(parts["test"]),
        "num_known": len(catalogue),
        "facts": [one for one in catalogue.columns if one != "audience_id"],
        "versions": versions("numpy", "polars"),
    }
    for (public, columns), (name, values) in itertools.product(PUBLIC.items(), known.items()):
        roles = schema(columns, values)
        choice = DataChoice(source=parts["train"], schema=roles, test=parts["test"])
        train, test = TrainingData(choice).examples()
        for epsilon, seed in itertools.product(EPSILONS, range(options.seeds)):
            if (public, name, epsilon, seed) in done:
                continue
            config = MosaicConfig(unit=ExampleLevel()).calibrate(epsilon=epsilon, delta=DELTA)
            result = fit(train, config, test=test, options=RunOptions(seed=seed))
            metrics = result.metrics.to_dict()
            row = {"public": public, "known": name, "epsilon": epsilon, "seed": seed}
            row |= {key: metrics[key] for key in ("auc_loss", "log_loss", "calibration")}
            rows.append(row | {"seconds": round(result.seconds, 1)})
            print(rows[-1], flush=True)
            write_record(options.output, "worth of known values and facts", rows, facts)


def catalogue_of(rows: pl.DataFrame) -> pl.DataFrame:
    """What a catalogue of audiences would say, by the rows of users who are not trained on."""
    named = rows.filter(pl.col("audience_id") > 0)
    size = pl.len().log(base=4).floor().cast(pl.Int64)
    most = [pl.col(fact).mode().sort().first().alias(f"main {fact}") for fact in FACTS]
    return named.group_by("audience_id").agg(size.alias("size"), *most).sort("audience_id")


def schema(public: tuple[str, ...], known: pl.DataFrame | None) -> Schema:
    """The roles of the paper, of some public columns and without the time."""
    kinds = dict.fromkeys((*public, *SENSITIVE), "categorical")
    return Schema(
        label="Sale",
        public=public,
        sensitive=SENSITIVE,
        kinds=kinds | {"nb_clicks_1week": "integer"},
        known_values={} if known is None else {"audience_id": known},
    )


if __name__ == "__main__":
    main()
