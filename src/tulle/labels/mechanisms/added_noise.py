"""Noise that is added to labels that are numbers: what all of it shares, and Laplace noise.

The label moves by at most its declared range, and noise of that size hides it. The noisy label has
the label as its mean, so it is its own target. Clipped to the range it looks better, but its mean
is pulled inwards, and models trained on it are worse. Laplace noise is the baseline; noise in steps
of the declared values is in `stepped_noise.py`.
"""

import abc
import dataclasses
import functools
import math
from fractions import Fraction
from typing import Any, ClassVar, Self, cast

import numpy as np
from numpy.typing import NDArray

from tulle.labels.label_grid import LabelGrid, NumberRange
from tulle.labels.label_mechanism import (
    ChannelFacts,
    ChannelTable,
    DescribedMechanism,
    Description,
    FloatArray,
    NoiseDensity,
    NoisyLabels,
    NumberMechanism,
)
from tulle.labels.label_noise import RowNoise
from tulle.mechanisms.entropy import NoiseSource, release_rng
from tulle.mechanisms.laplace import LaplaceConfig, release_laplace
from tulle.privacy.events import DiscreteLaplace, EpsilonDelta, Laplace
from tulle.privacy.units import Adjacency

NUM_POINTS_SHOWN = 400
"""Points of a curve on a page, about one for each pixel."""
_SPANS_SHOWN = 2.0
"""How far to each side the noise is shown, in ranges of the label."""
_SCALES_SHOWN = 6.0
"""Most scales of Laplace noise that are shown; beyond them nothing is to be seen."""
_NUM_CUT_LABELS = 5
"""Number of labels for which a page shows how often they are cut to the range."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class AdditiveLabels(NumberMechanism):
    """What mechanisms that add noise to a label share. Every field is public."""

    word: ClassVar[str]
    """The noise on the command line and on cards, before a word for clipping."""
    has_rising_outputs: ClassVar[bool] = True
    rests_on_prior: ClassVar[bool] = False

    epsilon: float
    """Largest log-likelihood ratio of a noisy label between any two labels."""
    grid: LabelGrid
    """The declared range. Noise in steps of the grid moves a label between two values to the
    nearest; other noise takes it as it is."""
    clip: bool = False
    """Whether the noisy label is cut to the range. That is biased: there is then no target."""

    @property
    def name(self) -> str:
        """The word for it on the command line and on cards."""
        return f"{self.word}-clipped" if self.clip else self.word

    @abc.abstractmethod
    def event(self) -> Laplace | DiscreteLaplace | EpsilonDelta:
        """What one noisy label of a unit costs."""

    def release(self, raw_labels: NDArray[Any], *, rng: NoiseSource | None = None) -> NoisyLabels:
        """Draws one noisy label a row, once.

        Args:
          raw_labels: Numbers in the declared range.
          rng: Source of the noise; None: the operating system. Sensitive: never log its state.

        Privacy:
          Unit: one label, replace. Sensitivity: the range. Event: that of `event`.
          Relies on: one label a unit, drawn once.
        """
        noisy = self._drawn(raw_labels, rng or release_rng())
        if self.clip:
            cut = np.clip(noisy, self.grid.low, self.grid.high)
            return NoisyLabels(labels=cut, targets=None, noise_variance=None)
        variance = np.asarray(self.variance(self.grid.low))
        return NoisyLabels(labels=noisy, targets=noisy, noise_variance=variance)

    def describe(self) -> dict[str, Any]:
        """Settings and the noise as plain data."""
        return {
            "mechanism": self.name,
            "epsilon": self.epsilon,
            "grid": dataclasses.asdict(self.grid),
            "clip": self.clip,
            **self._noise_facts(),
        }

    @classmethod
    def from_description(cls, described: Description) -> Self:
        """The mechanism that `describe` spoke of."""
        return cls(
            epsilon=described["epsilon"], grid=cls.grid_of(described), clip=described["clip"]
        )

    @classmethod
    def channel_facts(cls, described: Description) -> ChannelFacts:
        """The law of the noise, and how often a clipped label is cut."""
        own = cls.from_description(described)
        density = own.density()
        if own.clip:
            return ChannelFacts(pictures=(density, own.cut_table()))
        return ChannelFacts(pictures=(density,), variance=float(own.variance(own.grid.low)))

    @abc.abstractmethod
    def _drawn(self, raw_labels: NDArray[Any], rng: NoiseSource) -> FloatArray:
        """Noisy labels before a cut."""

    @abc.abstractmethod
    def _noise_facts(self) -> dict[str, Any]:
        """The size of the noise in plain data."""

    @abc.abstractmethod
    def density(self) -> NoiseDensity:
        """The law of the noise."""

    @abc.abstractmethod
    def _prob_of_at_least(self, num_values: int) -> float:
        """Probability that the noise is at least that many steps of the grid, to one side."""

    @property
    def _reach(self) -> tuple[float, float]:
        """How far a picture of the noise goes, and the scale of Laplace noise beside it."""
        scale = LaplaceLabels(epsilon=self.epsilon, grid=self.grid).noise.noise_scale
        return min(_SPANS_SHOWN * (self.grid.high - self.grid.low), _SCALES_SHOWN * scale), scale

    def cut_table(self) -> ChannelTable:
        """How often a noisy label is cut, for some labels."""
        grid, last = self.grid, self.grid.num_values - 1
        chosen = sorted({round(last * n / (_NUM_CUT_LABELS - 1)) for n in range(_NUM_CUT_LABELS)})
        probs = []
        for place in chosen:
            low, high = (self._prob_of_at_least(room) for room in (place, last - place))
            probs.append((low, max(0.0, 1 - low - high), high))
        return ChannelTable(
            labels=[f"{grid.values[place]:g}" for place in chosen],
            reports=(f"{grid.low:g}", "between", f"{grid.high:g}"),
            probs=probs,
            about="Noisy labels beyond the range are set to its ends, which biases them.",
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class LaplaceLabels(AdditiveLabels):
    """Laplace noise on labels in a range, with its epsilon. Every field is public."""

    word: ClassVar[str] = "laplace"

    def __post_init__(self) -> None:
        _ = self.noise

    @functools.cached_property
    def noise(self) -> LaplaceConfig:
        """The noise on a label, whose contribution is the whole range."""
        span = self.grid.high - self.grid.low
        # A float difference may be below the exact one, and noise for it too small.
        if Fraction(span) < Fraction(self.grid.high) - Fraction(self.grid.low):
            span = math.nextafter(span, math.inf)
        return LaplaceConfig.for_epsilon(
            self.epsilon, adjacency=Adjacency.REPLACE, max_contribution=span, replace_factor=1.0
        )

    def event(self) -> Laplace:
        """What one noisy label of a unit costs."""
        return self.noise.event()

    def mean(self, label: float) -> float:
        """Mean of the noisy label, up to the noise's own grid of 2^-20 of its scale."""
        return self._moments(label)[0]

    def variance(self, label: float) -> float:
        """Variance of the noisy label over the noise, up to the same."""
        return self._moments(label)[1]

    def _drawn(self, raw_labels: NDArray[Any], rng: NoiseSource) -> FloatArray:
        return release_laplace(self.grid.check(raw_labels), self.noise, rng=rng)

    def _noise_facts(self) -> dict[str, Any]:
        return {"noise_scale": self.noise.noise_scale}

    def _moments(self, label: float) -> tuple[float, float]:
        self.grid.check(np.asarray(label))
        below, above = label - self.grid.low, self.grid.high - label
        scale = self.noise.noise_scale
        if not self.clip:
            # Laplace noise rounded to steps of its grid: with h = half a step over the scale,
            # P(|i| >= k) = exp(-(2k - 1) h), so the variance is cosh(h) / (2 sinh(h)^2) steps^2.
            half = 0.5 / self.noise.fitted.noise_in_steps
            steps = math.cosh(half) / (2 * math.sinh(half) ** 2)
            return label, steps * self.noise.fitted.lattice.width**2
        # Noise z cut to [-below, above]: E z = integral of P(z > s) to above, less that of
        # P(z < -s) to below; E z^2 is the sum of the integrals of 2 s P(...).
        shift = scale / 2 * (math.exp(-below / scale) - math.exp(-above / scale))
        square = sum(
            scale**2 - math.exp(-room / scale) * scale * (room + scale) for room in (below, above)
        )
        return label + shift, square - shift**2

    def density(self) -> NoiseDensity:
        """The law of the noise."""
        reach, scale = self._reach
        amounts = [
            reach * (2 * place / NUM_POINTS_SHOWN - 1) for place in range(NUM_POINTS_SHOWN + 1)
        ]
        density = [math.exp(-abs(amount) / scale) / (2 * scale) for amount in amounts]
        return NoiseDensity(name=self.name, noise=amounts, density=density, laplace_scale=None)

    def _prob_of_at_least(self, num_values: int) -> float:
        return math.exp(-num_values * self.grid.step / self.noise.noise_scale) / 2


@dataclasses.dataclass(frozen=True, kw_only=True)
class AddedNoise(NumberRange):
    """Settings of noise that is added to each label that is a number."""

    kind: ClassVar[str]
    mechanism_class: ClassVar[type[DescribedMechanism]]
    clip: ClassVar[bool] = False

    @classmethod
    def example(cls) -> Self:
        """Labels from 0 to 3, for audits and contracts."""
        return cls(label_low=0, label_high=3)

    def noise(self, epsilon: float) -> RowNoise:
        """The noise on labels that costs this epsilon in all."""
        make = cast(type[AdditiveLabels], self.mechanism_class)
        return RowNoise(mechanism=make(epsilon=epsilon, grid=self.grid, clip=self.clip))


@dataclasses.dataclass(frozen=True, kw_only=True)
class LaplaceNoise(AddedNoise):
    """Laplace noise on each label that is a number."""

    kind: ClassVar[str] = "laplace"
    mechanism_class: ClassVar[type[DescribedMechanism]] = LaplaceLabels


@dataclasses.dataclass(frozen=True, kw_only=True)
class LaplaceNoiseClipped(LaplaceNoise):
    """Laplace noise on each number, cut to the range, which biases it."""

    kind: ClassVar[str] = "laplace-clipped"
    clip: ClassVar[bool] = True
