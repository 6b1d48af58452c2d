"""How each feature makes an id of one value, as data that every stack can carry out.

An encoder works on columns of many rows. Whoever asks for one prediction, or takes a model to
another stack, needs the same ids in plain Python, SQL, ONNX or JSON. Each kind of feature is one of
four rules, and all of those forms are made of the rules alone: a new kind of feature is added here
once.
"""

import bisect
import dataclasses
import functools
from collections.abc import Callable, Mapping

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tulle.data.features.column_features import (
    DayOfWeekFeature,
    HashedFeature,
    HourFeature,
    KnownValuesFeature,
    VocabularyFeature,
)
from tulle.data.features.encoder import Encoder
from tulle.data.features.hashing import ValueHasher, bin_of
from tulle.data.features.transforms import DAYS_PER_WEEK, HOURS_PER_DAY, Ids
from tulle.data.schema import Kind
from tulle.data.tables.kinds import MOST_SECONDS, typed_columns
from tulle.data.tables.memory import one_row
from tulle.errors import ConfigError

_SECONDS_PER_HOUR, _SECONDS_PER_DAY = 3600, 86_400
"""Lengths of the steps of the two cycles of a time; UTC has no leap seconds."""
_MOST = 2**63 - 1024
"""Largest float that is a 64-bit integer: no whole number of a table lies beyond."""
_TINIEST = 5e-324
"""Smallest float above 0: the search for edges treats negative numbers apart."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class HashRule:
    """The id of a value is the bin of its salted hash; missing is a value like others."""

    num_bins: int
    hasher: ValueHasher

    def id_of(self, value: str | None) -> int:
        """The id of a text; None is missing."""
        return bin_of(self.hasher.hash_of(value), self.num_bins)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class VocabularyRule:
    """A value that was kept has an id of its own, found by its salted hash."""

    hasher: ValueHasher
    ids: Mapping[int, int] = dataclasses.field(repr=False)
    """Ids by hash."""
    unknown_id: int
    missing_id: int

    def id_of(self, value: str | None) -> int:
        """The id of a text; None is missing."""
        if value is None:
            return self.missing_id
        return self.ids.get(self.hasher.hash_of(value), self.unknown_id)


@dataclasses.dataclass(frozen=True, kw_only=True)
class IntervalRule:
    """A number gets the id of the interval that it is in."""

    edges: tuple[float, ...]
    """Where an interval ends and the next begins, ascending; an edge belongs to the next one."""
    ids: tuple[int, ...]
    """One id for each interval, from minus infinity on."""
    missing_id: int

    def id_of(self, value: float | None) -> int:
        """The id of a number; None is missing."""
        if value is None:
            return self.missing_id
        return self.ids[bisect.bisect_right(self.edges, float(value))]


@dataclasses.dataclass(frozen=True, kw_only=True)
class CycleRule:
    """A whole number of seconds gets the id of its step in a cycle that repeats."""

    step: int
    """Seconds, or whatever the numbers count, for each step."""
    offset: int
    """Step of the cycle in which the number 0 lies."""
    length: int
    """Number of steps of the cycle."""
    first_id: int
    missing_id: int

    def id_of(self, value: int | None) -> int:
        """The id of a number; None is missing."""
        if value is None:
            return self.missing_id
        return self.first_id + (value // self.step + self.offset) % self.length


_PLAIN_TYPES: dict[Kind, tuple[type, ...]] = {
    Kind.INTEGER: (int,),
    Kind.REAL: (int, float),
    Kind.BOOLEAN: (bool,),
    Kind.TIMESTAMP: (int,),
}
"""Types whose values need no conversion, by the kind of a column."""
IdRule = HashRule | VocabularyRule | IntervalRule | CycleRule


@dataclasses.dataclass(frozen=True, kw_only=True)
class RuledFeature:
    """A feature, the column that it reads, and its rule."""

    name: str
    role: str
    column: str
    kind: Kind
    num_ids: int
    rule: IdRule

    def plain_value(self, value: object) -> object:
        """A value in the form that the rule takes, or `NotImplemented` if only a reader can tell.

        It does for a single value what the readers of tables do for columns, as far as that is
        plain: text and whole numbers for categories, numbers for numbers.
        """
        kind = type(value)
        if value is None or value == "" or (kind is float and value != value):
            return None
        if self.kind is Kind.CATEGORICAL:
            if kind is str:
                return value
            return str(value) if kind is int else NotImplemented
        if kind not in _PLAIN_TYPES[self.kind]:
            return NotImplemented
        most = MOST_SECONDS if self.kind is Kind.TIMESTAMP else _MOST
        if kind is int and not -most <= value <= most:  # type: ignore[operator]
            return NotImplemented
        if isinstance(self.rule, IntervalRule | CycleRule):
            return value
        return str(value) if self.kind is Kind.INTEGER else NotImplemented


def rules_of(encoder: Encoder) -> tuple[RuledFeature, ...]:
    """The rule of each feature of an encoder, in the order of its ids.

    Raises:
      ConfigError: A feature is of a kind that has no rule.
    """
    return tuple(_ruled(number, encoder) for number in range(len(encoder.features)))


def id_by_encoder(encoder: Encoder, number: int, value: object) -> int:
    """The id of one value of any type that a table may hold, as the encoder gives it.

    Args:
      encoder: What makes ids.
      number: Which feature, in the order of ids.
      value: The value; None is missing.

    Raises:
      DataError: The value is none of the column's kind.
    """
    column = encoder.placed[number].settings.column
    table = one_row({column: None if value == "" else value})
    typed = typed_columns(
        table, encoder.plan.schema, lambda _row: "the row", columns=(column,), is_new=True
    )
    return int(encoder.ids_of(number, typed[column])[0])


def _ruled(number: int, encoder: Encoder) -> RuledFeature:
    place = encoder.placed[number]
    settings, feature = place.settings, place.feature
    kind = encoder.plan.schema.kind(settings.column)
    return RuledFeature(
        name=feature.name,
        role=feature.role,
        column=settings.column,
        kind=kind,
        num_ids=feature.num_ids,
        rule=_rule(number, kind, encoder),
    )


def _rule(number: int, kind: Kind, encoder: Encoder) -> IdRule:
    place = encoder.placed[number]
    settings = place.settings
    hasher = ValueHasher(column=settings.column, salt=encoder.plan.salt)
    if isinstance(settings, HashedFeature):
        return HashRule(num_bins=settings.num_bins, hasher=hasher)
    if isinstance(settings, VocabularyFeature):
        hashes = encoder.vocabularies.hashes[settings.column].tolist()
        return VocabularyRule(
            hasher=hasher,
            ids={one: place.first_id + rank for rank, one in enumerate(hashes)},
            unknown_id=place.unknown_id,
            missing_id=place.first_id + len(hashes),
        )
    ids = functools.partial(encoder.ids_of, number)
    if isinstance(settings, KnownValuesFeature):
        known = encoder.plan.schema.known_values[settings.column].values
        return VocabularyRule(
            hasher=hasher,
            ids={hasher.hash_of(one): place.first_id + rank for rank, one in enumerate(known)},
            unknown_id=place.unknown_id,
            missing_id=place.first_id + len(known),
        )
    if isinstance(settings, HourFeature | DayOfWeekFeature):
        return _cycle_rule(settings, kind, ids)
    if kind is Kind.BOOLEAN:
        falsehood, truth, missing = ids(pl.Series([False, True, None])).tolist()
        return IntervalRule(edges=(0.5,), ids=(falsehood, truth), missing_id=missing)
    if kind in (Kind.INTEGER, Kind.REAL):
        return _interval_rule(ids, kind)
    raise ConfigError(
        f"feature {place.feature.name!r} of type {type(settings).__name__} has no rule outside of "
        "its encoder; predict with `tulle predict` or Classifier.predict_proba()."
    )


def _cycle_rule(
    settings: HourFeature | DayOfWeekFeature, kind: Kind, ids: Callable[[pl.Series], Ids]
) -> CycleRule:
    length, step = (HOURS_PER_DAY, _SECONDS_PER_HOUR)
    if isinstance(settings, DayOfWeekFeature):
        length, step = (DAYS_PER_WEEK, 1 if kind is Kind.INTEGER else _SECONDS_PER_DAY)
    steps = ids(pl.Series([*range(0, length * step, step), None], dtype=pl.Int64)).tolist()
    first_id = min(steps[:length])
    return CycleRule(
        step=step,
        offset=steps[0] - first_id,
        length=length,
        first_id=first_id,
        missing_id=steps[length],
    )


def _interval_rule(ids: Callable[[pl.Series], Ids], kind: Kind) -> IntervalRule:
    """Finds the edges of the bins of a number by bisection, to the last bit of a float.

    It needs nothing of the kind of bins but that ids ascend or descend on either side of 0.
    """
    ends = float(_MOST) if kind is Kind.INTEGER else np.finfo(np.float64).max
    found: list[tuple[float, int]] = []

    def at(ordered: NDArray[np.int64]) -> NDArray[np.int32]:
        numbers = _float_at(ordered)
        is_whole = kind is Kind.INTEGER
        return ids(pl.Series(np.floor(numbers).astype(np.int64) if is_whole else numbers))

    for start, stop in ((-ends, -_TINIEST), (0.0, ends)):
        low, high = _place_of(start), _place_of(stop)
        first, last = at(np.array([low, high])).tolist()
        found.append((start, first))
        targets = np.arange(1, abs(last - first) + 1)
        # For each further id the least float that has it: all of them at once, bit by bit.
        lows, highs = np.full(len(targets), low), np.full(len(targets), high)
        while len(targets) and (highs - lows > 1).any():
            middles = lows + (highs - lows) // 2
            is_there = np.abs(at(middles) - first) >= targets
            highs, lows = np.where(is_there, middles, highs), np.where(is_there, lows, middles)
        found += zip(_float_at(highs).tolist(), at(highs).tolist(), strict=True)
    kept = [found[0]]
    for edge, one in found[1:]:
        if edge == kept[-1][0] and len(kept) > 1:
            kept.pop()
        if one != kept[-1][1]:
            kept.append((edge, one))
    return IntervalRule(
        edges=tuple(edge for edge, _ in kept[1:]),
        ids=tuple(one for _, one in kept),
        missing_id=int(ids(pl.Series([None], dtype=pl.Float64))[0]),
    )


def _place_of(number: float) -> int:
    """Place of a float in the order of all floats, in which neighbours differ by 1."""
    bits = int(np.float64(number).view(np.int64))
    return bits if bits >= 0 else -(bits & (2**63 - 1))


def _float_at(places: NDArray[np.int64]) -> NDArray[np.float64]:
    bits = np.abs(places)
    return np.where(places < 0, -1.0, 1.0) * bits.view(np.float64)
