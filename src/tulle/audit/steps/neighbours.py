"""Two neighbouring data sets of a few rows, many times over, as one training set.

Every run has a canary and some other rows, and ids of its own in the tables of a logistic
regression. One private step on all rows is then a step of every run, with coins, clipping and
noise of its own. The canary's label is 0 in one data set and 1 in the other: that turns its
clipped gradient round, which is as far as a replaced row can move a clipped sum.
"""

import dataclasses
import enum
import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from tulle.data.prepared.format import PreparedFeature
from tulle.privacy.columns import ColumnRoles
from tulle.train.examples import ExampleSet

FloatArray = NDArray[np.float64]

ROWS_PER_RUN = 4
_IDS_PER_RUN = 2
_NUM_SENSITIVE = 8
"""Features that read the same row of a table: next to them the bias, which all runs share and
nobody can read a run off, takes little of the clip norm."""
_PUBLIC_TABLE, _SENSITIVE_TABLE = "public.table.0", "sensitive.table.0"


class Background(enum.Enum):
    """Where the gradients of the other rows of a run point."""

    APART = "apart"
    """Into rows of the tables that the canary does not touch."""
    ALIGNED = "aligned"
    """Where the canary's does: shows what depends on who else is in the batch."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class NeighbourRows:
    """The rows of many runs. Made up: nothing in them is about anybody."""

    num_runs: int
    background: Background

    @property
    def num_rows(self) -> int:
        """Of all runs."""
        return self.num_runs * ROWS_PER_RUN

    @property
    def canaries(self) -> NDArray[np.int64]:
        """[runs]: the place of each run's canary."""
        return np.arange(self.num_runs, dtype=np.int64) * ROWS_PER_RUN

    def examples(self, canary_label: int) -> ExampleSet:
        """The training set in which every canary has this label, as `fit` would take it."""
        row = np.arange(self.num_rows)
        is_canary = row % ROWS_PER_RUN == 0
        is_apart = ~is_canary & (self.background is Background.APART)
        ids = (_IDS_PER_RUN * (row // ROWS_PER_RUN) + is_apart).astype(np.int32)[:, None]
        examples = ExampleSet(
            features=self._features(),
            columns=ColumnRoles(
                label="y", public=("p",), sensitive=tuple(f"s{i}" for i in range(_NUM_SENSITIVE))
            ),
            public_features=ids,
            sensitive_features=np.repeat(ids, _NUM_SENSITIVE, axis=1),
            labels=np.where(is_canary, canary_label, 0).astype(np.float32),
        )
        examples.check()
        return examples

    def _features(self) -> tuple[PreparedFeature, ...]:
        num_ids = _IDS_PER_RUN * self.num_runs
        sensitive = (
            PreparedFeature(name=f"s{i}", role="sensitive", num_ids=num_ids, table="sensitive")
            for i in range(_NUM_SENSITIVE)
        )
        public = PreparedFeature(name="p", role="public", num_ids=num_ids, table="public")
        return (public, *sensitive)


def along_canaries(weights: Mapping[str, Tensor]) -> FloatArray:
    """[runs]: the weights of each run along the way that a canary of label 1 moves them."""
    public = weights[_PUBLIC_TABLE][::_IDS_PER_RUN, 0].double()
    sensitive = weights[_SENSITIVE_TABLE][::_IDS_PER_RUN, 0].double()
    length = math.hypot(1, _NUM_SENSITIVE)
    return np.asarray((public + _NUM_SENSITIVE * sensitive).numpy() / length)
