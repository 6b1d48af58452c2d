"""Sums of feature rows over the conversions, released once with noise.

The gradient of logistic regression is the sum of sigmoid(theta . x) x minus the sum of
x over the rows with label 1. Features are public, so labels enter through that second
sum alone: z = X^T y. It is released once, and every model fitted to it is free.

Where a unit owns several rows, only its first few conversions count. Rows and their order are
public; which rows convert is not. What is kept depends on the unit's own labels alone, so replacing
one unit's labels changes nothing of another's.
"""

import dataclasses
import enum
import math
from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from tulle.data.prepared.dataset import PublicDataset
from tulle.errors import ConfigError, DataError
from tulle.lab.linear_labels.feature_rows import (
    BoundedFeatures,
    ClippedFeatureRows,
    OneHotFields,
    OneHotRows,
)
from tulle.mechanisms.discrete_laplace import DiscreteLaplaceConfig, release_discrete_laplace
from tulle.mechanisms.entropy import NoiseSource
from tulle.mechanisms.gaussian import GaussianConfig, release_gaussian
from tulle.privacy.events import Event
from tulle.privacy.fields import check_count
from tulle.privacy.units import Adjacency

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]
Layout = OneHotFields | BoundedFeatures
FeatureRows = OneHotRows | ClippedFeatureRows


class SumsNoise(enum.Enum):
    """The law of the noise on label sums."""

    LAPLACE = "laplace"
    """Discrete Laplace: pure epsilon, grows with the number of fields."""
    GAUSSIAN = "gaussian"
    """Gaussian on a lattice: needs a delta, grows with the root of that number."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class LabelSumsConfig:
    """Settings of noisy label sums. Every field is public information."""

    layout: Layout
    noise: SumsNoise
    noise_multiplier: float
    """Laplace scale or Gaussian standard deviation over the largest contribution of a unit."""
    max_conversions_per_unit: int | None = None
    """Conversions of a unit that count, the first ones; None if each row is its own unit."""

    def __post_init__(self) -> None:
        if self.max_conversions_per_unit is not None:
            check_count("max_conversions_per_unit", self.max_conversions_per_unit)
        if not isinstance(self.noise, SumsNoise):
            raise ConfigError(f"noise={self.noise!r} must be a SumsNoise, e.g. SumsNoise.GAUSSIAN.")
        if self.noise is SumsNoise.LAPLACE and isinstance(self.layout, BoundedFeatures):
            raise ConfigError(
                "noise=laplace needs one-hot fields, whose rows have a known L1 norm; "
                "for real features with a bound on the L2 norm use SumsNoise.GAUSSIAN."
            )
        self.event()

    @classmethod
    def for_epsilon(
        cls,
        layout: Layout,
        *,
        epsilon: float,
        delta: float = 0.0,
        noise: SumsNoise = SumsNoise.GAUSSIAN,
        max_conversions_per_unit: int | None = None,
    ) -> "LabelSumsConfig":
        """The least noise with which one release is (epsilon, delta)-private.

        Args:
          layout: What the columns are.
          epsilon: What one release may cost.
          delta: Probability that the bound may fail; 0 needs Laplace noise.
          noise: The law of the noise.
          max_conversions_per_unit: Conversions of a unit that count; None: each row is a unit.
        """
        if noise is SumsNoise.GAUSSIAN and not delta > 0:
            raise ConfigError(
                f"delta={delta} must be > 0 for Gaussian noise; use SumsNoise.LAPLACE for delta=0."
            )
        trial = cls(
            layout=layout,
            noise=noise,
            noise_multiplier=1.0,
            max_conversions_per_unit=max_conversions_per_unit,
        )
        return dataclasses.replace(trial, noise_multiplier=trial._least_multiplier(epsilon, delta))

    @property
    def max_contribution(self) -> float:
        """Largest norm of what one unit adds to the sums: L1 for Laplace, L2 for Gaussian."""
        if isinstance(self.layout, BoundedFeatures):
            return self._num_counted * self.layout.max_norm
        norm = self.layout.num_ones
        return self._num_counted * (norm if self.noise is SumsNoise.LAPLACE else math.sqrt(norm))

    @property
    def replace_factor(self) -> float:
        """How much further than a removal other labels of one unit move the sums."""
        if self.max_conversions_per_unit is None:
            return 1.0  # one row is in the sum or is not
        if isinstance(self.layout, BoundedFeatures):
            return 2.0
        # c and c' conversions move the constant by |c - c'|, and each other field from c ones
        # to c' ones, elsewhere at worst. That is convex in (c, c'), so the largest distance is
        # at (C, 0) or (C, C): in L1 max(m, 2 (m - 1)) C, in squared L2 the same times C.
        num_ones = self.layout.num_ones
        ratio = max(1.0, 2 * (num_ones - 1) / num_ones)
        factor = ratio if self.noise is SumsNoise.LAPLACE else math.sqrt(ratio)
        return min(2.0, math.nextafter(factor, math.inf)) if factor > 1 else 1.0

    @property
    def mechanism(self) -> DiscreteLaplaceConfig | GaussianConfig:
        """The noise on each sum."""
        if self.noise is SumsNoise.LAPLACE:
            return DiscreteLaplaceConfig(
                scale=self.noise_multiplier * self.max_contribution,
                max_contribution=int(self.max_contribution),
                replace_factor=self.replace_factor,
            )
        most_values = self.layout.num_columns
        if isinstance(self.layout, OneHotFields):
            most_values = min(most_values, self._num_counted * self.layout.num_ones)
        return GaussianConfig(
            noise_multiplier=self.noise_multiplier,
            max_contribution=self.max_contribution,
            max_values_per_unit=most_values,
            replace_factor=self.replace_factor,
        )

    @property
    def noise_stddev(self) -> float:
        """Standard deviation of the noise on each sum."""
        return self.mechanism.noise_stddev

    def event(self) -> Event:
        """What one release costs, under replacement of a unit's labels."""
        return self.mechanism.event()

    @property
    def _num_counted(self) -> int:
        return self.max_conversions_per_unit or 1

    def _least_multiplier(self, epsilon: float, delta: float) -> float:
        if self.noise is SumsNoise.LAPLACE:
            fitted = DiscreteLaplaceConfig.for_epsilon(
                epsilon,
                adjacency=Adjacency.REPLACE,
                max_contribution=int(self.max_contribution),
                replace_factor=self.replace_factor,
            )
            return fitted.scale / self.max_contribution
        return GaussianConfig.for_epsilon(
            epsilon, delta, adjacency=Adjacency.REPLACE, replace_factor=self.replace_factor
        ).noise_multiplier


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class LabelBlock:
    """Some rows with their labels. Raw data."""

    rows: FeatureRows
    raw_labels: NDArray[np.generic]
    """0 or 1 a row."""
    units: IntArray | None = None
    """Equal for rows of one unit; None if each row is its own."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class NoisyLabelSums:
    """Noisy label sums of all columns. May be published."""

    noisy_sums: FloatArray
    least_sums: FloatArray
    """The sums if no label or only those of negative entries were 1: follows from features."""
    most_sums: FloatArray
    """The largest sums that labels can make. One-hot: how many rows have the feature."""
    num_rows: int
    noise_stddev: float
    event: Event
    layout: Layout


def release_label_sums(
    blocks: Iterable[LabelBlock], config: LabelSumsConfig, *, rng: NoiseSource | None = None
) -> NoisyLabelSums:
    """Sums the rows of the conversions over all blocks and adds noise once.

    Args:
      blocks: The table in parts, in the order of its rows. Memory holds one part, the sums
        and one number for each unit with a conversion.
      config: Noise and contribution settings.
      rng: Source of the noise; None: the operating system. Sensitive: never log its state.

    Privacy:
      Unit: one row, or all rows of a unit; its labels are replaced, its features, its number
      of rows and their order stay and are public. Sensitivity: max_contribution times
      replace_factor of the config. Event: one DiscreteLaplace or Gaussian for all sums.
      Relies on: labels of 0 or 1, and, by ConversionCap, at most max_conversions_per_unit
      conversions of a unit in the sums.
    """
    layout = config.layout
    raw_sums = np.zeros(layout.num_columns, np.int64)
    least, most = np.zeros(layout.num_columns), np.zeros(layout.num_columns)
    limit = config.max_conversions_per_unit
    cap = None if limit is None else ConversionCap(limit)
    num_rows = 0
    for block in blocks:
        is_conversion = _checked_conversions(block, config)
        if cap is not None and block.units is not None:
            is_conversion = cap.keep(is_conversion, block.units)
        raw_sums += block.rows.exact_sums(is_conversion)
        block_least, block_most = block.rows.sum_bounds()
        least += block_least
        most += block_most
        num_rows += block.rows.num_rows
    if num_rows == 0:
        raise DataError("there is no row to sum; give at least one block with rows.")
    return NoisyLabelSums(
        noisy_sums=_noised(raw_sums, config, rng=rng),
        least_sums=least,
        most_sums=most,
        num_rows=num_rows,
        noise_stddev=config.noise_stddev,
        event=config.event(),
        layout=layout,
    )


def dataset_blocks(
    dataset: PublicDataset, *, per_unit: bool, rows_per_block: int = 1 << 18
) -> Iterator[LabelBlock]:
    """The rows of a prepared dataset, part after part. Its sensitive columns are not there.

    Args:
      dataset: The public part of a prepared dataset.
      per_unit: Whether a unit owns several rows.
      rows_per_block: Most rows of a part.

    Privacy:
      Raw: for `release_label_sums`.
    """
    fields = OneHotFields.of(dataset.features)
    if dataset.labels is None:
        raise DataError("the dataset has no label; prepare it with a label column.")
    if per_unit and dataset.units is None:
        raise DataError("the dataset has no unit column; prepare it with one, or sum per row.")
    for start in range(0, dataset.num_rows, check_count("rows_per_block", rows_per_block)):
        part = slice(start, start + rows_per_block)
        units = dataset.units[part] if per_unit and dataset.units is not None else None
        rows = fields.rows(dataset.public_features[part])
        yield LabelBlock(rows=rows, raw_labels=dataset.labels[part], units=units)


def _checked_conversions(block: LabelBlock, config: LabelSumsConfig) -> BoolArray:
    num_rows = block.rows.num_rows
    if block.rows.layout != config.layout:
        raise DataError("rows of a block have other columns than the config's layout; use one.")
    if isinstance(block.rows, OneHotRows) and block.rows.repeats is not None:
        raise DataError("rows were put together; pass them one by one, each has its label.")
    labels = np.asarray(block.raw_labels)
    if labels.shape != (num_rows,) or labels.dtype.kind not in "biuf":
        raise DataError(f"labels must be numbers in the shape ({num_rows},), one a row.")
    if not np.isin(labels, (0, 1)).all():
        raise DataError("labels must be 0 or 1 and not missing; turn values into conversions.")
    if (block.units is None) != (config.max_conversions_per_unit is None):
        raise DataError(
            "units and max_conversions_per_unit go together: give both to protect all rows of a "
            "unit, neither to protect each row."
        )
    if block.units is not None and (
        block.units.shape != (num_rows,) or block.units.dtype.kind not in "iu"
    ):
        raise DataError(f"units must be whole numbers in the shape ({num_rows},), one a row.")
    return labels.astype(np.bool_)


def _noised(raw_sums: IntArray, config: LabelSumsConfig, *, rng: NoiseSource | None) -> FloatArray:
    mechanism = config.mechanism
    if isinstance(mechanism, DiscreteLaplaceConfig):
        return release_discrete_laplace(raw_sums, mechanism, rng=rng).astype(np.float64)
    if isinstance(config.layout, OneHotFields):
        return release_gaussian(raw_sums, mechanism, rng=rng)
    if np.abs(raw_sums).max() > 2**53:
        raise DataError("the sums exceed 2^53 grid widths; declare a larger max_norm.")
    values = np.ldexp(raw_sums.astype(np.float64), config.layout.grid_exponent)
    return release_gaussian(values, mechanism, rng=rng)


class ConversionCap:
    """Keeps count of every unit's conversions. Raw data: never log or save it."""

    def __init__(self, max_conversions_per_unit: int) -> None:
        self._most = check_count("max_conversions_per_unit", max_conversions_per_unit)
        self._units = np.empty(0, np.int64)
        self._counts = np.empty(0, np.int64)

    def keep(self, is_conversion: BoolArray, units: IntArray) -> BoolArray:
        """Which rows of the next block are among the first conversions of their unit.

        Privacy:
          Raw. Unit: all rows with one number in `units`, over all blocks. At most
          max_conversions_per_unit rows of it are kept.
        """
        rows = np.flatnonzero(is_conversion)
        kept = np.zeros(len(is_conversion), np.bool_)
        kept[rows[self._ranks(units[rows].astype(np.int64)) < self._most]] = True
        return kept

    def _ranks(self, units: IntArray) -> IntArray:
        """How many conversions each of these units had before this one."""
        names, places, counts = np.unique(units, return_inverse=True, return_counts=True)
        order = np.argsort(places, kind="stable")
        firsts = np.cumsum(counts) - counts
        within = np.empty(len(units), np.int64)
        within[order] = np.arange(len(units)) - np.repeat(firsts, counts)
        earlier = self._counts_of(names)
        self._add(names, counts.astype(np.int64))
        result: IntArray = within + earlier[places]
        return result

    def _counts_of(self, names: IntArray) -> IntArray:
        places = np.searchsorted(self._units, names)
        found = np.zeros(len(names), np.int64)
        is_inside = places < len(self._units)
        is_inside[is_inside] = self._units[places[is_inside]] == names[is_inside]
        found[is_inside] = self._counts[places[is_inside]]
        return found

    def _add(self, names: IntArray, counts: IntArray) -> None:
        units, places = np.unique(np.concatenate([self._units, names]), return_inverse=True)
        both = np.concatenate([self._counts, counts])
        # Exact: counts of rows are far below 2^53.
        self._counts = np.bincount(places, both, minlength=len(units)).astype(np.int64)
        self._units = units


def best_noise(
    layout: Layout,
    *,
    epsilon: float,
    delta: float = 0.0,
    max_conversions_per_unit: int | None = None,
) -> LabelSumsConfig:
    """Chooses the law with the smaller noise.

    Args:
      layout: What the columns are.
      epsilon: What one release may cost.
      delta: Probability that the bound may fail.
      max_conversions_per_unit: Conversions of a unit that count; None: each row is a unit.

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
