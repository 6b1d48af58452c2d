"""What a measurement promises, made before a row is read."""

import dataclasses
import hashlib
from collections.abc import Mapping

import polars as pl

from tulle.measure.queries.answers import units_to_be_found
from tulle.measure.queries.lookback_crossing import LookbackCrossing, lookback_crossing
from tulle.measure.queries.query import MeasureConfig, Quantity
from tulle.measure.queries.query_plans import PlannedQuery, plan_queries
from tulle.measure.queries.slice_queries import ReachQuery
from tulle.measure.slice_jobs import SliceColumn, SliceJob
from tulle.privacy.events import Composed, Event
from tulle.privacy.fields import Scalar
from tulle.privacy.guarantee import Guarantee
from tulle.privacy.plan import Assumption, Bound, ColumnRoles, Plan, Status
from tulle.privacy.units import Adjacency, Scope, TrustModel
from tulle.runs.charging import ReleaseTerms, release_plan

_ALL_COLUMNS = "(all columns)"
"""What is protected where rows are counted and no column is named: rows come and go whole."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class MeasurePlan:
    """A measurement whose noise is fixed and whose promise is checked."""

    config: MeasureConfig
    queries: tuple[PlannedQuery, ...]
    plan: Plan

    @property
    def crossing(self) -> LookbackCrossing | None:
        """What the windows of the unit cut off the lookback of conversions, if there are any."""
        return lookback_crossing(self.config)

    @property
    def units_to_be_found(self) -> dict[str, tuple[int, int]]:
        """Units with which a slice is found as often as not, and with which it always is.

        One entry for each query whose slices are found privately.
        """
        return {
            planned.query.name: units_to_be_found(planned.selection)
            for planned in self.queries
            if planned.selection is not None
        }

    @property
    def jobs(self) -> list[SliceJob]:
        """Everything that an engine computes: totals in the order of the queries, then reach."""
        every = [job for query in self.queries for job in query.jobs]
        return sorted(every, key=lambda job: job.is_histogram)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Circumstances:
    """What the card says of a run beside its settings. Public."""

    terms: ReleaseTerms = dataclasses.field(default_factory=ReleaseTerms)
    """Who pays, and where the noise comes from."""
    has_public_history: bool = False
    """True if levels share by counts that somebody says are public."""
    history: str = ""
    """Fingerprints of the earlier releases by which levels share, if there are any."""
    has_exported_totals: bool = False
    """True if another engine added up, and somebody says that it ran the emitted script."""


def make_measure_plan(
    config: MeasureConfig,
    *,
    history: Mapping[str, pl.DataFrame] | None = None,
    circumstances: Circumstances | None = None,
) -> MeasurePlan:
    """Fixes the noise of all queries and checks what it promises. Reads nothing.

    Args:
      config: What is asked, and for which budget.
      history: Earlier counts for queries whose levels share by them.
      circumstances: What the card says beside the settings.

    Raises:
      ConfigError: A combination for which no guarantee holds.
    """
    circumstances = circumstances or Circumstances()
    queries = plan_queries(config, history)
    events: tuple[Event, ...] = tuple(query.event() for query in queries)
    if config.data_driven is not None:
        events = (config.data_driven.event(), *events)
    draft = Plan(
        name=config.name,
        mechanism=_sentence(config),
        settings=_settings(config, queries, circumstances),
        event=Composed(events=events),
        guarantee=Guarantee(
            epsilon=config.epsilon,
            delta=config.delta,
            unit=config.unit,
            adjacency=Adjacency.ADD_OR_REMOVE,
            scope=Scope.WHOLE_ROWS,
        ),
        trust=TrustModel.CENTRAL,
        columns=_columns(config),
        bounds=_bounds(config),
        assumptions=_assumptions(config),
    )
    plan = release_plan(
        draft, circumstances.terms, what="measurement", assumed=_assumed(circumstances)
    )
    return MeasurePlan(config=config, queries=queries, plan=plan)


def _sentence(config: MeasureConfig) -> str:
    tables = "one table" if len(config.queries) == 1 else f"{len(config.queries)} tables"
    credited = after = ""
    if config.attribution is not None:
        by = config.attribution.rule.name if config.game is None else "weights that are learnt"
        credited = f"conversions are credited by {by}, "
        after = " after attribution"
    # Reach is counted with Laplace noise under either law.
    is_gaussian = {
        config.noise == "gaussian" and query.quantity is not Quantity.REACH
        for query in config.queries
    }
    laws = {False: "discrete Laplace", True: "Gaussian"}
    law = " or ".join(laws[is_it] for is_it in sorted(is_gaussian))
    return (
        f"{tables} of totals: {credited}what one unit adds is bounded{after}, then {law} noise "
        "is added to each total once."
    )


def _settings(
    config: MeasureConfig, queries: tuple[PlannedQuery, ...], circumstances: Circumstances
) -> dict[str, Scalar]:
    settings: dict[str, Scalar] = {
        "noise": config.noise,
        "confidence": config.confidence,
        "random choices": f"MD5 keyed with {_salt_source(circumstances)}",
        "bounds and clips": "given, not read off the log",
    }
    if config.attribution is not None:
        settings |= {
            "attribution": _attribution_text(config),
            "lookback in seconds": config.attribution.lookback_seconds,
            "attribution settings": _short_sha256(repr((config.attribution, config.game))),
        }
        for kind, seconds in sorted(config.attribution.kind_lookback_seconds.items()):
            settings[f"lookback of {kind} in seconds"] = seconds
        for name in ("max_touches", "max_conversions_per_user"):
            if getattr(config.attribution, name) is not None:
                settings[name] = getattr(config.attribution, name)
    if circumstances.history:
        settings["levels share by"] = circumstances.history
    windows = config.unit.windows
    if windows is not None:
        begin = "1970 UTC" if windows.is_plain else f"as the calendar says ({windows})"
        settings["windows begin"] = f"{begin}; conversions count with impressions of their window"
    for planned in queries:
        settings |= _query_settings(planned)
    return settings


def _salt_source(circumstances: Circumstances) -> str:
    if circumstances.has_exported_totals:
        return "the salt of the emitted script"
    return circumstances.terms.noise_source


def _attribution_text(config: MeasureConfig) -> str:
    game = config.game
    if game is None:
        return repr(None if config.attribution is None else config.attribution.rule)
    baseline = "fitted" if game.baseline_rate is None else f"{game.baseline_rate:g}"
    return (
        f"weights of {game.column} by {game.value.value} values, learnt for "
        f"{config.game_share:.4g} of epsilon; channels: {', '.join(game.cells.channels)}; sets of "
        f"up to {game.cells.max_set_size}; rate without any: {baseline}"
    )


def _query_settings(planned: PlannedQuery) -> dict[str, Scalar]:
    query = planned.query
    name = f"query {query.name!r}"
    slices = ", ".join(map(_slice_text, query.slices)) or "none"
    keys = "found privately" if query.has_private_keys else "given"
    facts: dict[str, Scalar] = {
        f"{name}": query.quantity.value,
        f"{name} slices": slices if not query.slices else f"{slices} ({keys})",
    }
    # Words on a card may read alike; two plans are the same only if all settings are.
    every = {f.name: getattr(query, f.name) for f in dataclasses.fields(query) if f.name != "keys"}
    facts[f"{name} settings"] = _short_sha256(repr(every))
    if query.keys is not None:
        facts[f"{name} keys"] = _digest(query.keys)
    if not isinstance(planned, ReachQuery):
        for amount in planned.jobs[0].amounts:
            if amount.column is not None:
                facts[f"{name} clip of {amount.column}"] = amount.clip
                facts[f"{name} share of {amount.column}"] = amount.share
    if isinstance(planned, ReachQuery):
        facts[f"{name} highest frequency"] = query.max_frequency
    if query.counts_unattributed:
        facts[f"{name} counts conversions without impression"] = True
    if query.has_running_totals:
        facts[f"{name} running totals"] = True
    if query.base_kinds:
        facts[f"{name} kinds"] = ", ".join(query.base_kinds)
    if query.levels is not None:
        facts[f"{name} levels"] = " > ".join(
            "+".join(level) or "all" for level in query.levels.columns
        )
    return facts


def _slice_text(column: SliceColumn) -> str:
    return f"{'day of ' if column.is_day else ''}{column.side.value}.{column.column}"


def _digest(keys: pl.DataFrame) -> str:
    """Ties a plan to its slices: two lists of keys are two measurements."""
    text = "\n".join("\t".join(map(repr, row)) for row in keys.iter_rows())
    return f"{keys.height} given, not read off the log; {_short_sha256(text)}"


def _short_sha256(text: str) -> str:
    return f"SHA-256 {hashlib.sha256(text.encode()).hexdigest()[:32]}"


def _columns(config: MeasureConfig) -> ColumnRoles:
    columns = config.log.columns
    named = [columns.impression_time, columns.advertiser]
    if config.log.conversions is not None:
        named.insert(1, columns.conversion_time)
    named += [columns.publisher, columns.kind, columns.priority, columns.value]
    for query in config.queries:
        named += [column.column for column in query.slices]
        named += [amount.column for amount in query.values]
    sensitive = [name for name in dict.fromkeys(named) if name is not None and name != columns.user]
    if not sensitive:
        sensitive = [_ALL_COLUMNS]
    return ColumnRoles(label=None, sensitive=tuple(sensitive), unit=columns.user)


def _bounds(config: MeasureConfig) -> tuple[Bound, ...]:
    found: list[Bound] = []
    for query in config.queries:
        limits: dict[str, float | None] = {}
        for bounds, to in ((query.bounds, ""), (query.base_bounds, " to impressions")):
            if bounds is not None:
                limits[f"contributions per unit and slice{to}"] = bounds.max_per_slice
                limits[f"slices per unit{to}"] = bounds.max_slices_per_unit
                limits[f"contributions per unit{to}"] = bounds.max_per_unit
        if query.max_slices_per_unit is not None:
            limits["slices per unit"] = query.max_slices_per_unit
        where = "after attribution, before totals"
        found += [
            Bound(what=f"{what} ({query.name})", limit=limit, where=where)
            for what, limit in limits.items()
            if limit is not None
        ]
    attribution = config.attribution
    if attribution is not None and attribution.max_conversions_per_user is not None:
        found.append(
            Bound(
                what="conversions per user",
                limit=attribution.max_conversions_per_user,
                where="chosen by keyed hash before attribution",
            )
        )
    return tuple(found)


def _assumptions(config: MeasureConfig) -> tuple[Assumption, ...]:
    """What the code enforces or checks."""
    made = [
        Assumption(
            statement="What one unit adds to the totals is within its bounds.",
            status=Status.ENFORCED,
            evidence="Whole steps are cut after attribution, and nothing follows but sums.",
        ),
        Assumption(
            statement="Noise has exactly the stated law.",
            status=Status.ENFORCED,
            evidence="Integer totals, and samplers that no rounding changes.",
        ),
    ]
    if config.log.columns.user is not None:
        made.insert(
            0,
            Assumption(
                statement="Rows without a user id are refused.",
                status=Status.CHECKED,
                evidence="They are counted before anything is spent, and one is too many.",
            ),
        )
    return tuple(made)


def _assumed(circumstances: Circumstances) -> tuple[Assumption, ...]:
    """What somebody says and nobody checks."""
    made = []
    if circumstances.has_exported_totals:
        made.append(
            Assumption(
                statement="The totals were bounded and added up by the emitted script, over "
                "all rows of the log once, with a secret salt.",
                status=Status.ASSUMED,
            )
        )
    if circumstances.has_public_history:
        made.append(
            Assumption(
                statement="The counts by which levels share the budget are public.",
                status=Status.ASSUMED,
            )
        )
    return tuple(made)
