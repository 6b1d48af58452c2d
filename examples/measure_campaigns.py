"""Measure campaigns under a user's budget, and find the same numbers again for nothing.

    python examples/measure_campaigns.py [OUTPUT_FOLDER]

The log is made up and the settings are those of measure_campaigns.toml beside this file. The
steps are those of a real measurement: plan before reading, charge the ledger once, read numbers
with their intervals, and find the same numbers again when the command is repeated.
"""

import pathlib
import shutil
import sys

from tulle.accounting.budget import Budget
from tulle.accounting.ledger import Ledger
from tulle.data.synth.impressions import ImpressionConfig
from tulle.data.synth.write_impressions import write_impression_logs
from tulle.measure.config.config_file import read_config
from tulle.measure.engines.engine import open_engine
from tulle.measure.queries.measure_plan import make_measure_plan
from tulle.measure.queries.releasing import MeasureOptions, measure
from tulle.measure.queries.what_if import expected_errors
from tulle.mechanisms.entropy import release_rng
from tulle.privacy.units import Adjacency, Unit
from tulle.report.card_file import write_card
from tulle.report.measure_card import measure_card
from tulle.runs.release_books import ReleaseCharge

SETTINGS = pathlib.Path(__file__).with_suffix(".toml")
BUDGET = Budget(
    name="measurement", unit=Unit.user(), adjacency=Adjacency.ADD_OR_REMOVE, epsilon=2.0, delta=0.0
)


def make_log(folder: pathlib.Path) -> None:
    """A made-up log of impressions and conversions."""
    folder.mkdir()
    files = folder / "impressions.csv", folder / "conversions.csv"
    write_impression_logs(ImpressionConfig(num_users=20_000), *files, seed=0)


def main(folder: pathlib.Path) -> None:
    """Plans, measures twice for one price, and prints a few numbers."""
    folder.mkdir(parents=True)
    make_log(folder / "log")
    config = read_config(shutil.copy(SETTINGS, folder / SETTINGS.name)).config
    for expected in expected_errors(make_measure_plan(config)):
        print(f"{expected.query}: {expected.number} +- {expected.noise_stddev:.3g}")

    ledger = Ledger.create(folder / "ledger.db")
    ledger.create_budget(BUDGET)
    options = MeasureOptions(charge=ReleaseCharge(ledger=ledger, purpose="measure"))
    for _ in range(2):
        with open_engine() as engine:
            result = measure(config, folder, engine, rng=release_rng(), options=options)
        print("found again, nothing spent" if result.is_stored else "measured")

    card = measure_card(result.record)
    write_card(folder, card)
    print(card.verdict)
    print(result.record.table("reach").release("reach"))
    print(result.record.table("value of a conversion").release("average value"))


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "measured"))
