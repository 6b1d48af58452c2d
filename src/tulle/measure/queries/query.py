"""Questions about a campaign, and a whole measurement of them: which log, for which budget."""

import dataclasses
import datetime
import enum
from collections.abc import Iterator

import polars as pl

from tulle.errors import ConfigError
from tulle.measure.ad_log import AdLog, Side
from tulle.measure.attribution.data_driven import ChannelGame, DataDrivenConfig
from tulle.measure.attribution.rules import Attribution, ChannelWeights
from tulle.measure.queries.answers import RESULT_COLUMNS
from tulle.measure.slice_jobs import Amount, Bounds, SliceColumn
from tulle.mechanisms.centred_noise import check_confidence
from tulle.privacy.fields import check_count, check_epsilon, check_finite, check_text, did_you_mean
from tulle.privacy.units import Unit

MAX_SLICES = 2_000_000
"""Most slices of one query: as many rows fit a page of no reader, and memory with ease."""
_TAKEN_NAMES = {*RESULT_COLUMNS, "number", "k"}
"""Names that no slice may have: columns of results, of earlier ones and of frequencies."""
NOISE_LAWS = ("laplace", "gaussian")
"""Laws of noise that a measurement can have."""


class Quantity(enum.Enum):
    """What a query asks for."""

    CONVERSIONS = "conversions"
    """Credited conversions."""
    VALUE = "value"
    """What credited conversions are worth, each up to its clip."""
    AVERAGE = "average"
    """Value of a conversion on average, with their value and number in the same release."""
    IMPRESSIONS = "impressions"
    RATE = "rate"
    """Credited conversions for each impression, or for each impression of some kinds."""
    REACH = "reach"
    """Units with an impression, and how many impressions they have."""

    @property
    def needs_conversions(self) -> bool:
        """True if it is about conversions."""
        return self not in {Quantity.IMPRESSIONS, Quantity.REACH}

    @property
    def is_additive(self) -> bool:
        """True if a slice has what its parts have together."""
        return self in {Quantity.CONVERSIONS, Quantity.VALUE, Quantity.IMPRESSIONS}


class LevelSplit(enum.Enum):
    """How the levels of a hierarchy share the budget."""

    UNIFORM = "uniform"
    LEAVES = "leaves"
    CUBE_ROOT = "cube-root"
    OPTIMISED = "optimised"

    @property
    def needs_history(self) -> bool:
        """True if it follows from earlier counts."""
        return self in {LevelSplit.CUBE_ROOT, LevelSplit.OPTIMISED}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Levels:
    """A hierarchy over the slices of a query. Every field is public information."""

    columns: tuple[tuple[str, ...], ...]
    """Names of slice columns for each level from the top, each level adding some to the one
    above; the last has all. () is the total."""
    split: LevelSplit | tuple[float, ...] = LevelSplit.UNIFORM
    """Rule of the shares of levels, or the shares, which add up to 1; share 0 is not measured."""
    tau: float = 5.0
    """Counts below it are not worth a smaller error: errors are relative to max(tau, count)."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", tuple(tuple(level) for level in self.columns))
        for above, below in zip(self.columns, self.columns[1:], strict=False):
            if not set(above) < set(below):
                raise ConfigError(
                    f"levels: {list(below)} must have all columns of {list(above)} and more."
                )
        if len(self.columns) < 2:
            raise ConfigError("levels needs at least two; leave it out for one.")
        if isinstance(self.split, LevelSplit):
            return
        object.__setattr__(self, "split", tuple(float(share) for share in self.split))
        is_split = len(self.split) == len(self.columns) and all(s >= 0 for s in self.split)
        if not is_split or abs(sum(self.split) - 1) > 1e-9:
            raise ConfigError(
                f"split={list(self.split)} must have one share >= 0 for each of the "
                f"{len(self.columns)} levels, together 1."
            )
        if self.split[-1] == 0:
            raise ConfigError("split gives the last level nothing; leave that level out instead.")


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Query:
    """One table of numbers. Every field is public information."""

    name: str
    quantity: Quantity
    slices: tuple[SliceColumn, ...] = ()
    keys: pl.DataFrame | None = None
    """The slices that are wanted, one text column each. None with slices: those that occur
    are chosen privately."""
    bounds: Bounds | None = None
    """What one unit may add; None where each row is a unit of its own, and for reach."""
    share: float = 1.0
    """Share of the budget, relative to the other queries."""
    values: tuple[Amount, ...] = ()
    """Columns of the conversions with their clips, for value and average."""
    base_kinds: tuple[str, ...] = ()
    """Kinds of impressions that count, for rate, impressions and reach. Empty for all."""
    base_bounds: Bounds | None = None
    """Bounds on what one unit adds to the impressions of a rate."""
    counts_unattributed: bool = False
    """Whether conversions without an impression make a slice of their own."""
    levels: Levels | None = None
    has_running_totals: bool = False
    """Whether there are totals from the first day on, for slices by consecutive days."""
    max_frequency: int = 10
    """Highest frequency of reach; more impressions count as this many."""
    max_slices_per_unit: int | None = None
    """Most slices of a unit that count, for reach by slices."""

    def __post_init__(self) -> None:
        check_text("name", self.name)
        if not 0 < self.share < float("inf"):
            raise ConfigError(f"share={self.share} of query {self.name!r} must be > 0 and finite.")
        if self.quantity is Quantity.REACH:
            check_count("max_frequency", self.max_frequency)
        by_kind = (_slice_problems, _key_problems, _value_problems, _side_problems)
        for problems in (*by_kind, _reach_problems, _structure_problems):
            for problem in problems(self):
                raise ConfigError(f"query {self.name!r}{problem}")

    @property
    def main_metric(self) -> str:
        """The number of its table that says how large a slice is."""
        if self.quantity is Quantity.VALUE:
            return self.values[0].name
        is_ratio = self.quantity in {Quantity.AVERAGE, Quantity.RATE}
        return Quantity.CONVERSIONS.value if is_ratio else self.quantity.value

    @property
    def has_private_keys(self) -> bool:
        """True if which slices exist is itself private."""
        return bool(self.slices) and self.keys is None


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class MeasureConfig:
    """Settings of a measurement. Every field is public information; the log is only named."""

    name: str = "measurement"
    log: AdLog
    attribution: Attribution | None
    """How conversions are credited; None if no query is about conversions."""
    game: ChannelGame | None = None
    """Settings for learning the weights of the attribution's channels from the log, privately."""
    game_share: float = 0.2
    """Fraction of epsilon that is spent on learning weights of channels."""
    unit: Unit
    epsilon: float
    """What everything together may cost one unit."""
    delta: float = 0.0
    """Delta of the guarantee, for Gaussian noise and for slices that are found privately."""
    noise: str = "laplace"
    """Noise of the sums: laplace, or gaussian, with less noise where a unit is in many slices."""
    queries: tuple[Query, ...]
    confidence: float = 0.95
    key_share: float = 0.25
    """Fraction of a query's budget that is spent on finding its slices privately."""

    def __post_init__(self) -> None:
        check_text("name", self.name)
        object.__setattr__(self, "queries", tuple(self.queries))
        check_epsilon(self.epsilon)
        if not 0 <= check_finite("delta", self.delta) < 1e-2:
            raise ConfigError(f"delta={self.delta} must be in [0, 0.01), e.g. 1e-9.")
        if self.noise not in NOISE_LAWS:
            raise ConfigError(
                f"noise={self.noise!r} is unknown{did_you_mean(self.noise, NOISE_LAWS)}; "
                "use laplace or gaussian."
            )
        if not 0 < self.key_share < 1:
            raise ConfigError(f"key_share={self.key_share} must be in (0, 1), e.g. 0.25.")
        check_confidence(self.confidence)
        if not self.queries:
            raise ConfigError("there is no query; ask for at least one table.")
        names = [query.name for query in self.queries]
        if len(set(names)) < len(names):
            raise ConfigError("two queries have the same name; give each its own.")
        self._check_delta()
        self._check_columns()
        self._check_attribution()

    @property
    def has_private_keys(self) -> bool:
        """True if some query finds its slices privately."""
        return any(query.has_private_keys for query in self.queries)

    @property
    def data_driven(self) -> DataDrivenConfig | None:
        """How the weights of channels are learnt; None if they are given."""
        if self.game is None:
            return None
        return DataDrivenConfig(epsilon=self.epsilon * self.game_share, game=self.game)

    @property
    def query_epsilon(self) -> float:
        """What is left for the queries."""
        return self.epsilon if self.game is None else self.epsilon * (1 - self.game_share)

    def _check_delta(self) -> None:
        needs_delta = self.has_private_keys or self.noise == "gaussian"
        if needs_delta and self.delta == 0:
            what = "Gaussian noise" if self.noise == "gaussian" else "finding slices privately"
            raise ConfigError(
                f"delta=0 is too little for {what}; set it, e.g. to 1e-9, or use Laplace noise "
                "and give the slices as keys."
            )
        if not needs_delta and self.delta > 0:
            raise ConfigError(
                f"delta={self.delta:g} is not needed: noise is Laplace and all slices are given; "
                "set it to 0."
            )

    def _check_columns(self) -> None:
        """Refuses a log whose rows nobody can tell apart by user or time where that matters."""
        columns, has_conversions = self.log.columns, self.log.conversions is not None
        if columns.user is None and (has_conversions or not self.unit.owner.is_one_row):
            raise ConfigError(
                f"user is needed with unit='{self.unit}': the column that says whose a row is, "
                "e.g. user='user_id'."
            )
        has_windows = self.unit.windows is not None
        if columns.impression_time is None and (has_conversions or has_windows):
            raise ConfigError(
                "time is needed for a unit with a window and for conversions: the column with "
                "the time of a row, e.g. time='timestamp'."
            )

    def _check_attribution(self) -> None:
        asking = [query.name for query in self.queries if query.quantity.needs_conversions]
        if asking and self.log.conversions is None:
            raise ConfigError(f"query {asking[0]!r} is about conversions; name their table.")
        if asking and self.attribution is None:
            raise ConfigError(
                f"query {asking[0]!r} is about conversions and needs an attribution rule, "
                "e.g. last-touch with a lookback."
            )
        if not asking and self.attribution is not None:
            raise ConfigError("no query is about conversions; leave attribution out.")
        if self.game is None:
            return
        rule = None if self.attribution is None else self.attribution.rule
        if not isinstance(rule, ChannelWeights) or rule.column != self.game.column:
            raise ConfigError(
                f"game learns weights of {self.game.column!r}; the attribution's rule must be "
                "ChannelWeights of that column, with any weights."
            )
        if self.attribution is not None and (
            self.attribution.max_touches is not None or self.attribution.kind_lookback_seconds
        ):
            raise ConfigError(
                "weights of channels are learnt from every impression within one lookback; leave "
                "max_touches and lookback_by_kind out."
            )
        if self.unit.owner.is_one_row:
            raise ConfigError(
                f"weights of channels are learnt from paths of users; protect the unit user, not "
                f"'{self.unit}'."
            )
        if not 0 < self.game_share < 1:
            raise ConfigError(f"game_share={self.game_share} must be in (0, 1), e.g. 0.2.")


# What is wrong with a query, each as the rest of a sentence that begins with its name.


def _slice_problems(query: Query) -> Iterator[str]:
    names = [column.name for column in query.slices]
    folded = [name.casefold() for name in names]
    for name in names:
        if folded.count(name.casefold()) > 1:
            yield f" names the slice {name!r} twice, where case makes no difference."
    for name in names:
        if name.casefold() in _TAKEN_NAMES:
            yield f": slice {name!r} has the name of a result column; rename the column."
    if not query.slices and query.keys is not None:
        yield " has keys and no slices; name the slices."


def _key_problems(query: Query) -> Iterator[str]:
    keys = query.keys
    if keys is None:
        limit = query.max_slices_per_unit
        if query.quantity is not Quantity.REACH and query.bounds is not None:
            limit = query.bounds.max_slices_per_unit
        is_bounded = limit is not None or query.bounds is query.base_bounds is None
        if query.has_private_keys and not is_bounded:
            yield (
                " finds its slices privately and needs max_slices_per_unit; set it, or give the "
                "slices as keys."
            )
        return
    names = [column.name for column in query.slices]
    if keys.columns != names:
        yield f": keys have the columns {keys.columns}, slices are {names}."
    if not 0 < keys.height <= MAX_SLICES:
        yield f" needs between 1 and {MAX_SLICES:,} keys."
    if any(column.dtype != pl.String or column.null_count() for column in keys):
        yield ": keys must be text without nulls."
    if keys.is_duplicated().any():
        yield " has a key twice; name each slice once."


def _value_problems(query: Query) -> Iterator[str]:
    if (query.quantity in {Quantity.VALUE, Quantity.AVERAGE}) != bool(query.values):
        yield ": values (with their clip) are for value and average, which need them."
    if any(amount.column is None for amount in query.values):
        yield (
            ": each of values needs its column; name it, or for a clip alone the value column in "
            "[columns]."
        )
    if query.quantity is Quantity.VALUE and (len(query.values) != 1 or query.values[0].share != 1):
        yield ": value takes one column; ask for the average of several."
    if sum(amount.share for amount in query.values) > 1 + 1e-12:
        yield ": shares of values must add up to 1 at most."


def _side_problems(query: Query) -> Iterator[str]:
    is_rate = query.quantity is Quantity.RATE
    if query.counts_unattributed and is_rate:
        yield ": a rate is about impressions; conversions without one have no part in it."
    if is_rate or not query.quantity.needs_conversions:
        for column in query.slices:
            if column.side is Side.CONVERSION:
                yield (
                    f" is about impressions, and slice {column.name!r} is a column of the "
                    "conversions; slice by columns of impressions."
                )
    elif query.base_kinds:
        yield (
            ": base_kinds are for rate, impressions and reach; attribution chooses kinds by its "
            "rule."
        )
    if query.base_bounds is not None and not is_rate:
        yield ": base_bounds are for rate."


def _reach_problems(query: Query) -> Iterator[str]:
    has_limit = query.max_slices_per_unit is not None
    if query.quantity is not Quantity.REACH:
        if has_limit:
            yield ": set max_slices_per_unit within bounds; here it is for reach."
        return
    if query.bounds is not None:
        yield ": reach is bounded by max_frequency and max_slices_per_unit."
    if query.slices and not has_limit:
        yield ": reach by slices needs max_slices_per_unit."
    if not query.slices and has_limit:
        yield " has no slices; leave max_slices_per_unit out."


def _structure_problems(query: Query) -> Iterator[str]:
    if query.levels is not None:
        if not query.quantity.is_additive:
            yield (
                f": levels add up, and {query.quantity.value} does not; ask for conversions, value "
                "or impressions."
            )
        leaves = {column.name for column in query.slices}
        if set(query.levels.columns[-1]) != leaves:
            yield f": the last of levels must have all slices {sorted(leaves)}."
    if not query.has_running_totals:
        return
    is_days = len(query.slices) == 1 and query.slices[0].is_day
    if not (is_days and query.quantity.is_additive and query.keys is not None):
        yield (
            ": running totals are of conversions, value or impressions by the slice day alone, "
            "with its first and last day as keys."
        )
    elif query.levels is not None:
        yield ": running totals make their own levels."
    elif not _are_consecutive(query.keys.to_series().to_list()):
        yield (
            ": running totals go from day to day; give its first and last day as keys, or every "
            "day between them in order."
        )


def _are_consecutive(days: list[str]) -> bool:
    try:
        numbers = [datetime.date.fromisoformat(day).toordinal() for day in days]
    except ValueError:
        return False
    return numbers == list(range(numbers[0], numbers[0] + len(numbers)))
