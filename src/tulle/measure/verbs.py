"""The verbs of `tulle.measure` that take settings: plan, release, attribute and their likes.

Counts of one table are in `count_verbs`, what-ifs of browsers in `w3c.verbs`.
"""

import contextlib
import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tulle.accounting.ledger import Ledger
from tulle.accounting.spans import Moment
from tulle.errors import ConfigError
from tulle.measure.ad_log import AdLog, LogColumns, table_source
from tulle.measure.attribution.rules import Attribution, Rule
from tulle.measure.clipping import ClipPlan, optimise_clips, read_value_history
from tulle.measure.config_file import (
    ConfigFile,
    History,
    read_config,
    read_histories,
    read_history,
    read_past,
    read_rule,
)
from tulle.measure.engines import emitted_sql
from tulle.measure.engines.credit_tables import ExactCredit, exact_credit
from tulle.measure.engines.emitted_sql import ExportedTotals
from tulle.measure.engines.engine import Engine, open_engine
from tulle.measure.engines.log_checks import check_log
from tulle.measure.queries import what_if
from tulle.measure.queries.measure_plan import MeasurePlan, make_measure_plan
from tulle.measure.queries.measure_record import MeasureRecord, check_form, write_tables
from tulle.measure.queries.measuring import (
    MEASUREMENT_FILE,
    MeasureOptions,
    advising,
    measure,
    refuse_learnt_weights,
)
from tulle.measure.queries.query import MeasureConfig
from tulle.measure.trees.level_budgets import LaplaceLevels
from tulle.mechanisms.entropy import noise_source
from tulle.privacy.plan import Plan
from tulle.runs.charging import charge_to
from tulle.runs.record import Result
from tulle.runs.release_files import check_output, releasing_to

FilePath = str | os.PathLike[str]
Measurement = MeasureConfig | ConfigFile | FilePath
"""Settings of a measurement, or the TOML file that has them."""
MeasureResult = Result[MeasureRecord, Plan]
"""Released numbers: `to_polars(name)` gives the table of a query."""
Watch = Callable[[str], None]
"""Takes what is being done, in a few words."""

_CLIP_STEPS = 1 << 16
"""Steps of one contribution that shares are rounded to: a share is off by 1/65536 at most."""


def plan(
    config: Measurement,
    *,
    impressions: object = None,
    conversions: object = None,
    history: Mapping[str, object] | None = None,
) -> MeasurePlan:
    """Fixes noise and guarantee of a measurement. Reads no row of the log.

    Args:
      config: Settings, or the TOML file that has them.
      impressions: A file, several, or a table of polars, pandas or Arrow, in place of the one
        that the settings name.
      conversions: The same for conversions.
      history: Earlier counts by query, for levels that share by them, as a measurement.json or a
        public table in a file or in memory; in place of the files that the settings name.

    Raises:
      ConfigError: A setting is wrong, or no guarantee holds for the combination.
    """
    file = _read(config, impressions, conversions)
    counts = {name: found.counts for name, found in read_histories(file, history).items()}
    return make_measure_plan(file.config, history=counts)


def expected_errors(
    made: MeasurePlan,
    past: object = None,
    *,
    tau: float = 5.0,
) -> list[what_if.ExpectedErrors]:
    """Says how far off each kind of number will be, before anything is spent.

    Args:
      made: The plan.
      past: Earlier numbers: a measurement.json; a public table, in a file or in memory, with
        the slice columns and "count"; or such tables by query. None: noise alone, without
        relative errors.
      tau: Errors are relative to max(tau, number).

    Privacy:
      `past` is read as it is: give public numbers, or those of an earlier release.
    """
    if past is None:
        return what_if.expected_errors(made, tau=tau)
    queries = made.config.queries
    if isinstance(past, Mapping):
        given = {query.name: query for query in queries if query.name in past}
        found = {name: read_history(past[name], query).counts for name, query in given.items()}
    else:
        found = read_past(past, queries)
    return what_if.expected_errors(made, found, tau=tau)


def release(
    config: Measurement,
    *,
    impressions: object = None,
    conversions: object = None,
    history: Mapping[str, object] | None = None,
    output: FilePath | None = None,
    form: str = "parquet",
    ledger: Ledger | FilePath | None = None,
    purpose: str | None = None,
    at: Moment | None = None,
    until: Moment | None = None,
    again: bool = False,
    seed: int | None = None,
    engine: Engine | str = "duckdb",
    totals: FilePath | None = None,
    watch: Watch | None = None,
) -> MeasureResult:
    """Answers all queries of a measurement with noise, once for one payment.

    The log is checked and added up first; then the ledger is charged; then noise is drawn. The
    same call with the same ledger gives back the stored numbers and spends nothing.

    Args:
      config: Settings, or the TOML file that has them.
      impressions: A file, several, or a table of polars, pandas or Arrow, in place of the one
        that the settings name.
      conversions: The same for conversions.
      history: Earlier counts by query, for levels that share by them, as a measurement.json or a
        public table in a file or in memory; in place of the files that the settings name.
      output: Folder for measurement.json, the tables and the card. None keeps the numbers in
        memory alone, which a ledger does not allow: it could not give them back.
      form: Form of the tables in that folder, "parquet" or "csv".
      ledger: A ledger or its path. It is charged before the first draw.
      purpose: What the ledger calls the release; None: "measure".
      at: When the data are from, where a budget renews: a day or a time, also as text.
      until: Last day or time of the data.
      again: Pay for a second release of the same data.
      seed: Makes the noise repeatable. Then the release is not private.
      engine: "duckdb", a Spark master such as "local[2]", or an open engine.
      totals: Folder with the results of the script of `emit_sql`, in place of an engine; the log
        is not read then.
      watch: Function that is told what is being done.

    Privacy:
      Unit: that of the config, add-remove, whole rows. Event: that of the plan, charged
      before the first draw. Relies on: `history` that is no earlier release is public.

    Raises:
      DataError: The log cannot be measured. Nothing was spent.
      BudgetExceededError: A budget does not cover it. Nothing was spent.
      RunStateError: The file exists, or an earlier release of the same is gone.
    """
    file = _read(config, impressions, conversions)
    charge = charge_to(
        ledger,
        job="measure",
        purpose=purpose,
        at=at,
        until=until,
        again=again,
        unit=file.config.unit,
    )
    check_form(form)
    options = _options(read_histories(file, history))
    options = dataclasses.replace(options, charge=charge, again=again, watch=watch)
    rng = noise_source(seed)
    setting = "epsilon" if isinstance(config, MeasureConfig) else "[privacy] epsilon"
    with releasing_to(output, name=MEASUREMENT_FILE, charge=charge, has_folder=True) as place:
        folder = place.path.parent
        with (
            advising(file.config, setting),
            _opened(engine) if totals is None else _exported(totals) as source,
        ):
            result = measure(file.config, folder, source, rng=rng, options=options)
        if place.is_kept:
            write_tables(result.record, folder, form=form)
        return place.finished(result)


def emit_sql(config: Measurement, dialect: str, *, times_are_seconds: bool = False) -> str:
    """Writes what an engine would run, for a warehouse that tulle does not reach. Reads nothing.

    Args:
      config: Settings, or the TOML file that has them.
      dialect: "bigquery", "snowflake", "trino", "spark" or "duckdb".
      times_are_seconds: Whether times are seconds since 1970 and no timestamps.

    Raises:
      ConfigError: The dialect is unknown, or weights of channels are to be learnt.
    """
    settings = _read(config).config
    refuse_learnt_weights(settings)
    made = make_measure_plan(settings)
    return emitted_sql.emit_sql(
        settings.log,
        settings.attribution,
        made.jobs,
        unit=settings.unit,
        dialect=dialect,
        times_are_seconds=times_are_seconds,
    )


def attribute(
    config: Measurement | Attribution,
    *,
    rules: Sequence[str | Rule] = (),
    by: Sequence[str] = (),
    impressions: object = None,
    conversions: object = None,
    columns: LogColumns | None = None,
    output: FilePath | None = None,
    engine: Engine | str = "duckdb",
    watch: Watch | None = None,
) -> ExactCredit:
    """Shares the credit for each conversion by one or several rules, exactly and without noise.

    Args:
      config: Settings, or the TOML file that has them, of which the log and its attribution
        count; or an attribution alone, for the two tables.
      rules: Rules to compute at once, also by their names; empty for that of the settings.
      by: Columns of impressions; credit is added up by their values. Empty for rows.
      impressions: A file, several, or a table in memory, in place of the one that the settings
        name.
      conversions: The same for conversions.
      columns: Names of the columns, where there is an attribution alone.
      output: Parquet file for rows, one for each impression with a share (on Spark a folder).
        None keeps rows in memory, unless `by` asks for totals alone.
      engine: "duckdb", a Spark master such as "local[2]", or an open engine.
      watch: Function that is told what is being done.

    Privacy:
      Not private: exact rows or totals, as sensitive as the log. Use `release` for numbers to
      publish.

    Raises:
      ConfigError: There is no attribution, a rule or the output cannot be used.
      DataError: The log cannot be attributed.
    """
    log, attribution, is_learnt = _attributed_log(config, impressions, conversions, columns)
    if is_learnt and not rules:
        raise ConfigError(
            "rule 'data-driven' learns its weights within a release; name other rules (--rule)."
        )
    path = None if output is None else Path(output)
    if path is not None:
        if path.exists():
            raise ConfigError(f"output={str(path)!r} exists; name another file.")
        check_output(path, endings=(".parquet",))
    found = [read_rule(rule) if isinstance(rule, str) else rule for rule in rules]
    attributions = [dataclasses.replace(attribution, rule=rule) for rule in found] or [attribution]
    say = watch or (lambda _: None)
    with _opened(engine) as opened:
        say("checking the log")
        check_log(opened, log, attributions=attributions)
        return exact_credit(opened, log, attributions, by=by, path=path, say=say)


def choose_clips(
    history: object,
    values: Sequence[str],
    *,
    epsilon: float,
    by: Sequence[str] = (),
    max_per_unit: float = 1.0,
) -> ClipPlan:
    """Chooses clips and shares of values for the least relative error, with the count for free.

    Args:
      history: Conversions of a past period, one a row: a path, or a table of polars, pandas,
        Arrow or DuckDB.
      values: Columns of values to add up.
      epsilon: Epsilon of the query that the clips are for.
      by: Columns whose values make slices.
      max_per_unit: Conversions that count of one unit, as in the query's bounds.

    Privacy:
      Reads `history` without noise: public or simulated rows, never the log to be measured.
    """
    if not max_per_unit > 0:
        raise ConfigError(f"max_per_unit={max_per_unit} must be > 0, e.g. 1.")
    budget = LaplaceLevels(
        epsilon=epsilon,
        max_steps_per_unit=max(1, int(max_per_unit * _CLIP_STEPS)),
        steps=_CLIP_STEPS,
    )
    return optimise_clips(read_value_history(history, slices=by, values=values), budget)


def _attributed_log(
    config: Measurement | Attribution,
    impressions: object,
    conversions: object,
    columns: LogColumns | None,
) -> tuple[AdLog, Attribution, bool]:
    """The tables that credit is shared over, how, and whether weights are to be learnt."""
    if isinstance(config, Attribution):
        if impressions is None or conversions is None:
            raise ConfigError("an attribution alone has no log; give impressions and conversions.")
        tables = table_source(impressions), table_source(conversions)
        names = LogColumns() if columns is None else columns
        log = AdLog(impressions=tables[0], conversions=tables[1], columns=names)
        return log, config, False
    settings = _read(config, impressions, conversions).config
    if columns is not None:
        raise ConfigError("the settings name their columns; leave columns out.")
    if settings.attribution is None:
        raise ConfigError("the settings have no [attribution]; add its lookback and rule.")
    return settings.log, settings.attribution, settings.game is not None


def _read(
    config: Measurement, impressions: object = None, conversions: object = None
) -> ConfigFile:
    """The measurement with the tables that stand in for those of its settings."""
    sources = [None if data is None else table_source(data) for data in (impressions, conversions)]
    if not isinstance(config, MeasureConfig | ConfigFile):
        return read_config(Path(config), impressions=sources[0], conversions=sources[1])
    if isinstance(config, MeasureConfig):
        config = ConfigFile(config=config, history_paths={})
    settings = config.config
    log = dataclasses.replace(
        settings.log,
        impressions=sources[0] or settings.log.impressions,
        conversions=sources[1] or settings.log.conversions,
    )
    return dataclasses.replace(config, config=dataclasses.replace(settings, log=log))


def _options(histories: Mapping[str, History]) -> MeasureOptions:
    return MeasureOptions(
        history={name: found.counts for name, found in histories.items()},
        has_public_history=any(found.is_public for found in histories.values()),
        history_source="; ".join(f"{name}: {found.source}" for name, found in histories.items()),
    )


def _opened(engine: Engine | str) -> contextlib.AbstractContextManager[Engine]:
    return open_engine(engine) if isinstance(engine, str) else contextlib.nullcontext(engine)


def _exported(folder: FilePath) -> contextlib.AbstractContextManager[ExportedTotals]:
    return contextlib.nullcontext(ExportedTotals(Path(folder)))
