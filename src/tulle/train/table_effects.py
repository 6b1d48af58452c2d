"""Effects of values: the tables of the same columns added up, with names and posterior intervals.

A column may be in a model in several forms: its values, and groups of values. The forms divide the
ids of the column into parts that no table tells apart, and each part has one effect.
"""

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tulle.data.features.id_names import OTHERS, IdNames, joined_names, range_name
from tulle.data.known_values import ValueFact
from tulle.data.tables.memory import polars_table
from tulle.train.methods.mosaic.cell_model import CellPart, CellTable

FloatArray = NDArray[np.float64]

DEVIATIONS = 1.959964
"""Standard deviations on either side of a mean that hold 95% of a normal distribution."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ColumnParts:
    """The parts of a column that have an effect each."""

    column: str
    labels: tuple[str, ...]
    """Name of each part, in words."""
    num_ordered: int
    """Number of parts, from the first on, that stand in the order of what they mean, as hours do;
    those behind, such as a missing value, stand apart."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class TableEffects:
    """Effect in log odds of each value, or combination of values, with its 95% interval."""

    columns: tuple[ColumnParts, ...]
    effect: FloatArray
    """One axis a column: change of log odds."""
    stddev: FloatArray | None
    """Posterior standard deviation of each effect; None if the model has no deviations."""

    @property
    def low(self) -> FloatArray | None:
        """Lower ends of the 95% posterior intervals."""
        return None if self.stddev is None else self.effect - DEVIATIONS * self.stddev

    @property
    def high(self) -> FloatArray | None:
        """Upper ends of the 95% posterior intervals."""
        return None if self.stddev is None else self.effect + DEVIATIONS * self.stddev

    def rows(self) -> list[dict[str, Any]]:
        """One row a cell: the value of each column, effect, low and high."""
        return list(self)

    def to_polars(self) -> Any:
        """The same rows as a polars DataFrame."""
        rows = self.rows()
        return polars_table({name: [row[name] for row in rows] for name in rows[0]})

    def __iter__(self) -> Iterator[dict[str, Any]]:
        names = [part.column for part in self.columns]
        values = itertools.product(*(part.labels for part in self.columns))
        unknown = [None] * self.effect.size
        numbers = (
            unknown if array is None else array.ravel().tolist()
            for array in (self.effect, self.low, self.high)
        )
        for found, effect, low, high in zip(values, *numbers, strict=True):
            yield {
                **dict(zip(names, found, strict=True)),
                "effect": effect,
                "low": low,
                "high": high,
            }

    def __len__(self) -> int:
        return self.effect.size

    def _repr_html_(self) -> str:
        """The chart of the effects, for notebooks."""
        from tulle.report.model_report import effects_charts
        from tulle.report.verbs import charts_frame

        return charts_frame(effects_charts(self))


def effects_of_tables(
    tables: Sequence[CellTable],
    features: Sequence[int],
    *,
    names: Sequence[tuple[str, IdNames]],
    place_of: Callable[[str, int], int],
) -> TableEffects:
    """Adds up tables of the same features.

    Args:
      tables: The tables.
      features: Places of the features, in the order of the axes of the result.
      names: Name of each of these features, and those of its ids.
      place_of: Place of a feature, by role and column of a part.
    """
    axis_of = {feature: axis for axis, feature in enumerate(features)}
    found: list[list[tuple[CellTable, CellPart]]] = [[] for _ in features]
    for table in tables:
        for part in table.parts:
            found[axis_of[place_of(part.role, part.column)]].append((table, part))
    columns, ranks = [], {}
    for axis, (parts, (name, ids)) in enumerate(zip(found, names, strict=True)):
        keys, labels, num_ordered = _divided([part for _, part in parts], ids)
        columns.append(ColumnParts(column=name, labels=labels, num_ordered=num_ordered))
        shape = [1] * len(features)
        shape[axis] = len(labels)
        for (_, part), key in zip(parts, keys.T, strict=True):
            ranks[id(part)] = key.astype(np.int64).reshape(shape)
    sizes = [len(column.labels) for column in columns]
    effect, variance = np.zeros(sizes), np.zeros(sizes)
    for table in tables:
        cells = np.zeros([1] * len(features), np.int64)
        for part in table.parts:
            cells = cells * part.size + ranks[id(part)]
        effect += table.weights[cells]
        # Releases of different tables have noise of their own, so that variances add up.
        if table.stddevs is not None:
            variance += np.square(table.stddevs[cells].astype(np.float64))
    has_stddevs = all(table.stddevs is not None for table in tables)
    stddev = np.sqrt(variance) if has_stddevs else None
    return TableEffects(columns=tuple(columns), effect=effect, stddev=stddev)


def _divided(
    parts: Sequence[CellPart], names: IdNames
) -> tuple[NDArray[np.int32], tuple[str, ...], int]:
    """What no table tells apart: [parts, forms] ranks, their names, and how many are in order."""
    lookups = np.stack([part.lookup[names.ids] for part in parts], axis=1)
    keys, first, inverse, counts = np.unique(
        lookups, axis=0, return_index=True, return_inverse=True, return_counts=True
    )
    is_single = [tells_single_values(part) for part in parts]
    by_part = np.argsort(inverse.ravel(), kind="stable")
    ids = np.split(names.ids[by_part], np.cumsum(counts)[:-1])
    numbers = range(len(keys))
    # Bins that no row is in are together, wherever they lie, and have no place in an order.
    is_other = [len(ids[n]) > 1 and _is_other(keys[n], is_single) for n in numbers]
    if names.num_ordered:
        order = sorted(numbers, key=lambda n: (is_other[n], first[n]))
    else:
        order = sorted(numbers, key=lambda n: _rank_order(keys[n], is_single))
    labels = [_label(keys[n], ids[n], is_other[n], is_single, parts, names) for n in order]
    num_ordered = sum(first[n] < names.num_ordered and not is_other[n] for n in numbers)
    return keys[order], _distinct(labels), int(num_ordered)


def _is_other(key: NDArray[np.int32], is_single: Sequence[bool]) -> bool:
    """Whether a part of a column holds values that no form tells apart, but as groups."""
    ranks = [int(rank) for rank, single in zip(key, is_single, strict=True) if single]
    return bool(ranks) and not any(ranks)


def tells_single_values(part: CellPart) -> bool:
    """Whether each value of a form of a column is one id, all others apart; else it has groups."""
    return bool(np.bincount(part.lookup, minlength=part.size)[1:].max(initial=0) <= 1)


def form_name(column: str, part: CellPart, names: IdNames) -> str:
    """What to call a form of a column: the fact that groups its values, or that they are grouped.

    Args:
      column: Name of the column.
      part: The form, as a table has it.
      names: Names of the ids of the column.
    """
    if tells_single_values(part):
        return column
    fact = _fact_of(part, names)
    return f"{column} (groups)" if fact is None else f"{fact.name} of {column}"


def _fact_of(part: CellPart, names: IdNames) -> ValueFact | None:
    """The public fact that the groups of a form are made by: the coarsest that explains them."""
    if names.known is None or names.first_value is None or tells_single_values(part):
        return None
    first = names.first_value
    groups = part.lookup[first : first + len(names.known.values)]
    for fact in sorted(names.known.facts, key=lambda fact: len(fact.groups)):
        places = np.array(fact.places)
        _, one_of_each = np.unique(places, return_index=True)
        if len(np.unique(groups)) > 1 and np.array_equal(groups[one_of_each][places], groups):
            return fact
    return None


def _group_name(rank: int, ids: NDArray[np.int64], part: CellPart, names: IdNames) -> str:
    """What to call a group of values: what is known of them, else its number.

    Args:
      rank: Number of the group.
      ids: Ids that are asked about, all of this group.
      part: The form that groups values.
      names: Names of the ids.
    """
    fact = _fact_of(part, names)
    if fact is None or names.first_value is None:
        return f"group {rank + 1} of {part.size}"
    places = ids - names.first_value
    of_values = places[places < len(fact.places)].tolist()
    found = [fact.groups[one] for one in sorted({fact.places[place] for place in of_values})]
    return f"{fact.name} {joined_names(found)}" if found else OTHERS


def _rank_order(key: NDArray[np.int32], is_single: Sequence[bool]) -> tuple[Any, ...]:
    """Single values first, by how frequent they are, and all others behind."""
    ranks = [int(rank) for rank, single in zip(key, is_single, strict=True) if single]
    return (*((rank == 0, rank) for rank in ranks), tuple(key.tolist()))


def _label(
    key: NDArray[np.int32],
    ids: NDArray[np.int64],
    is_other: bool,
    is_single: Sequence[bool],
    parts: Sequence[CellPart],
    names: IdNames,
) -> str:
    """What to call a part of a column.

    Args:
      key: Its rank in each form.
      ids: The ids in it.
      is_other: Whether they are what is left of the column.
      is_single: Whether a form tells single values apart.
      parts: The forms.
      names: Names of the ids.
    """
    if names.num_ordered and not is_other:
        return _range_label(names, ids)
    if len(ids) == 1:
        return names.name(int(ids[0]))
    groups = [
        _group_name(rank, ids, part, names)
        for rank, single, part in zip(key.tolist(), is_single, parts, strict=True)
        if not single
    ]
    group = ", ".join(dict.fromkeys(groups))
    if is_other:
        return f"{OTHERS} ({group})" if group else OTHERS
    known = [name for number in ids.tolist() for name in names.names.get(number, ())]
    return f"{group}: {joined_names(known)}" if known else group


def _range_label(names: IdNames, ids: NDArray[np.int64]) -> str:
    """Neighbouring bins as one range, and what stands apart from all bins by its own name."""
    bins = ids[ids < int(names.ids[0]) + names.num_ordered]
    found = [names.name(int(number)) for number in bins]
    apart = [names.name(int(number)) for number in ids[len(bins) :]]
    if len(bins) > 1 and int(bins[-1]) - int(bins[0]) == len(bins) - 1:
        found = [range_name(found)]
    return joined_names([*found, *apart])


def _distinct(labels: Sequence[str]) -> tuple[str, ...]:
    """Labels that differ; rows are found by them."""
    seen: dict[str, int] = {}
    result = []
    for label in labels:
        number = seen[label] = seen.get(label, 0) + 1
        result.append(label if number == 1 else f"{label} ({number})")
    return tuple(result)
