"""Release conversion counts for two weeks under one budget, and write the card.

    python examples/weekly_conversions.py [OUTPUT_FOLDER]

The rows are made up. Replace `read_conversions` by your own log: one row a conversion, in the
order of time. It is the short way to a mechanism of your own: a bound, a plan, a spend, a card.
"""

import pathlib
import sys
from datetime import UTC, datetime, timedelta

import numpy as np

from tulle.accounting.accountant import guarantee
from tulle.accounting.budget import Budget
from tulle.accounting.ledger import Ledger
from tulle.data.contribution import keep_first_rows
from tulle.mechanisms.discrete_laplace import DiscreteLaplaceConfig, release_discrete_laplace
from tulle.mechanisms.entropy import release_rng
from tulle.privacy.columns import ColumnRoles
from tulle.privacy.plan import Bound, Plan
from tulle.privacy.units import Adjacency, Scope, TrustModel, Unit
from tulle.report.card import build_card
from tulle.report.card_file import write_card
from tulle.report.provenance import collect_provenance

NUM_CAMPAIGNS, MAX_CONVERSIONS_PER_USER = 5, 2
UNIT, ADJACENCY = Unit.user(days=7), Adjacency.REPLACE
BUDGET = Budget(name="ads", unit=UNIT, adjacency=ADJACENCY, epsilon=1.0, delta=0.0)
NOISE = DiscreteLaplaceConfig.for_epsilon(
    BUDGET.epsilon, adjacency=ADJACENCY, max_contribution=MAX_CONVERSIONS_PER_USER
)
EVENT = NOISE.event()
PLAN = Plan(
    name="weekly conversions",
    mechanism="Conversions per campaign, with discrete Laplace noise.",
    settings={"noise_scale": NOISE.scale},
    event=EVENT,
    guarantee=guarantee(EVENT, delta=0.0, unit=UNIT, adjacency=ADJACENCY, scope=Scope.LABELS),
    trust=TrustModel.CENTRAL,
    columns=ColumnRoles(label="converted", public=("campaign",), unit="user_id", time="day"),
    bounds=(
        Bound(
            what="conversions per user", limit=MAX_CONVERSIONS_PER_USER, where="keep_first_rows()"
        ),
    ),
)


def read_conversions(week: int) -> tuple[np.ndarray, np.ndarray]:
    """User and campaign of each conversion of one week."""
    made_up = np.random.default_rng(week)
    return made_up.integers(0, 3_000, 4_000), made_up.integers(0, NUM_CAMPAIGNS, 4_000)


def main(folder: pathlib.Path) -> None:
    """Spends, bounds, releases and prints two weeks."""
    folder.mkdir(parents=True)
    ledger = Ledger.create(folder / "ledger.db")
    ledger.create_budget(BUDGET)
    for week in range(2):
        start = datetime(2026, 1, 8, tzinfo=UTC) + timedelta(days=7 * week)
        end = start + timedelta(days=6)
        with ledger.spend(EVENT, purpose="weekly report", at=start, until=end):
            users, campaigns = read_conversions(week)
            kept = keep_first_rows(users, max_rows_per_unit=MAX_CONVERSIONS_PER_USER).rows
            raw_counts = np.bincount(campaigns[kept], minlength=NUM_CAMPAIGNS)
            noisy_counts = release_discrete_laplace(raw_counts, NOISE, rng=release_rng())
        within = NOISE.half_width(0.95)
        print(f"{start:%Y-%m-%d}: {noisy_counts.tolist()}, each within {within} (95%)")
    card = build_card(PLAN, randomness=release_rng(), provenance=collect_provenance())
    write_card(folder, card)
    print(card.verdict)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "weekly-conversions"))
