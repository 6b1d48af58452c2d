"""Release conversion counts for two weeks under one budget, each week with its own card.

    python examples/weekly_conversions.py [OUTPUT_FOLDER]

The rows are synthetic. Replace `read_conversions` by your own log: one row a conversion, with the
user, the campaign and the day. The budget renews every Monday, so each week is charged once.
"""

import datetime
import pathlib
import sys

import numpy as np
import polars as pl

import tulle

CAMPAIGNS = ["autumn", "winter", "spring", "summer", "sale"]
BUDGET = tulle.Budget(
    name="ads",
    unit=tulle.Unit.parse("user per week"),
    adjacency=tulle.Adjacency.ADD_OR_REMOVE,
    epsilon=1.0,
    delta=0.0,
)


def read_conversions(first_day: datetime.date) -> pl.DataFrame:
    """User, campaign and day of each conversion of one week."""
    synthetic = np.random.default_rng(first_day.toordinal())
    days = synthetic.integers(0, 7, 4_000)
    return pl.DataFrame(
        {
            "user_id": synthetic.integers(0, 3_000, 4_000),
            "campaign": synthetic.choice(CAMPAIGNS, 4_000),
            "day": [first_day + datetime.timedelta(days=int(day)) for day in days],
        }
    )


def main(folder: pathlib.Path) -> None:
    """Counts two weeks, of each user one conversion of two campaigns at most, and prints them."""
    folder.mkdir(parents=True)
    ledger = tulle.Ledger.create(folder / "ledger.db")
    ledger.create_budget(BUDGET)
    for first_day in (datetime.date(2026, 1, 5), datetime.date(2026, 1, 12)):
        result = tulle.measure.count(
            read_conversions(first_day),
            epsilon=1,
            unit="user per week",
            user="user_id",
            time="day",
            by=["campaign"],
            keys={"campaign": CAMPAIGNS},
            max_per_slice=1,
            max_slices_per_unit=2,
            ledger=ledger,
            purpose="weekly report",
            at=first_day,
            until=first_day + datetime.timedelta(days=6),
            output=folder / f"{first_day}",
        )
        counts = result.to_polars()
        within = (counts["high"] - counts["value"]).max()
        print(f"{first_day}: {counts['value'].to_list()}, each within {within:.0f} (95%)")
        print(result.card.verdict)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "weekly-conversions"))
