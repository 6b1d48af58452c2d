"""A table of the model in the making: weights, and what its releases say together."""

import dataclasses

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]


@dataclasses.dataclass(eq=False, repr=False)
class FittedTable:
    """All in it is post-processing of noisy sums."""

    weights: FloatArray
    """Change of log odds of each cell."""
    variances: FloatArray
    """What is still unknown of each cell."""
    label_sums: FloatArray
    """Noisy sums of labels: the mean of all releases, weighted by their shares."""
    label_share: float = 0.0
    """Of the budget, that went into these sums."""

    @classmethod
    def empty(cls, num_cells: int) -> "FittedTable":
        """Nothing known."""
        weights, variances, label_sums = np.zeros((3, num_cells))
        return cls(weights=weights, variances=variances, label_sums=label_sums)

    def add_label_sums(self, noisy_sums: FloatArray, share: float) -> None:
        """Takes in one more release of the same sums."""
        total = self.label_share + share
        self.label_sums = (self.label_share * self.label_sums + share * noisy_sums) / total
        self.label_share = total
