"""What error to expect of every number, before anything is spent.

Noise follows from the plan alone. Relative errors also need an idea of the counts: those of an
earlier release, or public ones. Bounds cut off what units have beyond them; that bias is not in
these figures, because no public count tells it.
"""

import dataclasses
from collections.abc import Mapping

import numpy as np
import polars as pl

from tulle.measure.expected_error import (
    expected_relative_errors,
    root_mean_square,
    smallest_count_within,
)
from tulle.measure.queries.answer_table import FloatArray
from tulle.measure.queries.level_shares import history_counts
from tulle.measure.queries.measure_plan import MeasurePlan
from tulle.measure.queries.number_noise import NumberNoise, number_noises
from tulle.measure.queries.planning import PlannedQuery

_WITHIN = 0.1


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class ExpectedErrors:
    """One kind of number of a query, over its slices. Public if the counts are."""

    query: str
    number: str
    level: str
    """Of a hierarchy: the slice columns of the level. Empty for other queries."""
    noise_stddev: float
    """Of one slice; where slices differ, the largest."""
    least_noise_stddev: float
    """The smallest of all slices."""
    is_as_measured: bool
    """True of a hierarchy whose slices are not known yet: what is released after all numbers
    add up has less noise."""
    smallest_within: int
    """The least number that is off by 10% at most, with the plan's confidence."""
    slices: pl.DataFrame | None = None
    """Slices with the columns expected, noise_stddev and relative_error; None without counts."""
    rmsre: float | None = None
    """Root of the mean squared relative error over all slices."""


def expected_errors(
    plan: MeasurePlan, past: Mapping[str, pl.DataFrame] | None = None, *, tau: float = 5.0
) -> list[ExpectedErrors]:
    """What each table of a plan will be like.

    Args:
      plan: The measurement.
      past: By query: earlier numbers of its slices in the column "count".
      tau: Errors are relative to max(tau, number).

    Privacy:
      `past` is read as it is: give public numbers, or those of an earlier release.
    """
    found = []
    for planned in plan.queries:
        history = (past or {}).get(planned.query.name)
        if history is not None and planned.query.has_private_keys and not history.height:
            history = None  # no slice was found then
        keys = _known_keys(planned, history)
        for noise in number_noises(planned, keys, plan.config.confidence):
            frame = None
            if history is not None and noise.is_main:
                frame = _frame(planned, noise, history, tau)
            found.append(_expected(planned, noise, frame))
    return found


def _expected(
    planned: PlannedQuery, noise: NumberNoise, frame: pl.DataFrame | None
) -> ExpectedErrors:
    rmsre = None
    if frame is not None:
        rmsre = root_mean_square(frame["relative_error"].to_numpy())
    return ExpectedErrors(
        query=planned.query.name,
        number=noise.number,
        level=noise.level,
        noise_stddev=float(noise.stddevs.max()),
        least_noise_stddev=float(noise.stddevs.min()),
        is_as_measured=noise.is_as_measured,
        smallest_within=smallest_count_within(_WITHIN, noise.half_width),
        slices=frame,
        rmsre=rmsre,
    )


def _known_keys(planned: PlannedQuery, history: pl.DataFrame | None) -> pl.DataFrame | None:
    """The slices that there will be, or were before; None if nobody can tell."""
    query = planned.query
    if query.keys is not None or history is None or not query.slices:
        return query.keys
    return history.select([column.name for column in query.slices]).cast(pl.String)


def _frame(
    planned: PlannedQuery, noise: NumberNoise, history: pl.DataFrame, tau: float
) -> pl.DataFrame:
    query = planned.query
    keys = _known_keys(planned, history)
    if keys is None:
        counts = np.array([float(history["count"].sum())])
    else:
        counts = history_counts(query, keys, history)
    if noise.nodes is not None:
        keys, counts = noise.nodes.slices, noise.nodes.totals(counts)
    stddevs: FloatArray = np.broadcast_to(noise.stddevs, counts.shape)
    errors = expected_relative_errors(counts, stddevs**2, tau=tau)
    figures = {"expected": counts, "noise_stddev": stddevs, "relative_error": errors}
    columns = [pl.Series(name, values) for name, values in figures.items()]
    return pl.DataFrame(columns) if keys is None else keys.hstack(columns)
