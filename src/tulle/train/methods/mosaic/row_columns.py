"""The columns of the training rows, one array each, so that a pass over one reads no other."""

import numpy as np
from numpy.typing import NDArray

from tulle.errors import DataError
from tulle.train.examples import ExampleSet


class RowColumns:
    """Ids of the rows by role and column. Sensitive: never log or save them."""

    def __init__(self, examples: ExampleSet) -> None:
        self._examples = examples
        self._columns: dict[tuple[str, int], NDArray[np.int32]] = {}

    def ids(self, role: str, column: int) -> NDArray[np.int32]:
        """The ids of one feature, one for each row; kept once they were read."""
        key = (role, column)
        if key not in self._columns:
            self._columns[key] = self._read(role, column)
        return self._columns[key]

    def raw_counts(self, role: str, column: int, num_ids: int) -> NDArray[np.int64]:
        """How many rows have each id."""
        return np.bincount(self.ids(role, column), minlength=num_ids)

    def _read(self, role: str, column: int) -> NDArray[np.int32]:
        examples = self._examples
        ids = examples.public_features if role == "public" else examples.sensitive_features
        if ids is None:
            raise DataError("the sensitive columns of these rows are out of reach.")
        chosen = ids[:, column] if examples.rows is None else ids[examples.rows, column]
        return np.ascontiguousarray(chosen)
