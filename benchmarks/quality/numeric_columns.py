"""Columns of numbers: what the default makes of them, beside bins by hand and hashing.

    python benchmarks/quality/numeric_columns.py [--output FILE] [--seeds N]

A synthetic log of 200,000 rows has six columns of numbers, public and sensitive, whose effects
are smooth, and two columns of categories. It is trained on as the default does (only the kinds are
said, and bounds of the age), with bins that somebody who knows the columns would make, and with
each number as a category. Every log has a seed, and so has the noise of its runs.
"""

import argparse
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import tulle
from record import PUBLISHED, print_table, write_record
from tulle.quality.metrics import auc_loss

NUM_ROWS, NUM_TEST = 200_000, 40_000
DELTA = 1e-6
EPSILONS = (1.0, 3.0)
PUBLIC = ("recency_days", "price", "visits", "hour", "site")
SENSITIVE = ("age", "device", "income")
KINDS = {
    **dict.fromkeys(("recency_days", "price", "income"), "real"),
    **dict.fromkeys(("age", "visits", "hour"), "integer"),
}
BY_HAND = {
    "recency_days": (1, 2, 4, 7, 10, 15, 20, 30, 50),
    "age": (24, 29, 34, 39, 44, 49, 54, 59, 64),
    "price": (5, 8, 12, 16, 20, 26, 34, 45, 70, 100),
    "income": (1000, 1500, 2000, 2500, 3000, 4000, 5000, 7000, 10000),
    "visits": tuple(np.arange(0.5, 15)),
}
"""Edges of bins as somebody writes them down who knows what the columns mean."""

Row = dict[str, object]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=PUBLISHED / "numeric_columns.json")
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    rows = [row for seed in range(arguments.seeds) for row in rows_of(seed)]
    rows = [summary(rows, columns, epsilon) for epsilon in EPSILONS for columns in COLUMNS]
    print_table(rows)
    facts: dict[str, object] = {
        "rows_of_a_log": NUM_ROWS,
        "test_rows": NUM_TEST,
        "delta": DELTA,
        "seeds": arguments.seeds,
    }
    write_record(arguments.output, "columns of numbers", rows, facts)


def log_of(rng: np.random.Generator) -> tuple[pl.DataFrame, np.ndarray]:
    """Rows whose log odds are smooth in their numbers, and the true probabilities."""
    recency = rng.exponential(12, NUM_ROWS)
    age = rng.integers(18, 80, NUM_ROWS)
    price = rng.lognormal(3, 0.8, NUM_ROWS)
    visits = rng.geometric(0.25, NUM_ROWS) - 1
    hour = rng.integers(0, 24, NUM_ROWS)
    site = rng.integers(0, 200, NUM_ROWS)
    device = rng.integers(0, 5, NUM_ROWS)
    income = rng.lognormal(8, 0.6, NUM_ROWS)
    of_site = rng.normal(0, 0.35, 200)
    log_odds = -3.0 + 1.3 * np.exp(-recency / 6) - 0.0012 * (age - 42) ** 2
    log_odds += 0.63 * np.sin(1.7 * np.log(price)) + 0.35 * np.log1p(visits)
    log_odds += 0.4 * np.cos((hour - 20) / 24 * 2 * np.pi) + of_site[site]
    log_odds += 0.25 * (np.log(income) - 8) / 0.6 + 0.3 * (device == 2)
    log_odds -= 0.02 * (recency - 12) * (device == 1)
    probs = 1 / (1 + np.exp(-log_odds))
    label = (rng.random(NUM_ROWS) < probs).astype(int)
    columns = {"recency_days": recency, "price": price, "visits": visits, "hour": hour}
    columns |= {"site": site, "age": age, "device": device, "income": income, "label": label}
    return pl.DataFrame(columns), probs


def by_default(log: pl.DataFrame) -> tuple[pl.DataFrame, tulle.Schema]:
    return log, schema(KINDS, bounds={"age": (18, 79)})


def by_hand(log: pl.DataFrame) -> tuple[pl.DataFrame, tulle.Schema]:
    binned = {
        name: np.digitize(log[name].to_numpy(), edges).astype(str)
        for name, edges in BY_HAND.items()
    }
    return log.with_columns(**{n: pl.Series(values) for n, values in binned.items()}), schema({})


def hashed(log: pl.DataFrame) -> tuple[pl.DataFrame, tulle.Schema]:
    return log, schema(dict.fromkeys(KINDS, "categorical"))


COLUMNS = {"default": by_default, "bins by hand": by_hand, "hashed": hashed}


def schema(kinds: dict[str, str], **more: object) -> tulle.Schema:
    return tulle.Schema(label="label", public=PUBLIC, sensitive=SENSITIVE, kinds=kinds, **more)


def rows_of(seed: int) -> Iterator[Row]:
    log, probs = log_of(np.random.default_rng(seed))
    labels = log["label"].to_numpy()[-NUM_TEST:]
    truth = auc_of(labels, probs[-NUM_TEST:])
    for columns, made in COLUMNS.items():
        table, roles = made(log)
        for epsilon in EPSILONS:
            start = time.perf_counter()
            model = tulle.Classifier(roles, epsilon=epsilon, delta=DELTA, seed=seed)
            model.fit(table.head(NUM_ROWS - NUM_TEST))
            seconds = time.perf_counter() - start
            found = model.predict_proba(table.tail(NUM_TEST))[:, 1]
            yield {
                "columns": columns,
                "epsilon": epsilon,
                "auc": auc_of(labels, found),
                "auc_of_truth": truth,
                "seconds": seconds,
            }


def auc_of(labels: np.ndarray, scores: np.ndarray) -> float:
    return 1 - auc_loss(scores[labels == 1], scores[labels == 0]).value


def summary(rows: list[Row], columns: str, epsilon: float) -> Row:
    chosen = [row for row in rows if (row["columns"], row["epsilon"]) == (columns, epsilon)]
    values = np.array([row["auc"] for row in chosen], dtype=float)
    return {
        "columns": columns,
        "epsilon": epsilon,
        "auc": float(values.mean()),
        "auc_deviation": float(values.std(ddof=1)) if len(values) > 1 else 0.0,
        "auc_of_truth": float(np.mean([row["auc_of_truth"] for row in chosen])),
        "seconds": float(np.mean([row["seconds"] for row in chosen])),
    }


if __name__ == "__main__":
    main()
