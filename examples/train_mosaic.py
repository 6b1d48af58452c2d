"""Train on a prepared dataset under a budget, and write the card.

    python examples/train_mosaic.py [OUTPUT_FOLDER]

The log is made up. Replace `prepare_log` by your own log and layout. The steps are those of
a real release: the plan is known before training, the ledger is charged once, the run can
be resumed, and the card says what is promised. Mosaic has nothing to tune but epsilon.
"""

import pathlib
import sys

from tulle import train
from tulle.accounting.budget import Budget
from tulle.accounting.ledger import Ledger
from tulle.data.features.feature_plan import hash_all
from tulle.data.formats.search import SEARCH
from tulle.data.logs import LogFiles
from tulle.data.prepare import prepare
from tulle.data.prepared.dataset import PreparedDataset
from tulle.data.splits import split_at_random
from tulle.data.synth import shapes
from tulle.data.synth.write_logs import write_log
from tulle.privacy.units import Adjacency, Unit
from tulle.report.card_file import write_card
from tulle.report.training_card import training_card
from tulle.runs.folder import RunFolder

BUDGET = Budget(
    name="rows", unit=Unit.example(), adjacency=Adjacency.REPLACE, epsilon=3.0, delta=1e-7
)
CONFIG = train.MosaicConfig().calibrate(epsilon=BUDGET.epsilon, delta=BUDGET.delta)


def prepare_log(folder: pathlib.Path) -> PreparedDataset:
    """A made-up log of clicks and sales as arrays on disk."""
    log = folder / "search.parquet"
    write_log(shapes.SEARCH, log, num_rows=30_000, seed=0)
    features = hash_all(SEARCH.schema, public_bins=20_000, sensitive_bins=10_000)
    return prepare(LogFiles(paths=(log,), layout=SEARCH), features, folder / "prepared").dataset


def main(folder: pathlib.Path) -> None:
    """Plans, trains, writes the card, and looks at the ledger."""
    folder.mkdir(parents=True)
    dataset = prepare_log(folder)
    train_rows, test_rows = split_at_random(
        dataset.num_rows, fractions=(0.8, 0.2), key=b"rows of the example"
    )
    examples = train.ExampleSet.of(dataset, train_rows)
    plan = train.make_plan(examples, CONFIG)
    print(f"plan: {plan.guarantee}, noise multiplier {plan.noise_multiplier:.2f}")

    ledger = Ledger.create(folder / "ledger.db")
    ledger.create_budget(BUDGET)
    charge = train.LedgerCharge(ledger=ledger)
    options = train.RunOptions(
        folder=folder / "run", charge=charge, test_name="a fifth of the rows"
    )
    test = train.ExampleSet.of(dataset, test_rows)
    result = train.fit(examples, plan, test=test, options=options)
    print(f"AUC loss {result.metrics.auc_loss:.3f}; guessing has 0.5")

    card = training_card(RunFolder.open(folder / "run"))
    write_card(folder / "run", card)
    print(card.verdict)
    left = ledger.state(BUDGET.name).left_epsilon
    print(f"left in the ledger for these rows: epsilon={left:.2g} of {BUDGET.epsilon:g}")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "trained"))
