"""The kinds of noise that private steps can have: public settings of a plan.

Whatever is chosen, a step costs one Gaussian with the plan's noise_multiplier on a sampled batch.
The kinds differ in where that noise goes: fresh into every entry, on a grid, correlated from step
to step, or into few rows of the tables. Each says what it is in the words of a plan, what it costs
and how much of the clip norm it needs. How its noise is drawn is in `steps.gradient_noise`,
`steps.banded` and `steps.selected`, which need PyTorch; a plan does not.
"""

import dataclasses
import math
from typing import ClassVar

from tulle.data.samplers.cyclic_poisson import CyclicPoisson
from tulle.errors import ConfigError
from tulle.mechanisms.exact import rounded_up
from tulle.privacy.events import Event
from tulle.privacy.fields import Scalar, check_count, check_finite
from tulle.privacy.plan import Assumption, Bound
from tulle.train.settings.band_matrix import BandMatrix
from tulle.train.settings.step_mechanism import (
    StepMechanism,
    StepSampler,
    enforced,
)

LARGEST_THRESHOLD = 7.0
"""Largest threshold of row selection. Beyond it rows that nobody reads are selected less than once
in 10^12, which coins for whole tables cannot show."""

_FINEST = 2.0**-126
"""The least normal number of single precision; a finer grid could not be written as floats."""
# With 16 bits, rounding takes up to 1.6% of the clip norm of a million numbers; with fewer it would
# soon take too much. With 32, sums of 2^29 clip norms still fit into 2^62 grid widths.
_FEWEST_BITS, _MOST_BITS = 16, 32
# Each band costs every step one more copy of the model, in memory or in time. The limit is far
# above the 256 bands that are of use.
_MOST_BANDS = 4096
# At one half, counts and gradients have the same noise multiplier. Counts only choose rows, and
# more for them would leave too little for what is learnt.
_MOST_SELECTION_SHARE = 0.5


@dataclasses.dataclass(frozen=True, kw_only=True)
class IndependentNoise(StepMechanism):
    """Fresh normals on every entry of the sum in every step: DP-SGD as it is known."""

    kind: ClassVar[str] = "independent"
    can_be_lazy: ClassVar[bool] = True


@dataclasses.dataclass(frozen=True, kw_only=True)
class LatticeNoise(StepMechanism):
    """Sums and noise are whole multiples of one grid, so rounding of floats tells nothing.

    The sum is rounded to the grid, the noise too, and both are added exactly. That is a
    function of the sum of real numbers, so it costs what the Gaussian costs. Rounding can
    move the part of one unit by grid * sqrt(number of entries); clipping leaves room for it.
    """

    kind: ClassVar[str] = "lattice"

    bits: int = 24
    """The grid is the largest power of two up to clip_norm * 2**-bits. A finer one clips less
    and leaves less room for sums."""

    def __post_init__(self) -> None:
        check_count("bits", self.bits)
        if not _FEWEST_BITS <= self.bits <= _MOST_BITS:
            raise ConfigError(
                f"bits={self.bits} must be from {_FEWEST_BITS} to {_MOST_BITS}, e.g. 24."
            )

    def grid(self, clip_norm: float) -> float:
        """Distance of two neighbours on the lattice: a power of two, so that floats hold it."""
        return lattice_grid(clip_norm, self.bits)

    def sentence(self) -> str:
        """What is special about the noise, for a reader who knows no papers."""
        return " Sums and noise are whole multiples of a grid."

    def settings(self, *, clip_norm: float, num_steps: int) -> dict[str, Scalar]:
        """The noise and its grid."""
        return super().settings(clip_norm=clip_norm, num_steps=num_steps) | {
            "noise_arithmetic": "whole multiples of a grid",
            "lattice_bits": self.bits,
            "lattice_grid": self.grid(clip_norm),
        }

    def assumptions(self) -> tuple[Assumption, ...]:
        """Rounding stays within the clip norm."""
        return (
            enforced(
                "What one unit adds to the rounded sums is within the clip norm.",
                "gradients are clipped to the clip norm less what rounding can add to all entries",
            ),
        )

    def clip_room(self, *, clip_norm: float, num_entries: int) -> float:
        """What rounding can add to the part of a unit.

        A sum with the unit and one without it move by half a grid each, in every entry.
        """
        return lattice_slack(self.grid(clip_norm), num_entries)


@dataclasses.dataclass(frozen=True, kw_only=True)
class BandedNoise(StepMechanism):
    """Noise of a step that takes back part of the noise of the steps before it.

    The noise of all steps is C^-1 z, with independent z and a lower triangular C of
    `num_bands` bands whose columns have norm 1 at most. A row has a turn in every
    `num_bands`-th step only, so its turns meet columns of C that do not overlap
    (Choquette-Choo et al. 2023, arXiv 2306.08153).
    """

    kind: ClassVar[str] = "banded"

    num_bands: int = 16
    """Steps whose noise is correlated. Also the number of groups that take turns in batches:
    more bands cancel more noise and need more of it. 1 is independent noise."""

    def __post_init__(self) -> None:
        check_count("num_bands", self.num_bands)
        if self.num_bands > _MOST_BANDS:
            raise ConfigError(
                f"num_bands={self.num_bands} must be <= {_MOST_BANDS}; 4 to 256 are useful."
            )

    @property
    def num_groups(self) -> int:
        """Number of groups of rows that take turns: as many as there are bands."""
        return self.num_bands

    def sentence(self) -> str:
        """What is special about the noise, for a reader who knows no papers."""
        if self.num_bands == 1:
            return ""
        return (
            " The noise of a step takes back part of the noise of the "
            f"{self.num_bands - 1} steps before it."
        )

    def settings(self, *, clip_norm: float, num_steps: int) -> dict[str, Scalar]:
        """The noise, its bands and the exponent that they are tuned to."""
        matrix = BandMatrix(num_bands=self.num_bands, num_steps=num_steps)
        return super().settings(clip_norm=clip_norm, num_steps=num_steps) | {
            "num_bands": self.num_bands,
            "band_exponent": matrix.exponent,
        }

    def bounds(self, sampler: StepSampler) -> tuple[Bound, ...]:
        """Most steps that one row can take part in."""
        groups = _cyclic(sampler)
        return (
            Bound(
                what="steps that one row can take part in",
                limit=groups.max_participations,
                where=f"{groups.num_groups} groups of rows take turns",
            ),
        )

    def assumptions(self) -> tuple[Assumption, ...]:
        """Turns of a row are apart, and the noise is C^-1 z."""
        return (
            enforced(
                f"The steps of one row are {self.num_bands} steps apart, or a multiple of that.",
                "rows are in public groups that never change, and step t draws from group t modulo "
                "their number, also after an interruption",
            ),
            enforced(
                "All steps together have noise C^-1 z with independent z.",
                "C has as many bands as there are groups, and columns of norm 1 at most; it starts "
                "again where a run goes on, which only shortens columns",
            ),
        )

    def event(self, step: Event, sampler: StepSampler) -> Event:
        """What all steps cost the owner of a row.

        Columns of C have norm 1 at most, where the noise of all steps is C^-1 z.

        Args:
          step: What one step releases: a Gaussian.
          sampler: Batches of as many groups as there are bands.
        """
        return _cyclic(sampler).event(step, num_bands=self.num_bands)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SelectedRows(StepMechanism):
    """Only table rows whose noisy count in the batch is high get a gradient and noise.

    DP-AdaFEST (Ghazi et al. 2023, arXiv 2311.08357). In each step every unit adds a vector of
    norm 1 at most to counts of table rows: the same amount for every row that it reads. The
    counts get noise, and rows whose noisy count reaches the threshold are selected. Their
    gradient, and that of all parameters outside the tables, gets noise; other rows get neither.
    """

    kind: ClassVar[str] = "selected rows"
    selects_rows: ClassVar[bool] = True

    selection_share: float = 0.1
    """Share s of the privacy of a step that goes into the counts: their noise multiplier is
    noise_multiplier / sqrt(s), that of the gradients noise_multiplier / sqrt(1 - s). The two
    together cost one Gaussian with noise_multiplier."""
    threshold: float = 3.0
    """Least noisy count of a row that is selected, in standard deviations of the count noise.
    A row that nobody reads is selected with the probability of a normal above this: 0.00135 at
    3."""

    def __post_init__(self) -> None:
        share = check_finite("selection_share", self.selection_share)
        if not 0 < share <= _MOST_SELECTION_SHARE:
            raise ConfigError(
                f"selection_share={self.selection_share} must be in (0, {_MOST_SELECTION_SHARE}], "
                "e.g. 0.1."
            )
        if not check_finite("threshold", self.threshold) > 0:
            raise ConfigError(
                f"threshold={self.threshold} must be > 0 standard deviations of the count noise, "
                "e.g. 3: at 0 half of the rows that nobody reads would be selected."
            )
        if self.threshold > LARGEST_THRESHOLD:
            raise ConfigError(
                f"threshold={self.threshold} must be <= {LARGEST_THRESHOLD:g} standard deviations "
                "of the count noise; 3 to 5 are useful."
            )

    def sentence(self) -> str:
        """What is special about the noise, for a reader who knows no papers."""
        return (
            " Each step chooses table rows by noisy counts; other rows get neither gradient "
            "nor noise."
        )

    def settings(self, *, clip_norm: float, num_steps: int) -> dict[str, Scalar]:
        """The noise, its share of the counts and the threshold."""
        return super().settings(clip_norm=clip_norm, num_steps=num_steps) | {
            "selection_share": self.selection_share,
            "selection_threshold": self.threshold,
        }

    def bounds(self, sampler: StepSampler) -> tuple[Bound, ...]:
        """Most that one unit adds to the counts of table rows."""
        del sampler
        return (
            Bound(
                what="L2 norm of the part of one unit in the counts of table rows",
                limit=1,
                where="clipped over the rows of all tables together",
            ),
        )

    def assumptions(self) -> tuple[Assumption, ...]:
        """Which rows change is covered by the event."""
        return (
            enforced(
                "Which table rows change in a step is covered by its event.",
                "rows are chosen by noisy counts, and counts and gradients share the event",
            ),
        )


StepNoise = IndependentNoise | LatticeNoise | BandedNoise | SelectedRows
"""All kinds of noise, as one type for settings files."""


def lattice_grid(clip_norm: float, bits: int) -> float:
    """The largest power of two that is not above clip_norm * 2**-bits.

    With a power of two, sums in grid widths and grid points as floats are exact.
    """
    check_count("bits", bits)
    if not check_finite("clip_norm", clip_norm) > 0:
        raise ConfigError(f"clip_norm={clip_norm} must be > 0.")
    _, exponent = math.frexp(clip_norm)
    grid = math.ldexp(1.0, max(exponent - 1 - bits, -1100))
    if grid < _FINEST:
        raise ConfigError(
            f"clip_norm={clip_norm} with bits={bits} makes a grid finer than float32 can hold; "
            "lower bits or rescale the clip norm."
        )
    return grid


def lattice_slack(grid: float, num_entries: int) -> float:
    """How much rounding to the grid can add to what one unit moves a sum by.

    Clip units to clip_norm - lattice_slack(grid, num_entries), and noise of
    noise_multiplier * clip_norm has the event of the plan.

    Proof: rounding moves each entry by grid / 2 at most, so for sums s and s + x the
    difference of the rounded sums is x but for at most grid in each of d entries:
    |round(s + x) - round(s)| <= |x| + grid * sqrt(d). Added or removed, a unit clipped to
    clip_norm - grid * sqrt(d) moves the rounded sum by clip_norm at most, whatever the
    others sum up to. A replaced unit x' of a sampled batch needs the same constant: the
    event of a sampled replacement has the batch without the unit in the middle, and both
    round(s + x) and round(s + x') must be within clip_norm of round(s). They are, and so
    within 2 * clip_norm of each other. (Without sampling 2 * |x| + grid * sqrt(d) <=
    2 * clip_norm would do, so half of this slack. The larger one covers every case.)

    Args:
      grid: Width of the lattice.
      num_entries: Entries of all sums of a step together, those of the monitor too.
    """
    return rounded_up(grid * math.sqrt(check_count("num_entries", num_entries)))


def _cyclic(sampler: StepSampler) -> CyclicPoisson:
    if not isinstance(sampler, CyclicPoisson):
        raise ConfigError(
            f"sampler={type(sampler).__name__} has no groups of rows that take turns, which "
            "BandedNoise() needs; draw batches with CyclicPoisson."
        )
    return sampler
