"""How to split one budget over the levels of a tree: noise, error and the best shares.

A unit that is in one leaf is in one node of every level, so levels share the budget: their shares
add up to 1. Under pure epsilon a level with share s has noise of s * epsilon; under Gaussian noise
(zero-concentrated privacy, rho = sensitivity^2 / (2 variance)) the shares are of rho, so that the
inverse variances add up.

RMSRE is the root of the mean over nodes of (error / max(tau, total))^2: relative where totals are
large, and in units of tau where they are small (Aksu et al. 2024). Noise has no bias, so it
needs the variances and what the totals were in a past or public period.

Uniform shares are what people use; they can be worse than spending all on the leaves and adding
up. The best shares follow from what totals are like: the closed form is exact if each level
is used as it was measured, and `optimised_split` is for use after consistency. It may give a level
nothing: then the level is added up from the levels below.
"""

import dataclasses
import math

import numpy as np
import numpy.typing as npt

from tulle.errors import ConfigError, DataError
from tulle.measure.expected_error import expected_relative_errors, root_mean_square
from tulle.measure.trees.consistency import AlikeNodes, consistent_variances, group_alike
from tulle.measure.trees.slice_tree import FloatArray, SliceTree
from tulle.mechanisms.discrete_laplace import DiscreteLaplaceConfig
from tulle.mechanisms.exact import MAX_SCALE
from tulle.privacy.fields import check_count
from tulle.privacy.units import Adjacency

_Support = frozenset[int]


@dataclasses.dataclass(frozen=True, kw_only=True)
class LaplaceLevels:
    """An epsilon for all levels together, spent on discrete Laplace noise."""

    epsilon: float
    max_steps_per_unit: int = 1
    """Most that one unit adds to all nodes of one level, in whole steps."""
    steps: int = 1
    """Whole steps that make 1 in the totals: noise is a whole number of steps."""

    def __post_init__(self) -> None:
        _check_budget("epsilon", self.epsilon, self.max_steps_per_unit, self.steps)

    @property
    def best_power(self) -> float:
        """Shares that minimise sum(cost / share^2) are proportional to cost^best_power."""
        return 1 / 3

    def level_noise(self, share: float) -> DiscreteLaplaceConfig:
        """The noise of a level, in steps."""
        return DiscreteLaplaceConfig.for_epsilon(
            self.epsilon * share,
            adjacency=Adjacency.ADD_OR_REMOVE,
            max_contribution=self.max_steps_per_unit,
        )

    def variance(self, share: float) -> float:
        """Variance of the noise of a level, in totals; infinite without a share."""
        if share <= 0:
            return math.inf
        scale = self.max_steps_per_unit / (self.epsilon * share)
        # A search may pass by shares with more noise than a release can have.
        steps = 2 * scale**2 if scale > MAX_SCALE / 2 else self.level_noise(share).variance
        return steps / self.steps**2


@dataclasses.dataclass(frozen=True, kw_only=True)
class GaussianLevels:
    """A rho for all levels together, spent on Gaussian noise."""

    rho: float
    max_steps_per_unit: float = 1.0
    """Largest L2 norm of what one unit adds to the nodes of one level, in steps."""
    steps: int = 1
    """Steps that make 1 in the totals."""

    def __post_init__(self) -> None:
        _check_budget("rho", self.rho, self.max_steps_per_unit, self.steps)

    @property
    def best_power(self) -> float:
        """Shares that minimise sum(cost / share) are proportional to cost^best_power."""
        return 1 / 2

    def variance(self, share: float) -> float:
        """Variance of the noise of a level, in totals; infinite without a share."""
        if share <= 0:
            return math.inf
        return (self.max_steps_per_unit / self.steps) ** 2 / (2 * self.rho * share)


TreeBudget = LaplaceLevels | GaussianLevels


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
          budget: Budget of all levels together.
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


def level_variances(budget: TreeBudget, shares: npt.ArrayLike) -> FloatArray:
    """[levels], the variance of the noise of each level; infinite where the share is 0.

    Args:
      budget: Budget of all levels together.
      shares: [levels], >= 0, at most 1 together.
    """
    known = np.asarray(shares, dtype=np.float64)
    if not np.all(known >= 0) or not 0 < known.sum() <= 1 + 1e-9:
        raise ConfigError(
            f"shares={known.tolist()} of the levels must be >= 0 and add up to 1 at most, "
            "and not all be 0."
        )
    return np.array([budget.variance(float(share)) for share in known])


def rescaled_steps(shares: npt.ArrayLike, steps: int) -> npt.NDArray[np.int64]:
    """Whole steps that one contribution adds to each level, if all levels get the same noise.

    The other way to give levels their shares: one sensitivity of `steps` and one noise for all,
    and every level's contribution multiplied by its share before, its noisy total divided by it
    after. A level with k of `steps` then has the noise of k / steps of the epsilon, exactly.

    Args:
      shares: [levels], >= 0, at most 1 together.
      steps: Most that a contribution adds to all levels together, e.g. 65536.
    """
    check_count("steps", steps)
    known = np.asarray(shares, dtype=np.float64)
    whole = np.floor(known * steps * (1 + 2.0**-50)).astype(np.int64)
    if np.any(whole < 0) or whole.sum() > steps:
        raise ConfigError(f"shares={known.tolist()} must be >= 0 and add up to 1 at most.")
    return whole


def expected_rmsre(
    errors: TreeErrors,
    budget: TreeBudget,
    shares: npt.ArrayLike,
    *,
    after_consistency: bool = True,
) -> float:
    """The root mean square of the RMSRE over all levels; arguments as in `level_rmsre`.

    Args:
      errors: How errors at the nodes weigh.
      budget: Budget of all levels.
      shares: The share of each level, together 1.
      after_consistency: Whether all numbers are made to add up first.
    """
    by_level = errors.level_rmsre(budget, shares, after_consistency=after_consistency)
    return root_mean_square(by_level)


def uniform_split(tree: SliceTree) -> FloatArray:
    """[levels], the same share for each level."""
    return np.full(tree.num_levels, 1 / tree.num_levels)


def leaf_only_split(tree: SliceTree) -> FloatArray:
    """[levels], everything for the last level. All leaves must be there."""
    if np.any(tree.levels[tree.leaf_nodes] != tree.num_levels - 1):
        raise ConfigError("some leaves of the tree are above its last level; use another split.")
    shares: FloatArray = np.eye(tree.num_levels)[-1]
    return shares


def closed_form_split(errors: TreeErrors, budget: TreeBudget) -> FloatArray:
    """[levels], the shares with the least expected RMSRE without consistency.

    A level's squared RMSRE is its cost over share^2 (Laplace) or over share (Gaussian), up to the
    rounding of noise to whole steps, so shares are as the cube root of the cost or as its
    square root.

    Privacy:
      Reads nothing but the history that `errors` was made from.
    """
    powers = errors.level_costs() ** budget.best_power
    shares: FloatArray = powers / powers.sum()
    return shares


def optimised_split(errors: TreeErrors, budget: TreeBudget) -> FloatArray:
    """[levels], the shares with the least expected RMSRE after consistency.

    Which levels get anything is searched by adding and dropping one at a time, from all levels and
    from the last alone; their shares by a quasi-Newton method.

    Privacy:
      Reads nothing but the history that `errors` was made from.
    """
    num_levels = errors.tree.num_levels
    found: dict[_Support, tuple[float, FloatArray]] = {}
    starts = [frozenset(range(num_levels)), frozenset([num_levels - 1])]
    ends = [_best_nearby(start, errors, budget, found) for start in starts]
    return found[min(ends, key=lambda support: found[support][0])][1]


def _best_nearby(
    support: _Support,
    errors: TreeErrors,
    budget: TreeBudget,
    found: dict[_Support, tuple[float, FloatArray]],
) -> _Support:
    """Moves to the best support that differs in one level until none is better."""
    _solve(support, errors, budget, found)
    while True:
        nearby = [support ^ {level} for level in range(errors.tree.num_levels)]
        for other in nearby:
            _solve(other, errors, budget, found)
        best = min(nearby, key=lambda other: found[other][0])
        # A level that is dropped for no loss is one that need not be measured.
        margin = 1e-7 if len(best) < len(support) else -1e-7
        if not found[best][0] < found[support][0] * (1 + margin):
            return support
        support = best


def _solve(
    support: _Support,
    errors: TreeErrors,
    budget: TreeBudget,
    found: dict[_Support, tuple[float, FloatArray]],
) -> None:
    """Puts the least RMSRE with these levels, and its shares, into `found`."""
    if support in found:
        return
    levels = sorted(support)
    shares = np.zeros(errors.tree.num_levels)
    if not levels:
        found[support] = (np.inf, shares)
        return
    shares[levels] = closed_form_split(errors, budget)[levels]
    shares /= shares.sum()
    error = expected_rmsre(errors, budget, shares)
    if np.isfinite(error) and len(levels) > 1:
        shares = _best_shares(levels, shares, errors, budget)
        error = expected_rmsre(errors, budget, shares)
    found[support] = (error, shares)


def _best_shares(
    levels: list[int], start: FloatArray, errors: TreeErrors, budget: TreeBudget
) -> FloatArray:
    from scipy.optimize import minimize

    def shares_of(logits: FloatArray) -> FloatArray:
        shares = np.zeros(errors.tree.num_levels)
        weights = np.exp(np.append(logits, 0.0))
        shares[levels] = weights / weights.sum()
        return shares

    def objective(logits: FloatArray) -> float:
        return float(np.log(expected_rmsre(errors, budget, shares_of(logits))))

    logits = np.log(start[levels[:-1]] / start[levels[-1]])
    # Shares below exp(-14) of the last level's are the business of a smaller support.
    result = minimize(objective, logits, method="L-BFGS-B", bounds=[(-14.0, 14.0)] * len(logits))
    return shares_of(np.asarray(result.x))


def _check_budget(name: str, amount: float, max_steps: float, steps: int) -> None:
    if not 0 < amount < math.inf:
        raise ConfigError(f"{name}={amount} must be > 0 and finite, e.g. 1.0.")
    if not 0 < max_steps < math.inf:
        raise ConfigError(f"max_steps_per_unit={max_steps} must be > 0 and finite.")
    check_count("steps", steps)
