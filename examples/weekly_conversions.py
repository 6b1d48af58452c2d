"""Release conversion counts for two weeks under one budget, and write the card.

    python examples/weekly_conversions.py OUTPUT_FOLDER

The rows are made up. Replace `read_rows` by your own log: one row an impression, with a user,
a campaign and whether it converted.
"""

import pathlib
import sys
from datetime import UTC, datetime, timedelta

import numpy as np

from tulle.accounting.accountant import guarantee
from tulle.accounting.budget import Budget
from tulle.accounting.ledger import Ledger
from tulle.mechanisms.discrete_laplace import DiscreteLaplaceConfig, release_discrete_laplace
from tulle.mechanisms.entropy import release_rng
from tulle.privacy.columns import ColumnRoles
from tulle.privacy.plan import Assumption, Bound, Plan, Status
from tulle.privacy.units import Adjacency, Scope, TrustModel, Unit
from tulle.report.card import build_card
from tulle.report.card_file import write_card
from tulle.report.provenance import collect_provenance

MAX_CAMPAIGNS_PER_USER = 2
NUM_CAMPAIGNS = 5
UNIT = Unit.user(days=7)


def read_rows(week: int) -> tuple[np.ndarray, np.ndarray]:
    """User and campaign of each conversion of one week."""
    made_up = np.random.default_rng(week)
    return made_up.integers(0, 3_000, 4_000), made_up.integers(0, NUM_CAMPAIGNS, 4_000)


def bounded_counts(users: np.ndarray, campaigns: np.ndarray) -> np.ndarray:
    """Converting users per campaign; a user counts once in each of his first campaigns."""
    pairs = np.unique(np.stack([users, campaigns]), axis=1)
    # Position of each pair among those of its user; pairs come sorted by user.
    starts = np.searchsorted(pairs[0], pairs[0])
    kept = np.arange(pairs.shape[1]) - starts < MAX_CAMPAIGNS_PER_USER
    return np.bincount(pairs[1][kept], minlength=NUM_CAMPAIGNS)


def make_plan(config: DiscreteLaplaceConfig) -> Plan:
    """What is promised, before any row is read."""
    promise = guarantee(
        config.event(), delta=0.0, unit=UNIT, adjacency=Adjacency.REPLACE, scope=Scope.LABELS
    )
    return Plan(
        name="weekly conversions",
        mechanism="Converting users per campaign, with discrete Laplace noise.",
        settings={"noise_scale": config.scale},
        event=config.event(),
        guarantee=promise,
        trust=TrustModel.CENTRAL,
        columns=ColumnRoles(label="converted", public=("campaign",), unit="user_id", time="day"),
        bounds=(
            Bound(what="campaigns per user", limit=MAX_CAMPAIGNS_PER_USER, where="first by number"),
        ),
        assumptions=(
            Assumption(
                statement=f"A user counts in at most {MAX_CAMPAIGNS_PER_USER} campaigns a week.",
                status=Status.ENFORCED,
                evidence="bounded_counts() drops all others before counting",
            ),
        ),
    )


def main(folder: pathlib.Path) -> None:
    """Spends, releases and prints two weeks."""
    folder.mkdir(parents=True)
    config = DiscreteLaplaceConfig.for_epsilon(
        1.0, adjacency=Adjacency.REPLACE, max_contribution=MAX_CAMPAIGNS_PER_USER
    )
    plan = make_plan(config)
    ledger = Ledger.create(folder / "ledger.db")
    ledger.create_budget(
        Budget(name="ads", unit=UNIT, adjacency=Adjacency.REPLACE, epsilon=1.0, delta=0.0)
    )
    first_day = datetime(2026, 1, 8, tzinfo=UTC)
    for week in range(2):
        start = first_day + timedelta(days=7 * week)
        with ledger.spend(
            config.event(), purpose="weekly report", at=start, until=start + timedelta(days=6)
        ):
            raw_counts = bounded_counts(*read_rows(week))
            noisy_counts = release_discrete_laplace(raw_counts, config, rng=release_rng())
        half_width = config.half_width(0.95)
        print(f"{start:%Y-%m-%d}: {noisy_counts.tolist()}, each within {half_width} (95%)")
    card = build_card(plan, randomness=release_rng(), provenance=collect_provenance())
    write_card(folder, card)
    print(card.verdict)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "weekly-conversions"))
