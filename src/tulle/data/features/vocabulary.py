"""What a plan must learn from the rows: values that are frequent enough to keep, edges of bins.

Public columns are counted exactly, sensitive ones with noise that is charged to
a ledger. A vocabulary is a sorted array of hashes, and the place in it is the
id: an order by frequency would publish exact counts of sensitive values, the
order of salted hashes says nothing. Edges of bins are quantiles (`number_bins`),
and the noisy ones belong to the same release.
"""

import contextlib
import dataclasses
import itertools
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tulle.accounting.ledger import Ledger, OpenSpend
from tulle.data.features.column_features import VocabularyFeature
from tulle.data.features.feature_plan import FeaturePlan
from tulle.data.features.hashing import Hashes, ValueHasher
from tulle.data.features.number_bins import (
    BucketCounts,
    FloatArray,
    NumberCounts,
    release_bucket_counts,
)
from tulle.data.features.private_vocabulary import PrivateVocabularyConfig
from tulle.data.features.vocabulary_counts import (
    Blocks,
    CountedColumn,
    RawCounts,
    check_column,
    count_in_parts,
)
from tulle.data.tables.kinds import as_numbers
from tulle.errors import ConfigError, DataError
from tulle.mechanisms.entropy import NoiseSource, release_rng
from tulle.mechanisms.key_thresholds import release_key_counts
from tulle.privacy.events import Event

PURPOSE = "vocabulary"
"""Purpose under which the ledger is charged."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Vocabularies:
    """The kept values of every vocabulary column. May be published with the plan."""

    hashes: Mapping[str, Hashes]
    """Hashes of the kept values, by column, sorted."""
    salt: bytes
    """Salt of the plan that they were fitted for."""
    event: Event | None = None
    """What the sensitive ones cost; None if there are none."""
    edges: Mapping[str, FloatArray] = dataclasses.field(default_factory=dict)
    """Numbers at which bins begin, but for the first, by column of quantile features, sorted."""

    def __post_init__(self) -> None:
        edges = {}
        for column, numbers in self.edges.items():
            if numbers.dtype != np.float64 or numbers.ndim != 1 or not (np.diff(numbers) > 0).all():
                raise DataError(
                    f"the edges of bins of column {column!r} must be sorted 64-bit floats; fit "
                    "them again with fit_vocabularies()."
                )
            edges[column] = numbers.copy()
            edges[column].setflags(write=False)
        object.__setattr__(self, "edges", MappingProxyType(edges))
        frozen = {}
        for column, hashes in self.hashes.items():
            if hashes.dtype != np.uint64 or hashes.ndim != 1 or (hashes[1:] <= hashes[:-1]).any():
                raise DataError(
                    f"the vocabulary of column {column!r} must be a sorted array of different "
                    "64-bit hashes; fit it again with fit_vocabularies()."
                )
            frozen[column] = hashes.copy()
            frozen[column].setflags(write=False)
        object.__setattr__(self, "hashes", MappingProxyType(frozen))

    @property
    def num_kept(self) -> dict[str, int]:
        """How many values were kept, by column. For a sensitive column as noisy as the counts."""
        return {column: len(hashes) for column, hashes in self.hashes.items()}

    @property
    def num_learnt(self) -> dict[str, int]:
        """How many values were kept or bins found, by column."""
        return self.num_kept | {column: len(edges) + 1 for column, edges in self.edges.items()}

    def of_columns(self, columns: Collection[str]) -> "Vocabularies":
        """The same for some columns alone."""
        return dataclasses.replace(
            self,
            hashes={name: part for name, part in self.hashes.items() if name in columns},
            edges={name: part for name, part in self.edges.items() if name in columns},
        )

    def check_plan(self, plan: FeaturePlan) -> None:
        """Refuses a plan that these were not fitted for."""
        binned = {f.column for f in (*plan.quantiles, *plan.private_quantiles)}
        if binned != self.edges.keys():
            wrong = sorted(binned ^ self.edges.keys())[0]
            side = "lack" if wrong in binned else "have"
            raise ConfigError(
                f"the vocabularies {side} edges of bins of column {wrong!r}, unlike the plan; fit "
                "them for it with fit_vocabularies()."
            )
        columns = {f.column for f in plan.features if isinstance(f, VocabularyFeature)}
        if columns != self.hashes.keys():
            wrong = sorted(columns ^ self.hashes.keys())[0]
            side = "lack" if wrong in columns else "have"
            raise ConfigError(
                f"the vocabularies {side} column {wrong!r}, unlike the plan; fit them for it."
            )
        if columns and self.salt != plan.salt:
            raise ConfigError(
                "the vocabularies were fitted with another salt than the plan's, so no value "
                "would be found; fit them for this plan."
            )


def fit_vocabularies(
    blocks: Blocks,
    plan: FeaturePlan,
    *,
    private: PrivateVocabularyConfig | None = None,
    ledger: Ledger | None = None,
    rng: NoiseSource | None = None,
    max_values_in_memory: int = 8_000_000,
) -> Vocabularies:
    """Counts values: keeps the frequent ones of vocabulary columns, finds quantiles of numbers.

    Args:
      blocks: Gives the rows, the same ones each time it is called. After contribution
        bounding.
      plan: Columns and thresholds.
      private: Noise for sensitive columns; None if no vocabulary is sensitive.
      ledger: Ledger that is charged, under the purpose "vocabulary", before noise is drawn.
      rng: Source of the noise; by default the operating system. Sensitive: never log or
        save its state.
      max_values_in_memory: Most different values, over all columns, that are counted
        at a time; if there are more, the data are read again.

    Privacy:
      Unit: private.unit; replace, add-or-remove or zero-out. L2 sensitivity of the counts:
      max_rows_per_unit * sqrt(sensitive columns that are counted); L1: their product. Event:
      private.event(plan), once for all columns. Relies on: at most max_rows_per_unit
      rows a unit; public columns that stay when a unit is replaced (their counts are
      exact, so under add-or-remove they are not protected). The time that it takes
      depends on the data.
    """
    public, sensitive = plan.vocabularies("public"), plan.vocabularies("sensitive")
    paid = _checked_payment(plan, private, ledger)
    kept: dict[str, list[Hashes]] = {feature.column: [] for feature in (*public, *sensitive)}
    public_numbers, raw_buckets = _count_numbers(blocks, plan)
    edges = {f.column: public_numbers[f.column].edges(f.num_bins) for f in plan.quantiles}
    rng = rng or release_rng()
    if kept or plan.private_quantiles:
        columns = [_column_values(plan, column) for column in kept]
        parts = count_in_parts(blocks, columns, max_values_in_memory=max_values_in_memory)
        first = [next(parts)] if kept else []
        with _spend(plan, paid):
            if paid is not None:
                edges |= _private_edges(raw_buckets, plan, paid[0], rng=rng)
            for part in itertools.chain(first, parts if kept else ()):
                for feature in public:
                    is_kept = part.counts[feature.column] >= feature.min_count
                    kept[feature.column].append(part.hashes[feature.column][is_kept])
                if paid is not None and sensitive:
                    _keep_privately(part, plan, paid[0], kept, rng=rng)
    return Vocabularies(
        hashes={column: np.concatenate(hashes) for column, hashes in kept.items()},
        salt=plan.salt,
        event=None if paid is None else paid[0].event(plan),
        edges=edges,
    )


def _count_numbers(
    blocks: Blocks, plan: FeaturePlan
) -> tuple[dict[str, NumberCounts], dict[str, BucketCounts]]:
    """Counts public numbers value by value and sensitive ones in buckets, in one pass."""
    public = {feature.column: NumberCounts() for feature in plan.quantiles}
    sensitive = {feature.column: BucketCounts(feature) for feature in plan.private_quantiles}
    every: dict[str, NumberCounts | BucketCounts] = {**public, **sensitive}
    for block in blocks() if every else ():
        for column, tally in every.items():
            check_column(block, column)
            tally.add(as_numbers(block[column], plan.schema.kind(column)))
    return public, sensitive


def _private_edges(
    tallies: Mapping[str, BucketCounts],
    plan: FeaturePlan,
    private: PrivateVocabularyConfig,
    *,
    rng: NoiseSource,
) -> dict[str, FloatArray]:
    """Edges by counts to which noise is added in every bucket."""
    noise = private.noise(len(plan.paid_columns()))
    edges = {}
    for feature in plan.private_quantiles:
        tally = tallies[feature.column]
        noisy_counts = release_bucket_counts(tally.raw_counts, noise, rng=rng)
        edges[feature.column] = tally.edges(noisy_counts, feature.num_bins, noise.noise_stddev)
    return edges


_Payment = tuple[PrivateVocabularyConfig, Ledger]


def _checked_payment(
    plan: FeaturePlan, private: PrivateVocabularyConfig | None, ledger: Ledger | None
) -> _Payment | None:
    """Settings and ledger if they are needed; refuses early what could not be paid."""
    sensitive = plan.paid_columns()
    if private is not None:
        private.event(plan)  # which refuses a plan that counts no sensitive column
        private.check_plan(plan)
        _check_known_values(plan, private)
    if not sensitive:
        return None
    if private is None or ledger is None:
        lacking = "private" if private is None else "ledger"
        raise ConfigError(
            f"{lacking}=None, but column {sensitive[0]!r} is sensitive and its values are "
            "counted: give both private=PrivateVocabularyConfig(…) and ledger=…, or hash the "
            "column with HashedFeature, which costs nothing; numbers also have LogFeature and "
            "BoundedFeature."
        )
    ledger.check(
        private.event(plan),
        purpose=PURPOSE,
        unit=private.unit,
        at=private.at,
        until=private.until,
    )
    return private, ledger


def _check_known_values(plan: FeaturePlan, private: PrivateVocabularyConfig) -> None:
    for column, values in (private.known_values or {}).items():
        try:
            _column_values(plan, column).hashes(pl.Series(column, values, dtype=pl.String))
        except DataError:
            raise ConfigError(
                f"known_values of column {column!r} are not all of its kind, "
                f"{plan.schema.kind(column).value}; drop the others or change the schema's kinds."
            ) from None


def _spend(
    plan: FeaturePlan, paid: _Payment | None
) -> OpenSpend | contextlib.AbstractContextManager[None]:
    if paid is None:
        return contextlib.nullcontext()
    private, ledger = paid
    return ledger.spend(
        private.event(plan),
        purpose=PURPOSE,
        note=f"values of {len(plan.paid_columns())} columns",
        unit=private.unit,
        at=private.at,
        until=private.until,
    )


def _keep_privately(
    part: RawCounts,
    plan: FeaturePlan,
    private: PrivateVocabularyConfig,
    kept: Mapping[str, list[Hashes]],
    *,
    rng: NoiseSource,
) -> None:
    """Adds noise to one part of the counts and appends the values that pass."""
    columns = [feature.column for feature in plan.vocabularies("sensitive")]
    thresholds = private.thresholds(plan)
    noise = private.noise(len(plan.paid_columns()))
    if private.known_values is None:
        hashes = [part.hashes[column] for column in columns]
        counts = np.concatenate([part.counts[column] for column in columns])
        released = release_key_counts(counts, noise, rng=rng)
        is_kept = released.is_published
        noisy_counts = released.noisy_counts
    else:
        hashes = [
            _known_hashes(plan, part, column, private.known_values[column]) for column in columns
        ]
        counts = np.concatenate(
            [_counts_of(part, column, known) for column, known in zip(columns, hashes, strict=True)]
        )
        is_kept = np.ones(len(counts), dtype=np.bool_)
        noisy_counts = counts + noise.sample_noise(len(counts), rng=rng)
    limits = np.repeat([thresholds[column] for column in columns], [len(h) for h in hashes])
    is_kept[is_kept] = noisy_counts >= limits[is_kept]
    ends = np.cumsum([len(h) for h in hashes])[:-1]
    for column, known, passed in zip(columns, hashes, np.split(is_kept, ends), strict=True):
        kept[column].append(known[passed])


def _known_hashes(plan: FeaturePlan, part: RawCounts, column: str, values: Sequence[str]) -> Hashes:
    series = pl.Series(column, values, dtype=pl.String)
    hashes = np.unique(_column_values(plan, column).hashes(series)[0])
    return hashes[_between(hashes, part.low, part.high)]


def _counts_of(part: RawCounts, column: str, known: Hashes) -> NDArray[np.int64]:
    """The count of each known value in a part, 0 where no row has it."""
    present, counts = part.hashes[column], part.counts[column]
    places = np.searchsorted(present, known)
    is_present = np.zeros(len(known), dtype=np.bool_)
    inside = places < len(present)
    is_present[inside] = present[places[inside]] == known[inside]
    result = np.zeros(len(known), dtype=np.int64)
    result[is_present] = counts[places[is_present]]
    return result


def _between(hashes: Hashes, low: int, high: int) -> NDArray[np.bool_]:
    return (hashes >= np.uint64(low)) & (hashes <= np.uint64(high - 1))


def _column_values(plan: FeaturePlan, column: str) -> CountedColumn:
    hasher = ValueHasher(column=column, salt=plan.salt)
    return CountedColumn(kind=plan.schema.kind(column), hasher=hasher)
