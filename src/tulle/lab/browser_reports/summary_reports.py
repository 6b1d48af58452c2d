"""What error summary reports would leave in each slice of a log: a what-if tool.

Three things stand between a log and a summary: values are cut and rounded to steps, reports
that a source cannot pay are dropped whole, and every declared key gets discrete Laplace
noise. A dropped report costs nothing, so a later and smaller one may still fit: the budget of a
source is state, not a clip of its sum. Delays and null reports change no total, so they are left
out. The Attribution Reporting API, which this simulates, is retired by Chrome.
"""

import dataclasses
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from tulle.data.schema import Kind
from tulle.data.tables.kinds import as_numbers
from tulle.errors import DataError
from tulle.lab.browser_reports.attributed_log import (
    AttributedLog,
    distinct_slices,
    places_in,
    places_within_source,
)
from tulle.lab.browser_reports.summary_settings import (
    L1_BUDGET,
    MOST_REPORTS_PER_SOURCE,
    Goal,
    KeyLayout,
    SummarySettings,
)
from tulle.measure.expected_error import expected_relative_errors, root_mean_square
from tulle.measure.w3c.verbs import slice_names
from tulle.mechanisms.discrete_laplace import release_discrete_laplace
from tulle.mechanisms.entropy import NoiseSource
from tulle.privacy.fields import check_count

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

_GOAL_FIELD = "(goal)"
"""Field of a key that says which goal it is about."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class SummaryOutcome:
    """What a campaign would see. Sensitive: it holds raw totals."""

    table: pl.DataFrame = dataclasses.field(repr=False)
    """A row for each goal and slice: goal, slice, key, conversions, true, kept, noise_stddev,
    relative_error, dropped_share; and noisy, if noise was drawn. Totals are in units of the
    goal; `kept` is what is left of `true` after cuts, rounding and drops."""
    dropped_share: float
    """Share of the reports that were dropped."""
    rmsre: dict[str, float]
    """RMSRE_tau over the slices of each goal."""

    @property
    def overall_rmsre(self) -> float:
        """RMSRE_tau over all goals."""
        return root_mean_square(list(self.rmsre.values()))


def expected_summary(log: AttributedLog, settings: SummarySettings) -> SummaryOutcome:
    """The error of each slice from its exact variance, without drawing noise.

    Slices are all combinations of values that sources (and conversions) of the log have:
    a public list must name them before.

    Privacy:
      None: the outcome is computed from raw rows. Keep it with the data.
    """
    goal_steps = [settings.scale(_values(log, goal), goal) for goal in settings.goals]
    is_sent = sent_reports(
        log.conversion_sources,
        sum(goal_steps, start=np.zeros(len(log.conversion_sources), np.int64)),
        max_reports=settings.max_reports_per_source,
    )
    parts = [
        _goal_table(log, settings, goal, np.where(is_sent, steps, 0), is_sent)
        for goal, steps in zip(settings.goals, goal_steps, strict=True)
    ]
    return SummaryOutcome(
        table=pl.concat(parts),
        dropped_share=float(1 - is_sent.mean()) if is_sent.size else 0.0,
        rmsre={
            goal.name: root_mean_square(part["relative_error"].to_numpy())
            for goal, part in zip(settings.goals, parts, strict=True)
        },
    )


def simulate_summary(
    log: AttributedLog, settings: SummarySettings, *, rng: NoiseSource
) -> SummaryOutcome:
    """The error of each slice with one draw of the noise, in the column `noisy`.

    Args:
      log: Sources and the conversions credited to them.
      settings: Goals, epsilon and limits.
      rng: Source of the noise. Sensitive: never log or save its state.

    Privacy:
      The column `noisy` alone would be a release: unit one source with the conversions credited
      to it, add-remove, L1 sensitivity 2^16, event one DiscreteLaplace for all keys. It relies
      on the drop rule, on slices that are public, and on credit that stays where it is: without
      its impression a conversion may go to another source. The other columns are raw: keep the
      outcome with the data.
    """
    outcome = expected_summary(log, settings)
    noisy: list[FloatArray] = []
    for goal in settings.goals:
        kept = outcome.table.filter(pl.col("goal") == goal.name)["kept"].to_numpy()
        raw_steps = np.rint(kept * settings.steps_per_unit(goal)).astype(np.int64)
        noisy_steps = release_discrete_laplace(raw_steps, settings.noise, rng=rng)
        noisy.append(settings.unscale(noisy_steps, goal))
    table = outcome.table.with_columns(noisy=pl.Series(np.concatenate(noisy)))
    return dataclasses.replace(outcome, table=table)


def sent_reports(
    sources: ArrayLike,
    amounts: ArrayLike,
    *,
    budget: int = L1_BUDGET,
    max_reports: int = MOST_REPORTS_PER_SOURCE,
) -> BoolArray:
    """Which reports are sent, the others being dropped.

    Args:
      sources: The source of each report, in order of time.
      amounts: Sum of the contributions of each report. One of 0 is no report: it costs
        nothing and counts as sent, because nothing is lost.
      budget: What one source may spend.
      max_reports: Reports that one source may send.
    """
    check_count("budget", budget)
    check_count("max_reports", max_reports)
    owners, costs = np.asarray(sources), np.asarray(amounts)
    if owners.ndim != 1 or owners.shape != costs.shape:
        raise DataError("sources and amounts must have one number for each report.")
    if costs.dtype.kind not in "iu" or np.any(costs < 0):
        raise DataError("amounts must be whole numbers >= 0.")
    is_sent: BoolArray = costs == 0
    reports = np.flatnonzero(~is_sent)
    _, places = np.unique(owners[reports], return_inverse=True)
    spent = np.zeros(places.max(initial=-1) + 1, np.int64)
    num_sent = np.zeros(len(spent), np.int64)
    for turn in _turns(places):
        owner, cost = places[turn], costs[reports[turn]]
        is_open = (num_sent[owner] < max_reports) & (spent[owner] < budget)
        if not is_open.any():  # Whoever has a later turn has this one, and is closed.
            break
        fits = is_open & (spent[owner] + cost <= budget)
        spent[owner] += np.where(fits, cost, 0)
        num_sent[owner] += fits
        is_sent[reports[turn]] = fits
    return is_sent


def _values(log: AttributedLog, goal: Goal) -> FloatArray:
    if goal.column is None:
        return np.ones(len(log.conversion_sources))
    numbers = as_numbers(log.column(goal.column), Kind.REAL, way_out="give every row a number")
    return numbers.fill_null(np.nan).to_numpy()


def _goal_table(
    log: AttributedLog,
    settings: SummarySettings,
    goal: Goal,
    sent_steps: IntArray,
    is_sent: BoolArray,
) -> pl.DataFrame:
    columns = pl.DataFrame({name: log.column(name) for name in goal.by})
    declared = _declared_slices(log, goal)
    places = places_in(columns, declared)

    def add_up(amounts: NDArray[Any]) -> FloatArray:
        # Whole numbers are exact here up to 2^53 steps: 10^11 conversions of one slice.
        sums = np.bincount(places, weights=amounts, minlength=len(declared))
        return sums.astype(np.float64)

    values = _values(log, goal)
    conversions, totals = add_up(np.ones(len(values))), add_up(values)
    kept = settings.unscale(add_up(sent_steps), goal)
    stddev = settings.noise_stddev(goal)
    errors = expected_relative_errors(
        totals, stddev**2, bias=kept - totals, tau=_tau(settings, goal, values)
    )
    return pl.DataFrame(
        {
            "goal": [goal.name] * len(declared),
            "slice": slice_names(declared),
            "key": _keys(settings, goal, declared),
            "conversions": conversions.astype(np.int64),
            "true": totals,
            "kept": kept,
            "noise_stddev": np.full(len(declared), stddev),
            "relative_error": errors,
            "dropped_share": add_up(~is_sent) / np.maximum(conversions, 1),
        }
    )


def _declared_slices(log: AttributedLog, goal: Goal) -> pl.DataFrame:
    """Every combination of what sources have and what conversions may add."""
    of_source = tuple(name for name in goal.by if name in log.sources.columns)
    frames = [
        distinct_slices(table, names)
        for table, names in (
            (log.sources, of_source),
            *((log.conversions, (name,)) for name in goal.by if name not in of_source),
        )
        if names
    ]
    declared = frames[0]
    for frame in frames[1:]:
        declared = declared.join(frame, how="cross")
    return declared.select(goal.by)


def _tau(settings: SummarySettings, goal: Goal, values: FloatArray) -> float:
    """The tau of a goal in its units: that many conversions of the median value."""
    if goal.column is None:
        return settings.tau
    positive = values[values > 0]
    return settings.tau * float(np.median(positive)) if positive.size else settings.tau


def _keys(settings: SummarySettings, goal: Goal, declared: pl.DataFrame) -> list[str]:
    """The goal and each column have bits of their own; who registers a piece sets its bits."""
    codes = declared.select((pl.col(goal.by).rank("dense") - 1).cast(pl.Int64))
    sizes = {name: len(declared[name].unique()) for name in goal.by}
    layout = KeyLayout(field_sizes={_GOAL_FIELD: len(settings.goals), **sizes})
    goal_piece = layout.piece({_GOAL_FIELD: settings.goals.index(goal)})
    return [f"0x{goal_piece | layout.piece(row):x}" for row in codes.iter_rows(named=True)]


def _turns(owners: IntArray) -> list[IntArray]:
    """Rows that are the first of their owner, then the second ones, and so on."""
    places = places_within_source(owners)
    order = np.argsort(places, kind="stable")
    return np.split(order, np.cumsum(np.bincount(places))[:-1])
