"""Independent hockey-stick divergences: what every profile is compared with.

Nothing here uses the code under test. Continuous pairs are integrated on a fine
grid in log space, discrete pairs are summed, and sampled sums over tiny data
sets are enumerated batch by batch.
"""

import functools
import itertools
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import mpmath
import numpy as np
from numpy.typing import NDArray
from scipy import special

FloatArray = NDArray[np.float64]
Mixture = Mapping[float, float]
"""Chances of the shifts of a noisy number."""


def shift_weights(weights: Sequence[float], sign: int = 1) -> Mixture:
    """The mixture that moves by j (or -j) with chance weights[j]."""
    return {sign * j: float(w) for j, w in enumerate(weights) if w > 0}


def divergence(log_p: FloatArray, log_q: FloatArray, epsilons: Iterable[float]) -> FloatArray:
    """Sums [p - e^epsilon q]+ over points of equal volume, at each epsilon."""
    p, loss = np.exp(log_p), log_p - log_q
    return np.array(
        [math.fsum((p * -np.expm1(np.minimum(0.0, e - loss))).ravel()) for e in epsilons]
    )


def gaussian_delta(
    p: Mixture, q: Mixture, stddev: float, epsilons: Iterable[float], points_per_stddev: int = 500
) -> FloatArray:
    """Gaussian noise on two mixtures of shifts, integrated by midpoints."""
    grid = _grid(p, q, stddev, points_per_stddev)
    log_step = math.log(stddev / points_per_stddev)
    log_p, log_q = (log_gaussian(grid, m, stddev) + log_step for m in (p, q))
    return divergence(log_p, log_q, epsilons)


def log_gaussian(grid: FloatArray, mixture: Mixture, stddev: float) -> FloatArray:
    """Log density of noise on a mixture of shifts."""
    terms = [
        math.log(weight) - 0.5 * ((grid - shift) / stddev) ** 2 for shift, weight in mixture.items()
    ]
    return np.logaddexp.reduce(terms, axis=0) - math.log(stddev * math.sqrt(2 * math.pi))


def laplace_delta(
    p: Mixture, q: Mixture, scale: float, epsilons: Iterable[float], points: int = 400_000
) -> FloatArray:
    """Laplace noise on two mixtures of shifts, integrated by midpoints."""
    low, high = min((*p, *q)) - 45 * scale, max((*p, *q)) + 45 * scale
    step = (high - low) / points
    grid = low + step * (np.arange(points) + 0.5)
    log_p, log_q = (log_laplace(grid, m, scale) + math.log(step) for m in (p, q))
    return divergence(log_p, log_q, epsilons)


def log_laplace(grid: FloatArray, mixture: Mixture, scale: float) -> FloatArray:
    """Log density of Laplace noise on a mixture of shifts."""
    terms = [math.log(w) - np.abs(grid - shift) / scale for shift, w in mixture.items()]
    return np.logaddexp.reduce(terms, axis=0) - math.log(2 * scale)


def discrete_delta(
    p: Mixture, q: Mixture, scale: float, epsilons: Iterable[float], power: int
) -> FloatArray:
    """Integer noise, mass ~ exp(-|i|^power / (power scale^power)), on integer mixtures."""
    reach = math.ceil((45 if power == 1 else 12) * scale) + 40
    low, high = int(min((*p, *q))) - reach, int(max((*p, *q))) + reach
    grid = np.arange(low, high + 1, dtype=np.float64)
    log_p, log_q = (_log_discrete(grid, m, scale, power) for m in (p, q))
    return divergence(log_p, log_q, epsilons)


def _log_discrete(grid: FloatArray, mixture: Mixture, scale: float, power: int) -> FloatArray:
    noise = -((np.abs(np.arange(-grid.size, grid.size + 1)) / scale) ** power) / power
    norm = special.logsumexp(noise)
    terms = [
        math.log(w) - (np.abs(grid - shift) / scale) ** power / power - norm
        for shift, w in mixture.items()
    ]
    return np.logaddexp.reduce(terms, axis=0)


def exact_gaussian_delta(p: Mixture, q: Mixture, stddev: float, epsilon: float) -> float:
    """To 30 digits, for pairs whose loss increases along the line."""
    with mpmath.workdps(50):
        s, e = mpmath.mpf(stddev), mpmath.mpf(epsilon)

        def log_density(mixture: Mixture, x: mpmath.mpf) -> mpmath.mpf:
            return mpmath.log(
                mpmath.fsum(
                    mpmath.mpf(w) * mpmath.exp((2 * x * m - m * m) / (2 * s * s))
                    for m, w in mixture.items()
                )
            )

        low, high = mpmath.mpf(-1_000_000), mpmath.mpf(1_000_000)
        for _ in range(130):
            middle = (low + high) / 2
            below = log_density(p, middle) - log_density(q, middle) < e
            low, high = (middle, high) if below else (low, middle)

        def tail(mixture: Mixture) -> mpmath.mpf:
            return mpmath.fsum(
                mpmath.mpf(w) * mpmath.erfc((low - m) / s / mpmath.sqrt(2)) / 2
                for m, w in mixture.items()
            )

        return float(tail(p) - mpmath.exp(e) * tail(q))


def poisson_sums(
    rows: Sequence[int], sampling_prob: float, max_batch_size: int | None = None
) -> Mixture:
    """Sum of a Poisson batch, cut to a uniform subset if it is too large."""
    sums: Counter[float] = Counter()
    for size in range(len(rows) + 1):
        kept = size if max_batch_size is None else min(size, max_batch_size)
        chance = sampling_prob**size * (1 - sampling_prob) ** (len(rows) - size)
        batches = list(itertools.combinations(rows, kept))
        # Each kept subset is as likely as any other, by symmetry of the rows.
        share = chance * math.comb(len(rows), size) / len(batches)
        for batch in batches:
            sums[sum(batch)] += share
    return {s: w for s, w in sums.items() if w > 0}


def fixed_size_sums(rows: Sequence[int], batch_size: int) -> Mixture:
    """Sum of a uniform batch of exactly `batch_size` rows."""
    batches = list(itertools.combinations(rows, batch_size))
    sums = Counter(sum(batch) for batch in batches)
    return {s: count / len(batches) for s, count in sums.items()}


@functools.cache
def small_data_sets(num_rows: int) -> tuple[tuple[int, ...], ...]:
    """All data sets of contributions -1, 0 and 1, up to order."""
    return tuple(itertools.combinations_with_replacement((-1, 0, 1), num_rows))


def randomized_response_delta(epsilon: float, num_values: int, count: int, at: float) -> float:
    """`count` responses together: the exact sum over all numbers of telling outcomes."""
    with mpmath.workdps(60):
        e = mpmath.mpf(epsilon)
        truth = 1 / (1 + (num_values - 1) * mpmath.exp(-e))
        lie = truth * mpmath.exp(-e)
        silent = 1 - truth - lie if num_values > 2 else mpmath.mpf(0)
        total = mpmath.mpf(0)
        for up in range(count + 1):
            for down in range(count + 1 - up):
                quiet = count - up - down
                loss = (up - down) * e
                if loss <= at or (quiet and not silent):
                    continue
                ways = mpmath.binomial(count, up) * mpmath.binomial(count - up, down)
                chance = ways * truth**up * lie**down * silent**quiet
                total += chance * (1 - mpmath.exp(mpmath.mpf(at) - loss))
        return float(total)


def _grid(p: Mixture, q: Mixture, stddev: float, points_per_stddev: int) -> FloatArray:
    low, high = min((*p, *q)) - 12 * stddev, max((*p, *q)) + 12 * stddev
    points = math.ceil((high - low) / stddev * points_per_stddev)
    return low + stddev / points_per_stddev * (np.arange(points) + 0.5)
