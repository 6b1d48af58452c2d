"""How much noise each level of a tree gets from its share of one budget.

A unit that is in one leaf is in one node of every level, so levels share the budget: their shares
add up to 1. Under pure epsilon a level with share s has noise of s * epsilon; under Gaussian noise
(zero-concentrated privacy, rho = sensitivity^2 / (2 variance)) the shares are of rho, so that the
inverse variances add up.
"""

import dataclasses
import math

import numpy as np
import numpy.typing as npt

from tulle.errors import ConfigError
from tulle.measure.trees.slice_tree import FloatArray
from tulle.mechanisms.discrete_laplace import DiscreteLaplaceConfig
from tulle.mechanisms.exact import MAX_SCALE
from tulle.privacy.fields import check_count
from tulle.privacy.units import Adjacency


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
        """Of the noise of a level, in totals; infinite without a share."""
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
        """Of the noise of a level, in totals; infinite without a share."""
        if share <= 0:
            return math.inf
        return (self.max_steps_per_unit / self.steps) ** 2 / (2 * self.rho * share)


TreeBudget = LaplaceLevels | GaussianLevels


def level_variances(budget: TreeBudget, shares: npt.ArrayLike) -> FloatArray:
    """[levels], the variance of the noise of each level; infinite where the share is 0.

    Args:
      budget: Of all levels together.
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


def _check_budget(name: str, amount: float, max_steps: float, steps: int) -> None:
    if not 0 < amount < math.inf:
        raise ConfigError(f"{name}={amount} must be > 0 and finite, e.g. 1.0.")
    if not 0 < max_steps < math.inf:
        raise ConfigError(f"max_steps_per_unit={max_steps} must be > 0 and finite.")
    check_count("steps", steps)
