"""What is known of labels before any table: their mean, and how much they vary. Nothing is raw.

A label of 0 or 1 with the mean p varies by p (1 - p). A value between 0 and 1 (`label_parts`) of
the same mean varies less, by a factor that is called its dispersion here: amounts are rarely as
large as their clip. It follows from the mean of squares, of which a noisy sum is released: the
variance is E y^2 - p^2. Shrinkage and the division of the budget need it, as they weigh what sums
show against what labels vary by. If it is wrong, the model is worse, and as private as before.
"""

import dataclasses
import math

_RATES = (1e-3, 0.6)
"""Range that the noisy overall rate of labels of 0 and 1 is clipped to. With few rows the noise
alone could make it negative or above 1, and the log odds would not be finite."""
_VALUE_RATES = (1e-6, 0.9)
"""The same for the mean of values, which may be tiny against their clip."""
_CLASS_RATES = (1e-6, 0.999)
"""The same for one of several classes, which may be rare or nearly all there is."""
_MOST_TYPICAL = 0.6
"""Largest typical prediction of a class. The more likely a class is, the less do log odds move its
probability; rows of less probability than the typical one would then be changed far too much, and
the next table would overshoot in turn."""
_LEAST_DISPERSION = 1e-4
"""Least dispersion, for values that are all about the same: noise could make it negative."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class LabelLaw:
    """Mean and dispersion of labels between 0 and 1."""

    rate: float
    """Typical prediction: the mean label of the rows that take part, unless a class is likely."""
    dispersion: float = 1.0
    """Variance of a label over that of a label of 0 or 1 with the same mean."""
    part: float = 1.0
    """Fraction of all rows that take part: all of them, or those whose label is above 0."""
    mean: float | None = None
    """Mean label, if it is not the typical prediction."""

    @property
    def table_rate(self) -> float:
        """Rate of labels of 0 and 1 that tables would tell as much about.

        With noise that is smaller by the dispersion, sums of such labels, over all rows, have the
        same ratio of signal to noise as sums of these ones over the rows that take part.
        """
        if self.dispersion == 1 and self.part == 1:
            return self.rate
        # r (1 - r) must be this; it is 1/4 at most.
        wanted = min(self.part * self.rate * (1 - self.rate) / self.dispersion, 0.25)
        return 0.5 * (1 - math.sqrt(1 - 4 * wanted))

    @property
    def level(self) -> float:
        """Mean label of the rows that take part."""
        return self.rate if self.mean is None else self.mean

    @property
    def log_odds(self) -> float:
        """Log odds of the mean label, from which predictions start."""
        return math.log(self.level / (1 - self.level))


def law_of_labels(noisy_rate: float) -> LabelLaw:
    """The law of labels of 0 and 1.

    Args:
      noisy_rate: Noisy mean of the labels.
    """
    low, high = _RATES
    return LabelLaw(rate=max(low, min(high, noisy_rate)))


def law_of_class(noisy_rate: float, stddev: float) -> LabelLaw:
    """The law of the labels of one of several classes against all others.

    Args:
      noisy_rate: Noisy part of the rows that are of the class.
      stddev: Standard deviation of the noise on it.
    """
    low, high = _CLASS_RATES
    # A part that does not stand out of the noise is taken to be as large as the noise: the class
    # may be there nonetheless, and classes that never occur get little probability all the same.
    mean = max(low, min(high, max(noisy_rate, stddev)))
    return LabelLaw(rate=min(mean, _MOST_TYPICAL), mean=mean)


def law_of_values(
    noisy_mean: float, noisy_square: float, stddev: float, part: float = 1.0
) -> LabelLaw:
    """The law of values between 0 and 1.

    Args:
      noisy_mean: Noisy mean of the values of all rows.
      noisy_square: Noisy mean of their squares.
      stddev: Standard deviation of the noise on either.
      part: Fraction of all rows whose values are meant; the others have the value 0.
    """
    low, high = _VALUE_RATES
    # A mean that does not stand out of the noise is taken to be as large as the noise.
    rate = max(low, min(high, max(noisy_mean, stddev) / part))
    square = max(0.0, noisy_square + stddev) / part
    # Squares of numbers between 0 and 1 are at most these numbers, and never below the mean's.
    dispersion = (min(square, rate) - rate**2) / (rate * (1 - rate))
    return LabelLaw(rate=rate, dispersion=max(_LEAST_DISPERSION, dispersion), part=part)
