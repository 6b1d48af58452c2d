"""Quotients and shares of two noisy numbers, with intervals that hold them.

The two noises are independent, so both intervals hold at once with the product of their
confidences. The raw quotient then lies between the extreme quotients: nothing is assumed about
the size of the numbers, and the intervals stay right where noise is larger than the numbers.
"""

import math

import numpy as np

from tulle.measure.queries.answer_table import Answer, FloatArray


def part_confidence(confidence: float) -> float:
    """The confidence that each of two independent intervals needs."""
    return math.sqrt(confidence)


def quotient(number: str, top: Answer, bottom: Answer) -> Answer:
    """top / bottom for raw numbers >= 0 with independent noise, given at `part_confidence`.

    Where the divisor is not above 0 there is no value (NaN).
    """
    is_known = bottom.value > 0
    divisor = np.where(is_known, bottom.value, 1.0)
    ratio = top.value / divisor
    stddev = np.hypot(top.noise_stddev, ratio * bottom.noise_stddev) / divisor
    return Answer(
        number=number,
        value=np.where(is_known, np.maximum(ratio, 0.0), np.nan),
        low=_divided(np.maximum(top.low, 0.0), bottom.high, otherwise=0.0),
        high=_divided(np.maximum(top.high, 0.0), bottom.low, otherwise=np.inf),
        noise_stddev=np.where(is_known, stddev, np.inf),
    )


def part_of_whole(number: str, part: Answer, others: Answer, *, largest: float) -> Answer:
    """largest * part / (part + others) for raw numbers >= 0, given at `part_confidence`.

    Args:
      number: Name of the result.
      part: The part. Its noise is independent of that of the others.
      others: What makes the whole together with it.
      largest: The result if the part is all.
    """
    whole = part.value + others.value
    is_known = whole > 0
    divisor = np.where(is_known, whole, 1.0)
    share = np.clip(part.value / divisor, 0.0, 1.0)
    # To first order: share * (1 - share) of the relative changes of both.
    stddev = np.hypot((1 - share) * part.noise_stddev, share * others.noise_stddev) / divisor
    least, most = np.maximum(part.low, 0.0), np.maximum(part.high, 0.0)
    low = _divided(least, least + np.maximum(others.high, 0.0), otherwise=0.0)
    high = _divided(most, most + np.maximum(others.low, 0.0), otherwise=1.0)
    return Answer(
        number=number,
        value=np.where(is_known, largest * share, np.nan),
        low=largest * low,
        high=largest * high,
        noise_stddev=np.where(is_known, largest * stddev, np.inf),
    )


def _divided(top: FloatArray, bottom: FloatArray, *, otherwise: float) -> FloatArray:
    is_positive = bottom > 0
    return np.where(is_positive, top / np.where(is_positive, bottom, 1.0), otherwise)
