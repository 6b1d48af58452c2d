"""Names of feature ids: what a reader calls an hour, a bucket of numbers or the bin of a hash.

An encoder holds hashes, and no values but those that the schema knows. It can name these, hours,
days and buckets by itself; bins and kept values only with the help of a table of the caller, whose
values are encoded here as those of any row. Several values may fall into one bin, which then has
several names.
"""

import dataclasses
import itertools
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

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
)
from tulle.data.features.encoder import Encoder
from tulle.data.features.id_places import PlacedFeature, place_features
from tulle.data.known_values import KnownValues
from tulle.data.schema import Kind
from tulle.data.tables.kinds import as_text, typed_columns
from tulle.data.tables.rows import column_names, read_row_tables
from tulle.errors import DataError

MISSING, OTHERS = "missing", "other values"
_ROWS_AT_A_TIME = 1 << 18
"""Rows of a table of values that are in memory together."""
_MOST_NAMES = 2
"""Names of one id that are written out; the others are counted."""
_NO_NUMBER, _ANY_NUMBER, _OR_MORE = "no whole number", "any number", " or more"
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class IdNames:
    """Names of the ids of one feature."""

    column: str
    """Column that the feature is made of."""
    ids: NDArray[np.int64]
    """All ids that a value can get, in ascending order."""
    names: Mapping[int, tuple[str, ...]]
    """Names of an id, as far as they are known."""
    num_ordered: int = 0
    """Number of ids, from the first on, that stand in the order of what they mean, as hours do.
    Those behind, such as that of missing values, stand apart."""
    first_value: int | None = None
    """First id of the kept values of a vocabulary; None for other features."""
    known: KnownValues | None = None
    """What the schema knows of the values from that id on."""

    def name(self, feature_id: int) -> str:
        """What to call an id: its names, or its number."""
        if known := self.names.get(feature_id):
            return joined_names(known)
        if self.first_value is not None and feature_id >= self.first_value:
            return f"value {feature_id - self.first_value}"
        return f"bin {feature_id}"


def joined_names(names: Sequence[str]) -> str:
    """The first names, and how many more there are."""
    text = ", ".join(names[:_MOST_NAMES])
    num_more = len(names) - _MOST_NAMES
    return f"{text} and {num_more:,} more" if num_more > 0 else text


def range_name(names: Sequence[str]) -> str:
    """What to call neighbouring bins together, from where the first begins to where the last ends.

    Args:
      names: Names of bins of a number or a time, in their order.
    """
    inner = [name for name in names if name != _NO_NUMBER] or names[:1]
    first, last = inner[0], inner[-1]
    is_time = ":" in first or first in _DAYS
    if first == last or (is_time and len(inner) == 2):
        return joined_names(inner)
    low = "" if first.startswith(("up to ", "below ")) else first.partition(" to ")[0]
    if last.endswith(_OR_MORE):
        return f"{low}{_OR_MORE}" if low else _ANY_NUMBER
    high = last.rpartition(" to ")[2]
    if low:
        return f"{low} to {high}"
    return high if high.startswith("below ") else f"up to {high}"


def names_of_ids(encoder: Encoder, values: object = None) -> tuple[IdNames, ...]:
    """Names of the ids of every feature, in the order of `encoder.features`.

    Args:
      encoder: What makes ids of columns.
      values: A table or file whose distinct values give their bins a name. Columns that it lacks
        stay without names. None: only what the encoder itself knows.

    Privacy:
      Values of the table become names as they are. Those of sensitive columns must be public, as
      in a catalogue; a table with the label or the unit beside them is refused, because it looks
      like the log itself.

    Raises:
      DataError: The table is none, has no column of a feature, or looks like a log.
    """
    found = {} if values is None else values_by_column(encoder, values)
    placed = place_features(encoder.plan, encoder.vocabularies.num_learnt)
    return tuple(
        _names_of_feature(encoder, place, one, found.get(one.settings.column))
        for place, one in enumerate(placed)
    )


def _names_of_feature(
    encoder: Encoder, place: int, one: PlacedFeature, values: pl.Series | None
) -> IdNames:
    """Names of the ids of one feature.

    Args:
      encoder: What makes ids of columns.
      place: Place of the feature among all.
      one: The feature.
      values: Values that are looked for; None: none are known.
    """
    settings, first = one.settings, one.first_id
    own = _own_names(encoder, one)
    if own:
        return IdNames(
            column=settings.column,
            ids=np.arange(first, first + len(own)),
            names={first + number: (name,) for number, name in enumerate(own)},
            num_ordered=one.feature.num_bins,
        )
    if isinstance(settings, KnownValuesFeature):
        known = encoder.plan.schema.known_values[settings.column]
        named = enumerate([*known.values, MISSING, OTHERS], start=first)
        return IdNames(
            column=settings.column,
            ids=np.arange(first, one.unknown_id + 1),
            names={feature_id: (name,) for feature_id, name in named},
            first_value=first,
            known=known,
        )
    names = {} if values is None else _names_of_values(encoder, place, values)
    if isinstance(settings, HashedFeature):
        return IdNames(column=settings.column, ids=np.arange(settings.num_bins), names=names)
    missing = first + encoder.vocabularies.num_kept[settings.column]
    # Whatever the table has, an id that all rare values share has no single name.
    names = {**names, missing: (MISSING,), one.unknown_id: (OTHERS,)}
    return IdNames(
        column=settings.column,
        ids=np.unique([one.unknown_id, *range(first, missing + 1)]),
        names=names,
        first_value=first,
    )


def values_by_column(encoder: Encoder, values: object) -> dict[str, pl.Series]:
    """Distinct values of each column of a table that a feature is made of.

    Args:
      encoder: What makes ids of columns.
      values: A table or file. Columns that it lacks have no entry.

    Privacy:
      The values come out as they are. Those of sensitive columns must be public; a table with the
      label or the unit beside them is refused, because it looks like the log itself.

    Raises:
      DataError: The table is none, has no column of a feature, or looks like a log.
    """
    schema = encoder.plan.schema
    columns = {feature.column for feature in encoder.plan.features}
    # The rows of a log would show which values its people have.
    tells_people = {name for name in (schema.label, schema.unit) if name is not None}
    source = Path(values) if isinstance(values, str | os.PathLike) else values
    present = column_names(source)
    found = [name for name in present if name in columns]
    if not found:
        raise DataError(
            "values has no column that the model looks at; name one of "
            f"{', '.join(sorted(columns))}."
        )
    beside = tells_people.intersection(present)
    if beside and (sensitive := [name for name in found if name in schema.sensitive]):
        raise DataError(
            f"values has column {min(beside)!r} beside the sensitive column {sensitive[0]!r}, as a "
            "log has: the names of its values would show what people have. Give a public table of "
            f"values without {min(beside)!r}, or leave out {sensitive[0]!r}."
        )
    parts = [
        typed_columns(rows.table, schema, rows.place)
        for rows in read_row_tables(source, tuple(found), rows_per_table=_ROWS_AT_A_TIME)
    ]
    return {
        name: pl.concat([part[name].unique(maintain_order=True) for part in parts]).unique(
            maintain_order=True
        )
        for name in (found if parts else ())
    }


def _names_of_values(encoder: Encoder, place: int, values: pl.Series) -> dict[int, tuple[str, ...]]:
    """The values that each id stands for, in the order of the table."""
    kind = encoder.plan.schema.kind(values.name)
    texts = as_text(values, kind).fill_null(MISSING).to_list()
    found: dict[int, list[str]] = {}
    for feature_id, name in zip(encoder.ids_of(place, values).tolist(), texts, strict=True):
        found.setdefault(feature_id, []).append(name)
    return {feature_id: tuple(names) for feature_id, names in found.items()}


def _own_names(encoder: Encoder, one: PlacedFeature) -> list[str]:
    """Names of the ids of a feature whose meaning the encoder knows; empty for others."""
    settings, kind = one.settings, encoder.plan.schema.kind(one.settings.column)
    if isinstance(settings, HourFeature):
        return [*(f"{hour:02d}:00" for hour in range(settings.num_ids - 1)), MISSING]
    if isinstance(settings, DayOfWeekFeature):
        return [*_DAYS, MISSING]
    if isinstance(settings, LogFeature):
        buckets, parts = np.arange(settings.num_buckets), np.arange(settings.parts)
        starts = np.ldexp(1 + parts / settings.parts, buckets[:, None]).ravel() - 1
        return [*_names_from(starts, kind), "negative", MISSING]
    if isinstance(settings, BooleanFeature):
        return ["false", "true", MISSING]
    if isinstance(settings, QuantileFeature | PrivateQuantileFeature):
        edges = encoder.vocabularies.edges[settings.column]
        return [*_names_between(edges, kind), MISSING]
    if isinstance(settings, BoundedFeature):
        edges = np.linspace(settings.low, settings.high, settings.num_bins + 1)[1:-1]
        return [*_names_between(edges, kind), MISSING]
    return []


def _names_between(edges: NDArray[np.float64], kind: Kind) -> list[str]:
    """Ranges between edges, of which the lower one belongs to a bin."""
    if not len(edges):
        return [_ANY_NUMBER]
    if kind is Kind.INTEGER:
        # The least whole number of each bin but the first, and the largest one of that before it.
        return [f"up to {math.ceil(edges[0]) - 1:,}", *_names_from(edges, kind)]
    return [f"below {_short(edges[0])}", *_names_from(edges, kind)]


def _names_from(starts: NDArray[np.float64], kind: Kind) -> list[str]:
    """Ranges of bins by their lower ends, of which the first is 0."""
    if kind is Kind.INTEGER:
        inner = [
            _whole_numbers(math.ceil(low), math.ceil(high) - 1)
            for low, high in itertools.pairwise(starts)
        ]
        return [*inner, f"{math.ceil(starts[-1]):,}{_OR_MORE}"]
    texts = [_short(start) for start in starts]
    inner = [f"{low} to below {high}" for low, high in itertools.pairwise(texts)]
    return [*inner, f"{texts[-1]}{_OR_MORE}"]


def _whole_numbers(low: int, high: int) -> str:
    """The whole numbers between two ends; parts of small buckets have none."""
    if low > high:
        return _NO_NUMBER
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _short(number: float) -> str:
    """A number in full if it is whole, else with six digits."""
    return f"{number:,.0f}" if number == math.floor(number) else f"{number:,.6g}"
