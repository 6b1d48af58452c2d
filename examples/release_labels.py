"""Release the labels of a log under a user's budget, and use them without any framework.

    python examples/release_labels.py OUTPUT_FOLDER

The log is made up. Replace `make_table` by your own table and schema. The steps are those of
a real release: public row counts choose the mechanism, the ledger is charged before the first
draw, the same call again finds the stored table, and the card says what is promised.
"""

import pathlib
import sys

import polars as pl

from tulle.accounting.budget import Budget
from tulle.accounting.ledger import Ledger
from tulle.data.formats.attribution import ATTRIBUTION
from tulle.data.synth import shapes
from tulle.data.synth.write_logs import write_log
from tulle.labels.release.label_noise import UnitNoise
from tulle.labels.release.label_table import LabelTable
from tulle.labels.release.releasing import release_labels
from tulle.labels.units.unit_planner import plan_units
from tulle.mechanisms.entropy import release_rng
from tulle.privacy.units import Adjacency, Unit
from tulle.report.card_file import write_card
from tulle.report.labels_card import labels_card
from tulle.runs.release_books import ReleaseCharge
from tulle.runs.release_once import ReleaseOptions

EPSILON = 2.0
UNIT = Unit.user()


def make_table(folder: pathlib.Path) -> LabelTable:
    """A made-up log of impressions and conversions."""
    log = folder / "log.parquet"
    write_log(shapes.ATTRIBUTION, log, num_rows=100_000, seed=0)
    return LabelTable(paths=(log,), layout=ATTRIBUTION, unit=UNIT)


def make_ledger(path: pathlib.Path) -> Ledger:
    """A ledger in which each user has the budget of one release."""
    ledger = Ledger.create(path)
    ledger.create_budget(
        Budget(
            name="labels",
            unit=UNIT,
            adjacency=Adjacency.REPLACE,
            epsilon=EPSILON,
            delta=0.0,
        )
    )
    return ledger


def main(folder: pathlib.Path) -> None:
    """Plans, releases twice for one price, and compares a campaign's rate with the truth."""
    folder.mkdir(parents=True)
    table = make_table(folder)
    plan = plan_units(table.unit_rows().length_counts(), epsilon=EPSILON)
    best = plan.recommended
    print(f"mechanism {best.mechanism.name}, noise variance {best.mean_variance:.3f} a row")

    charge = ReleaseCharge(ledger=make_ledger(folder / "ledger.db"), purpose="labels")
    noise = UnitNoise(mechanism=best.mechanism)
    for name in ("noisy.parquet", "copy.parquet"):
        result = release_labels(
            table,
            noise,
            folder / name,
            rng=release_rng(),
            options=ReleaseOptions(charge=charge),
        )
        print(f"{name}: {'found' if result.is_stored else 'drawn'}")
    card = labels_card(result.record)
    write_card(folder, card)
    print(card.verdict)

    raw = pl.read_parquet(folder / "log.parquet", columns=["conversion"])
    noisy = pl.read_parquet(folder / "noisy.parquet")
    weighted = (noisy["target"] * noisy["weight"]).sum() / noisy["weight"].sum()
    print(f"conversion rate {weighted:.4f} from noisy labels, {raw['conversion'].mean():.4f} raw;")
    print("conversions beyond the cap of a user are not counted")


if __name__ == "__main__":
    if len(sys.argv) != 2 or pathlib.Path(sys.argv[1]).exists():
        raise SystemExit("usage: python examples/release_labels.py NEW_FOLDER")
    main(pathlib.Path(sys.argv[1]))
