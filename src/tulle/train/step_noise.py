"""Which noise private steps get. A choice of the plan; its event is the same Gaussian for all.

Whatever is chosen, a step costs one Gaussian with the plan's noise_multiplier on a sampled
batch. The choices differ in where that noise goes: fresh into every entry, on a grid,
correlated from step to step, or into few rows of the tables.
"""

import dataclasses
from typing import ClassVar

from tulle.errors import ConfigError
from tulle.privacy.fields import check_count, check_finite
from tulle.train.lattice.grid import lattice_grid

_FEWEST_BITS, _MOST_BITS = 16, 32
_MOST_BANDS = 4096
_MOST_SELECTION_SHARE = 0.5
_MOST_THRESHOLD = 7.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class IndependentNoise:
    """Fresh normals on every entry of the sum in every step: DP-SGD as it is known."""

    kind: ClassVar[str] = "independent"


@dataclasses.dataclass(frozen=True, kw_only=True)
class LatticeNoise:
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


@dataclasses.dataclass(frozen=True, kw_only=True)
class BandedNoise:
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


@dataclasses.dataclass(frozen=True, kw_only=True)
class SelectedRows:
    """Only table rows whose noisy count in the batch is high get a gradient and noise.

    DP-AdaFEST (Ghazi et al. 2023, arXiv 2311.08357). In each step every unit adds a vector of
    norm 1 at most to counts of table rows: the same amount for every row that it reads. The
    counts get noise, and rows whose noisy count reaches the threshold are selected. Their
    gradient, and that of all parameters outside the tables, gets noise; other rows get neither.
    """

    kind: ClassVar[str] = "selected rows"

    selection_share: float = 0.1
    """Share s of the privacy of a step that goes into the counts: their noise multiplier is
    noise_multiplier / sqrt(s), that of the gradients noise_multiplier / sqrt(1 - s). The two
    together cost one Gaussian with noise_multiplier."""
    threshold: float = 3.0
    """Least noisy count of a row that is selected, in standard deviations of the count noise.
    A row that nobody reads is selected with the chance of a normal above this: 0.00135 at 3."""

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
        if self.threshold > _MOST_THRESHOLD:
            raise ConfigError(
                f"threshold={self.threshold} must be <= {_MOST_THRESHOLD:g} standard deviations "
                "of the count noise; 3 to 5 are useful."
            )


StepNoise = IndependentNoise | LatticeNoise | BandedNoise | SelectedRows

STEP_NOISES: tuple[type[StepNoise], ...] = (
    IndependentNoise,
    LatticeNoise,
    BandedNoise,
    SelectedRows,
)
