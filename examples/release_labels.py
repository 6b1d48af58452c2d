"""Release the labels of a log under a user's budget, and use them without any framework.

    python examples/release_labels.py [OUTPUT_FOLDER]

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

BUDGET = Budget(
    name="labels", unit=Unit.user(), adjacency=Adjacency.REPLACE, epsilon=2.0, delta=0.0
)


def make_table(folder: pathlib.Path) -> LabelTable:
    """A made-up log of impressions and conversions."""
    log = folder / "log.parquet"
    write_log(shapes.ATTRIBUTION, log, num_rows=100_000, seed=0)
    return LabelTable(paths=(log,), layout=ATTRIBUTION, unit=BUDGET.unit)


def conversion_rate(released: pathlib.Path) -> float:
    """An estimate from noisy labels; conversions beyond the cap of a user are not counted."""
    noisy = pl.read_parquet(released, columns=["target", "weight"])
    return float((noisy["target"] * noisy["weight"]).sum() / noisy["weight"].sum())


def main(folder: pathlib.Path) -> None:
    """Plans, releases twice for one price, and estimates a rate."""
    folder.mkdir(parents=True)
    table = make_table(folder)
    best = plan_units(table.unit_rows().length_counts(), epsilon=BUDGET.epsilon).recommended
    print(f"mechanism {best.mechanism.name}, noise variance {best.mean_variance:.3f} a row")

    ledger = Ledger.create(folder / "ledger.db")
    ledger.create_budget(BUDGET)
    options = ReleaseOptions(charge=ReleaseCharge(ledger=ledger, purpose="labels"))
    noise = UnitNoise(mechanism=best.mechanism)
    for name in ("noisy.parquet", "copy.parquet"):
        result = release_labels(table, noise, folder / name, rng=release_rng(), options=options)
        print(f"{name}: {'found' if result.is_stored else 'drawn'}")

    card = labels_card(result.record)
    write_card(folder, card)
    print(card.verdict)
    print(f"conversion rate {conversion_rate(folder / 'noisy.parquet'):.4f} from noisy labels")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "released"))
