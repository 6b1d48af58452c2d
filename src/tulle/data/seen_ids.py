"""Ids seen so far, to find the one that comes back.

The check is exact. Memory grows with the ids alone: 8 bytes for a whole number, a Python
text for a text. Whole numbers that rise are found new without a search.
"""

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]
IdArray = npt.NDArray[np.int64] | npt.NDArray[np.object_]


class SeenIds:
    """All ids of one kind, whole numbers or texts, that were added."""

    def __init__(self) -> None:
        self._texts: set[str] = set()
        self._runs: list[IntArray] = []  # sorted and distinct, each over twice its successor

    def add(self, ids: IdArray) -> int | None:
        """Adds ids; the place among them of the first that was there before, None if all are new.

        After an id has come back nothing more should be added.
        """
        if not len(ids):
            return None
        if ids.dtype == object:
            return self._add_texts(ids)
        return self._add_numbers(ids.astype(np.int64, copy=False))

    def _add_texts(self, ids: IdArray) -> int | None:
        for place, text in enumerate(ids):
            if text in self._texts:
                return place
            self._texts.add(text)
        return None

    def _add_numbers(self, ids: IntArray) -> int | None:
        order = np.argsort(ids, kind="stable")
        ordered = ids[order]
        is_repeat = np.append(False, ordered[1:] == ordered[:-1])
        for run in self._runs:
            if ordered[0] <= run[-1] and run[0] <= ordered[-1]:
                found = np.minimum(np.searchsorted(run, ordered), len(run) - 1)
                is_repeat |= run[found] == ordered
        if is_repeat.any():
            return int(order[is_repeat].min())
        self._runs.append(ordered)
        while len(self._runs) > 1 and len(self._runs[-2]) <= 2 * len(self._runs[-1]):
            last = self._runs.pop()
            merged = np.concatenate([self._runs.pop(), last])
            self._runs.append(np.sort(merged, kind="stable"))
        return None
