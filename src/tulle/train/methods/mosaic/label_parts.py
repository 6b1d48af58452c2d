"""Labels as whole numbers: parts of 2^30 of the largest value that a label counts as.

A label of 0 or 1 is 0 or 2^30 parts. A value, such as an amount of money or a number of clicks, is
divided by its clip, a public setting. Whatever is above the clip counts as the clip, so that no
row adds more than any other could.

A row of weight B and label y adds floor(floor(B u) y) to a sum. Labels of 0 and 1 leave nothing to
round there. For other labels the rounding could move what a row adds in each table by less than
one step, in a direction of its own. `rounding_weights` leaves room for that: a row that has paid
for the weight A is summed with a weight B that is a little smaller.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tulle.errors import ConfigError
from tulle.privacy.fields import check_finite

LABEL_BITS = 30
"""Labels are parts of 2^30, as probabilities are: their product with a weight stays below 2^60."""
MOST_CLASSES = 256
"""Most classes of a model. Each has tables of its own, which take as long to learn as a model of
labels of 0 and 1, and all of their names are in the plan and on the card."""
_ROOM_BITS = 12
"""Values leave one part in 2^12 of each weight for rounding, 0.02%, and rows of less than 2^12
steps add nothing. Noise has at least 2^26 steps, unless it is huge, so that such a row would tell
less than a ten-thousandth of what the noise hides."""


def check_clip(clip: float) -> float:
    """Refuses a clip that labels cannot be divided by.

    Args:
      clip: Largest value that a label counts as.

    Raises:
      ConfigError: It is no number above 0.
    """
    if isinstance(clip, bool) or not check_finite("clip", clip) > 0:
        raise ConfigError(
            f"clip={clip} must be a number above 0: the largest value that a label counts as, in "
            "the unit of the labels. Choose it without looking at the labels, e.g. clip=400."
        )
    # Below this the quotient of two floats would lose bits, and no clip of any use is so small.
    if not math.ldexp(1.0, -100) <= clip <= math.ldexp(1.0, 100):
        raise ConfigError(f"clip={clip} must be from 2^-100 to 2^100; give labels another unit.")
    return float(clip)


def check_classes(classes: Sequence[object]) -> tuple[str, ...]:
    """Refuses names of classes that labels cannot be told apart by, and returns them as text.

    Args:
      classes: The names, whole numbers or text.

    Raises:
      ConfigError: There are fewer than two or too many of them, or a name is empty or occurs twice.
    """
    way_out = "name all classes, without looking at the labels, e.g. classes=['none', 'sale']."
    if isinstance(classes, str) or not isinstance(classes, Sequence | np.ndarray):
        raise ConfigError(f"classes={classes!r} must be a list of names; {way_out}")
    names = []
    for name in classes:
        is_name = isinstance(name, str | int | np.integer) and not isinstance(name, bool)
        if not is_name or not (text := str(name)).strip() or text != text.strip():
            raise ConfigError(
                f"classes has {name!r}, and a class is named by text without blanks around it or "
                f"by a whole number; {way_out}"
            )
        names.append(text)
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ConfigError(f"classes has {twice!r} twice; name each class once.")
    if len(names) < 2:
        how_many = "one name" if names else "no name"
        raise ConfigError(
            f"classes has {how_many}, and labels of one class tell nothing; {way_out}"
        )
    if len(names) > MOST_CLASSES:
        raise ConfigError(
            f"classes has {len(names)} names, must have at most {MOST_CLASSES}: time grows with "
            "their number, and the rows of each class get few; merge rare ones."
        )
    return tuple(names)


def label_parts(labels: NDArray[np.floating], clip: float | None) -> NDArray[np.int32]:
    """Labels in parts of 2^30 of the clip, rounded down; what is above the clip counts as it.

    Args:
      labels: [rows]: labels, each 0 or 1, or a value from 0 on.
      clip: Largest value that a label counts as; None for labels of 0 and 1.
    """
    fractions = labels.astype(np.float64)
    if clip is not None:
        # A quotient and a power of two: IEEE floats, which every engine rounds alike.
        fractions = np.minimum(fractions / clip, 1.0)
    parts: NDArray[np.int32] = np.ldexp(fractions, LABEL_BITS).astype(np.int32)
    return parts


def rounding_weights(weights: NDArray[np.int64] | np.int64) -> NDArray[np.int64] | np.int64:
    """Weights that values are summed with, a little below those that rows have paid for.

    For A steps it is B <= A / (1 + 2^-12), and 0 or at least 2^12.

    Args:
      weights: Weights of the rows in steps, as they are charged.
    """
    smaller = weights - (weights >> _ROOM_BITS) - 1
    return smaller * (smaller >= 1 << _ROOM_BITS)
