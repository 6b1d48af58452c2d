"""Whole numbers in place of text ids, and back."""

import numpy as np
import numpy.typing as npt
import polars as pl


class IdCodes:
    """Numbers texts from 0 in the order in which they first come."""

    def __init__(self) -> None:
        self._codes: dict[str, int] = {}
        self._names: npt.NDArray[np.object_] = np.empty(0, dtype=object)

    def __len__(self) -> int:
        return len(self._codes)

    def encode(self, ids: pl.Series) -> npt.NDArray[np.int64]:
        """The code of each text; new ones get the next codes."""
        distinct = ids.unique(maintain_order=True)
        codes = [self._codes.setdefault(name, len(self._codes)) for name in distinct]
        return ids.replace_strict(distinct, codes, return_dtype=pl.Int64).to_numpy()

    def names(self, codes: npt.NDArray[np.int64]) -> npt.NDArray[np.object_]:
        """The text of each code."""
        if len(self._names) < len(self._codes):
            self._names = np.array(list(self._codes), dtype=object)
        return self._names[codes]

    def code_of(self, name: str) -> int | None:
        """The code of a text, None if it never came."""
        return self._codes.get(name)
