"""The privacy profile of shuffled reports that hide behind a blanket.

Some reports do not depend on the data of their units: they are the blanket.
Compare two values of one unit and count the blanket's reports of the first (A),
of the second (B) and of any other value (R) among all reports. Then

    delta(epsilon) <= truth_prob E[(A a + B b + R r)^+] / (num_reports value_prob),
    a = 1 - e^(epsilon - local), b = e^-local - e^epsilon, r = (1 - e^epsilon) e^-local

(Balle, Bell, Gascón, Nissim 2019, with the blanket's reports counted by value).
Every step below can only raise the value: few reports are summed exactly, many
along a line in the complex plane (see `_log_contour`).

Randomized response. A report is uniform, whatever the data, with probability
K / (e^local_epsilon + K - 1); those reports are the blanket. From 10,000 reports on, a
lower bound with three values or more agrees to three digits.

Any local randomizer. With probability e^-local_epsilon a report is a clone:
distributed as if it came from one of the two values compared, each with probability
1/2 (Feldman, McMillan, Talwar 2021, Theorem 3.2). Clones form a blanket over two
outputs. This also holds for reports that depend on earlier ones. The probability
2 / (e^local_epsilon + 1) of the follow-up (2023) is not used: its general bound carries
an erratum.

The guarantee is for one report under replace: its unit may have held any other
value. Reports hide one another only if all could have had the same values.
"""

import dataclasses
import functools
import math
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy import special

from tulle.accounting.profiles import Profile, epsilon_delta_profile, interpolated_profile
from tulle.errors import ConfigError
from tulle.privacy.fields import check_count, check_delta

FloatArray = NDArray[np.float64]
Epsilons = TypeVar("Epsilons", float, FloatArray)
_LEAST_SHUFFLED_DELTA, _SHUFFLED_POINTS = 1e-20, 513
"""Least delta that the profile of a shuffle reaches, and the points on which it is kept."""
_LARGEST_SHUFFLED_EPSILON = 1e6
"""Largest epsilon of a report that is amplified; beyond it no shuffle hides a report, and a grid up
to there would be empty."""
_EPSILON_PRECISION = 1e-9
"""Precision of an epsilon that is found; the search ends above it."""
# The sum is exact up to so many reports of either value ...
_MAX_EXACT_COUNT = 100
# ... if at most so many are expected: the probability of more is then below 1e-30.
_MAX_EXACT_MEAN = 20.0
# Relative error of its weights and binomial probabilities, with room to spare.
_EXACT_ROUNDING = 1e-11
# A drift below it changes no digit.
_NO_STEP = 1e-200
# Standard deviations of the sum per standard deviation of the smoothing.
_SHARPNESS = 256.0
_MACHINE_EPSILON = float(np.finfo(np.float64).eps)
# Terms that underflow can add up to less than this.
_LEAST_DELTA = 1e-300
# Probabilities this small are bounded, not computed.
_LOG_NOTHING = -1000.0
# Above it e^-local_epsilon is of no use, below it two outputs take all of the blanket but what
# rounding hides: the local profile is the answer.
_LEAST_LOCAL_EPSILON, _MAX_LOCAL_EPSILON = 1e-9, 300.0


# Plans, cards and ledgers ask for the same shuffle again, and one takes half a second or more.
@functools.lru_cache(maxsize=256)
def shuffled_profile(local_epsilon: float, num_reports: int, num_values: int | None) -> Profile:
    """The profile of shuffled reports, for a replaced report.

    Args:
      local_epsilon: Protection of one report before the shuffle, with delta = 0.
      num_reports: Reports that are shuffled together, this unit's included.
      num_values: Values of a report by randomized response, which has the blanket bound; None for
        any other randomizer, which has the clones bound.
    """
    if local_epsilon > _LARGEST_SHUFFLED_EPSILON:
        return epsilon_delta_profile(local_epsilon, 0.0)
    if num_values is None:
        hidden = clones_blanket(local_epsilon, num_reports)
    else:
        hidden = response_blanket(local_epsilon, num_values, num_reports)
    reach = profile_epsilon(hidden, _LEAST_SHUFFLED_DELTA)
    grid = np.linspace(0.0, reach, _SHUFFLED_POINTS)
    deltas = profile_delta(hidden, grid)
    # Chords lie above a profile, and at the local epsilon delta is 0 whatever the shuffle does.
    if reach < local_epsilon:
        grid, deltas = np.append(grid, local_epsilon), np.append(deltas, 0.0)
    return dataclasses.replace(interpolated_profile(grid, deltas), largest_loss=local_epsilon)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Blanket:
    """What hides one report among `num_reports`. Every field is public."""

    local_epsilon: float
    """Protection of one report before the shuffle."""
    num_reports: int
    """Reports that are shuffled together, this unit's included."""
    truth_prob: float
    """Probability of the likelier of the two outputs that are compared."""
    value_prob: float
    """Probability that a report is in the blanket and equals one given output."""
    rest_prob: float
    """Probability that it is in the blanket and equals neither of the two outputs."""

    def __post_init__(self) -> None:
        check_local_epsilon(self.local_epsilon)
        check_count("num_reports", self.num_reports)


def response_blanket(local_epsilon: float, num_values: int, num_reports: int) -> Blanket:
    """The blanket of randomized response: its uniform reports.

    Args:
      local_epsilon: Protection of one report before the shuffle.
      num_values: Values that a report can have (K).
      num_reports: Reports that are shuffled together, this unit's included.
    """
    check_local_epsilon(local_epsilon)
    check_count("num_values", num_values, least=2)
    lie = math.exp(-local_epsilon)
    total = 1 + (num_values - 1) * lie
    return Blanket(
        local_epsilon=local_epsilon,
        num_reports=num_reports,
        truth_prob=1 / total,
        value_prob=lie / total,
        rest_prob=(num_values - 2) * lie / total,
    )


def clones_blanket(local_epsilon: float, num_reports: int) -> Blanket:
    """The blanket of any local randomizer: clones of the two values that are compared.

    One direction is enough: exchanging the two outputs exchanges the two data sets.
    """
    check_local_epsilon(local_epsilon)
    clone_prob = math.exp(-local_epsilon)
    return Blanket(
        local_epsilon=local_epsilon,
        num_reports=num_reports,
        truth_prob=1 / (1 + clone_prob),
        value_prob=clone_prob / 2,
        rest_prob=0.0,
    )


def profile_delta(blanket: Blanket, epsilon: Epsilons) -> Epsilons:
    """Least delta that is proved at each epsilon >= 0, for one value or an array.

    Never below the truth; 0 from the protection of one report on.
    """
    if isinstance(epsilon, np.ndarray):
        flat = [_delta(blanket, float(value)) for value in epsilon.ravel()]
        return np.array(flat, dtype=np.float64).reshape(epsilon.shape)
    return _delta(blanket, float(epsilon))


def profile_epsilon(blanket: Blanket, delta: float) -> float:
    """Least epsilon whose proved delta is at most `delta`.

    Never above the protection of one report, and equal to it for a single report.
    """
    check_delta(delta)
    if blanket.num_reports == 1:  # nothing to hide among
        return blanket.local_epsilon
    if _delta(blanket, 0.0) <= delta:
        return 0.0
    refused, proved = 0.0, blanket.local_epsilon
    while proved - refused > _EPSILON_PRECISION * proved:
        middle = (refused + proved) / 2
        if _delta(blanket, middle) <= delta:
            proved = middle
        else:
            refused = middle
    return proved


def check_local_epsilon(local_epsilon: float) -> None:
    """Refuses what no randomized report can have."""
    if not 0 < local_epsilon < math.inf:
        raise ConfigError(
            f"local_epsilon={local_epsilon} must be a finite number > 0; "
            "account for a report without randomness as NonPrivate()."
        )


def _delta(blanket: Blanket, epsilon: float) -> float:
    if not epsilon >= 0:
        raise ConfigError(
            f"epsilon={epsilon} must be >= 0; below 0 use "
            "delta(-epsilon) = 1 - e^-epsilon (1 - delta(epsilon))."
        )
    if epsilon >= blanket.local_epsilon:
        return 0.0
    local_delta = -blanket.truth_prob * math.expm1(epsilon - blanket.local_epsilon)
    is_hidden = _LEAST_LOCAL_EPSILON <= blanket.local_epsilon <= _MAX_LOCAL_EPSILON
    if blanket.num_reports == 1 or not is_hidden:
        return local_delta
    count, prob = blanket.num_reports, blanket.value_prob
    atoms = _atoms(blanket.local_epsilon, epsilon)
    if count <= _MAX_EXACT_COUNT or count * prob <= _MAX_EXACT_MEAN:
        log_part = _log_exact(blanket, atoms)
    else:
        log_part = _log_contour(blanket, atoms)
    log_delta = log_part + math.log(blanket.truth_prob) - math.log(count) - math.log(prob)
    # Shuffling is post-processing of local reports, so it never costs more than they do.
    return min(local_delta, max(math.exp(min(log_delta, 0.0)), _LEAST_DELTA))


def _atoms(local_epsilon: float, epsilon: float) -> FloatArray:
    lie = math.exp(-local_epsilon)
    return np.array(
        [
            -math.expm1(epsilon - local_epsilon),
            -lie * math.expm1(local_epsilon + epsilon),
            -lie * math.expm1(epsilon),
        ]
    )


def _log_exact(blanket: Blanket, atoms: FloatArray) -> float:
    """log E[(A a + B b + R r)^+], summed over A and B; R given both is binomial."""
    count, prob = blanket.num_reports, blanket.value_prob
    most = min(count, _MAX_EXACT_COUNT)
    first, second = np.meshgrid(np.arange(most + 1), np.arange(most + 1), indexing="ij")
    heads = first * atoms[0] + second * atoms[1]
    used = (heads > 0) & (first + second <= count)
    first, second, heads = first[used], second[used], heads[used]
    both = first + second
    # n (n-1) ... (n-m+1) / (a! b!) probabilities, without factorials of n.
    falling = np.concatenate(([0.0], np.cumsum(np.log(count - np.arange(min(count, 2 * most))))))
    log_weights = (
        falling[both]
        - special.gammaln(first + 1)
        - special.gammaln(second + 1)
        + both * math.log(prob)
        + (count - both) * math.log1p(-2 * prob)
    )
    parts = _expected_excess(heads, -atoms[2], count - both, blanket.rest_prob / (1 - 2 * prob))
    # No sum is larger than A a: count all of it where A was cut off.
    tail = 0.0
    if most < count:
        tail = count * prob * atoms[0] * special.betainc(most, count - most, prob)
    scale = float(log_weights.max())
    total = (1 + _EXACT_ROUNDING) * float(np.sum(np.exp(log_weights - scale) * parts))
    return float(np.logaddexp(scale + _log(total), _log(tail)))


def _log(value: float) -> float:
    return math.log(value) if value > 0 else -math.inf


def _expected_excess(
    heads: FloatArray, step: float, trials: NDArray[np.int64], prob: float
) -> FloatArray:
    """E[(head - step R)^+] for R binomial, with an allowance for its rounding."""
    if prob == 0 or step < _NO_STEP:
        return heads
    last = np.minimum(np.floor(heads / step), trials)
    reached = _binomial_cdf(last, trials, prob)
    reached_by_fewer = _binomial_cdf(last - 1, trials - 1, prob)
    raw = heads * reached - step * prob * trials * reached_by_fewer
    return np.maximum(raw, 0.0) + _EXACT_ROUNDING * heads * reached


def _binomial_cdf(most: FloatArray, trials: NDArray[np.int64], prob: float) -> FloatArray:
    inside = (most >= 0) & (most < trials)
    top = np.where(inside, most, 0.0)
    rest = np.where(inside, trials - top, 1.0)
    below = special.betaincc(top + 1, rest, prob)
    return np.where(inside, below, (most >= trials).astype(np.float64))


def _log_contour(blanket: Blanket, atoms: FloatArray) -> float:
    """log of an upper bound of E[S^+] for the sum S of independent reports.

    Normal noise N with mean zero can only raise the value (Jensen), and

        E[(S+N)^+] = 1/(2 pi) integral M(c + it) / (c + it)^2 dt,   any c > 0,

    with M the moment generating function of S+N. Steps of 2 pi / W instead of
    the integral add e^(jcW) E[(S+N-jW)^+] >= 0 for every j != 0 (Poisson
    summation): they can only raise it, too. What remains is added: the end of
    the sum, by the normal factor, and the rounding of each term.
    """
    probs = np.array([blanket.value_prob, blanket.value_prob, blanket.rest_prob])
    tilt, stddev = _saddle_point(atoms, probs, blanket.num_reports)
    log_moment = blanket.num_reports * math.log1p(float(probs @ np.expm1(tilt * atoms)))
    if log_moment < _LOG_NOTHING:  # S^+ <= e^(cS) / (e c)
        return log_moment - 1 - math.log(tilt)
    # Any noise, step and end give a bound; these make it tight: periods of 12 deviations or 30
    # lengths of the tilt, and a normal factor of e^-18 at the end.
    noise = max(stddev, 1 / tilt) / _SHARPNESS
    step = 2 * math.pi / max(12 * stddev, 30 / tilt)
    num_steps = math.ceil(6 / (noise * step))
    frequencies = step * np.arange(num_steps + 1)
    points = tilt + 1j * frequencies
    grown = [prob * np.expm1(atom * points) for atom, prob in zip(atoms, probs, strict=True)]
    logs = (
        blanket.num_reports * _log1p(grown[0] + grown[1] + grown[2])
        + (noise * points) ** 2 / 2
        - 2 * np.log(points)
    )
    scale = float(logs[0].real)
    sizes = np.exp(logs.real - scale)
    sizes[0] /= 2
    condition = 8 + blanket.num_reports * sum(np.abs(part) for part in grown)
    rounding = 8 * _MACHINE_EPSILON * float(np.sum(sizes * condition))
    end = float(frequencies[-1])
    # |M(c + it)| <= M(c) e^(-(noise t)^2 / 2), and M(c) / c^2 is the first term.
    left_out = tilt**2 * math.exp(-((noise * end) ** 2) / 2) / end
    total = step * (float(np.sum(sizes * np.cos(logs.imag))) + rounding) + left_out
    return scale + math.log(total / math.pi)


def _saddle_point(atoms: FloatArray, probs: FloatArray, num_reports: int) -> tuple[float, float]:
    """The place c where M(c) / c^2 is least, and the standard deviation of S tilted by e^(cS).

    Any c > 0 gives a bound; this one gives the least loss of digits.
    """
    gain = float(probs[0] * atoms[0])
    loss = -float(probs[1:] @ atoms[1:])
    low = 1e-12
    high = max(4.0, math.log((2 * loss + atoms[0]) / gain))
    while high > low * (1 + 1e-6):
        middle = math.sqrt(low * high)
        mean, _ = _tilted_moments(atoms, probs, middle / atoms[0])
        if num_reports * mean * middle / atoms[0] < 2:
            low = middle
        else:
            high = middle
    tilt = high / float(atoms[0])
    _, variance = _tilted_moments(atoms, probs, tilt)
    return tilt, math.sqrt(num_reports * variance)


def _tilted_moments(atoms: FloatArray, probs: FloatArray, tilt: float) -> tuple[float, float]:
    weights = probs * np.exp(tilt * atoms)
    total = 1 - float(probs.sum()) + float(weights.sum())
    mean = float(weights @ atoms) / total
    return mean, max(float(weights @ atoms**2) / total - mean**2, 0.0)


def _log1p(values: NDArray[np.complex128]) -> NDArray[np.complex128]:
    """log(1 + z) that keeps the digits of a small z, and finite at z = -1."""
    real, imag = values.real, values.imag
    size = 0.5 * np.log1p(np.maximum(2 * real + real**2 + imag**2, _MACHINE_EPSILON - 1))
    return np.asarray(size + 1j * np.arctan2(imag, 1 + real))
