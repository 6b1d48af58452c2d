"""Checks that noise has the stated law, and that they would see it if it had not.

Each `assert_…` draws two samples in a row from one seeded source. Over all seeds
it refuses right noise with a chance of at most 1e-9, shared between its parts. Then
it holds the same sample against a 5% wrong scale and insists on a refusal at the
same level: a check that cannot fail proves nothing.
"""

import math
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from tulle.mechanisms.entropy import NoiseSource, SeededNoise

Sampler = Callable[[NoiseSource, int], ArrayLike]
Values = NDArray[np.float64]
Pmf = Callable[[NDArray[np.int64]], NDArray[np.float64]]
PmfOfScale = Callable[[float], Pmf]

FALSE_ALARM = 1e-9
WRONG_FACTORS = (0.95, 1.05)
_NUM_PARTS = 5
_PART_ALARM = FALSE_ALARM / _NUM_PARTS
_TAIL_COUNT = 40
_MAX_BINS = 200
_LEAST_EXPECTED = 10.0


def assert_gaussian(
    sampler: Sampler, *, stddev: float, num_draws: int = 40_000, seed: int = 1
) -> None:
    """The sampler draws independent normals of mean 0 and the stated deviation."""

    def p_values(values: Values, stddev: float) -> dict[str, float]:
        law = stats.norm(scale=stddev)
        return {
            "shape": float(stats.kstest(values, law.cdf).pvalue),
            "second moment": _two_sided(
                stats.chi2(len(values)), float(np.sum((values / stddev) ** 2))
            ),
            "mean": 2 * float(stats.norm.sf(abs(values.mean()) / stddev * len(values) ** 0.5)),
            "tail": _tail_p_value(np.abs(values) > law.isf(_TAIL_COUNT / len(values) / 2)),
        }

    _assert_law(sampler, p_values, stddev, num_draws, seed)


def assert_laplace(
    sampler: Sampler, *, scale: float, num_draws: int = 100_000, seed: int = 1
) -> None:
    """The sampler draws independent Laplace noise of mean 0 and the stated scale."""

    def p_values(values: Values, scale: float) -> dict[str, float]:
        sizes = np.abs(values) / scale
        num_positive = int(np.sum(values > 0))
        return {
            "shape": float(stats.kstest(values, stats.laplace(scale=scale).cdf).pvalue),
            # Sizes are exponential, so twice their sum is chi-square.
            "mean size": _two_sided(stats.chi2(2 * len(values)), 2 * float(np.sum(sizes))),
            "sign": float(stats.binomtest(num_positive, len(values)).pvalue),
            "tail": _tail_p_value(sizes > math.log(len(values) / _TAIL_COUNT)),
        }

    _assert_law(sampler, p_values, scale, num_draws, seed)


def assert_discrete(
    sampler: Sampler,
    pmf_of_scale: PmfOfScale,
    *,
    scale: float,
    num_draws: int = 100_000,
    seed: int = 1,
) -> None:
    """The sampler draws independent integers with the chances pmf_of_scale(scale).

    For laws with nothing left 50 scales from zero, and scales up to about 10,000.
    """
    support = np.arange(-math.ceil(50 * scale) - 2, math.ceil(50 * scale) + 3)

    def p_values(values: Values, scale: float) -> dict[str, float]:
        assert np.array_equal(values, np.rint(values)), "discrete noise is not whole"
        chances = pmf_of_scale(scale)(support)
        assert abs(chances.sum() - 1) < 1e-9, "the chances do not add up to 1"
        return {
            "bins": _binned_p_value(values, support, chances),
            "second moment": _moment_p_value(values**2, support**2.0, chances),
            "mean": _moment_p_value(values, support.astype(float), chances),
            "tail": _discrete_tail_p_value(values, support, chances),
        }

    _assert_law(sampler, p_values, scale, num_draws, seed)


def assert_bernoulli(
    sampler: Sampler, *, prob: float, num_draws: int = 200_000, seed: int = 1
) -> None:
    """The sampler draws independent coins that fall True with the stated chance."""

    def p_values(values: Values, prob: float) -> dict[str, float]:
        if prob > 1:
            return {"rate": 0.0}
        return {"rate": float(stats.binomtest(int(values.sum()), len(values), prob).pvalue)}

    _assert_law(sampler, p_values, prob, num_draws, seed)


def assert_one_lattice(
    release: Callable[[Values, NoiseSource], ArrayLike],
    neighbours: tuple[float, float],
    *,
    width: float,
    num_draws: int = 1000,
) -> None:
    """What is released for two neighbours lies on one grid, so no output rules one out."""
    for raw_value in neighbours:
        noisy = np.asarray(release(np.full(num_draws, raw_value), SeededNoise(7)))
        steps = noisy / width
        off_grid = np.mean(steps != np.rint(steps))
        assert off_grid == 0, f"{off_grid:.0%} of the outputs are not multiples of {width}"


def _assert_law(
    sampler: Sampler,
    p_values: Callable[[Values, float], dict[str, float]],
    scale: float,
    num_draws: int,
    seed: int,
) -> None:
    rng = SeededNoise(seed)
    halves = [np.asarray(sampler(rng, num_draws // 2), dtype=np.float64) for _ in range(2)]
    for half in halves:
        assert half.shape == (num_draws // 2,), f"asked for {num_draws // 2} draws: {half.shape}"
    assert _dependence_p_value(*halves) > _PART_ALARM, "two calls in a row share their noise"
    values = np.concatenate(halves)
    for part, p_value in p_values(values, scale).items():
        assert p_value > _PART_ALARM, f"{part} is wrong for scale {scale}: p = {p_value:.2g}"
    for wrong_scale in (factor * scale for factor in WRONG_FACTORS):
        least = min(p_values(values, wrong_scale).values())
        assert least <= _PART_ALARM, (
            f"{num_draws} draws cannot tell scale {scale} from {wrong_scale}: p = {least:.2g}"
        )


def _dependence_p_value(first: Values, second: Values) -> float:
    """Fisher's exact test on the signs (above the median or not) of two samples."""
    tops = [half > np.median(half) for half in (first, second)]
    both, num_first, num_second = (int(np.sum(x)) for x in (tops[0] & tops[1], *tops))
    return _two_sided(stats.hypergeom(len(first), num_first, num_second), both)


def _two_sided(law: "stats.distributions.rv_frozen", statistic: float) -> float:
    is_discrete = isinstance(law.dist, stats.rv_discrete)
    upper = law.sf(statistic - 1) if is_discrete else law.sf(statistic)
    return min(1.0, 2 * float(min(law.cdf(statistic), upper)))


def _tail_p_value(is_in_tail: NDArray[np.bool_]) -> float:
    """Noise that stops short of its far tail passes every test of its bulk."""
    num_draws = len(is_in_tail)
    law = stats.binom(num_draws, _TAIL_COUNT / num_draws)
    return _two_sided(law, int(np.sum(is_in_tail)))


def _discrete_tail_p_value(
    values: Values, support: NDArray[np.int64], chances: NDArray[np.float64]
) -> float:
    order = np.argsort(-np.abs(support), kind="stable")
    num_in_tail = int(np.searchsorted(np.cumsum(chances[order]), _TAIL_COUNT / len(values)))
    least = abs(support[order[min(num_in_tail, len(order) - 1)]])
    chance = min(1.0, float(np.sum(chances[np.abs(support) >= least])))
    return _two_sided(stats.binom(len(values), chance), int(np.sum(np.abs(values) >= least)))


def _binned_p_value(
    values: Values, support: NDArray[np.int64], chances: NDArray[np.float64]
) -> float:
    """Chi-square over bins of at least 10 expected draws, most of them of many more."""
    edges = np.array(list(_bin_starts(len(values) * chances)))
    expected = np.add.reduceat(len(values) * chances, edges)
    # Everything left of the support falls into the first bin, right of it into the last.
    bins = np.searchsorted(support[edges[1:]], values, side="right")
    observed = np.bincount(bins, minlength=len(edges))
    assert len(edges) > 1, "one value takes all the chance; there is nothing to test"
    statistic = float(np.sum((observed - expected) ** 2 / expected))
    return float(stats.chi2.sf(statistic, len(edges) - 1))


def _bin_starts(expected: NDArray[np.float64]) -> Iterator[int]:
    """Where a bin starts so that it and what is left have enough expected draws."""
    size = max(_LEAST_EXPECTED, expected.sum() / _MAX_BINS)
    left = expected.sum()
    filled = math.inf
    for index, count in enumerate(expected):
        if filled >= (size if index > 0 else 0) and left >= _LEAST_EXPECTED:
            yield index
            filled = 0.0
        filled += count
        left -= count


def _moment_p_value(
    observed: Values, possible: NDArray[np.float64], chances: NDArray[np.float64]
) -> float:
    mean = float(np.sum(possible * chances))
    variance = float(np.sum((possible - mean) ** 2 * chances))
    z_score = abs(observed.mean() - mean) / math.sqrt(variance / len(observed))
    # The skew of a square makes the far normal tail too light by less than a factor 10.
    return 20 * float(stats.norm.sf(z_score))
