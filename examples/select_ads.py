"""Plan, decide and bill a private selection of ads on synthetic auctions.

    python examples/select_ads.py [OUTPUT_FOLDER]

The mechanism is planned from public data alone. A ledger pays for the decisions once: the second
`decide` finds the stored choices and spends nothing.
"""

import pathlib
import sys

import tulle

EPSILON, RESERVE = 2.0, 0.01


def main(folder: pathlib.Path) -> None:
    """Plans, decides twice for one price, and bills."""
    folder.mkdir(parents=True)
    auctions = tulle.data.write_synthetic(
        "auctions", folder / "auctions.parquet", rows=5000, seed=1
    )
    plan = tulle.select.plan(
        auctions,
        epsilon=EPSILON,
        private_stddev=0.6,
        reserve=RESERVE,
        consent="everyone",
        sample=2000,
    )
    best = plan.outlook.recommended(EPSILON)
    print(f"{best.mechanism.name}: keeps {best.captured_share:.0%} of the gain")

    ledger = tulle.accounting.Ledger.create(folder / "ledger.db")
    ledger.create_budget(
        tulle.accounting.Budget(
            name="ads", unit="impression", adjacency="replace", epsilon=EPSILON, delta=0
        )
    )
    for _ in range(2):
        choices = tulle.select.decide(
            plan, auctions, output=folder / "choices.parquet", ledger=ledger
        )
        print(f"personalised: {choices.record.num_personalised}, stored: {choices.is_stored}")
    bill = tulle.select.bill(plan, auctions, choices).bill
    print(f"{bill.num_impressions} impressions, {bill.total} in all")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "selected"))
