"""Train a private model on a table in memory, in three lines.

    python examples/three_lines.py

The table is synthetic. Replace it by your own: any table of polars, pandas, Arrow or DuckDB.
"""

import numpy as np
import polars as pl

import tulle


def make_table(num_rows: int) -> pl.DataFrame:
    """Clicks on ads that were bought from or not; who is older buys more."""
    rng = np.random.default_rng(0)
    campaign, age = rng.integers(0, 20, num_rows), rng.integers(0, 6, num_rows)
    purchase_prob = 0.02 + 0.01 * (campaign % 4) + 0.03 * age
    return pl.DataFrame(
        {
            "campaign": [f"campaign {number}" for number in campaign],
            "age": [f"{number + 2}0s" for number in age],
            "bought": (rng.random(num_rows) < purchase_prob).astype(int),
        }
    )


def main() -> None:
    """Fits, and says how good the model is on held-out rows and what it promises."""
    table = make_table(30_000)
    train_rows, test_rows = table[:24_000], table[24_000:]

    schema = tulle.Schema(label="bought", public=["campaign"], sensitive=["age"])
    model = tulle.Classifier(schema, epsilon=3, delta=1e-7).fit(train_rows)
    probabilities = model.predict_proba(test_rows)

    print(f"mean predicted probability: {probabilities[:, 1].mean():.3f}")
    metrics = model.evaluate(test_rows)
    low, high = metrics.auc_loss_interval
    print(f"AUC loss {metrics.auc_loss:.3f} ({low:.3f} to {high:.3f}); guessing has 0.5")
    print(model.guarantee_)


if __name__ == "__main__":
    main()
