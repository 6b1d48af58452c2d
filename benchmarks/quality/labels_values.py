"""Sale values with noise: which mechanism trains the best linear model.

    python benchmarks/quality/labels_values.py [CLICKS] --output FILE [--seeds 3]

CLICKS is clicks.parquet (an extract of the Criteo Sponsored Search Conversion Log): its rows
with a sale, amounts cut at 400 and rounded to whole euros, public features one-hot as in
labels_data.py, the same 80/20 split. A synthetic table with long-tailed amounts comes first.

The model is linear with a ridge, which is chosen for each release on a fifth of its own noisy
labels, held back: post-processing. RR-on-Bins and the unbiased randomizer spend a tenth of
epsilon on a histogram of 40 cells, as `tulle labels release --prior-epsilon` does; the others
need no prior. Noise has fixed seeds; a release would not.
"""

import argparse
import dataclasses
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from labels_data import REAL, prepare_public, source_table, split_rows
from labels_ridge import RIDGES, choose_ridges, fit_ridge
from labels_value_summary import summary, verdicts
from scipy.sparse import csr_array

from record import PUBLISHED, print_table, versions, write_record
from tulle.labels.label_grid import LabelGrid
from tulle.labels.label_mechanism import RowMechanism
from tulle.labels.mechanisms.added_noise import LaplaceLabels
from tulle.labels.mechanisms.bin_response import BinResponse
from tulle.labels.mechanisms.label_prior import (
    LabelPriorConfig,
    raw_cell_counts,
    release_prior_of_counts,
)
from tulle.labels.mechanisms.stepped_noise import StaircaseLabels
from tulle.labels.mechanisms.unbiased_response import UnbiasedResponse
from tulle.mechanisms.entropy import SeededNoise

FloatArray = NDArray[np.float64]
Row = dict[str, object]

GRID = LabelGrid(low=0.0, high=400.0)
EPSILONS = (0.5, 1.0, 2.0, 4.0)
PRIOR_SHARE, PRIOR_CELLS = 0.1, 40
SYNTH = "synthetic amounts"
SYNTH_ROWS = 400_000
SYNTH_FIELDS = (7, 10, 20, 50, 200, 300, 1_000, 5_000)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class ValueData:
    """One-hot rows with a constant, and whole amounts. Raw data."""

    name: str
    train: csr_array
    test: csr_array
    train_values: FloatArray
    test_values: FloatArray


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class NoisyValues:
    """What one release gives to train on."""

    mechanism: str
    epsilon: float | None
    seed: int
    labels: FloatArray


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("clicks", nargs="?", help="clicks.parquet; without it synthetic only")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--output", type=Path, default=PUBLISHED / "labels_values.json")
    options = parser.parse_args()
    rows: list[Row] = []
    sources = [synthetic_values] + ([lambda: real_values(options.clicks)] if options.clicks else [])
    for source in sources:
        rows += measure(source(), options.seeds)
        means = summary(rows)
        facts = {
            "versions": versions("numpy", "scipy"),
            "seeds": list(range(options.seeds)),
            "prior_share": PRIOR_SHARE,
            "summary": means,
            "verdicts": verdicts(means),
        }
        write_record(options.output, "sale values with label DP", rows, facts)
    print_table(means)
    for verdict in facts["verdicts"]:
        print("holds " if verdict["holds"] else "FAILS ", verdict["source"], verdict["claim"])


def measure(data: ValueData, num_seeds: int) -> list[Row]:
    """One row for each release, and one without noise."""
    releases = [
        NoisyValues(mechanism="none", epsilon=None, seed=0, labels=data.train_values),
        *(
            noisy
            for epsilon in EPSILONS
            for seed in range(num_seeds)
            for noisy in release_all(data.train_values, epsilon, seed)
        ),
    ]
    print(f"{data.name}: {len(releases)} releases of {len(data.train_values):,} values", flush=True)
    labels = np.stack([noisy.labels for noisy in releases], axis=1)
    ridges = choose_ridges(data.train, labels)
    constant = float(np.mean((data.test_values - data.train_values.mean()) ** 2))
    rows = []
    for ridge in RIDGES:
        chosen = np.flatnonzero(ridges == ridge)
        if not chosen.size:
            continue
        predicted = data.test @ fit_ridge(data.train, labels[:, chosen], ridge)
        for place, column in enumerate(chosen):
            noisy = releases[column]
            rows.append(
                {
                    "source": data.name,
                    "mechanism": noisy.mechanism,
                    "epsilon": noisy.epsilon,
                    "seed": noisy.seed,
                    "test_mse": _squared_error(predicted[:, place], data.test_values),
                    "noisy_label_mse": _squared_error(noisy.labels, data.train_values),
                    "ridge": ridge,
                    "constant_test_mse": constant,
                    "train_rows": len(data.train_values),
                }
            )
    return rows


def release_all(raw_values: FloatArray, epsilon: float, seed: int) -> Iterator[NoisyValues]:
    """Noisy values of every mechanism, each with all of epsilon."""
    for number, mechanism in enumerate(mechanisms(raw_values, epsilon, seed)):
        rng = SeededNoise(1_000_003 * seed + round(1000 * epsilon) + number)
        noisy = mechanism.release(raw_values, rng=rng)
        name = mechanism.name
        yield NoisyValues(
            mechanism=name, epsilon=epsilon, seed=seed, labels=noisy.labels.astype(np.float64)
        )
        if isinstance(mechanism, BinResponse):
            name = f"{mechanism.name}, debiased"
            yield NoisyValues(mechanism=name, epsilon=epsilon, seed=seed, labels=noisy.targets)


def mechanisms(raw_values: FloatArray, epsilon: float, seed: int) -> Iterator[RowMechanism]:
    """The two that have a prior pay for it, and share one."""
    prior_epsilon = PRIOR_SHARE * epsilon
    config = LabelPriorConfig(epsilon=prior_epsilon, labels=GRID, num_cells=PRIOR_CELLS)
    rng = SeededNoise(7_000_003 * (seed + 1) + round(1000 * epsilon))
    prior = release_prior_of_counts(raw_cell_counts(raw_values, config), config, rng=rng).weights
    rest = epsilon - prior_epsilon
    yield BinResponse(epsilon=rest, grid=GRID, prior=prior)
    yield UnbiasedResponse(epsilon=rest, grid=GRID, prior=prior)
    for clip in (False, True):
        yield LaplaceLabels(epsilon=epsilon, grid=GRID, clip=clip)
        yield StaircaseLabels(epsilon=epsilon, grid=GRID, clip=clip)


def synthetic_values() -> ValueData:
    """Amounts with a long tail, whose logarithm is a sum of effects of public fields."""
    rng = np.random.default_rng(20260115)
    columns, logs = [], rng.normal(3.7, 0.8, SYNTH_ROWS)
    for size in SYNTH_FIELDS:
        chances = 1 / np.arange(1, size + 1)
        columns.append(rng.choice(size, SYNTH_ROWS, p=chances / chances.sum()))
        logs += rng.normal(0.0, 0.25, size)[columns[-1]]
    values = np.rint(np.minimum(np.exp(logs), GRID.high))
    return split_data(SYNTH, np.stack(columns, axis=1), values)


def real_values(clicks: str) -> ValueData:
    """Rows with a sale."""
    import polars as pl

    with tempfile.TemporaryDirectory() as work:
        log = source_table(clicks, Path(work))
        dataset = prepare_public(log, clicks, Path(work))
        amounts = pl.read_parquet(log, columns=["SalesAmountInEuro"]).to_series().to_numpy()
        is_sale = dataset.labels == 1
        values = np.rint(np.clip(amounts[is_sale].astype(np.float64), GRID.low, GRID.high))
        ids = np.array(dataset.public_features[is_sale])
        train, test = (np.isin(np.flatnonzero(is_sale), rows) for rows in split_rows(len(amounts)))
    return one_hot_data(REAL, ids, values, (np.flatnonzero(train), np.flatnonzero(test)))


def split_data(name: str, ids: NDArray[np.integer], values: FloatArray) -> ValueData:
    """With the benchmark's split of these rows."""
    return one_hot_data(name, ids, values, split_rows(len(values)))


def one_hot_data(
    name: str,
    ids: NDArray[np.integer],
    values: FloatArray,
    parts: tuple[NDArray[np.int64], NDArray[np.int64]],
) -> ValueData:
    """A column for each id that training rows have; test rows have none for others."""
    train, test = parts
    columns, num_columns = [np.zeros(len(ids), np.int64)], 1
    for field in ids.T:
        known = np.unique(field[train])
        places = np.minimum(np.searchsorted(known, field), len(known) - 1)
        columns.append(np.where(known[places] == field, num_columns + places, -1))
        num_columns += len(known)
    matrix = np.stack(columns, axis=1)
    return ValueData(
        name=name,
        train=_ones(matrix[train], num_columns),
        test=_ones(matrix[test], num_columns),
        train_values=values[train],
        test_values=values[test],
    )


def _ones(columns: NDArray[np.int64], num_columns: int) -> csr_array:
    is_known = columns >= 0
    starts = np.concatenate([[0], np.cumsum(is_known.sum(1))])
    ones = np.ones(int(starts[-1]))
    return csr_array((ones, columns[is_known], starts), shape=(len(columns), num_columns))


def _squared_error(predicted: FloatArray, values: FloatArray) -> float:
    return float(np.mean((predicted - values) ** 2))


if __name__ == "__main__":
    main()
