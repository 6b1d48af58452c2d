"""Noise on the labels of a table whose units own several rows, and the settings that choose it."""

import dataclasses
import secrets
from collections.abc import Sequence
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from tulle.errors import ConfigError, RunStateError
from tulle.labels.label_mechanism import DescribedMechanism, NoisyLabels
from tulle.labels.label_noise import LabelNoise, single_values
from tulle.labels.mechanisms.unit_response import (
    JointResponse,
    PerRowResponse,
    RowShare,
    UnitResponse,
)
from tulle.labels.unit_rows import KeptRows, UnitNoisyLabels, UnitRows, check_binary_labels
from tulle.mechanisms.entropy import NoiseSource
from tulle.mechanisms.noisy_reports import BinaryChannel
from tulle.privacy.events import Event
from tulle.privacy.fields import Scalar, check_choice, check_prob
from tulle.privacy.plan import Bound
from tulle.privacy.units import Unit

_KEY_BYTES = 32
"""Length of the secret key by which random rows of a unit are chosen; fresh for each release."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class UnitNoise(LabelNoise):
    """Noise on binary labels of all rows of a unit under one budget."""

    mechanism: UnitResponse
    base_rate: float = 0.05
    """A public guess of the share of ones, for the weights of rows."""

    is_for_units: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_prob("base_rate", self.base_rate)

    @property
    def name(self) -> str:
        """The word for it on the command line and on cards."""
        return self.mechanism.name

    @property
    def epsilon(self) -> float:
        """What all noisy labels of one unit cost."""
        return self.mechanism.epsilon

    def event(self, unit_rows: UnitRows | None = None) -> Event:
        """What the release costs one unit, by the numbers of rows that units have."""
        return self.mechanism.event(sorted(self._grouped(unit_rows).length_counts()))

    def sentence(self, unit: Unit) -> str:
        """How the labels are randomized."""
        return f"the labels of each {unit} are randomized once under one budget"

    def settings(self) -> dict[str, Scalar]:
        """The settings of the mechanism, and the guess."""
        return single_values(self.mechanism.describe()) | {"base_rate": self.base_rate}

    def bounds(self) -> tuple[Bound, ...]:
        """The caps of the mechanism."""
        return self.mechanism.bounds()

    def check_labels(self, raw_labels: NDArray[Any]) -> None:
        """Refuses labels other than 0 and 1, without showing them.

        Privacy:
          Releases nothing: the error shows none of the labels.
        """
        check_binary_labels(raw_labels, len(raw_labels))

    def summary(self, raw_labels: NDArray[Any]) -> NDArray[np.uint8]:
        """The labels themselves: the rows of a unit may lie in any block. Sensitive.

        Privacy:
          Releases nothing.
        """
        return raw_labels.astype(np.uint8)

    def start(
        self,
        raw_summaries: Sequence[NDArray[Any] | None],
        unit_rows: UnitRows | None,
        *,
        rng: NoiseSource,
    ) -> "UnitDraw":
        """Draws all noisy labels, which then come block by block.

        Args:
          raw_summaries: The labels of each block.
          unit_rows: The rows of each unit.
          rng: Source of the noise. Sensitive: never log or save its state.

        Privacy:
          Unit: that of `unit_rows`, replace. Event: `event(unit_rows)`. Relies on: the caller has
          paid, and starts once.
        """
        raw_labels = np.concatenate([labels for labels in raw_summaries if labels is not None])
        drawn = self.mechanism.release(
            raw_labels, self._grouped(unit_rows), rng=rng, key=secrets.token_bytes(_KEY_BYTES)
        )
        weights = drawn.channel.weights(self.base_rate)
        return UnitDraw(self.mechanism.describe(), drawn, weights / weights.max())

    def _grouped(self, unit_rows: UnitRows | None) -> UnitRows:
        if unit_rows is None:
            raise RunStateError(f"mechanism {self.name!r} needs the rows of each unit; group them.")
        return unit_rows


class UnitDraw:
    """Noisy labels of a table that were drawn all at once, given out block by block."""

    def __init__(
        self, description: dict[str, Any], drawn: UnitNoisyLabels, weights: NDArray[np.float64]
    ) -> None:
        self.description = description
        self._drawn, self._weights = drawn, weights
        self._num_before = 0

    def next_block(self, raw_labels: NDArray[Any]) -> NoisyLabels:
        """Noisy labels of the next rows of the table; of the labels only the number counts.

        Privacy:
          Releases nothing beyond what was drawn.
        """
        first, last = self._num_before, self._num_before + len(raw_labels)
        self._num_before = last
        start, stop = np.searchsorted(self._drawn.rows, (first, last))
        part, channel = slice(int(start), int(stop)), self._drawn.channel
        return NoisyLabels(
            labels=self._drawn.labels[part],
            targets=self._drawn.targets[part],
            noise_variance=self._drawn.noise_variance[part],
            channel=BinaryChannel(
                prob_if_negative=channel.prob_if_negative[part],
                prob_if_positive=channel.prob_if_positive[part],
            ),
            rows=self._drawn.rows[part] - first,
            weights=self._weights[part],
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class _UnitSettings:
    """Settings of mechanisms for labels of 0 and 1 where a unit owns several rows."""

    max_rows_per_unit: int | None = None
    """Most rows of a unit that are kept; None: all are kept."""
    row_choice: KeptRows | str = KeptRows.FIRST
    """Which rows of a unit are kept: "first" or "random"."""
    base_rate: float = 0.05
    """A public guess of the share of ones. It sets weights and costs no privacy."""

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "row_choice", check_choice("row_choice", self.row_choice, KeptRows)
        )

    @classmethod
    def example(cls) -> Self:
        """Settings with a cap of three rows, for audits and contracts."""
        return cls(max_rows_per_unit=3)


@dataclasses.dataclass(frozen=True, kw_only=True)
class UnitRr(_UnitSettings):
    """Randomized response on each row, which gets a share of its unit's epsilon."""

    row_share: RowShare | str = RowShare.OWN
    """Epsilon over the rows that a unit has ("own") or over the cap ("equal")."""

    kind: ClassVar[str] = PerRowResponse.name
    mechanism_class: ClassVar[type[DescribedMechanism]] = PerRowResponse

    def __post_init__(self) -> None:
        super().__post_init__()
        share = check_choice("row_share", self.row_share, RowShare)
        object.__setattr__(self, "row_share", share)
        if share is RowShare.EQUAL and self.max_rows_per_unit is None:
            raise ConfigError("row_share='equal' needs max_rows_per_unit, the cap.")

    def noise(self, epsilon: float) -> UnitNoise:
        """The noise on labels that costs this epsilon in all."""
        mechanism = PerRowResponse(
            epsilon=epsilon,
            max_rows_per_unit=self.max_rows_per_unit,
            row_share=check_choice("row_share", self.row_share, RowShare),
            row_choice=check_choice("row_choice", self.row_choice, KeptRows),
        )
        return UnitNoise(mechanism=mechanism, base_rate=self.base_rate)


@dataclasses.dataclass(frozen=True, kw_only=True)
class JointSubset(_UnitSettings):
    """One draw for all labels of a unit: a set of rows that holds its conversion."""

    kind: ClassVar[str] = "joint-subset"
    mechanism_class: ClassVar[type[DescribedMechanism]] = JointResponse

    def noise(self, epsilon: float) -> UnitNoise:
        """The noise on labels that costs this epsilon in all."""
        return self._joint(epsilon, max_conversions=1, subset=True)

    def _joint(self, epsilon: float, *, max_conversions: int, subset: bool) -> UnitNoise:
        mechanism = JointResponse(
            epsilon=epsilon,
            max_conversions_per_unit=max_conversions,
            max_rows_per_unit=self.max_rows_per_unit,
            subset=subset,
            row_choice=check_choice("row_choice", self.row_choice, KeptRows),
            assumed_base_rate=self.base_rate,
        )
        return UnitNoise(mechanism=mechanism, base_rate=self.base_rate)


@dataclasses.dataclass(frozen=True, kw_only=True)
class JointRr(JointSubset):
    """One draw for all labels of a unit: which of its rows converted."""

    max_conversions_per_unit: int = 1
    """Most conversions of a unit that count; further ones count as none."""

    kind: ClassVar[str] = "joint-rr"

    def noise(self, epsilon: float) -> UnitNoise:
        """The noise on labels that costs this epsilon in all."""
        return self._joint(epsilon, max_conversions=self.max_conversions_per_unit, subset=False)


def settings_of_units(
    mechanism: PerRowResponse | JointResponse, base_rate: float
) -> UnitRr | JointRr | JointSubset:
    """The settings that choose a mechanism, as a planner recommends it.

    Args:
      mechanism: One way to release the labels of units.
      base_rate: The public guess of the share of ones.
    """
    shared: Any = {
        "max_rows_per_unit": mechanism.max_rows_per_unit,
        "row_choice": mechanism.row_choice,
        "base_rate": base_rate,
    }
    if isinstance(mechanism, PerRowResponse):
        return UnitRr(**shared, row_share=mechanism.row_share)
    if mechanism.subset:
        return JointSubset(**shared)
    return JointRr(**shared, max_conversions_per_unit=mechanism.max_conversions_per_unit)
