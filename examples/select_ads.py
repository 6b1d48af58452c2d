"""Plan, decide and bill a private selection of ads on made-up auctions.

    python examples/select_ads.py [OUTPUT_FOLDER]

The mechanism is planned from public data alone. A ledger pays for the decisions once: the second
`decide` finds the stored choices and spends nothing.
"""

import pathlib
import sys

from tulle.accounting.budget import Budget
from tulle.accounting.ledger import Ledger
from tulle.data.auction_files import AuctionColumns
from tulle.data.synth.auctions import AuctionConfig, write_auction_log
from tulle.mechanisms.entropy import release_rng
from tulle.privacy.units import Adjacency, Unit
from tulle.report.card_file import write_card
from tulle.report.select_card import select_card
from tulle.runs.release_books import ReleaseCharge
from tulle.runs.release_once import ReleaseOptions
from tulle.select.billing.prices import PricingRule, price_candidates
from tulle.select.deciding.auction_blocks import first_auctions
from tulle.select.deciding.deciding import decide
from tulle.select.deciding.file_bills import bill_file
from tulle.select.planner.click_prior import LogitNormalPrior
from tulle.select.planner.plan_selection import plan_selection
from tulle.select.selection_config import Consent, Pricing, SelectionConfig

EPSILON, RESERVE = 2.0, 0.01
COLUMNS = AuctionColumns()


def plan(auctions: pathlib.Path) -> SelectionConfig:
    """The selection that keeps most of the gain, from public columns."""
    block = first_auctions(auctions, COLUMNS, num_auctions=2000, reserve=RESERVE, with_device=False)
    prices = price_candidates(block.auctions, PricingRule.SECOND_PRICE, reserve=RESERVE)
    prior = LogitNormalPrior(private_stddev=0.6)
    best = plan_selection(block.auctions, prices, epsilons=(EPSILON,), prior=prior)
    option = best.recommended(EPSILON)
    print(f"{option.mechanism.name}: keeps {option.captured_share:.0%} of the gain")
    return SelectionConfig(
        name="example",
        mechanism=option.mechanism,
        unit=Unit.impression(),
        pricing=Pricing(reserve=RESERVE),
        consent=Consent.EVERYONE,
    )


def main(folder: pathlib.Path) -> None:
    """Plans, decides twice for one price, and bills."""
    folder.mkdir(parents=True)
    auctions, choices = folder / "auctions.parquet", folder / "choices.parquet"
    write_auction_log(AuctionConfig(num_auctions=5000), auctions, seed=1)
    config = plan(auctions)
    ledger = Ledger.create(folder / "ledger.db")
    budget = Budget(
        name="ads", unit=Unit.impression(), adjacency=Adjacency.REPLACE, epsilon=EPSILON, delta=0.0
    )
    ledger.create_budget(budget)
    options = ReleaseOptions(charge=ReleaseCharge(ledger=ledger, purpose="select"))
    for _ in range(2):
        result = decide(
            config, auctions, choices, columns=COLUMNS, rng=release_rng(), options=options
        )
        print(f"personalised: {result.record.num_personalised}, stored: {result.is_stored}")
    write_card(folder, select_card(result.record))
    made = bill_file(config, auctions, choices, columns=COLUMNS)
    print(f"{made.bill.num_impressions} impressions, {made.bill.total} in all")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "selected"))
