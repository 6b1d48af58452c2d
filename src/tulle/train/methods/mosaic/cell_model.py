"""A model of cells: a bias, and for each of some tables the weight of the row's cell.

A cell is a combination of values of one to three columns; rare values of a column are one.
"""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tulle.errors import ConfigError


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class CellPart:
    """One column of a table: which of its ids are which value."""

    role: str
    """'public' or 'sensitive'."""
    column: int
    """Among the features of that role."""
    lookup: NDArray[np.int32]
    """For each id of the feature the number of its value, from 0 to size - 1."""
    size: int

    def __post_init__(self) -> None:
        if self.role not in ("public", "sensitive"):
            raise ConfigError(f"role={self.role!r} must be 'public' or 'sensitive'.")
        if len(self.lookup) and not 0 <= self.lookup.min() <= self.lookup.max() < self.size:
            raise ConfigError(
                f"a lookup of column {self.column} goes beyond its {self.size} values."
            )


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class CellTable:
    """The weights of all cells of some columns; the first column counts most in a cell's place."""

    parts: tuple[CellPart, ...]
    weights: NDArray[np.float32]

    def __post_init__(self) -> None:
        num_cells = math.prod(part.size for part in self.parts)
        if not self.parts or self.weights.shape != (num_cells,):
            raise ConfigError(
                f"a table of {num_cells} cells has weights of shape {self.weights.shape}."
            )


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class CellLogits:
    """What a batch of rows gets, as `ForwardPass` of other models has it."""

    logits: Tensor


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class CellModel:
    """Gives log odds of label 1."""

    bias: float
    tables: tuple[CellTable, ...]

    @property
    def reads_sensitive(self) -> bool:
        """True if a table has a sensitive column."""
        return any(part.role == "sensitive" for table in self.tables for part in table.parts)

    def forward(self, public_ids: Tensor, sensitive_ids: Tensor | None) -> CellLogits:
        """Log odds of each row.

        Args:
          public_ids: [rows, public features], whole numbers. Ids are trusted.
          sensitive_ids: [rows, sensitive features]; None if no table needs them.

        Privacy:
          Logits depend on the row's own columns: they are for whoever may see the row.
        """
        ids = {"public": public_ids, "sensitive": sensitive_ids}
        logits = torch.full((len(public_ids),), self.bias, dtype=torch.float64)
        for table in self.tables:
            columns = [_column(ids[part.role], part) for part in table.parts]
            cells = cells_of_rows(table.parts, columns)
            logits += torch.from_numpy(table.weights[cells].astype(np.float64))
        return CellLogits(logits=logits)


def cells_of_rows(
    parts: Sequence[CellPart], columns: Sequence[NDArray[np.int32]]
) -> NDArray[np.int64]:
    """The place of each row's cell.

    Args:
      parts: Of the table.
      columns: The ids of the rows, for each part.
    """
    cells = np.zeros(len(columns[0]), np.int64)
    for part, ids in zip(parts, columns, strict=True):
        cells *= part.size
        cells += part.lookup[ids]
    return cells


def _column(ids: Tensor | None, part: CellPart) -> NDArray[np.int32]:
    if ids is None:
        raise ConfigError("the model needs the ids of its sensitive features; pass them.")
    column: NDArray[np.int32] = ids[:, part.column].cpu().numpy()
    return column
