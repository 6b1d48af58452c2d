"""Train on a log under a budget, and keep model and card.

    python examples/train_mosaic.py [OUTPUT_FOLDER]

The log is synthetic. Replace it by your own file and a schema. The steps are those of a real
release: the plan is known before training, the ledger is charged once, the run can be resumed,
and the card says what is promised. Mosaic has nothing to tune but epsilon.
"""

import pathlib
import sys

import tulle


def main(folder: pathlib.Path) -> None:
    """Plans, trains, scores new rows, and looks at the ledger."""
    folder.mkdir(parents=True)
    log = tulle.data.write_synthetic("search", folder / "search.parquet", rows=30_000, seed=0)
    plan = tulle.train.plan(log, layout="search", epsilon=3, delta=1e-7)
    print(f"plan: {plan.guarantee}, noise multiplier {plan.noise_multiplier:.2f}")

    ledger = tulle.Ledger.create(folder / "ledger.db")
    ledger.create_budget(
        tulle.Budget(name="rows", unit="example", adjacency="replace", epsilon=3.0, delta=1e-7)
    )
    result = tulle.train.fit(log, layout="search", plan=plan, output=folder / "run", ledger=ledger)
    print(f"AUC loss {result.metrics.auc_loss:.3f}; guessing has 0.5")
    print(result.card.verdict)

    model = tulle.load(folder / "run")
    probabilities = model.predict_proba(log)[:, 1]
    print(f"mean predicted probability of a sale: {probabilities.mean():.3f}")
    left = ledger.state("rows").left_epsilon
    print(f"left in the ledger for these rows: epsilon={left:.2g} of 3")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "trained"))
