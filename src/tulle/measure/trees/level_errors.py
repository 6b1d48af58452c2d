"""The relative error to expect at each level of a tree, before anything is spent.

RMSRE is the root of the mean over nodes of (error / max(tau, total))^2: relative where totals are
large, and in units of tau where they are small (Aksu et al. 2024). Noise has no bias, so it
needs the variances and what the totals were in a past or public period.
"""

import dataclasses

import numpy as np
import numpy.typing as npt

from tulle.errors import ConfigError, DataError
from tulle.measure.expected_error import expected_relative_errors, root_mean_square
from tulle.measure.trees.alike_nodes import AlikeNodes, group_alike
from tulle.measure.trees.consistency import consistent_variances
from tulle.measure.trees.level_noise import TreeBudget, level_variances
from tulle.measure.trees.slice_tree import FloatArray, SliceTree


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class TreeErrors:
    """How errors of the nodes are weighted: by totals of a past period."""

    tree: SliceTree
    alike: AlikeNodes
    weights: FloatArray
    """[groups of nodes that are alike], of a squared error in the square of its level's RMSRE."""

    @classmethod
    def from_history(cls, tree: SliceTree, history: npt.ArrayLike, *, tau: float) -> "TreeErrors":
        """The weights for leaf totals like those of `history`.

        Args:
          tree: The tree.
          history: [leaves], totals of a past period, >= 0.
          tau: The smallest total whose relative error matters; smaller ones count as tau.

        Privacy:
          `history` is read as it is: give public totals or noisy ones that were paid for.
        """
        totals = tree.node_totals(history).astype(np.float64)
        if not np.all(totals >= 0) or not np.all(np.isfinite(totals)):
            raise DataError("totals of the history must be finite and >= 0; clip noisy ones at 0.")
        level_sizes = np.bincount(tree.levels)
        unit_errors = expected_relative_errors(totals, 1.0, tau=tau)
        weights = unit_errors**2 / level_sizes[tree.levels]
        alike = group_alike(tree)
        by_group = np.bincount(alike.groups, weights=weights).astype(np.float64)
        return cls(tree=tree, alike=alike, weights=by_group)

    def level_costs(self) -> FloatArray:
        """[levels], the squared RMSRE of each level if its noise had variance 1."""
        return np.bincount(self.alike.tree.levels, weights=self.weights).astype(np.float64)

    def level_rmsre(
        self, budget: TreeBudget, shares: npt.ArrayLike, *, after_consistency: bool = True
    ) -> FloatArray:
        """[levels], infinite for a level that cannot be estimated.

        Args:
          budget: Of all levels together.
          shares: [levels], of the budget.
          after_consistency: Whether nodes are estimated from all noisy totals together, or each
            from its own.
        """
        variances = level_variances(budget, shares)
        if len(variances) != self.tree.num_levels:
            raise ConfigError(
                f"{len(variances)} shares for {self.tree.num_levels} levels; give each level one."
            )
        levels = self.alike.tree.levels
        by_group = variances[levels]
        if after_consistency:
            by_group = consistent_variances(self.alike.tree, by_group, copies=self.alike.copies)
        return np.sqrt(np.bincount(levels, weights=self.weights * by_group))


def expected_rmsre(
    errors: TreeErrors,
    budget: TreeBudget,
    shares: npt.ArrayLike,
    *,
    after_consistency: bool = True,
) -> float:
    """The root mean square of the RMSRE over all levels; arguments as in `level_rmsre`."""
    by_level = errors.level_rmsre(budget, shares, after_consistency=after_consistency)
    return root_mean_square(by_level)
