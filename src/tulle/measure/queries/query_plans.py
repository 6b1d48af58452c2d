"""Noise of every query from one budget, before any sensitive byte is read.

A query must mean what it says for the unit that is protected. Reach counts units, and is the number
of users only where a user is one unit in every slice. Bounds are for units with any number of rows;
a unit of one row has none.
"""

from collections.abc import Mapping

import polars as pl

from tulle.errors import ConfigError
from tulle.measure.attribution.sensitivity import (
    check_unit,
    l2_sensitivity_steps,
    sensitivity_steps,
)
from tulle.measure.queries.query import MeasureConfig, Quantity, Query
from tulle.measure.queries.query_noise import BudgetShares, Sensitivity
from tulle.measure.queries.slice_queries import FlatQuery, NoisyJob, ReachQuery
from tulle.measure.queries.tree_query import TreeQuery, level_shares, tree_budget
from tulle.measure.reach import FrequencyConfig
from tulle.measure.slice_jobs import FINE_STEPS, Amount, Bounds, SliceJob, Subject, frequency_job
from tulle.measure.trees.slice_tree import day_tree
from tulle.privacy.units import Adjacency, Owner, Unit

PlannedQuery = FlatQuery | TreeQuery | ReachQuery


def plan_queries(
    config: MeasureConfig, history: Mapping[str, pl.DataFrame] | None = None
) -> tuple[PlannedQuery, ...]:
    """The noise of each query of a measurement.

    Args:
      config: What is asked, and for which budget.
      history: Earlier counts for queries whose levels share by history, one row a slice with
        the query's slice columns and a column "count". Public, or from an earlier release.

    Raises:
      ConfigError: A combination for which no guarantee holds.
    """
    shares = BudgetShares(config)
    return tuple(
        _Planner(config, query, shares, (history or {}).get(query.name)).planned()
        for query in config.queries
    )


def check_reach_unit(config: MeasureConfig, query: Query) -> None:
    """Refuses reach where one user would count several times in a slice.

    Raises:
      ConfigError: The unit is a part of a user, and no slice holds that part apart.
    """
    unit, columns = config.unit, config.log.columns
    owner_columns = {
        Owner.USER_ADVERTISER: ("advertiser", columns.advertiser),
        Owner.USER_PUBLISHER: ("publisher", columns.publisher),
    }
    if unit.owner in owner_columns:
        what, column = owner_columns[unit.owner]
        if not any(part.column == column and not part.is_day for part in query.slices):
            raise ConfigError(
                f"query {query.name!r}: reach counts users, and with the unit '{unit}' a user "
                f"counts once for each {what}; add the {what} column {column!r} to its slices, "
                "or protect the unit user."
            )
    if unit.windows is None:
        return
    # Slices have days of UTC, each of which must be within one window.
    has_whole_days = unit.windows.has_utc_days
    if not (has_whole_days and any(column.is_day for column in query.slices)):
        way_out = "" if has_whole_days else f" with the unit '{unit.owner.value} per day'"
        raise ConfigError(
            f"query {query.name!r}: reach counts users, and with the unit '{unit}' a user counts "
            f"once in each window; measure one window at a time with the unit "
            f"'{unit.owner.value}', which a budget of '{unit}' takes where --at and --until lie in "
            f"one of its windows, or slice by day{way_out}."
        )


def check_bounds(query: Query, unit: Unit) -> None:
    """Refuses a query that lacks the bounds which the unit needs, or has some that it does not.

    Raises:
      ConfigError: It names the query and the settings.
    """
    if unit.owner is Owner.CONVERSION and query.quantity in {Quantity.IMPRESSIONS, Quantity.RATE}:
        raise ConfigError(
            f"query {query.name!r} counts impressions, which the unit 'conversion' does not "
            "protect; use the unit impression or user."
        )
    _check(query, query.bounds, unit, "", "max_per_slice and max_slices_per_unit or max_per_unit")
    if query.quantity is Quantity.RATE:
        example = "base = { max_per_slice = 10, max_slices_per_unit = 2 }"
        _check(query, query.base_bounds, unit, " on impressions", example)


class _Planner:
    """One query."""

    def __init__(
        self,
        config: MeasureConfig,
        query: Query,
        shares: BudgetShares,
        history: pl.DataFrame | None,
    ) -> None:
        self._config, self._query, self._shares, self._history = config, query, shares, history

    def planned(self) -> PlannedQuery:
        query = self._query
        if query.has_private_keys and self._config.unit.owner.is_one_row:
            raise ConfigError(
                f"query {query.name!r}: one '{self._config.unit}' may be in many slices, so they "
                "cannot be found privately; give them as keys, or protect users."
            )
        if query.quantity is Quantity.REACH:
            return self._reach()
        check_bounds(query, self._config.unit)
        if query.levels is not None or query.has_running_totals:
            return self._tree()
        return self._flat()

    def _reach(self) -> ReachQuery:
        query = self._query
        if self._config.unit.owner.is_one_row:
            raise ConfigError(
                f"query {query.name!r}: reach counts users; protect the unit user, or one of "
                f"its kinds, not '{self._config.unit}'."
            )
        limit = query.max_slices_per_unit
        job = frequency_job(
            query.name,
            query.slices,
            max_frequency=query.max_frequency,
            max_slices_per_unit=limit,
            keys=query.keys,
            only_kinds=query.base_kinds,
        )
        config = self._config
        check_unit(job, unit=config.unit, attribution=None, columns=config.log.columns)
        check_reach_unit(config, query)
        frequency = FrequencyConfig(
            epsilon=self._shares.noise_epsilon(query),
            max_frequency=query.max_frequency,
            adjacency=Adjacency.ADD_OR_REMOVE,
            max_slices_per_unit=limit or 1,
        )
        return ReachQuery(
            query=query, job=job, config=frequency, selection=self._shares.selection(query, limit)
        )

    def _flat(self) -> FlatQuery:
        query, budget = self._query, self._shares.noise(self._query)
        main, base = self._main_job(), None
        deciding = query.bounds
        if query.quantity is Quantity.RATE:
            base_job = self._impression_job(query.base_bounds)
            base = NoisyJob(job=base_job, noise=budget.part(0.5).noise(self._sensitivity(base_job)))
            budget, deciding = budget.part(0.5), query.base_bounds
        limit = None if deciding is None else deciding.max_slices_per_unit
        return FlatQuery(
            query=query,
            main=NoisyJob(job=main, noise=budget.noise(self._sensitivity(main))),
            base=base,
            selection=self._shares.selection(query, limit),
        )

    def _tree(self) -> TreeQuery:
        query, budget = self._query, self._shares.noise(self._query)
        job = self._main_job()
        if query.levels is None:
            num_levels = day_tree(query.keys.height if query.keys is not None else 1).num_levels
            shares: tuple[float, ...] = (1 / num_levels,) * num_levels
        else:
            whole = tree_budget(budget, self._sensitivity(job), job)
            shares = level_shares(query, query.levels, job, whole, self._history)
        noise = tuple(
            None
            if share == 0
            else budget.part(share).noise(self._sensitivity(job, is_leaf=level == len(shares) - 1))
            for level, share in enumerate(shares)
        )
        limit = None if query.bounds is None else query.bounds.max_slices_per_unit
        return TreeQuery(
            query=query,
            job=job,
            level_noise=noise,
            selection=self._shares.selection(query, limit),
        )

    def _main_job(self) -> SliceJob:
        query = self._query
        if query.quantity is Quantity.IMPRESSIONS:
            return self._impression_job(query.bounds)
        amounts = query.values or (Amount(name="conversions"),)
        return SliceJob(
            name=query.name,
            subject=Subject.CONVERSIONS,
            slices=query.slices,
            amounts=amounts,
            has_rest=query.quantity is Quantity.AVERAGE,
            bounds=query.bounds,
            steps=1 if not query.values and self._has_whole_credit(query.bounds) else FINE_STEPS,
            keys=query.keys,
            counts_unattributed=query.counts_unattributed,
        )

    def _impression_job(self, bounds: Bounds | None) -> SliceJob:
        query = self._query
        return SliceJob(
            name=f"{query.name}, impressions",
            subject=Subject.IMPRESSIONS,
            slices=query.slices,
            amounts=(Amount(name="impressions"),),
            bounds=bounds,
            steps=1 if _keeps_whole_numbers(bounds) else FINE_STEPS,
            keys=query.keys,
            only_kinds=query.base_kinds,
        )

    def _has_whole_credit(self, bounds: Bounds | None) -> bool:
        attribution = self._config.attribution
        is_whole = attribution is not None and attribution.rule.has_whole_credit
        return is_whole and _keeps_whole_numbers(bounds)

    def _sensitivity(self, job: SliceJob, *, is_leaf: bool = True) -> Sensitivity:
        config = self._config
        unit, attribution, columns = config.unit, config.attribution, config.log.columns
        l1 = sensitivity_steps(job, unit=unit, attribution=attribution, columns=columns)
        if config.noise == "laplace":
            return Sensitivity(l1=l1, l2=float(l1), num_values=1)
        limit = None if job.bounds is None else job.bounds.max_slices_per_unit
        if limit is None:
            raise ConfigError(
                f"query {self._query.name!r}: Gaussian noise needs max_slices_per_unit; set it, or "
                "use Laplace noise."
            )
        # Slices of a unit may fall together above the leaves, and then all is in one place.
        l2 = float(l1)
        if is_leaf:
            l2 = l2_sensitivity_steps(job, unit=unit, attribution=attribution, columns=columns)
        return Sensitivity(l1=l1, l2=l2, num_values=limit * len(job.amount_names))


def _keeps_whole_numbers(bounds: Bounds | None) -> bool:
    """Scaling down to a bound on all slices makes fractions."""
    if bounds is None:
        return True
    return bounds.max_per_unit is None and float(bounds.max_per_slice).is_integer()


def _check(query: Query, bounds: Bounds | None, unit: Unit, on: str, settings: str) -> None:
    if unit.owner.is_one_row and bounds is not None:
        raise ConfigError(
            f"query {query.name!r} has bounds{on}, which hold for the rows of a user; with the "
            f"unit '{unit}' the attribution rule bounds it: leave {settings.split(' =')[0]} out."
        )
    if bounds is None and not unit.owner.is_one_row:
        raise ConfigError(
            f"query {query.name!r} has no bounds{on}, and one '{unit}' may have any number of "
            f"rows; set {settings}."
        )
