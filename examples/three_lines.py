"""Train a private model on a table in memory, in three lines.

    python examples/three_lines.py

The log is made up. Replace `read_table` by your own: any polars, pandas or Arrow table.
"""

import pathlib
import tempfile

import polars as pl

import tulle.train
from tulle.data.formats.search import SEARCH
from tulle.data.splits import split_at_random
from tulle.data.synth import shapes
from tulle.data.synth.write_logs import write_log


def read_table(num_rows: int) -> pl.DataFrame:
    """Clicks on product ads, with a sale or without."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "search.parquet"
        write_log(shapes.SEARCH, path, num_rows=num_rows, seed=0)
        return pl.read_parquet(path)


def main() -> None:
    """Fits, and says how good the model is on held-out rows and what it promises."""
    table = read_table(30_000)
    train_rows, test_rows = split_at_random(
        table.height, fractions=(0.8, 0.2), key=b"rows of the example"
    )

    # The schema says which columns are sensitive: here device, audience and user.
    model = tulle.train.TableClassifier(SEARCH.schema, epsilon=3, delta=1e-7)
    model.fit(table[train_rows])
    probabilities = model.predict_proba(table[test_rows])

    print(f"mean predicted chance of a sale: {probabilities[:, 1].mean():.3f}")
    metrics = model.evaluate(table[test_rows])
    low, high = metrics.auc_loss_interval
    print(f"AUC loss {metrics.auc_loss:.3f} ({low:.3f} to {high:.3f}); guessing has 0.5")
    print(model.guarantee_)


if __name__ == "__main__":
    main()
