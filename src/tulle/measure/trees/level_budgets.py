"""How to split one budget over the levels of a tree.

Uniform shares are what people use; they can be worse than spending all on the leaves and adding
up. The best shares follow from what totals are like: the closed form is exact if each level
is used as it was measured, and `optimised_split` is for use after consistency. It may give a level
nothing: then the level is added up from the levels below.
"""

import numpy as np

from tulle.errors import ConfigError
from tulle.measure.trees.level_errors import TreeErrors, expected_rmsre
from tulle.measure.trees.level_noise import TreeBudget
from tulle.measure.trees.slice_tree import FloatArray, SliceTree

_Support = frozenset[int]


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
