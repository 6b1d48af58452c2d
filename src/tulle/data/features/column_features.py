"""Features of one column: how its values become ids. Public settings, fixed before data are read.

Categories are hashed, have a vocabulary, or are known to everybody. Numbers become bins that lie in
order: quantiles of a public column, quantiles that are released with noise, declared bounds, or
powers of two. Times have hours and days of the week, which go round. A missing value always has an
id of its own.
"""

import dataclasses
import math
from typing import ClassVar, Literal

from tulle.data.features.hashing import check_num_bins
from tulle.data.features.transforms import DAYS_PER_WEEK, HOURS_PER_DAY, num_log_ids
from tulle.data.prepared.feature import Order, check_whole
from tulle.errors import ConfigError
from tulle.privacy.fields import check_finite, check_text

Role = Literal["public", "sensitive"]

_MOST_LOG_BUCKETS = 64
"""Base-2 logarithms of 64-bit integers fall into 64 buckets; larger floats share the last one."""
_PARTS_OF_BUCKETS = (1, 2, 4, 8)
"""Parts that a bucket between two powers of two may have; an eighth is narrower than most noise."""
PUBLIC_BINS, SENSITIVE_BINS = 100_000, 50_000
"""Number of ids that values of public and of sensitive columns are hashed into, unless somebody
says otherwise."""
_MOST_NUMBER_BINS = 10_000
"""Bins of a column of numbers; with more of them, hardly a bin would have a row of its own."""
NUMBER_BINS = 32
"""Bins of a column of numbers, unless somebody says otherwise. Neighbouring bins are learnt
together, so that many of them cost little."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ColumnFeature:
    """What all features share: the column whose values they turn into ids."""

    order: ClassVar[Order] = ""
    """Whether its ids are bins that lie in order: on a line, on a cycle, or not at all."""
    num_apart: ClassVar[int] = 0
    """Number of ids behind the bins that are not in their order, such as that of missing."""

    column: str

    def __post_init__(self) -> None:
        check_text("column", self.column)

    @property
    def name(self) -> str:
        """What the feature is called: its column, if that has no other feature."""
        return self.column


@dataclasses.dataclass(frozen=True, kw_only=True)
class HashedFeature(ColumnFeature):
    """Each value falls into one of a fixed number of bins. Missing is a value of its own."""

    kind: ClassVar[str] = "hashed"

    num_bins: int

    def __post_init__(self) -> None:
        super().__post_init__()
        check_num_bins(self.num_bins)


@dataclasses.dataclass(frozen=True, kw_only=True)
class VocabularyFeature(ColumnFeature):
    """Frequent values have an id each, all others share the out-of-vocabulary id.

    Missing has an id of its own, whether frequent or not.
    """

    kind: ClassVar[str] = "vocabulary"

    min_count: int
    """Least number of rows with a value that is kept: exact for a public column, noisy for
    a sensitive one, where noise can force a higher one."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole("min_count", self.min_count, 1, 2**62)


@dataclasses.dataclass(frozen=True, kw_only=True)
class KnownValuesFeature(ColumnFeature):
    """Each value that the schema declares as known has an id; so have missing and all others.

    It costs nothing: which values there are is public.
    """

    kind: ClassVar[str] = "known values"


@dataclasses.dataclass(frozen=True, kw_only=True)
class LogFeature(ColumnFeature):
    """The bucket floor(log2(1 + x)) of a number; negative and missing have an id each."""

    kind: ClassVar[str] = "log"
    order: ClassVar[Order] = "line"
    num_apart: ClassVar[int] = 2

    num_buckets: int = 32
    """The last bucket holds all that lies above it."""
    parts: int = 1
    """Number of equal parts of each bucket that have an id of their own: 1, 2, 4 or 8."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole("num_buckets", self.num_buckets, 1, _MOST_LOG_BUCKETS)
        if self.parts not in _PARTS_OF_BUCKETS:
            raise ConfigError(
                f"parts={self.parts!r} of column {self.column!r} must be 1, 2, 4 or 8: the first "
                "bits of a number behind its power of two."
            )

    @property
    def num_ids(self) -> int:
        """Buckets, negative and missing."""
        return num_log_ids(self.num_buckets, self.parts)


@dataclasses.dataclass(frozen=True, kw_only=True)
class QuantileFeature(ColumnFeature):
    """Bins of a public column of numbers with about as many rows each, by exact quantiles.

    A value that many rows have is a bin of its own. A column with no more values than bins has a
    bin for each of them.
    """

    kind: ClassVar[str] = "quantiles"
    order: ClassVar[Order] = "line"
    num_apart: ClassVar[int] = 1

    num_bins: int = NUMBER_BINS
    """Largest number of bins."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole("num_bins", self.num_bins, 1, _MOST_NUMBER_BINS)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PrivateQuantileFeature(ColumnFeature):
    """Bins of a sensitive column of numbers by noisy quantiles, which are charged to a ledger.

    Rows are counted in fixed buckets, with the noise of a `PrivateVocabularyConfig`.
    """

    kind: ClassVar[str] = "private quantiles"
    order: ClassVar[Order] = "line"
    num_apart: ClassVar[int] = 1

    num_bins: int = NUMBER_BINS
    """Largest number of bins. There are fewer if noise could move an edge by a whole bin."""
    low: float | None = None
    """Lower end of about a thousand even buckets; None: the buckets are powers, up to 2^48."""
    high: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole("num_bins", self.num_bins, 1, _MOST_NUMBER_BINS)
        if (self.low is None) != (self.high is None):
            raise ConfigError(
                f"low={self.low} and high={self.high} of column {self.column!r} belong together; "
                "give both ends, or none of them for buckets that are powers."
            )
        if self.low is not None and self.high is not None:
            check_ends(self.column, self.low, self.high)


@dataclasses.dataclass(frozen=True, kw_only=True)
class BoundedFeature(ColumnFeature):
    """Bins of equal width between two declared bounds; the end bins hold what lies beyond them.

    The bounds are public and must be known without a look at the data.
    """

    kind: ClassVar[str] = "bounded"
    order: ClassVar[Order] = "line"
    num_apart: ClassVar[int] = 1

    low: float
    high: float
    num_bins: int = NUMBER_BINS

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole("num_bins", self.num_bins, 1, _MOST_NUMBER_BINS)
        check_ends(self.column, self.low, self.high)

    @property
    def num_ids(self) -> int:
        """Bins and missing."""
        return self.num_bins + 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class BooleanFeature(ColumnFeature):
    """An id for false, one for true and one for missing."""

    kind: ClassVar[str] = "boolean"
    order: ClassVar[Order] = "line"
    num_apart: ClassVar[int] = 1
    num_ids: ClassVar[int] = 3


@dataclasses.dataclass(frozen=True, kw_only=True)
class HourFeature(ColumnFeature):
    """The hour of the day of a time in seconds, UTC; missing has an id of its own."""

    kind: ClassVar[str] = "hour"
    order: ClassVar[Order] = "cycle"
    num_apart: ClassVar[int] = 1
    num_ids: ClassVar[int] = HOURS_PER_DAY + 1

    @property
    def name(self) -> str:
        """What the feature is called."""
        return f"{self.column} hour"


@dataclasses.dataclass(frozen=True, kw_only=True)
class DayOfWeekFeature(ColumnFeature):
    """The day of the week of a time in seconds, UTC, or of a whole number of days since 1970.

    Missing has an id of its own.
    """

    kind: ClassVar[str] = "day of week"
    order: ClassVar[Order] = "cycle"
    num_apart: ClassVar[int] = 1
    num_ids: ClassVar[int] = DAYS_PER_WEEK + 1

    @property
    def name(self) -> str:
        """What the feature is called."""
        return f"{self.column} day of week"


FeatureSettings = (
    HashedFeature
    | VocabularyFeature
    | KnownValuesFeature
    | LogFeature
    | QuantileFeature
    | PrivateQuantileFeature
    | BoundedFeature
    | BooleanFeature
    | HourFeature
    | DayOfWeekFeature
)


def check_ends(column: str, low: object, high: object) -> None:
    """Refuses bounds of a column that are no finite numbers, or not in order.

    Args:
      column: Name of the column, for the message.
      low: The lower bound.
      high: The upper bound.
    """
    ends = check_finite(f"low of {column!r}", low), check_finite(f"high of {column!r}", high)
    if not ends[0] < ends[1] or not math.isfinite(ends[1] - ends[0]):
        raise ConfigError(
            f"the bounds of column {column!r} are {ends[0]:g} and {ends[1]:g}; the first must be "
            "the lower one."
        )
