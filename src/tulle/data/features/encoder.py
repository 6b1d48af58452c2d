"""Rows of a table as feature ids, ready for embeddings.

An encoder holds public settings and released vocabularies only. The same row
gets the same ids from every file, machine and version. Values of a vocabulary
are found by their hashes (`ValueLookup`), and features that share a table get
ranges of its ids that do not overlap (`id_places`).
"""

import dataclasses
import functools
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tulle.data.features import encoder_file
from tulle.data.features.column_features import (
    BooleanFeature,
    BoundedFeature,
    DayOfWeekFeature,
    HashedFeature,
    HourFeature,
    KnownValuesFeature,
    LogFeature,
    PrivateQuantileFeature,
    QuantileFeature,
    Role,
    VocabularyFeature,
)
from tulle.data.features.feature_plan import FeaturePlan
from tulle.data.features.hashing import Hashes, ValueHasher, bins_of
from tulle.data.features.id_places import PlacedFeature, place_features
from tulle.data.features.transforms import (
    Ids,
    bins_between,
    days_of_week,
    days_of_week_of_days,
    even_bins,
    hours_of_day,
    log_buckets,
    truth_ids,
)
from tulle.data.features.vocabulary import Vocabularies
from tulle.data.prepared.feature import PreparedFeature
from tulle.data.schema import Kind
from tulle.data.tables.kinds import as_numbers, as_text
from tulle.data.tables.split_lines import TextColumn
from tulle.errors import DataError
from tulle.privacy.events import Event, event_to_json
from tulle.privacy.fields import did_you_mean

_LARGEST = np.uint64(2**64 - 1)
"""A sentinel that no hash exceeds, behind the last entry of a lookup."""


class ValueLookup:
    """Finds hashes in a sorted array without repeats."""

    def __init__(self, sorted_hashes: Hashes) -> None:
        self.num_entries = len(sorted_hashes)
        # About two to four buckets an entry, so that most searches end at once.
        num_bits = max(1, (2 * self.num_entries).bit_length())
        self._shift = np.uint64(64 - num_bits)
        buckets = (sorted_hashes >> self._shift).astype(np.int64)
        sizes = np.bincount(buckets, minlength=2**num_bits)
        self._starts: NDArray[np.int32] = (np.cumsum(sizes) - sizes).astype(np.int32)
        # Nothing is larger than the last entry, so a search stops there.
        self._entries = np.append(sorted_hashes, _LARGEST)

    def ranks(self, hashes: Hashes) -> NDArray[np.int32]:
        """1 for the first entry, 2 for the next, …; 0 for a hash that is no entry."""
        places = self._starts[(hashes >> self._shift).view(np.int64)]
        found = self._entries[places]
        left = np.flatnonzero(found < hashes)
        while left.size:
            places[left] += 1
            found[left] = self._entries[places[left]]
            left = left[found[left] < hashes[left]]
        is_entry = (found == hashes) & (places < self.num_entries)
        return np.where(is_entry, places + np.int32(1), np.int32(0))


_ROWS_AT_A_TIME = 2**17
"""Rows are encoded in blocks, so that the hashes of a column need little memory beside the
result."""

_EncodeColumn = Callable[[Any], Ids]
"""Takes a series, and that of a categorical column also takes values that stand in a text."""


class Encoder:
    """Turns tables into ids. Make one with `build_encoder` or `from_files`."""

    def __init__(self, plan: FeaturePlan, vocabularies: Vocabularies) -> None:
        vocabularies.check_plan(plan)
        self.plan = plan
        self.vocabularies = vocabularies
        placed = place_features(plan, vocabularies.num_learnt)
        self.features: tuple[PreparedFeature, ...] = tuple(place.feature for place in placed)
        """What the columns of the ids are, as datasets and models know them, public ones first."""
        self.placed = placed
        """The settings of each feature and where its ids are, in the order of `features`."""
        self._columns = tuple(place.settings.column for place in placed)
        self._encode_columns = tuple(_column_encoder(place, self) for place in placed)

    @property
    def vocabulary_event(self) -> Event | None:
        """What its vocabularies of sensitive columns cost; None if nothing was charged.

        Whoever releases something made with these ids adds it to what that costs.
        """
        return self.vocabularies.event

    def encode(self, table: pl.DataFrame) -> NDArray[np.int32]:
        """Ids of shape (rows, features), in the order of `features`.

        Args:
          table: Has a column for each feature, of text or of numbers; others are not
            looked at.

        Privacy:
          Nothing is released: the ids are as sensitive as the rows. Errors name a
          column and never a value or how many are wrong.
        """
        for column in self._columns:
            if column not in table.columns:
                raise DataError(
                    f"column {column!r} is not in the data"
                    f"{did_you_mean(column, table.columns)}; add it or drop its feature."
                )
        ids = np.empty((len(table), len(self.features)), dtype=np.int32)
        for start in range(0, len(table), _ROWS_AT_A_TIME):
            rows = table.slice(start, _ROWS_AT_A_TIME)
            encoders = zip(self._columns, self._encode_columns, strict=True)
            for place, (column, encode) in enumerate(encoders):
                ids[start : start + len(rows), place] = encode(rows[column])
        return ids

    def ids_of(self, place: int, values: pl.Series | TextColumn) -> Ids:
        """Ids that values of a column get in one feature.

        Args:
          place: Place of the feature in `features`.
          values: Values of its column; those of a categorical one may stand in a text.
        """
        return self._encode_columns[place](values)

    def of_role(self, role: Role) -> "Encoder":
        """The encoder of the features of one role alone; they keep their ids."""
        features = self.plan.of_role(role)
        return Encoder(
            dataclasses.replace(self.plan, features=features),
            self.vocabularies.of_columns({feature.column for feature in features}),
        )

    def fingerprint(self) -> str:
        """SHA-256 over settings, vocabularies and what they cost; if equal, all ids are."""
        digest = hashlib.sha256(self.plan.to_json().encode())
        for column, hashes in sorted(self.vocabularies.hashes.items()):
            digest.update(f"\n{column}\n{len(hashes)}\n".encode())
            digest.update(hashes.astype("<u8").tobytes())
        for column, edges in sorted(self.vocabularies.edges.items()):
            digest.update(f"\nedges of {column}\n{len(edges)}\n".encode())
            digest.update(edges.astype("<f8").tobytes())
        if self.vocabulary_event is not None:
            digest.update(f"\n{event_to_json(self.vocabulary_event)}\n".encode())
        return digest.hexdigest()

    def to_files(self, folder: str | Path) -> None:
        """Writes settings and vocabularies into a folder."""
        encoder_file.write_encoder_files(
            Path(folder), self.plan, self.vocabularies, fingerprint=self.fingerprint()
        )

    @classmethod
    def from_files(cls, folder: str | Path) -> "Encoder":
        """Reads what `to_files` wrote. Refuses files that were changed."""
        plan, vocabularies, fingerprint = encoder_file.read_encoder_files(Path(folder))
        encoder = cls(plan, vocabularies)
        if encoder.fingerprint() != fingerprint:
            raise DataError(
                f"the encoder in {folder} has another fingerprint than when it was written; "
                "its files do not belong together. Write it again."
            )
        return encoder


def build_encoder(plan: FeaturePlan, vocabularies: Vocabularies | None = None) -> Encoder:
    """The encoder of a plan.

    Args:
      plan: The features.
      vocabularies: Result of `fit_vocabularies`; None if the plan has no vocabulary and no
        quantiles.
    """
    return Encoder(plan, vocabularies or Vocabularies(hashes={}, salt=plan.salt))


def _column_encoder(place: PlacedFeature, encoder: Encoder) -> _EncodeColumn:
    settings = place.settings
    kind = encoder.plan.schema.kind(settings.column)
    hasher = ValueHasher(column=settings.column, salt=encoder.plan.salt)
    if isinstance(settings, HashedFeature):
        return functools.partial(_hashed_ids, kind, hasher, settings.num_bins)
    if isinstance(settings, VocabularyFeature):
        hashes = encoder.vocabularies.hashes[settings.column]
        ids = place.first_id + np.arange(len(hashes), dtype=np.int32)
        return functools.partial(_vocabulary_ids, kind, hasher, ValueLookup(hashes), ids, place)
    if isinstance(settings, KnownValuesFeature):
        known = encoder.plan.schema.known_values[settings.column].values
        hashes = hasher.hashes(pl.Series(known, dtype=pl.String))
        # The lookup is by hash; ids are in the order of the values themselves.
        order = np.argsort(hashes)
        lookup, ids = ValueLookup(hashes[order]), (place.first_id + order).astype(np.int32)
        return functools.partial(_vocabulary_ids, kind, hasher, lookup, ids, place)
    if isinstance(settings, QuantileFeature | PrivateQuantileFeature):
        edges = encoder.vocabularies.edges[settings.column]
        transform: _EncodeColumn = functools.partial(bins_between, edges=edges)
    else:
        transform = _number_transform(settings, kind)
    return functools.partial(_number_ids, kind, transform, place.first_id)


def _number_transform(
    settings: LogFeature | BoundedFeature | BooleanFeature | HourFeature | DayOfWeekFeature,
    kind: Kind,
) -> _EncodeColumn:
    if isinstance(settings, LogFeature):
        return functools.partial(
            log_buckets, num_buckets=settings.num_buckets, parts=settings.parts
        )
    if isinstance(settings, BoundedFeature):
        return functools.partial(
            even_bins, low=settings.low, high=settings.high, num_bins=settings.num_bins
        )
    if isinstance(settings, BooleanFeature):
        return truth_ids
    if isinstance(settings, HourFeature):
        return hours_of_day
    return days_of_week_of_days if kind is Kind.INTEGER else days_of_week


def _hashed_ids(
    kind: Kind, hasher: ValueHasher, num_bins: int, values: pl.Series | TextColumn
) -> Ids:
    return bins_of(hasher.hashes(_texts(values, kind)), num_bins)


def _vocabulary_ids(
    kind: Kind,
    hasher: ValueHasher,
    lookup: ValueLookup,
    ids_of_entries: Ids,
    place: PlacedFeature,
    values: pl.Series | TextColumn,
) -> Ids:
    texts = _texts(values, kind)
    every = np.append(np.int32(place.unknown_id), ids_of_entries)
    ids: Ids = every[lookup.ranks(hasher.hashes(texts))]
    is_missing = texts.sizes < 0 if isinstance(texts, TextColumn) else texts.is_null().to_numpy()
    ids[is_missing] = place.first_id + lookup.num_entries
    return ids


def _texts(values: pl.Series | TextColumn, kind: Kind) -> pl.Series | TextColumn:
    return values if isinstance(values, TextColumn) else as_text(values, kind)


def _number_ids(kind: Kind, transform: _EncodeColumn, first_id: int, values: pl.Series) -> Ids:
    return transform(as_numbers(values, kind)) + np.int32(first_id)
