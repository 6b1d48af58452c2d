"""What the server may believe about a device's click probabilities.

The logit of a device's probability is a public part plus a normal private part, independent across
candidates. The server's prediction is the mean of the device's probability given the public part.
So one number, the standard deviation of the private part, turns public predictions into the law
of what devices will find: how much there is to gain from personalisation.

Integrals over the best of several device scores are sums over a few points of each auction.
Auctions come as rectangles small enough for the cache, each ordered by server score, so that the
first k columns are the finalists of a shortlist of k. Points are equally spaced in the logarithm of
the score. What is summed falls to 0 at both ends and is smooth, so that the error falls
exponentially in the number of points. About 32 of them do where click probabilities are small;
those near 1 crowd below the bid and take more. How many follows from each auction alone, so that
what is found for it does not depend on those around it.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import TypeAlias, TypeVar

import numpy as np

from tulle.data.threads import map_in_order
from tulle.errors import ConfigError, DataError
from tulle.select.auctions import Auctions, DeviceClicks, FloatArray, IntArray, SizeGroup

LEAST_STDDEV, LARGEST_STDDEV = 0.01, 2.5
"""Bounds of the private standard deviation: with less there is nothing to gain, with more the
integrals over a prior would need more points."""
_LARGEST_LOGIT = 30.0
"""Logit beyond which a probability is 1 as far as floats can tell."""
_LOGIT_STEP = 1 / 64
"""Distance of the points between which the shift of a logit is interpolated, to 1e-5."""
# Sums over normal deviates: their step leaves an error of 1e-12, and less is beyond their end.
_DEVIATE_STEP = 0.25
_LARGEST_DEVIATE = 8.5
FINE_STEP, COARSE_STEP = 0.3, 0.6
"""Widths of a step, in standard deviations of a score's logarithm: errors below 1e-4 and 1e-3."""
_LOWEST_DEVIATE, _HIGHEST_DEVIATE = -4.5, 4.2
"""Private parts, in standard deviations, beyond which too little lies to change 1e-4 of a mean."""
_MIN_NODES, _MAX_NODES = 16, 4096
"""Fewest and most points of an auction."""
_SQRT_TAU = float(np.sqrt(2 * np.pi))
"""Constant of the normal density."""
_LEAST_BID = 1e-200
"""Divisor in place of a bid of 0."""
Result = TypeVar("Result")


@dataclasses.dataclass(frozen=True, kw_only=True)
class LogitNormalPrior:
    """The law of a device's click probability given the server's. Public."""

    private_stddev: float
    """Standard deviation of the part of the logit that only the device knows."""

    def __post_init__(self) -> None:
        if not LEAST_STDDEV <= self.private_stddev <= LARGEST_STDDEV:
            raise ConfigError(
                f"private_stddev={self.private_stddev} must be between {LEAST_STDDEV} and "
                f"{LARGEST_STDDEV}, e.g. 0.5; with less there is nothing to personalise."
            )

    def mean_click_probs(self, public_logits: FloatArray) -> FloatArray:
        """What a calibrated server predicts, to 1e-12 relative."""
        # A sum over equal steps: for a smooth function that ends at 0 on both sides its error
        # falls exponentially in the number of steps.
        deviates = np.arange(-_LARGEST_DEVIATE, _LARGEST_DEVIATE + _DEVIATE_STEP, _DEVIATE_STEP)
        weights = np.exp(-(deviates**2) / 2)
        means = np.zeros(np.shape(public_logits))
        for deviate, weight in zip(deviates, weights / weights.sum(), strict=True):
            means += weight * logistic(public_logits + self.private_stddev * deviate)
        return means

    def public_logits(self, server_click_probs: FloatArray) -> FloatArray:
        """The public part behind a calibrated prediction, to 1e-5.

        It is -infinity for a probability of 0, and 30 for those too near to 1 to tell.
        """
        knots, shifts = _logit_shifts(self.private_stddev)
        with np.errstate(divide="ignore"):
            logits = np.log(server_click_probs) - np.log1p(-server_click_probs)
        return np.asarray(np.minimum(logits + np.interp(logits, knots, shifts), _LARGEST_LOGIT))

    def score_cdf(self, scores: FloatArray, bids: FloatArray, logits: FloatArray) -> FloatArray:
        """Probability that a device's score (bid times click probability) is at most `scores`.

        Args:
          scores: > 0.
          bids: > 0.
          logits: Public parts.
        """
        from scipy.special import ndtr

        return np.asarray(ndtr(self.deviates(scores, bids, logits)))

    def deviates(self, scores: FloatArray, bids: FloatArray, logits: FloatArray) -> FloatArray:
        """The private part, in standard deviations, that leads to each score.

        Args:
          scores: > 0.
          bids: > 0.
          logits: Public parts.
        """
        probs = np.minimum(scores / bids, 1 - 1e-16)
        return np.asarray((np.log(probs / (1 - probs)) - logits) / self.private_stddev)

    def score_quantiles(
        self, deviates: FloatArray | float, bids: FloatArray, logits: FloatArray
    ) -> FloatArray:
        """Scores of devices whose private part is so many standard deviations.

        Args:
          deviates: Private parts, in standard deviations.
          bids: >= 0.
          logits: Public parts.
        """
        return np.asarray(bids * logistic(logits + self.private_stddev * deviates))


def draw_devices(auctions: Auctions, prior: LogitNormalPrior, *, seed: int) -> DeviceClicks:
    """One device for each auction, drawn from public data: nobody's predictions.

    Args:
      auctions: The public side.
      prior: What devices may find.
      seed: Fixes the draw.
    """
    generator = np.random.Generator(np.random.PCG64(seed))
    deviates = generator.standard_normal(auctions.num_candidates)
    logits = prior.public_logits(auctions.server_click_probs)
    probs = prior.score_quantiles(deviates, np.ones(auctions.num_candidates), logits)
    return DeviceClicks(click_probs=probs)


def private_stddev_of_sample(auctions: Auctions, device: DeviceClicks) -> float:
    """The standard deviation under which predictions of devices are most likely.

    Args:
      auctions: The public side.
      device: Predictions for all candidates, none of them 0 or 1.

    Privacy:
      None: the result is computed from predictions of devices and is not noised. Use it on data
      that may be known, such as those of a panel, and never on those of the devices that the
      plan is for.
    """
    if device.click_probs.shape != auctions.bids.shape:
        raise ConfigError("predictions of devices must be those of the same candidates.")
    for probs in (auctions.server_click_probs, device.click_probs):
        if np.any((probs <= 0) | (probs >= 1)):
            raise DataError(
                "a click probability of 0 or 1 has no logit; leave out these candidates first."
            )
    from scipy.optimize import minimize_scalar

    logits = np.log(device.click_probs) - np.log1p(-device.click_probs)

    def loss(stddev: float) -> float:
        prior = LogitNormalPrior(private_stddev=stddev)
        deviates = (logits - prior.public_logits(auctions.server_click_probs)) / stddev
        return float(np.log(stddev) + np.mean(deviates**2) / 2)

    bounds = (LEAST_STDDEV, LARGEST_STDDEV)
    return float(minimize_scalar(loss, bounds=bounds, method="bounded").x)


def logistic(logits: FloatArray) -> FloatArray:
    """Probabilities that logits stand for."""
    from scipy.special import expit

    return np.asarray(expit(logits))


@functools.lru_cache(maxsize=64)
def _logit_shifts(private_stddev: float) -> tuple[FloatArray, FloatArray]:
    """Logits of server predictions, and what to add for the public part; constant beyond."""
    prior = LogitNormalPrior(private_stddev=private_stddev)
    public = np.arange(-_LARGEST_LOGIT, _LARGEST_LOGIT + _LOGIT_STEP, _LOGIT_STEP)
    # 1 - E p is the mean probability at the opposite logit: nothing cancels near 1.
    knots = np.log(prior.mean_click_probs(public)) - np.log(prior.mean_click_probs(-public))
    return knots, public - knots


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class RankedRows:
    """Auctions of equal size, one a row, best server score first; ties by their order."""

    auctions: IntArray
    """[rows], the number of each auction."""
    places: IntArray
    """[rows, candidates], where each is in the arrays of all auctions."""
    bids: FloatArray
    """[rows, candidates]"""
    click_probs: FloatArray
    """[rows, candidates], the server's."""
    logits: FloatArray
    """[rows, candidates], public parts."""

    @property
    def server_scores(self) -> FloatArray:
        """[rows, candidates], not rising along a row."""
        return self.bids * self.click_probs

    @property
    def bids_above_zero(self) -> FloatArray:
        """[rows, candidates], to divide by: a bid of 0 is as good as the least bid there is."""
        return np.maximum(self.bids, _LEAST_BID)

    def take(self, numbers: IntArray) -> "RankedRows":
        """Some of the rows."""
        fields = [field.name for field in dataclasses.fields(self)]
        return RankedRows(**{name: getattr(self, name)[numbers] for name in fields})


RowFunction: TypeAlias = Callable[[RankedRows], Result]


def map_ranked_rows(
    function: RowFunction[Result],
    auctions: Auctions,
    prior: LogitNormalPrior,
    *,
    rows_per_chunk: int = 512,
) -> Iterator[tuple[RankedRows, Result]]:
    """Applies a function to all auctions, some at a time, on all cores.

    Args:
      function: Function of auctions of equal size, safe to call from several threads.
      auctions: The public side.
      prior: What devices may find.
      rows_per_chunk: Number of auctions of a call; what the function keeps for them should fit the
        cache.
    """
    logits = prior.public_logits(auctions.server_click_probs)

    def ranked(group: SizeGroup) -> tuple[RankedRows, Result]:
        places = group.places
        rows = RankedRows(
            auctions=group.auctions,
            places=places,
            bids=auctions.bids[places],
            click_probs=auctions.server_click_probs[places],
            logits=logits[places],
        )
        return rows, function(rows)

    return map_in_order(ranked, auctions.ranked_groups(auctions.server_scores, rows_per_chunk))


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class ScoreNodes:
    """The points of each auction of a rectangle, and the law of each candidate at them."""

    rows: RankedRows
    prior: LogitNormalPrior
    scores: FloatArray
    """[nodes, rows]"""
    steps: FloatArray
    """[rows], in the logarithm of the score."""

    def deviates(self, rank: int) -> FloatArray:
        """[nodes, rows], the private part of one candidate that leads to each score."""
        return self.prior.deviates(
            self.scores, self.rows.bids_above_zero[:, rank], self.rows.logits[:, rank]
        )

    def cdf(self, rank: int) -> FloatArray:
        """[nodes, rows], probability that one candidate's score is at most that of the node."""
        return self.prior.score_cdf(
            self.scores, self.rows.bids_above_zero[:, rank], self.rows.logits[:, rank]
        )

    def cdf_and_density(self, rank: int) -> tuple[FloatArray, FloatArray]:
        """The same, and the density in the logarithm of the score."""
        from scipy.special import ndtr

        deviates = self.deviates(rank)
        doubts = np.maximum(1 - self.click_probs(rank), 1e-16)
        density = np.exp(-(deviates**2) / 2) / (_SQRT_TAU * self.prior.private_stddev * doubts)
        return np.asarray(ndtr(deviates)), density

    def click_probs(self, rank: int) -> FloatArray:
        """[nodes, rows], the click probability of one candidate that has the score of the node."""
        return np.minimum(self.scores / self.rows.bids_above_zero[:, rank], 1.0)

    def integral(self, values: FloatArray) -> FloatArray:
        """[rows], of values [nodes, rows] over the logarithm of the score."""
        return np.asarray(values.sum(axis=0) * self.steps)


def score_nodes(
    rows: RankedRows,
    prior: LogitNormalPrior,
    *,
    step: float = FINE_STEP,
    num_above: int | None = None,
) -> Iterator[tuple[IntArray, ScoreNodes]]:
    """Nodes from what is hardly ever undercut to what no candidate ever exceeds.

    Args:
      rows: Auctions of equal size.
      prior: What devices may find.
      step: Distance of nodes, in standard deviations of the logarithm of a score, where it varies
        least.
      num_above: Nodes start where more than so many candidates are above almost surely; by
        default where the first by server score is.

    Yields:
      Auctions that take equally many nodes, as numbers of rows, with their nodes.
    """
    lowest, highest = _ends(rows, prior, num_above)
    spans = np.maximum(np.log(highest) - np.log(lowest), 0.0)
    nums_nodes = _nums_nodes(spans / step, rows, prior)
    for num_nodes in np.unique(nums_nodes).tolist():
        chosen = np.flatnonzero(nums_nodes == num_nodes)
        steps = spans[chosen] / (num_nodes - 1)
        scores = lowest[chosen] * np.exp(np.arange(num_nodes)[:, np.newaxis] * steps)
        yield chosen, ScoreNodes(rows=rows.take(chosen), prior=prior, scores=scores, steps=steps)


def _ends(
    rows: RankedRows, prior: LogitNormalPrior, num_above: int | None
) -> tuple[FloatArray, FloatArray]:
    """[rows] each, the least and the largest score of a node."""
    lowest = prior.score_quantiles(_LOWEST_DEVIATE, rows.bids, rows.logits)
    if num_above is None:
        lowest = lowest[:, 0]
    else:
        lowest = -np.partition(-lowest, num_above, axis=1)[:, num_above]
    # A mean gives weight to large scores: as much as if deviates were larger by the stddev.
    farthest = _HIGHEST_DEVIATE + prior.private_stddev
    highest = prior.score_quantiles(farthest, rows.bids, rows.logits).max(axis=1)
    # Scores of 0 for sure are never reached: a single node above them, of weight 0.
    has_scores = lowest > 0
    return np.where(has_scores, lowest, 1.0), np.where(has_scores, highest, 1.0)


def _nums_nodes(num_steps: FloatArray, rows: RankedRows, prior: LogitNormalPrior) -> IntArray:
    """[rows], enough for d log score = (1 - click probability) d logit; few different numbers."""
    stddev = prior.private_stddev
    likely = logistic(rows.logits.max(axis=1) + max(2.0, 2 * stddev) * stddev)
    needed = num_steps / (stddev * np.maximum(1 - likely, 1e-6)) + 1
    doublings = np.log2(np.clip(needed, _MIN_NODES, _MAX_NODES) / _MIN_NODES)
    return np.asarray(np.ceil(_MIN_NODES * 2 ** (np.ceil(doublings * 3) / 3)), np.int64)
