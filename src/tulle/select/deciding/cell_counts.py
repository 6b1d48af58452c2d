"""Counts of chosen ads by cell: all that leaves behind a shuffler."""

import collections
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from tulle.select.cells import Cells


class CellTally:
    """Adds up choices, block by block.

    Privacy:
      Unit: one decision. Post-processing of choices. The order of choices is not kept.
    """

    def __init__(self, cells: Cells) -> None:
        self._cells = cells
        self._counts: collections.Counter[tuple[str, Any]] = collections.Counter()

    def add(self, part: slice, ads: npt.NDArray[Any]) -> None:
        """Counts the chosen ads of consecutive auctions.

        Args:
          part: Which auctions of all.
          ads: [auctions of the part].
        """
        keys = self._cells.keys[self._cells.numbers[part]]
        self._counts.update(zip(keys.tolist(), ads.tolist(), strict=True))

    def table(self) -> Mapping[str, npt.NDArray[Any]]:
        """One row for each cell and ad, in the order of their names."""
        rows = sorted(self._counts.items())
        return {
            "cell": np.array([cell for (cell, _), _ in rows], dtype=np.str_),
            "ad": np.array([ad for (_, ad), _ in rows]),
            "impressions": np.array([count for _, count in rows], np.int64),
        }
