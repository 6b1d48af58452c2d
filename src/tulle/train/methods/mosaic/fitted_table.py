"""A table of the model in the making: weights, and what its releases say together."""

import dataclasses

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]

_LEAST_SHARE = 1e-15


@dataclasses.dataclass(eq=False, repr=False)
class FittedTable:
    """All in it is post-processing of noisy sums."""

    weights: FloatArray
    """Change of log odds of each cell."""
    variances: FloatArray
    """What is still unknown of each cell."""
    label_sums: FloatArray
    """Noisy sums of labels: the mean of all releases, as if rows had a weight of 1."""
    label_shares: FloatArray
    """Of the budget, that rows of each cell spent on these sums."""

    @classmethod
    def empty(cls, num_cells: int) -> "FittedTable":
        """Nothing known."""
        weights, variances, label_sums, label_shares = np.zeros((4, num_cells))
        return cls(
            weights=weights, variances=variances, label_sums=label_sums, label_shares=label_shares
        )

    def add_label_sums(self, noisy_sums: FloatArray, mean_weights: FloatArray) -> None:
        """Takes in one more release of sums of the same cells, by how much it tells of each.

        Args:
          noisy_sums: Of labels of weighted rows.
          mean_weights: Of the rows of each cell.
        """
        total = self.label_shares * self.label_sums + mean_weights * noisy_sums
        self.label_shares = self.label_shares + mean_weights**2
        self.label_sums = total / self.known_label_shares()

    def known_label_shares(self) -> FloatArray:
        """The shares, with next to nothing for cells that no row is in."""
        return np.maximum(self.label_shares, _LEAST_SHARE)

    def noise_factors(self) -> FloatArray:
        """By how much the noise on the mean is larger than that of the whole budget."""
        factors: FloatArray = 1 / np.sqrt(self.known_label_shares())
        return factors
