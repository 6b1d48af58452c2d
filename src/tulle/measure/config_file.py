"""Settings of a measurement as a TOML file. Paths are relative to the file.

The table [attribution] has the settings of its rule and the lookbacks that every rule has. The
class of a rule is the class of its settings: whoever adds a rule writes nothing here, unless a
setting is written otherwise in a file than it is kept, such as "7 days".

A file may name earlier counts of a query's slices, by which its levels share the budget.
"""

import dataclasses
import functools
import operator
import os
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import polars as pl

from tulle.data.tables.rows import RowTable
from tulle.errors import ConfigError, DataError
from tulle.measure.ad_log import AdLog, DatabaseTable, FileTable, LogColumns, TableSource
from tulle.measure.attribution.data_driven import ChannelCells, ChannelGame, CoalitionValue
from tulle.measure.attribution.rules import Attribution, ChannelWeights, Rule, TimeDecay
from tulle.measure.queries.measure_record import read_measurement
from tulle.measure.queries.query import MeasureConfig, Query
from tulle.measure.queries.tree_query import COUNT_COLUMN
from tulle.measure.query_table import QueryTable
from tulle.measure.small_tables import numbers_of, read_rows, texts_of
from tulle.privacy.codec import settings_from
from tulle.privacy.fields import check_text, read_toml
from tulle.privacy.units import Unit, seconds_of

_PUBLIC_TABLE = "a table said to be public"
"""What the card says of counts that somebody vouches for."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class LogTable:
    """The tables that are measured: files, patterns of files, or tables of a database."""

    impressions: str | tuple[str, ...]
    conversions: str | tuple[str, ...] | None = None
    database: str | None = None
    version: str | None = None

    def source(self, side: str, named: str | tuple[str, ...], folder: Path) -> TableSource:
        """Returns one of the two tables.

        Args:
          side: The setting that names it, for messages.
          named: What it says there.
          folder: The folder that relative paths start from.
        """
        what = f"[log] {side}"
        names = [check_text(what, n) for n in ((named,) if isinstance(named, str) else named)]
        if self.database is None and self.version is None:
            paths = [path for name in names for path in _files(what, folder, name)]
            return FileTable(paths=tuple(paths))
        if len(names) != 1:
            raise ConfigError(f"{what} must be one table of the database.")
        database = None
        if self.database is not None:
            database = folder / check_text("[log] database", self.database)
        return DatabaseTable(table=names[0], database=database, version=self.version)


@dataclasses.dataclass(frozen=True, kw_only=True)
class MeasurePrivacyTable:
    """Who is protected, and what everything together may cost."""

    unit: Unit
    epsilon: float
    delta: float = MeasureConfig.delta
    noise: str = MeasureConfig.noise
    confidence: float = MeasureConfig.confidence
    key_share: float = MeasureConfig.key_share


@dataclasses.dataclass(frozen=True, kw_only=True)
class RuleTable:
    """Settings that every rule has: which impressions may have a share in a conversion."""

    kind_key: ClassVar[str] = "rule"
    rule_class: ClassVar[type[Any]]
    """The rule whose own settings the table has."""

    lookback: int | str
    lookback_by_kind: Mapping[str, int | str] = dataclasses.field(default_factory=dict)
    max_touches: int | None = None
    max_conversions_per_user: int | None = None

    def rule(self) -> Rule:
        """Returns the rule that the table describes."""
        names = [field.name for field in dataclasses.fields(self.rule_class)]
        rule: Rule = self.rule_class(**{name: getattr(self, name) for name in names})
        return rule

    def attribution(self) -> Attribution:
        """Returns the attribution that the table describes."""
        return Attribution(
            rule=self.rule(),
            lookback_seconds=seconds_of("lookback", self.lookback),
            kind_lookback_seconds={
                kind: seconds_of(f"lookback_by_kind.{kind}", length)
                for kind, length in self.lookback_by_kind.items()
            },
            max_touches=self.max_touches,
            max_conversions_per_user=self.max_conversions_per_user,
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class TimeDecayTable(RuleTable):
    """Credit that halves with every half-life between impression and conversion."""

    kind: ClassVar[str] = TimeDecay.name

    half_life: int | str = "7 days"

    def rule(self) -> Rule:
        """Returns the rule that the table describes."""
        return TimeDecay(half_life_seconds=float(seconds_of("half_life", self.half_life)))


@dataclasses.dataclass(frozen=True, kw_only=True)
class ChannelWeightsTable(RuleTable):
    """Credit in proportion to a weight of each impression's channel."""

    kind: ClassVar[str] = ChannelWeights.name

    channel: str
    channel_weights: Mapping[str, float]

    def rule(self) -> Rule:
        """Returns the rule that the table describes."""
        return ChannelWeights(column=self.channel, weights=self.channel_weights)


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataDrivenTable(RuleTable):
    """Weights of channels that are learnt from the log, for a share of epsilon."""

    kind: ClassVar[str] = "data-driven"

    channel: str
    channels: tuple[str, ...]
    model: CoalitionValue = CoalitionValue.SHAPLEY
    max_set_size: int = ChannelCells.max_set_size
    baseline_rate: float | None = None
    share: float = 0.2

    def game(self) -> ChannelGame:
        """Returns the model that learns the weights."""
        return ChannelGame(
            column=self.channel,
            cells=ChannelCells(channels=self.channels, max_set_size=self.max_set_size),
            value=self.model,
            baseline_rate=self.baseline_rate,
        )

    def rule(self) -> Rule:
        """Returns what stands in for the weights until they are learnt.

        How much noise is needed does not depend on them.
        """
        return ChannelWeights(column=self.channel, weights=dict.fromkeys(self.channels, 1.0))


def _table_of(rule: Any) -> type[RuleTable]:
    """The class of the tables of a rule: its own settings beside the lookbacks."""
    own = {table.kind: table for table in (TimeDecayTable, ChannelWeightsTable)}
    if rule.name in own:
        return own[rule.name]
    return dataclasses.make_dataclass(
        f"{rule.__name__}Table",
        (),
        bases=(RuleTable, rule),
        namespace={"__doc__": rule.__doc__, "kind": rule.name, "rule_class": rule},
        frozen=True,
        kw_only=True,
    )


if TYPE_CHECKING:
    AttributionTable = RuleTable
else:
    AttributionTable = functools.reduce(
        operator.or_, (*map(_table_of, typing.get_args(Rule)), DataDrivenTable)
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class MeasureFile:
    """Settings of a measurement."""

    name: str | None = None
    log: LogTable
    columns: LogColumns = dataclasses.field(default_factory=LogColumns)
    attribution: AttributionTable | None = None
    privacy: MeasurePrivacyTable
    query: tuple[QueryTable, ...]


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class ConfigFile:
    """A measurement as its file describes it."""

    config: MeasureConfig
    history_paths: dict[str, Path]
    """Files with earlier counts, by query whose levels share by them."""


def read_config(
    path: Path,
    *,
    impressions: TableSource | None = None,
    conversions: TableSource | None = None,
) -> ConfigFile:
    """Reads the settings of a measurement. Reads no data but lists of keys.

    Args:
      path: The file.
      impressions: What is measured in place of the impressions that the file names.
      conversions: What is measured in place of its conversions.

    Raises:
      ConfigError: A setting is unknown, missing or wrong.
      DataError: The file, or one with keys, cannot be read.
    """
    data = read_toml(path)
    if isinstance(data.get("query"), dict):
        raise ConfigError("write each query as a table [[query]] with two brackets.")
    file: MeasureFile = settings_from(MeasureFile, data, what=path.name)
    learnt = file.attribution if isinstance(file.attribution, DataDrivenTable) else None
    folder, privacy, log = path.parent, file.privacy, file.log
    if impressions is None:
        impressions = log.source("impressions", log.impressions, folder)
    if conversions is None and log.conversions is not None:
        conversions = log.source("conversions", log.conversions, folder)
    config = MeasureConfig(
        name=path.stem if file.name is None else file.name,
        log=AdLog(impressions=impressions, conversions=conversions, columns=file.columns),
        attribution=None if file.attribution is None else file.attribution.attribution(),
        game=None if learnt is None else learnt.game(),
        game_share=MeasureConfig.game_share if learnt is None else learnt.share,
        unit=privacy.unit,
        epsilon=privacy.epsilon,
        delta=privacy.delta,
        noise=privacy.noise,
        confidence=privacy.confidence,
        key_share=privacy.key_share,
        queries=tuple(table.query(columns=file.columns, folder=folder) for table in file.query),
    )
    return ConfigFile(
        config=config,
        history_paths={
            table.name: folder / check_text("history", table.history)
            for table in file.query
            if table.history is not None
        },
    )


def read_rule(name: str) -> Rule:
    """Reads the rule of that name with its default settings.

    Raises:
      ConfigError: The name is unknown, or the rule has settings without a default.
    """
    if name in (ChannelWeightsTable.kind, DataDrivenTable.kind):
        raise ConfigError(f"rule {name!r} needs its weights; describe it in a settings file.")
    table: AttributionTable = settings_from(
        AttributionTable, {"rule": name, "lookback": 1}, what="the attribution"
    )
    return table.rule()


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class History:
    """Counts by slice, in the column "count"."""

    counts: pl.DataFrame
    is_public: bool
    """False if they were released by an earlier measurement: then nobody needs to vouch."""
    source: str
    """What the card says of it."""


def read_histories(
    file: ConfigFile, given: Mapping[str, object] | None = None
) -> dict[str, History]:
    """Reads the earlier counts of all queries whose levels share by them, by the query's name.

    Args:
      file: The measurement, which may name files of its own.
      given: Files, or tables in memory that somebody says are public, in place of those files.

    Raises:
      ConfigError: They are for a query that there is not.
      DataError: A file cannot be read.
    """
    queries = {query.name: query for query in file.config.queries}
    found = {}
    for name, counts in (file.history_paths if given is None else given).items():
        if name not in queries:
            raise ConfigError(
                f"history is for {name!r}, which is no query; there are "
                f"{', '.join(map(repr, queries))}."
            )
        found[name] = read_history(counts, queries[name])
    return found


def read_history(data: object, query: Query) -> History:
    """The counts in an earlier measurement.json, or in a table that somebody says is public.

    Args:
      data: A measurement with a table of the query's name and slices, or a file or a table in
        memory with the slice columns and "count".
      query: Query whose slices they are.
    """
    names = [column.name for column in query.slices]
    path = _measurement(data)
    if path is not None:
        record = read_measurement(path)
        frame = record.table(query.name).frame
        counts = frame.filter(*(pl.col(name).is_not_null() for name in names if name in frame))
        missing = [name for name in names if name not in frame.columns]
        if missing:
            raise DataError(f"{path.name}: table {query.name!r} has no slice {missing[0]!r}.")
        counts = counts.filter(pl.col("metric") == query.main_metric)
        return History(
            counts=counts.select(*names, pl.col("value").alias(COUNT_COLUMN)),
            # Noise that can be repeated protects nothing: somebody must vouch for the counts.
            is_public=not record.is_secure,
            source=f"plan {record.plan.fingerprint()[:16]}, epsilon "
            f"{record.plan.guarantee.epsilon:g}",
        )
    counts = _counts(read_rows(data, [*names, COUNT_COLUMN]), names)
    return History(counts=counts, is_public=True, source=_PUBLIC_TABLE)


def read_past(data: object, queries: Sequence[Query]) -> dict[str, pl.DataFrame]:
    """Earlier numbers for as many queries as a table has them, by the query's name.

    Args:
      data: A measurement.json; or a file or a table in memory with slice columns and "count",
        which is added up over the columns that a query does not slice by.
      queries: Queries whose slices they are.
    """
    path = _measurement(data)
    if path is not None:
        known = {table.name for table in read_measurement(path).tables}
        return {q.name: read_history(path, q).counts for q in queries if q.name in known}
    slices = [column.name for query in queries for column in query.slices]
    rows = read_rows(data, [COUNT_COLUMN], if_there=slices)
    found = {}
    for query in queries:
        names = [column.name for column in query.slices]
        if all(name in rows.table.columns for name in names):
            counts, total = _counts(rows, names), pl.col(COUNT_COLUMN).sum()
            found[query.name] = (
                counts.group_by(names, maintain_order=True).agg(total)
                if names
                else counts.select(total)
            )
    if not found:
        raise DataError(f"{rows.source_name} has the slice columns of no query.")
    return found


def _files(what: str, folder: Path, name: str) -> list[Path]:
    if not any(character in name for character in "*?["):
        return [folder / name]
    root = Path(name)
    start = Path(root.anchor) if root.is_absolute() else folder
    try:
        found = sorted(start.glob(str(root.relative_to(root.anchor))))
    except ValueError as error:
        raise ConfigError(f"{what}={name!r} is no pattern of file names: {error}.") from None
    if not found:
        raise DataError(f"{what}: no file is named {name!r}.")
    return found


def _measurement(data: object) -> Path | None:
    """The path of a measurement; None for a table."""
    if isinstance(data, str | os.PathLike) and Path(data).suffix == ".json":
        return Path(data)
    return None


def _counts(rows: RowTable, names: list[str]) -> pl.DataFrame:
    texts = [texts_of(rows, name) for name in names]
    return pl.DataFrame([*texts, numbers_of(rows, COUNT_COLUMN)])
