"""Intervals of effects hold the truth about as often as they say, and half as wide ones do not.

The truth is known: log odds of clicks are drawn for each value. A fit of Mosaic is a few noisy
sums, so that several runs on different data take a second.
"""

import functools
from typing import Any

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray

from tulle.train.classifier import Classifier
from tulle.train.methods.mosaic.shrinkage import FittedTable
from tulle.train.methods.mosaic.weight_errors import WeightErrors

FloatArray = NDArray[np.float64]

_NUM_VALUES, _NUM_ROWS, _NUM_RUNS = 150, 40_000, 4
"""600 values in all. Of independent ones at 95%, the share that is held has a standard deviation
of 0.9%; values of one run share its errors of spread and level, so that limits are wider."""
_LEAST, _MOST = 0.92, 0.98
_DEVIATIONS = 1.96


@functools.cache
def deviations(role: str, epsilon: float) -> FloatArray:
    """Differences of effects from the truth in all runs, in posterior standard deviations."""
    found = []
    for seed in range(_NUM_RUNS):
        rng = np.random.default_rng(100 + seed)
        truth, others = rng.normal(0, 0.6, _NUM_VALUES), rng.normal(0, 0.2, 20)
        site, other = rng.integers(0, _NUM_VALUES, _NUM_ROWS), rng.integers(0, 20, _NUM_ROWS)
        clicks = rng.random(_NUM_ROWS) < 1 / (1 + np.exp(1.5 - truth[site] - others[other]))
        names = [f"site {number}" for number in range(_NUM_VALUES)]
        table = pl.DataFrame(
            {
                "click": clicks.astype(int),
                "site": [names[number] for number in site],
                "other": [f"other {number}" for number in other],
            }
        )
        schema = {"label": "click", "public": ["other"]}
        schema[role] = [*schema.get(role, []), "site"]  # type: ignore[misc]
        model = Classifier(schema, epsilon=epsilon, seed=seed).fit(table)
        effects = model.explain(values=pl.DataFrame({"site": names})).effects("site")
        known = dict(zip(names, truth, strict=True))
        rows = [row for row in effects if row["site"] in known]
        differences = np.array([row["effect"] - known[row["site"]] for row in rows])
        stddevs = np.array([row["high"] - row["effect"] for row in rows]) / _DEVIATIONS
        # The bias of the model has the mean of all effects.
        found.append((differences - differences.mean()) / stddevs)
    return np.concatenate(found)


def held(role: str, epsilon: float, *, width: float = 1.0) -> float:
    """Share of values whose interval, times a width, holds the truth."""
    return float(np.mean(np.abs(deviations(role, epsilon)) < width * _DEVIATIONS))


@pytest.mark.parametrize(("role", "epsilon"), [("public", 4.0), ("sensitive", 3.0)])
def test_intervals_hold_the_truth_about_as_often_as_they_say(role: str, epsilon: float) -> None:
    assert len(deviations(role, epsilon)) > 0.8 * _NUM_RUNS * _NUM_VALUES
    assert _LEAST < held(role, epsilon) < _MOST
    # The same runs show that other widths are wrong.
    assert held(role, epsilon, width=0.5) < 0.75
    assert held(role, epsilon, width=0.8) < _LEAST
    assert held(role, epsilon, width=1.25) > _MOST


def test_counting_the_same_labels_anew_in_each_release_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A bug that was: the variances that divide the budget were given out as those of weights."""
    note_fit = FittedTable.note_fit

    def note_variances(table: FittedTable, *given: Any, **named: Any) -> None:
        note_fit(table, *given, **named)
        vars(table.errors)["variances"] = table.variances

    def faulty_stddevs(errors: WeightErrors, *_: object, **__: object) -> NDArray[np.float32]:
        return np.sqrt(vars(errors)["variances"]).astype(np.float32)

    monkeypatch.setattr(FittedTable, "note_fit", note_variances)
    monkeypatch.setattr(WeightErrors, "stddevs", faulty_stddevs)
    found = np.abs(deviations.__wrapped__("sensitive", 2.0)) < _DEVIATIONS
    assert found.mean() < _LEAST
