"""Unbiased rounding of labels to a few atoms.

A label between two atoms goes to the upper one with a probability that grows linearly
from 0 to 1, so the mean is the label. Rounding comes before the noise and looks at
nothing but the label, so what is private for atoms is private for labels.
"""

import dataclasses

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tulle.errors import ConfigError
from tulle.labels.mechanisms.unbiased_program import FloatArray
from tulle.mechanisms.entropy import NoiseSource
from tulle.privacy.fields import check_count

IntArray = NDArray[np.int64]
Words = NDArray[np.uint64]

_CHUNK = 1 << 16
"""Labels that are rounded at once, so that the arrays stay in the processor's cache."""
_WORD_BITS = 64
"""Bits of a word of a noise source."""
_PRIOR_SHARE = 0.5
"""Share of the atoms that follow the prior; the others are spread evenly, as it may be wrong."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Rounding:
    """Rounding at random to neighbouring atoms. Public."""

    atoms: FloatArray
    """Ascending; the first and the last are the ends of the label's range."""

    def __post_init__(self) -> None:
        if self.atoms.ndim != 1 or self.atoms.size < 2 or not np.all(np.diff(self.atoms) > 0):
            raise ConfigError("atoms must be at least two ascending numbers.")

    def lower_atoms(self, labels: ArrayLike) -> IntArray:
        """Place of the atom below each label; never the last one."""
        numbers = np.asarray(labels, np.float64)
        places = np.searchsorted(self.atoms, numbers, side="right") - 1
        return np.clip(places, 0, self.atoms.size - 2).astype(np.int64)

    def thresholds(self, labels: ArrayLike) -> Words:
        """Words, of 2^64, with which each label goes up, less than all of them.

        A label on an atom has that atom as its lower one and stays, except at the very
        top, where all words would be needed and `is_top` decides.
        """
        return self._thresholds(np.asarray(labels, np.float64), self.lower_atoms(labels))

    def upper_shares(self, labels: ArrayLike) -> FloatArray:
        """Probability that each label goes to the upper atom, as the sampler has it."""
        shares = np.ldexp(self.thresholds(labels).astype(np.float64), -_WORD_BITS)
        return np.where(self.is_top(labels), 1.0, shares)

    def is_top(self, labels: ArrayLike) -> NDArray[np.bool_]:
        """Labels at the upper end, which always go up."""
        return np.asarray(np.asarray(labels, np.float64) >= self.atoms[-1])

    def draw(self, raw_labels: FloatArray, *, rng: NoiseSource) -> IntArray:
        """The place of an atom for each label, drawn with one word each.

        Privacy:
          Not private by itself: a step before the noise. Its rows are independent.
        """
        places = np.empty(raw_labels.size, np.int64)
        for start in range(0, raw_labels.size, _CHUNK):
            labels = raw_labels[start : start + _CHUNK]
            below = self.lower_atoms(labels)
            goes_up = rng.words(labels.size) < self._thresholds(labels, below)
            places[start : start + _CHUNK] = below + (goes_up | self.is_top(labels))
        return places

    def variance(self, labels: ArrayLike) -> FloatArray:
        """Variance of the atom of each label: (label - lower) (upper - label)."""
        gaps = np.diff(self.atoms)[self.lower_atoms(labels)]
        shares = self.upper_shares(labels)
        return np.asarray(gaps**2 * shares * (1 - shares), np.float64)

    def mixed(self, per_atom: FloatArray, labels: ArrayLike) -> FloatArray:
        """Mean over the rounding of a number that depends on the atom."""
        below, shares = self.lower_atoms(labels), self.upper_shares(labels)
        return np.asarray((1 - shares) * per_atom[below] + shares * per_atom[below + 1])

    def pushed(self, labels: FloatArray, prior: FloatArray) -> FloatArray:
        """Probability of each atom, from the probability of each label."""
        below, shares = self.lower_atoms(labels), self.upper_shares(labels)
        size = self.atoms.size
        low = np.bincount(below, prior * (1 - shares), minlength=size)
        return np.asarray(low + np.bincount(below + 1, prior * shares, minlength=size))

    def _thresholds(self, labels: FloatArray, below: IntArray) -> Words:
        shares = (labels - self.atoms[below]) / np.diff(self.atoms)[below]
        inside = np.clip(shares, 0.0, np.nextafter(1.0, 0.0))
        return np.ldexp(inside, _WORD_BITS).astype(np.uint64)


def choose_atoms(values: FloatArray, prior: FloatArray, max_atoms: int) -> FloatArray:
    """Some of the values, with both ends, close together where labels are likely.

    Rounding adds about p h^2 / 6 for spacing h, which is least for spacing as
    p^(-1/3); half of the atoms are spread evenly, since the prior may be wrong.

    Args:
      values: All values of the label, ascending.
      prior: How likely each is.
      max_atoms: Most values to take.
    """
    check_count("atoms", max_atoms, least=2)
    if values.size <= max_atoms:
        return values
    likely = np.cbrt(prior)
    density = (1 - _PRIOR_SHARE) / values.size + _PRIOR_SHARE * likely / likely.sum()
    # Between neighbours, so that the first value is at 0 and the last at the end.
    reached = np.concatenate([[0.0], np.cumsum((density[1:] + density[:-1]) / 2)])
    wanted = np.linspace(0.0, reached[-1], max_atoms)
    places = np.rint(np.interp(wanted, reached, np.arange(values.size))).astype(np.int64)
    return np.asarray(values[np.unique(np.concatenate([places, [0, values.size - 1]]))])
