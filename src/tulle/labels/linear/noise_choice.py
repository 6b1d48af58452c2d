"""Which noise is smaller, for label sums and against randomized response."""

import math

from tulle.errors import ConfigError
from tulle.labels.linear.bounded_rows import BoundedFeatures
from tulle.labels.linear.label_sums import LabelSumsConfig, Layout, SumsNoise
from tulle.privacy.fields import check_count, check_finite


def best_noise(
    layout: Layout,
    *,
    epsilon: float,
    delta: float = 0.0,
    max_conversions_per_unit: int | None = None,
) -> LabelSumsConfig:
    """The config with the smaller noise of the two laws.

    Laplace has the deviation sqrt(2) m / epsilon for m ones a row, Gaussian about
    sqrt(2 m ln(1 / delta)) / epsilon: many fields favour Gaussian. Without a delta, and
    only then, Laplace is the one that there is.
    """
    laws = [SumsNoise.LAPLACE] if not isinstance(layout, BoundedFeatures) else []
    if delta > 0 or not laws:
        laws.append(SumsNoise.GAUSSIAN)
    configs = [
        LabelSumsConfig.for_epsilon(
            layout,
            epsilon=epsilon,
            delta=delta,
            noise=law,
            max_conversions_per_unit=max_conversions_per_unit,
        )
        for law in laws
    ]
    return min(configs, key=lambda config: config.noise_stddev)


def least_rows_for_sums(num_ones: int, epsilon: float) -> float:
    """Rows of a feature from which on its noisy sum beats a sum of randomized responses.

    Laplace noise on a sum has the variance 2 m^2 / epsilon^2 for m ones a row. Debiased
    responses of n rows have n e^epsilon / (e^epsilon - 1)^2.
    """
    check_count("num_ones", num_ones)
    if not 0 < check_finite("epsilon", epsilon) <= 100:
        raise ConfigError(f"epsilon={epsilon} must be > 0 and at most 100, e.g. 1.0.")
    gain = 2 * math.sinh(epsilon / 2)
    return 2 * (num_ones * gain / epsilon) ** 2
