"""A model of cells, arranged for speed: what can be added up beforehand is added up beforehand.

All tables of one column become one effect for each of its ids. Of a table of more columns, each
column has a number for each id, and the sum of these numbers is the place of the cell. So a row
costs one look-up for each column, and one more for each column of a larger table. Whatever predicts
many rows or one, and every form that a model is exported to, is made of this arrangement.

Weights are multiples of a power of two, so that sums are exact in any order, and the log odds are
those of the model to the last bit.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tulle.data.prepared.feature import PreparedFeature
from tulle.train.methods.mosaic.cell_model import CellModel, CellTable

FloatArray = NDArray[np.float64]


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class CrossedTable:
    """A table of two columns or more."""

    steps: dict[int, NDArray[np.int32]]
    """A number for each id of each column of the table, by the column's place among all features.
    The sum of the numbers of a row is the place of its cell."""
    weights: FloatArray
    """[cells]: change of log odds of each cell."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class FusedHead:
    """A bias, effects of columns and crossed tables, which together give log odds."""

    bias: float
    effects: dict[int, FloatArray]
    """Change of log odds for each id of each column that has a table of its own."""
    crossed: tuple[CrossedTable, ...]

    @property
    def columns(self) -> tuple[int, ...]:
        """Places of the columns that are looked at, among all features."""
        of_tables = (place for table in self.crossed for place in table.steps)
        return tuple(sorted({*self.effects, *of_tables}))

    def log_odds(self, ids: Sequence[NDArray[np.int32] | None], num_rows: int) -> FloatArray:
        """Log odds of rows.

        Args:
          ids: [rows] for each feature; None for those that are not looked at.
          num_rows: Number of rows.
        """
        found = np.full(num_rows, self.bias)
        for place, effects in self.effects.items():
            found += effects.take(_present(ids, place))
        for table in self.crossed:
            cells = np.zeros(num_rows, np.int64)
            for place, steps in table.steps.items():
                cells += steps.take(_present(ids, place))
            found += table.weights.take(cells)
        return found


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class FusedCells:
    """All heads of a model, and what is made of their log odds."""

    model: CellModel
    heads: tuple[FusedHead, ...]

    @property
    def columns(self) -> tuple[int, ...]:
        """Places of the columns that a head looks at, among all features."""
        return tuple(sorted({place for head in self.heads for place in head.columns}))

    def predicted(self, ids: Sequence[NDArray[np.int32] | None], num_rows: int) -> FloatArray:
        """What the model predicts for rows: [rows], or [rows, classes].

        Args:
          ids: [rows] for each feature, public ones first; None for those that no head looks at.
          num_rows: Number of rows.

        Privacy:
          A prediction depends on the row's own columns: it is for whoever may see the row.
        """
        found = [head.log_odds(ids, num_rows) for head in self.heads]
        return self.model.predicted_by(found[0] if len(found) == 1 else np.stack(found, axis=1))


def fused_cells(model: CellModel, features: Sequence[PreparedFeature]) -> FusedCells:
    """Arranges a model for speed.

    Args:
      model: The model.
      features: Its features, public ones first.
    """
    num_public = sum(feature.role == "public" for feature in features)
    heads = []
    for head in model.heads:
        effects: dict[int, FloatArray] = {}
        crossed = []
        for table in head.tables:
            steps = _steps(table, num_public)
            weights = table.weights.astype(np.float64)
            if len(steps) == 1:
                ((place, cells),) = steps.items()
                effects[place] = effects.get(place, 0.0) + weights[cells]
            else:
                crossed.append(CrossedTable(steps=steps, weights=weights))
        heads.append(FusedHead(bias=head.bias, effects=effects, crossed=tuple(crossed)))
    return FusedCells(model=model, heads=tuple(heads))


def _steps(table: CellTable, num_public: int) -> dict[int, NDArray[np.int32]]:
    steps: dict[int, NDArray[np.int32]] = {}
    stride = 1
    for part in reversed(table.parts):
        place = part.column + (0 if part.role == "public" else num_public)
        scaled = part.lookup * np.int32(stride)
        # A column may be in a table twice, merged in two ways.
        steps[place] = steps[place] + scaled if place in steps else scaled
        stride *= part.size
    return steps


def _present(ids: Sequence[NDArray[np.int32] | None], place: int) -> NDArray[np.int32]:
    column = ids[place]
    if column is None:
        raise ValueError(f"the model needs the ids of feature {place}; pass them.")
    return column
