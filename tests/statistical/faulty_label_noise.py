"""Label noise that is wrong on purpose. Every function here must be caught.

The list grows with every bug. `test_label_noise` holds the checks.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tulle.labels.mechanisms.added_noise import LaplaceLabels
from tulle.labels.mechanisms.class_response import BinaryResponse
from tulle.labels.mechanisms.label_prior import LabelPriorConfig, raw_cell_counts
from tulle.labels.mechanisms.prior_response import PriorResponse
from tulle.labels.mechanisms.stepped_noise import DiscreteLaplaceLabels, StaircaseLabels
from tulle.mechanisms.discrete_laplace import sample_discrete_laplace
from tulle.mechanisms.entropy import NoiseSource, SeededNoise
from tulle.mechanisms.exact import sample_bernoulli, sample_geometric
from tulle.mechanisms.staircase_noise import StaircaseConfig, sample_staircase

Labels = NDArray[Any]


def staircase_whose_coin_is_a_sign(
    raw: Labels, mechanism: StaircaseLabels, rng: NoiseSource
) -> Labels:
    """The coin between inner and outer part is +-1 where the formula wants 0 or 1."""
    noise = mechanism.noise
    width, inner = noise.sensitivity, noise.inner_width
    coin = _signs(raw.size, rng)
    level = sample_geometric(noise.scale, raw.size, rng=rng)
    place = (rng.words(raw.size) >> np.uint64(11)) * 2.0**-53
    size = (1 - coin) * (level * width + place * inner) + coin * (
        level * width + inner + place * (width - inner)
    )
    return raw + np.rint(_signs(raw.size, rng) * size)


def staircase_with_two_zeros(raw: Labels, mechanism: StaircaseLabels, rng: NoiseSource) -> Labels:
    """Draws a size and a sign on the inner level, so that zero comes twice as often."""
    noise = sample_staircase(mechanism.noise, raw.size, rng=rng)
    inner = mechanism.noise.inner_width
    sizes = (rng.words(raw.size) % np.uint64(inner)).astype(np.int64)
    is_inner = mechanism.noise.level_of(noise) == 0
    return raw + np.where(is_inner, _signs(raw.size, rng) * sizes, noise)


def staircase_for_half_the_range(
    raw: Labels, mechanism: StaircaseLabels, rng: NoiseSource
) -> Labels:
    """Takes the distance to the middle of the range for the sensitivity."""
    half = StaircaseConfig(epsilon=mechanism.epsilon, sensitivity=mechanism.noise.sensitivity // 2)
    return raw + sample_staircase(half, raw.size, rng=rng)


def staircase_that_stops_at_the_first_level(
    raw: Labels, mechanism: StaircaseLabels, rng: NoiseSource
) -> Labels:
    """Far noise is cut: an output far from one label rules it out."""
    noise = sample_staircase(mechanism.noise, raw.size, rng=rng)
    reach = mechanism.noise.inner_width + mechanism.noise.sensitivity
    return raw + np.clip(noise, -reach, reach)


def discrete_laplace_for_one_step(
    raw: Labels, mechanism: DiscreteLaplaceLabels, rng: NoiseSource
) -> Labels:
    """Noise for a label that moves by one step, as counts do."""
    return raw + sample_discrete_laplace(1 / mechanism.epsilon, raw.size, rng=rng)


def laplace_of_the_scale_for_its_deviation(
    raw: Labels, mechanism: LaplaceLabels, rng: NoiseSource
) -> Labels:
    """The text book's scale used as a standard deviation."""
    wider = LaplaceLabels(epsilon=mechanism.epsilon * 2**0.5, grid=mechanism.grid)
    return wider.release(raw, rng=rng).labels


def one_draw_for_all_labels(raw: Labels, mechanism: LaplaceLabels, rng: NoiseSource) -> Labels:
    """Differences between labels come out exact."""
    return raw + (mechanism.release(raw[:1], rng=rng).labels - raw[:1])


def reports_from_a_generator_made_anew(
    raw: Labels, mechanism: BinaryResponse, rng: NoiseSource
) -> Labels:
    """Every call repeats the coins of the one before."""
    del rng
    return mechanism.release(raw, rng=SeededNoise(0)).labels


def uniform_prob_for_flip_prob(raw: Labels, mechanism: BinaryResponse, rng: NoiseSource) -> Labels:
    """Flips with half the chance: p = 2 / (e^eps + 1) of a uniform label is halved twice."""
    flip = float(mechanism.channel.prob_if_negative) / 2
    return np.where(sample_bernoulli(flip, raw.size, rng=rng), 1 - raw, raw)


def truth_kept_outside_the_top(raw: Labels, mechanism: PriorResponse, rng: NoiseSource) -> Labels:
    """A label that the prior finds unlikely is reported as it is."""
    noisy = mechanism.release(raw, rng=rng).labels
    return np.where(mechanism.could_report(raw), noisy, raw)


def likeliest_class_outside_the_top(
    raw: Labels, mechanism: PriorResponse, rng: NoiseSource
) -> Labels:
    """A label that the prior finds unlikely becomes the likeliest one, always."""
    noisy = mechanism.release(raw, rng=rng).labels
    return np.where(mechanism.could_report(raw), noisy, mechanism.ranking[0, 0])


def histogram_for_a_removed_label(
    raw: Labels, config: LabelPriorConfig, rng: NoiseSource
) -> NDArray[np.int64]:
    """Noise for a sensitivity of 1, although a replaced label moves two counts."""
    counts = raw_cell_counts(raw, config)
    return counts + sample_discrete_laplace(1 / config.epsilon, counts.shape, rng=rng)


def histogram_without_noise_on_empty_cells(
    raw: Labels, config: LabelPriorConfig, rng: NoiseSource
) -> NDArray[np.int64]:
    """An exact zero says that no label is there."""
    counts = raw_cell_counts(raw, config)
    noise = sample_discrete_laplace(config.noise.scale, counts.shape, rng=rng)
    return np.where(counts == 0, 0, counts + noise)


def _signs(size: int, rng: NoiseSource) -> NDArray[np.int64]:
    return 2 * (rng.words(size) & np.uint64(1)).astype(np.int64) - 1
