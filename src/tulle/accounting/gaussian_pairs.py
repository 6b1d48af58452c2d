"""Profiles of Gaussian noise on sums whose rows were sampled.

A unit owns k rows; |S| = j of them enter a step with probability b_j, independently of
the data. Each row adds a vector of norm <= 1. The worst pair is then one
dimensional: mixtures of N(j, s^2) with weights b_j (Lebeda, Regehr, Kamath,
Steinke 2025 for k = 1; for k > 1 the half-line argument is the same: the probability
of any event is a 1-Lipschitz function of the shift on the probit scale).

Replace:        P = sum_j b_j N(+j), Q = sum_j b_j N(-j)
Add or remove:  P = sum_j b_j N(+j), Q = N(0), and the other order
"""

import functools
import math
from collections.abc import Callable, Iterator

import numpy as np
from scipy import special

from tulle.accounting.profiles import FloatArray, Profile, gaussian_profile, interpolated_profile

_ValueAndSlope = tuple[FloatArray, FloatArray]
_Loss = Callable[[FloatArray], _ValueAndSlope]
_MOST_NEWTON_STEPS = 60
"""Steps end long before; more would be a search that does not come to rest."""
_MOST_LEFT_OUT = 1e-30
"""Probability of the numbers of rows that a mixture leaves out: 1e-24 over a million steps."""
_TAIL_DEVIATIONS = 12.0
"""A Gaussian passes that many standard deviations with a probability below 1e-32."""
_MOST_SOLVED = 256
"""Epsilons that are solved one by one; for more a table is made."""
_LEAST_POINTS, _MOST_POINTS, _TABLE_VALUES = 2**13, 2**16, 2**21
"""Points of a table, fewer where each needs many rows, so that a table stays below 16 MiB."""
_BLOCK_VALUES = 2**19
"""Values that are computed at once, so that they fit into a cache."""


def sampled_gaussian_replace_profile(sampling_prob: float, noise_multiplier: float) -> Profile:
    """One row, replaced: (1-q) N(0) + q N(1) against (1-q) N(0) + q N(-1)."""
    q, s = sampling_prob, noise_multiplier
    if q == 1:
        return gaussian_profile(2 / s)
    log_alpha = math.log1p(-q) - math.log(q) + 0.5 / s**2

    def delta(epsilon: FloatArray) -> FloatArray:
        # Solves loss(x) = epsilon: x = s^2 (asinh(alpha sinh(epsilon/2)) + epsilon/2).
        x = s**2 * (_asinh_exp(log_alpha + _log_sinh(epsilon / 2)) + epsilon / 2)
        stay = np.exp(_log_expm1(epsilon) + special.log_ndtr(-x / s))
        move = special.ndtr((1 - x) / s) - np.exp(epsilon + special.log_ndtr(-(x + 1) / s))
        return np.maximum(0.0, q * move - (1 - q) * stay)

    return Profile(delta)


def sampled_gaussian_remove_profile(sampling_prob: float, noise_multiplier: float) -> Profile:
    """One row, added or removed: (1-q) N(0) + q N(1) against N(0), and the other order."""
    q, s = sampling_prob, noise_multiplier
    if q == 1:
        return gaussian_profile(1 / s)

    def remove(epsilon: FloatArray) -> FloatArray:
        # Solves 1 - q + q e^((2x - 1) / (2 s^2)) = e^epsilon.
        x = 0.5 + s**2 * np.logaddexp(0.0, _log_expm1(epsilon) - math.log(q))
        stay = np.exp(_log_expm1(epsilon) + special.log_ndtr(-x / s))
        return np.maximum(0.0, q * (special.ndtr((1 - x) / s) - special.ndtr(-x / s)) - stay)

    # The mixture has at least 1 - q of the density of N(0), so no loss of an added row is larger.
    largest_loss = -math.log1p(-q)

    def add(epsilon: FloatArray) -> FloatArray:
        inside = epsilon < largest_loss
        at = np.where(inside, epsilon, 0.0)
        # At the largest loss x is -inf, and both masses below it are zero.
        with np.errstate(divide="ignore"):
            x = 0.5 + s**2 * np.log1p(np.maximum(-1.0, np.expm1(-at) / q))
        # N(0) mass minus e^epsilon times the mixture's, both below x.
        stay = -(np.expm1(at) - q * np.exp(at)) * special.ndtr(x / s)
        value = stay - q * np.exp(at) * special.ndtr((x - 1) / s)
        return np.where(inside, np.maximum(0.0, value), 0.0)

    return Profile(remove, add)


def multi_row_replace_profile(weights: FloatArray, noise_multiplier: float) -> Profile:
    """A unit with several rows, replaced; `weights[j]` is the probability that j rows are used."""
    mixture = _Mixture(weights, noise_multiplier)

    def loss(x: FloatArray) -> _ValueAndSlope:
        (up, up_slope), (down, down_slope) = mixture.log_ratio(x), mixture.log_ratio(-x)
        return up - down, up_slope + down_slope

    def delta(x: FloatArray, epsilon: FloatArray) -> FloatArray:
        return mixture.sf(x) - np.exp(epsilon + mixture.log_cdf(-x))

    pair = _Pair(loss, delta, mixture, start=0.0, top=mixture.top)
    return Profile(pair.delta, infinite_prob=mixture.left_out_prob)


def multi_row_remove_profile(weights: FloatArray, noise_multiplier: float) -> Profile:
    """A unit with several rows, added or removed."""
    mixture = _Mixture(weights, noise_multiplier)
    s = noise_multiplier

    def removed(x: FloatArray, epsilon: FloatArray) -> FloatArray:
        return mixture.sf(x) - np.exp(epsilon + special.log_ndtr(-x / s))

    def added_loss(y: FloatArray) -> _ValueAndSlope:
        ratio, slope = mixture.log_ratio(-y)
        return -ratio, slope

    def added(y: FloatArray, epsilon: FloatArray) -> FloatArray:
        return special.ndtr(-y / s) - np.exp(epsilon + mixture.log_cdf(-y))

    remove = _Pair(mixture.log_ratio, removed, mixture, start=0.0, top=mixture.top)
    add = _Pair(added_loss, added, mixture, start=-float(weights.size), top=_TAIL_DEVIATIONS * s)
    # The mixture has at least b_0 of the density of N(0), which bounds the loss of an added unit.
    largest_loss = -math.log(weights[0]) if weights[0] > 0 else math.inf

    def add_delta(epsilon: FloatArray) -> FloatArray:
        inside = epsilon < largest_loss
        value = add.delta(np.where(inside, epsilon, 0.0))
        return np.where(inside, value, mixture.left_out_prob)

    return Profile(remove.delta, add_delta, infinite_prob=mixture.left_out_prob)


def sampled_switch_profile(sampling_prob: float, noise_multiplier: float) -> Profile:
    """One row of a Poisson batch whose binary label switches its bounded vector on or off.

    The batch does not look at labels, so with label 0 the row adds nothing in every batch, and
    with label 1 it adds its vector in the batches that it enters: (1-q) N(0) + q N(1) against
    N(0). That is the pair of an added or removed row, although the row stays and its label is
    replaced. A vector that turns round instead of going out needs the pair of a replaced row.

    The two orders of this pair differ. One label meets all steps of a run in one order. Two
    labels of a unit may be replaced together, one on and one off, and then the orders mix.
    """
    return sampled_gaussian_remove_profile(sampling_prob, noise_multiplier)


class _Mixture:
    """sum_j b_j N(j, s^2) and its log density ratio to N(0, s^2).

    Numbers of rows so large that one of them comes with a probability of at most
    `_MOST_LEFT_OUT` are left out, and if one comes the loss counts as infinite:
    [P - aQ]+ <= [P' - aQ']+ + P'' for P = P' + P'' and any Q >= Q'. Small numbers
    stay, however unlikely: they bound the loss where large ones have no density.
    """

    def __init__(self, weights: FloatArray, noise_multiplier: float) -> None:
        at_least = np.cumsum(weights[::-1])[::-1]
        num_kept = int(np.count_nonzero(at_least > _MOST_LEFT_OUT))
        self.left_out_prob = float(at_least[num_kept]) if num_kept < weights.size else 0.0
        used = np.flatnonzero(weights[:num_kept] > 0)
        self._shifts = used.astype(np.float64)
        self._weights = weights[used]
        self._s = noise_multiplier
        self._slopes = self._shifts / noise_multiplier**2
        self._offsets = np.log(self._weights) - 0.5 * (self._shifts / noise_multiplier) ** 2
        self.size = used.size
        self.step = float(self._shifts[-1]) + 1 + 10 * noise_multiplier
        self.top = float(self._shifts[-1]) + _TAIL_DEVIATIONS * noise_multiplier

    def log_ratio(self, x: FloatArray) -> _ValueAndSlope:
        value, slope = np.empty_like(x), np.empty_like(x)
        for block in self._blocks(x):
            terms = self._offsets + np.multiply.outer(x[block], self._slopes)
            largest = terms.max(axis=-1)
            np.exp(terms - largest[:, None], out=terms)
            total = terms.sum(axis=-1)
            value[block], slope[block] = np.log(total) + largest, terms @ self._slopes / total
        return value, slope

    def log_cdf(self, x: FloatArray) -> FloatArray:
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(self.sf(x, sign=-1.0)))

    def sf(self, x: FloatArray, *, sign: float = 1.0) -> FloatArray:
        """Mass above x; with sign -1 below it."""
        mass = np.empty_like(x)
        for block in self._blocks(x):
            below = np.subtract.outer(x[block], self._shifts)
            mass[block] = special.ndtr(below * (-sign / self._s)) @ self._weights
        return mass

    def _blocks(self, x: FloatArray) -> Iterator[slice]:
        rows = max(1, _BLOCK_VALUES // self.size)
        return (slice(start, start + rows) for start in range(0, x.size, rows))


class _Pair:
    """A pair on a line, turned so that its loss increases with x."""

    def __init__(
        self,
        loss: _Loss,
        delta_above: Callable[[FloatArray, FloatArray], FloatArray],
        mixture: _Mixture,
        *,
        start: float,
        top: float,
    ) -> None:
        """`delta_above(x, epsilon)` is P minus e^epsilon Q above x; P has no mass above `top`."""
        self._loss, self._delta_above, self._mixture = loss, delta_above, mixture
        self._start, self._top = start, top

    def delta(self, epsilon: FloatArray) -> FloatArray:
        """Solves few epsilons to the last digit, many by chords, which lie above by some 1e-6."""
        if epsilon.size > _MOST_SOLVED:
            return self._chords.forward(epsilon)
        return self._at(self._solve(epsilon), epsilon)

    @functools.cached_property
    def _chords(self) -> Profile:
        num_points = min(max(_TABLE_VALUES // self._mixture.size, _LEAST_POINTS), _MOST_POINTS)
        first = float(self._solve(np.zeros(1))[0])
        x = np.linspace(first, max(self._top, first + self._mixture.step), num_points)
        epsilons = np.maximum.accumulate(self._loss(x)[0])
        epsilons[0] = 0.0
        deltas = self._at(x, epsilons)
        # Near its largest value a bounded loss stands still.
        epsilons, kept = np.unique(np.maximum(epsilons, 0.0), return_index=True)
        return interpolated_profile(epsilons, deltas[kept])

    def _at(self, x: FloatArray, epsilon: FloatArray) -> FloatArray:
        inside = np.maximum(0.0, self._delta_above(x, epsilon))
        return np.minimum(1.0, inside + self._mixture.left_out_prob)

    def _solve(self, epsilon: FloatArray) -> FloatArray:
        return _solve_increasing(self._loss, epsilon, start=self._start, step=self._mixture.step)


def _solve_increasing(
    function: _Loss, targets: FloatArray, *, start: float, step: float
) -> FloatArray:
    """The x >= start with function(x) = target: a table, then Newton inside its brackets.

    An inexact x gives a test that is not the best one, so what is left of the
    error counts in delta by its square. Where a bounded function never reaches
    its target, the last table point is returned: both masses are zero there.
    """
    highest = float(np.max(targets, initial=0.0))
    reach = step
    # A bounded loss may never reach its target: the search ends far out.
    while float(function(np.array([start + reach]))[0][0]) < highest and reach < 1e8 * step:
        reach *= 2
    # Losses grow like an exponential at first and like a line far out.
    near, far = np.linspace(0.0, step, 2049), np.geomspace(step, 2 * reach, 1025)
    table_x = start + np.concatenate((near, far[1:]))
    table_y = np.maximum.accumulate(function(table_x)[0])
    index = np.clip(np.searchsorted(table_y, targets), 1, table_x.size - 1)
    low, high = table_x[index - 1], table_x[index]
    x = np.interp(targets, table_y, table_x)
    for _ in range(_MOST_NEWTON_STEPS):
        value, slope = function(x)
        excess = value - targets
        low, high = np.where(excess < 0, x, low), np.where(excess > 0, x, high)
        # Where the loss is flat a step goes out of its bracket, and is replaced by a bisection.
        moved = x - excess / np.maximum(slope, 1e-300)
        moved = np.where((moved >= low) & (moved <= high), moved, (low + high) / 2)
        is_done = np.abs(moved - x) <= 1e-13 * (1 + np.abs(x))
        x = moved
        if is_done.all():
            break
    return x


def _log_expm1(x: FloatArray) -> FloatArray:
    with np.errstate(divide="ignore"):
        return np.asarray(x + np.log(-np.expm1(-x)))


def _log_sinh(x: FloatArray) -> FloatArray:
    return _log_expm1(2 * x) - x - math.log(2)


def _asinh_exp(x: FloatArray) -> FloatArray:
    # asinh(y) = log(2 y) + 1 / (4 y^2) - ...: from y = e^20 on the rest is below rounding.
    return np.where(x > 20, x + math.log(2), np.arcsinh(np.exp(np.minimum(x, 20))))
