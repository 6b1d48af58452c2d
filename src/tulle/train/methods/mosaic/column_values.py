"""The values of a column that tables tell apart: the frequent ones, and all others as one.

How frequent values of a public column are is public. Values of a sensitive column are counted
with noise; a value that does not stand out of it is one of the others.
"""

import dataclasses

import numpy as np
from numpy.typing import NDArray

from tulle.train.methods.mosaic.cell_model import CellPart
from tulle.train.methods.mosaic.cell_sums import sum_by_cell

FloatArray = NDArray[np.float64]

_CLASS_EDGES = (30, 60, 125, 250, 500, 1_000, 4_000, 20_000, 100_000, 500_000)
_CLEAR_DEVIATIONS = 3.0
_KEPT_DEVIATIONS = 4.0
"""So that of 50,000 values that no row has, one or two are kept."""
_LEAST_ROWS = 0.5
_FEW_VALUES = 64
"""Up to so many, all values of a sensitive column are kept."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ColumnValues:
    """A column, or a coarse form of it, as tables see it. Nothing in it is raw."""

    name: str
    role: str
    column: int
    ranks: NDArray[np.int32]
    """For each id: 0 for the others, 1 for the most frequent value, and so on."""
    counts: FloatArray
    """How many rows have each rank, exactly or roughly."""
    is_coarse: bool = False

    @property
    def num_values(self) -> int:
        """The others included."""
        return len(self.counts)

    @property
    def num_occurring(self) -> int:
        """Values that rows have, as far as it is known."""
        return int((self.counts >= _LEAST_ROWS).sum())

    @property
    def source(self) -> tuple[str, int]:
        """Which column it is; a coarse form has that of its column."""
        return self.role, self.column

    @property
    def identity(self) -> tuple[str, int, bool]:
        """Tells a column from others and from its coarse form, whatever they are called."""
        return self.role, self.column, self.is_coarse

    def limited_counts(self, size: int) -> FloatArray:
        """Rows of each value, if only so many are told apart."""
        kept = self.counts[:size].copy()
        kept[0] += self.counts[size:].sum()
        return kept

    def part(self, size: int) -> CellPart:
        """The column in a table that tells so many values apart."""
        lookup = np.where(self.ranks < size, self.ranks, 0).astype(np.int32)
        return CellPart(role=self.role, column=self.column, lookup=lookup, size=size)


def public_values(name: str, column: int, raw_counts: NDArray[np.int64]) -> ColumnValues:
    """A public column: every value that occurs has its own rank.

    Privacy:
      Counts of a public column are public; nothing else may be given here.
    """
    return _ranked(name, "public", column, raw_counts.astype(np.float64), least=_LEAST_ROWS)


def sensitive_values(
    name: str, column: int, noisy_counts: FloatArray, count_stddev: float
) -> list[ColumnValues]:
    """A sensitive column by noisy counts, and, if it has many values, how frequent they are."""
    if len(noisy_counts) <= _FEW_VALUES:
        return [_ranked(name, "sensitive", column, noisy_counts, least=-np.inf)]
    values = _ranked(name, "sensitive", column, noisy_counts, least=_KEPT_DEVIATIONS * count_stddev)
    edges = [edge for edge in _CLASS_EDGES if edge > _CLEAR_DEVIATIONS * count_stddev]
    classes = np.digitize(noisy_counts, edges).astype(np.int32)
    rows = sum_by_cell(classes, np.maximum(noisy_counts, 0), len(edges) + 1)
    coarse = ColumnValues(
        name=f"frequency of {name}",
        role="sensitive",
        column=column,
        ranks=classes,
        counts=rows,
        is_coarse=True,
    )
    return [values, coarse]


def _ranked(name: str, role: str, column: int, counts: FloatArray, *, least: float) -> ColumnValues:
    order = np.argsort(-counts, kind="stable")
    kept = order[counts[order] > least]
    ranks = np.zeros(len(counts), np.int32)
    ranks[kept] = np.arange(1, len(kept) + 1)
    others = max(counts.sum() - counts[kept].sum(), 0.0)
    return ColumnValues(
        name=name,
        role=role,
        column=column,
        ranks=ranks,
        counts=np.maximum(np.concatenate([[others], counts[kept]]), 0.0),
    )
