"""The values of a column that tables tell apart: the frequent ones, and all others as one.

How frequent the values of a public column are is public. Values of a sensitive column are counted
with noise, and a value whose count does not stand out of the noise is merged with the others. A
sensitive column with many values also gets a coarse form, which groups values by how frequent they
are: rare values, each too rare for a cell of its own, then still tell something together.
"""

import dataclasses

import numpy as np
from numpy.typing import NDArray

from tulle.train.methods.mosaic.cell_model import CellPart
from tulle.train.methods.mosaic.cell_sums import sum_by_cell

FloatArray = NDArray[np.float64]

_CLASS_EDGES = (30, 60, 125, 250, 500, 1_000, 4_000, 20_000, 100_000, 500_000)
"""Numbers of rows that separate the frequency classes of a coarse form."""
_CLEAR_DEVIATIONS = 3.0
"""Class edges below this many standard deviations of the noise on a count are dropped: noise would
scatter values across them at random."""
_KEPT_DEVIATIONS = 4.0
"""Standard deviations of noise that a noisy count must exceed for its value to be kept. Of 50,000
values that no row has, one or two are kept by mistake: 50,000 * P(N(0, 1) > 4) = 1.6."""
_LEAST_ROWS = 0.5
"""Values with fewer rows than this, by exact or noisy counts, are taken as not occurring."""
_FEW_VALUES = 64
"""Number of values up to which all values of a sensitive column are kept, whatever their noisy
counts: so few cells cost little even if some are empty."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ColumnValues:
    """A column, or a coarse form of it, as tables see it. Nothing in it is raw."""

    name: str
    """Name of the column, in words."""
    role: str
    """'public' or 'sensitive'."""
    column: int
    """Place of the column among the features of that role."""
    ranks: NDArray[np.int32]
    """Rank of each id: 0 for the others, 1 for the most frequent value, and so on; in a coarse
    form the frequency class."""
    counts: FloatArray
    """Number of rows of each rank: exact for a public column, noisy for a sensitive one."""
    is_coarse: bool = False
    """True if ranks are frequency classes rather than single values."""

    @property
    def num_values(self) -> int:
        """Number of values that are told apart, the others among them as one."""
        return len(self.counts)

    @property
    def num_occurring(self) -> int:
        """Number of values that rows have, as far as it is known."""
        return int((self.counts >= _LEAST_ROWS).sum())

    @property
    def source(self) -> tuple[str, int]:
        """Role and place of the column; a coarse form has those of the column it is made of."""
        return self.role, self.column

    @property
    def identity(self) -> tuple[str, int, bool]:
        """Key that tells a column from others and from its coarse form, whatever their names."""
        return self.role, self.column, self.is_coarse

    def limited_counts(self, size: int) -> FloatArray:
        """Number of rows of each value, if only the `size` first ranks are told apart."""
        kept = self.counts[:size].copy()
        kept[0] += self.counts[size:].sum()
        return kept

    def part(self, size: int) -> CellPart:
        """The column as a part of a table that tells only the `size` first ranks apart."""
        lookup = np.where(self.ranks < size, self.ranks, 0).astype(np.int32)
        return CellPart(role=self.role, column=self.column, lookup=lookup, size=size)


def public_values(name: str, column: int, raw_counts: NDArray[np.int64]) -> ColumnValues:
    """Values of a public column: every value that occurs has its own rank.

    Args:
      name: Name of the column.
      column: Place of the column among the public features.
      raw_counts: [ids]: exact number of rows that have each id.

    Privacy:
      Counts of a public column are public; nothing else may be given here.
    """
    return _ranked(name, "public", column, raw_counts.astype(np.float64), least=_LEAST_ROWS)


def sensitive_values(
    name: str, column: int, noisy_counts: FloatArray, count_stddev: float
) -> list[ColumnValues]:
    """Values of a sensitive column by noisy counts and, if it has many, its coarse form.

    Args:
      name: Name of the column.
      column: Place of the column among the sensitive features.
      noisy_counts: [ids]: number of rows that have each id, with noise.
      count_stddev: Standard deviation of the noise on each count.
    """
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
    """Ranks the values whose counts exceed `least`; all others get rank 0."""
    # A stable sort: equal counts keep the order of their ids on every machine.
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
