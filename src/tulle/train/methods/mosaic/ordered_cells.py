"""A prior for cells along bins that lie in order: neighbouring bins are thought to be alike.

The effect of the cell at bin i of a chain is b_i = u_i + e_i. The first part goes from bin to bin
in small normal steps (a random walk), and around a cycle it comes back to where it began; the
second is each cell's own. A table has one chain for each combination of values of its other
columns. How large the steps, the levels of chains and the own parts are is learnt from all chains
together by marginal likelihood. So is whether this explains the sums better than cells that have
nothing to do with each other.

What the sums of a cell say is approximated by a normal likelihood, in a few rounds about what the
walk says of the cell. Along a chain these are combined exactly: by a filter from each end on a
line, by the inverse of a small matrix on a cycle. What a cell's neighbours say then becomes its
prior, and the cell's own likelihood is used as it is (`shrinkage`).

All of it is post-processing of noisy sums, so nothing here can cost privacy.
"""

import dataclasses
import itertools
import math
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from tulle.train.methods.mosaic.cell_likelihood import (
    GRID,
    SPREADS,
    CellLikelihood,
    log_normal,
    parts_of,
)

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

_LEVELS, _STEPS = (0.05, 0.3, 1.0), (0.01, 0.02, 0.04, 0.08, 0.16, 0.32)
"""Standard deviations that the first bin of a chain may have, and a step from one bin to the next:
those of a table of one column."""
_LEVELS_OF_PAIRS, _STEPS_OF_PAIRS = (0.03, 0.1, 0.3), (0.01, 0.02, 0.04, 0.08)
"""The same where a table has several chains. What is left when single columns are known is smaller;
in cells of a few labels under much noise, a large effect could be read into any sum."""
_OWN = (0.0, 0.03, 0.1, 0.3)
"""Standard deviations that the own part of a cell may have."""
_LEAST_ADVANTAGE = 2.0
"""Nats by which a walk must explain the sums better than independent cells do: it is the bolder
guess, as cells then move together."""
_ROUNDS = 3
"""Rounds in which normal likelihoods and the walk improve each other; then they hardly change."""
_MOST_LEARNT_FROM = 1 << 15
"""Largest number of cells that the variances are learnt from, of the chains that tell most."""
_CHAINS_AT_A_TIME = 1 << 12
"""Chains on a cycle whose matrices are inverted together: 24 by 24 numbers each then take 19 MB."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class OrderedAxis:
    """A column of a table whose values are bins in order, and where they are among the cells."""

    sizes: tuple[int, ...]
    """Number of values of each column of the table."""
    place: int
    """Place of the ordered column among them."""
    num_bins: int
    """Number of its values that lie in order: those from 1 on. The others stand apart."""
    is_cycle: bool

    @property
    def chains(self) -> IntArray:
        """[chains, bins]: the cells of each chain, in order."""
        cells = np.arange(math.prod(self.sizes)).reshape(self.sizes)
        last = np.moveaxis(cells, self.place, -1)[..., 1 : self.num_bins + 1]
        return last.reshape(-1, self.num_bins)


@dataclasses.dataclass(frozen=True, kw_only=True)
class WalkPrior:
    """Variances of a random walk with own parts. Learnt from noisy sums."""

    level: float
    """Variance of the first bin of a chain; on a cycle of the mean of its bins."""
    step: float
    """Variance of a step from one bin to the next."""
    own: float
    """Variance of the own part of a cell."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Sites:
    """What the sums of each cell say about its effect, as normal likelihoods: [chains, bins]."""

    means: FloatArray
    precisions: FloatArray
    """Inverse variances; 0 where the sums of a cell say nothing."""

    def rows(self, chosen: IntArray) -> "Sites":
        """The sites of some chains."""
        return Sites(means=self.means[chosen], precisions=self.precisions[chosen])


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class FittedWalk:
    """A walk along one column of a table, and what it explains beyond independent cells."""

    axis: OrderedAxis
    sites: Sites
    """What the sums of the cells of all chains say."""
    prior: WalkPrior
    advantage: float
    """Nats by which it explains the sums better than independent effects do."""

    def refined(self, likelihood: CellLikelihood, live: IntArray, num_cells: int) -> "FittedWalk":
        """The same walk by normal likelihoods about what it says itself, after a few rounds.

        Args:
          likelihood: What the sums of cells say.
          live: Cells whose sums say something.
          num_cells: Number of all cells.
        """
        walk, chains, centres = self, self.axis.chains, np.zeros(num_cells)
        for _ in range(_ROUNDS):
            others, variances = walk.neighbours()
            told = variances * walk.sites.precisions
            whole = (others + told * walk.sites.means) / (1 + told)
            centres[chains] = np.clip(whole, GRID[0], GRID[-1])
            # The variances stay: learnt anew about what was fitted, they would only grow.
            walk = dataclasses.replace(walk, sites=_sites(likelihood, live, centres, chains))
        return walk

    def neighbours(self) -> tuple[FloatArray, FloatArray]:
        """What all other cells of its chain say about each cell: mean and variance."""
        return neighbours_say(self.sites, self.prior, is_cycle=self.axis.is_cycle)

    def change(
        self,
        likelihood: CellLikelihood,
        live: IntArray,
        log_odds: FloatArray,
        variances: FloatArray,
    ) -> float:
        """Sets changes and prior variances of the cells of all chains, in place.

        A cell whose own sums say nothing gets what its neighbours say.

        Args:
          likelihood: What the sums of cells say.
          live: Cells whose sums say something.
          log_odds: [cells]: changes of log odds.
          variances: [cells]: variances of the prior of each cell.

        Returns:
          How far effects spread about 0, as a standard deviation.
        """
        chains, (means, told) = self.axis.chains, self.neighbours()
        centres = np.zeros(len(log_odds))
        centres[chains], variances[chains], log_odds[chains] = means, told, means
        is_chained = np.zeros(len(log_odds), np.bool_)
        is_chained[chains] = True
        chained = live[is_chained[live]]
        for part in parts_of(chained):
            prior = log_normal(variances[part], centres[part])
            log_odds[part] = likelihood.posterior_log_odds(part, prior)
        return math.sqrt(float(np.mean(centres[chained] ** 2 + variances[chained])))


def fitted_walk(
    likelihood: CellLikelihood, live: IntArray, axes: Sequence[OrderedAxis], num_cells: int
) -> FittedWalk | None:
    """The walk that explains the sums of a table best; None if independent cells do as well.

    Args:
      likelihood: What the sums of cells say.
      live: Cells whose sums say something.
      axes: Columns of the table whose values lie in order.
      num_cells: Number of all cells.
    """
    best: FittedWalk | None = None
    for axis in axes:
        # About no change, where a sum that is nothing but noise tells neither prior anything.
        # About what was fitted, each would look better than it is.
        sites = _sites(likelihood, live, np.zeros(num_cells), axis.chains)
        prior, advantage = learnt_walk(sites)
        if advantage > (_LEAST_ADVANTAGE if best is None else best.advantage):
            best = FittedWalk(axis=axis, sites=sites, prior=prior, advantage=advantage)
    return None if best is None else best.refined(likelihood, live, num_cells)


def _sites(
    likelihood: CellLikelihood, live: IntArray, centres: FloatArray, chains: IntArray
) -> "Sites":
    """Normal likelihoods of the cells of chains, about some changes of theirs."""
    means, precisions = np.zeros((2, len(centres)))
    means[live], precisions[live] = likelihood.normal_sites(live, centres[live])
    return Sites(means=means[chains], precisions=precisions[chains])


def learnt_walk(sites: Sites) -> tuple[WalkPrior, float]:
    """The variances that explain the sites best, and by how much.

    Args:
      sites: What the sums of the cells of all chains say.

    Returns:
      The prior, and the nats by which it explains the sites better than independent effects do, or
      no effects. On a cycle they are those of the cycle cut open.
    """
    told = (sites.precisions * sites.means**2).sum(axis=1)
    most = max(1, _MOST_LEARNT_FROM // sites.means.shape[1])
    largest = np.argsort(-told, kind="stable")[:most]
    is_alone = len(sites.means) == 1
    levels, steps = (_LEVELS, _STEPS) if is_alone else (_LEVELS_OF_PAIRS, _STEPS_OF_PAIRS)
    grid = [
        WalkPrior(level=level**2, step=step**2, own=own**2)
        for level, step, own in itertools.product(levels, steps, _OWN)
    ]
    chosen = sites.rows(largest)
    evidences = walk_evidences(chosen, grid)
    best = int(evidences.argmax())
    # Of all variances together, not of the best ones: so many of them would fit any noise.
    most = float(evidences[best])
    whole = most + math.log(float(np.mean(np.exp(evidences - most))))
    others = max(0.0, float(independent_evidences(chosen, SPREADS).max()))
    return grid[best], whole - others


def walk_evidences(sites: Sites, priors: Sequence[WalkPrior]) -> FloatArray:
    """Nats by which each prior explains the sites better than no effect does.

    Args:
      sites: What the sums of the cells of chains on a line say.
      priors: The priors to compare.
    """
    level, step, own = (
        np.array([getattr(prior, name) for prior in priors])[:, None]
        for name in ("level", "step", "own")
    )
    mean = np.zeros((len(priors), len(sites.means)))
    variance = np.broadcast_to(level, mean.shape)
    total = np.zeros(len(priors))
    for seen, precision in _bins(sites):
        # The Kalman filter, with the precision of a site in place of its variance, which may be
        # infinite.
        ratio = 1 + (variance + own) * precision
        logs = seen**2 * precision - (seen - mean) ** 2 * precision / ratio - np.log(ratio)
        total += 0.5 * logs.sum(axis=1)
        gain = variance * precision / ratio
        mean = mean + gain * (seen - mean)
        variance = variance * (1 - gain) + step
    return total


def independent_evidences(sites: Sites, spreads: FloatArray) -> FloatArray:
    """Nats by which independent effects of each spread explain the sites better than no effect."""
    precision, told = sites.precisions, sites.precisions * sites.means**2
    ratios = 1 + np.square(spreads)[:, None, None] * precision
    evidences: FloatArray = 0.5 * (told - told / ratios - np.log(ratios)).sum(axis=(1, 2))
    return evidences


def neighbours_say(
    sites: Sites, prior: WalkPrior, *, is_cycle: bool
) -> tuple[FloatArray, FloatArray]:
    """Mean and variance of each cell's effect given the sites of all other cells of its chain.

    Args:
      sites: What the sums of the cells of all chains say.
      prior: Variances of the walk.
      is_cycle: Whether the last bin is beside the first one.
    """
    own_precisions = sites.precisions / (1 + prior.own * sites.precisions)
    seen = Sites(means=sites.means, precisions=own_precisions)
    means, variances = _on_a_cycle(seen, prior) if is_cycle else _on_a_line(seen, prior)
    return means, variances + prior.own


def _on_a_line(sites: Sites, prior: WalkPrior) -> tuple[FloatArray, FloatArray]:
    """What all others say about the walk at each bin, by a filter from each end."""
    means, variances = np.empty_like(sites.means), np.empty_like(sites.means)
    mean, variance = np.zeros(len(means)), np.full(len(means), prior.level)
    for place, (seen, precision) in enumerate(_bins(sites)):
        means[:, place], variances[:, place] = mean, variance
        gain = variance * precision / (1 + variance * precision)
        mean = mean + gain * (seen - mean)
        variance = variance * (1 - gain) + prior.step
    # From the other end nothing is known at first, so this one counts precisions.
    told, certainty = np.zeros(len(means)), np.zeros(len(means))
    for place in range(means.shape[1] - 1, -1, -1):
        shrinking = 1 + certainty * variances[:, place]
        means[:, place] = (means[:, place] + told * variances[:, place]) / shrinking
        variances[:, place] /= shrinking
        precision = sites.precisions[:, place]
        certainty, told = certainty + precision, told + precision * sites.means[:, place]
        shrinking = 1 + prior.step * certainty
        certainty, told = certainty / shrinking, told / shrinking
    return means, variances


def _on_a_cycle(sites: Sites, prior: WalkPrior) -> tuple[FloatArray, FloatArray]:
    """What all others say about the walk at each bin of a cycle, by small inverse matrices."""
    size = sites.means.shape[1]
    steps = np.eye(size) - np.roll(np.eye(size), 1, axis=1)
    walk = steps.T @ steps / prior.step + np.full((size, size), 1 / (size**2 * prior.level))
    means, variances = np.empty_like(sites.means), np.empty_like(sites.means)
    for start in range(0, len(means), _CHAINS_AT_A_TIME):
        part = slice(start, start + _CHAINS_AT_A_TIME)
        seen, precisions = sites.means[part], sites.precisions[part]
        inverses = np.linalg.inv(walk + precisions[:, :, None] * np.eye(size))
        whole = np.einsum("cij,cj->ci", inverses, precisions * seen)
        spread = np.einsum("cii->ci", inverses)
        # Taking a cell's own site out again leaves what the others say.
        left = 1 - spread * precisions
        variances[part] = spread / left
        means[part] = (whole - spread * precisions * seen) / left
    return means, variances


def _bins(sites: Sites) -> Iterator[tuple[FloatArray, FloatArray]]:
    """Means and precisions of all chains, bin after bin."""
    for place in range(sites.means.shape[1]):
        yield sites.means[:, place], sites.precisions[:, place]
