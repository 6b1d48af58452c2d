"""Measure campaigns under a user's budget, and find the same numbers again for nothing.

    python examples/measure_campaigns.py [OUTPUT_FOLDER]

The log is synthetic and the settings are those of measure_campaigns.toml beside this file. The
steps are those of a real measurement: plan before reading, charge the ledger once, read numbers
with their intervals, and find the same numbers again when the command is repeated.
"""

import pathlib
import shutil
import sys

import tulle

SETTINGS = pathlib.Path(__file__).with_suffix(".toml")
BUDGET = tulle.Budget(
    name="measurement",
    unit=tulle.Unit.user(),
    adjacency=tulle.Adjacency.ADD_OR_REMOVE,
    epsilon=2.0,
    delta=0.0,
)


def main(folder: pathlib.Path) -> None:
    """Plans, measures twice for one price, and prints a few numbers."""
    folder.mkdir(parents=True)
    tulle.data.write_synthetic("impressions", folder / "log", rows=20_000)
    settings = shutil.copy(SETTINGS, folder / SETTINGS.name)
    for expected in tulle.measure.expected_errors(tulle.measure.plan(settings)):
        print(f"{expected.query}: {expected.label} +- {expected.noise_stddev:.3g}")

    ledger = tulle.Ledger.create(folder / "ledger.db")
    ledger.create_budget(BUDGET)
    for _ in range(2):
        result = tulle.measure.release(settings, ledger=ledger, output=folder)
        print("found again, nothing spent" if result.is_stored else "measured")

    print(result.card.verdict)
    print(result.record.table("reach").release("reach"))
    print(result.record.table("value of a conversion").release("average value"))


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "measured"))
