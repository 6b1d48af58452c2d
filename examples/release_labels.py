"""Release the labels of a log under a user's budget, and use them without any framework.

    python examples/release_labels.py [OUTPUT_FOLDER]

The log is synthetic. Replace it by your own file or table, and `layout` by a schema of its columns.
The steps are those of a real release: public row counts choose the mechanism, the ledger is
charged before the first draw, the same call again finds the stored table, and the card says what is
promised.
"""

import pathlib
import sys

import tulle

EPSILON = 2.0


def main(folder: pathlib.Path) -> None:
    """Plans, releases twice for one price, and estimates a rate."""
    folder.mkdir(parents=True)
    log = tulle.data.write_synthetic("attribution", folder / "log.parquet", rows=100_000)
    plan = tulle.labels.plan(log, layout="attribution", unit="user", epsilon=EPSILON)
    best = plan.comparison.recommended
    print(f"mechanism {best.mechanism.name}, noise variance {best.mean_variance:.3f} a row")

    ledger = tulle.accounting.Ledger.create(folder / "ledger.db")
    budget = tulle.accounting.Budget(
        name="labels", unit="user", adjacency="replace", epsilon=EPSILON, delta=0
    )
    ledger.create_budget(budget)
    for name in ("noisy.parquet", "copy.parquet"):
        result = tulle.labels.release(
            log,
            layout="attribution",
            unit="user",
            epsilon=EPSILON,
            mechanism=plan.mechanism,
            output=folder / name,
            ledger=ledger,
        )
        print(f"{name}: {'found' if result.is_stored else 'drawn'}")
    print(result.card.verdict)

    # Conversions beyond the cap of a user are not counted.
    noisy = result.to_polars()
    rate = (noisy["target"] * noisy["weight"]).sum() / noisy["weight"].sum()
    print(f"conversion rate {rate:.4f} from noisy labels")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "released"))
