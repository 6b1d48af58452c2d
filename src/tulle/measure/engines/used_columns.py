"""Which columns a set of jobs needs: only those are read."""

from collections.abc import Iterable, Sequence

from tulle.errors import ConfigError
from tulle.measure.ad_log import AdLog, Side
from tulle.measure.attribution.attribution import Attribution
from tulle.measure.attribution.rules import ChannelWeights, PriorityTouch
from tulle.measure.engines.log_tables import CarriedColumn, LogTables, LogTypes, carry
from tulle.measure.slice_jobs import Amount, FrequencyJob, SliceColumn, SliceJob
from tulle.privacy.units import Owner, Unit


def tables_for(
    log: AdLog,
    types: LogTypes,
    jobs: Sequence[SliceJob | FrequencyJob],
    *,
    attributions: Sequence[Attribution] = (),
    unit: Unit | None = None,
) -> LogTables:
    """The log with the columns that jobs, rules and the unit need."""
    slices = [column for job in jobs for column in job.slices]
    amounts = [amount for job in jobs if isinstance(job, SliceJob) for amount in job.amounts]
    roles = role_columns(log, attributions, needs_kind=any(job.only_kinds for job in jobs))
    if unit is not None and unit.owner is Owner.USER_PUBLISHER and log.columns.publisher:
        roles.append(CarriedColumn("publisher", log.columns.publisher))
    return LogTables(
        log=log,
        types=types,
        impression_columns=(*roles, *_carried(slices, (), Side.IMPRESSION)),
        conversion_columns=_carried(slices, amounts, Side.CONVERSION),
    )


def role_columns(
    log: AdLog, attributions: Sequence[Attribution], *, needs_kind: bool = False
) -> list[CarriedColumn]:
    """Columns of impressions that rules and lookbacks look at."""
    columns = log.columns
    rules = [attribution.rule for attribution in attributions]
    has_priority = any(isinstance(rule, PriorityTouch) for rule in rules)
    has_kind_lookback = any(attribution.kind_lookback_seconds for attribution in attributions)
    if columns.kind is None and (has_kind_lookback or needs_kind):
        raise ConfigError(
            "kind_lookback_seconds and only_kinds need the log's kind column; set kind=…."
        )
    if has_priority and columns.kind is None and columns.priority is None:
        raise ConfigError(
            "rule 'priority' needs the log's kind or priority column; set kind=… or priority=…."
        )
    roles = []
    if columns.impression_id is not None and attributions:
        roles.append(CarriedColumn("id", columns.impression_id))
    if columns.kind is not None and (has_kind_lookback or needs_kind or has_priority):
        roles.append(CarriedColumn("kind", columns.kind))
    if columns.priority is not None and has_priority:
        roles.append(CarriedColumn("priority", columns.priority))
    channels = {rule.column for rule in rules if isinstance(rule, ChannelWeights)}
    if len(channels) > 1:
        raise ConfigError(f"rules weigh several channel columns ({sorted(channels)}); use one.")
    return [*roles, *(CarriedColumn("channel", channel) for channel in channels)]


def _carried(
    slices: Iterable[SliceColumn], amounts: Iterable[Amount], side: Side
) -> tuple[CarriedColumn, ...]:
    wanted = [(column.column, column.is_day) for column in slices if column.side is side]
    wanted += [(amount.column, False) for amount in amounts if amount.column is not None]
    return carry(wanted, prefix="i" if side is Side.IMPRESSION else "c")
