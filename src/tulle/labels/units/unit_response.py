"""Noisy labels where a unit owns several rows: noise on each row, or one draw for the unit.

Noise on each row shares epsilon among the rows of a unit, so many rows mean much
noise. One draw for all labels of a unit spends epsilon once, and drops conversions
beyond a cap instead. Both are private under replacement of a unit's labels only:
the rows of a unit, their number and their order must be public.
"""

import dataclasses
import enum
import functools
from collections.abc import Iterable
from typing import Any, Protocol

from numpy.typing import ArrayLike

from tulle.errors import ConfigError
from tulle.labels.units.row_caps import RowChoice, cap_rows, check_row_choice
from tulle.labels.units.unit_labels import UnitNoisyLabels, check_binary_labels, release_blocks
from tulle.labels.units.unit_rows import UnitRows
from tulle.labels.units.unit_variance import channel_of, row_channel
from tulle.mechanisms.binary_channel import BinaryChannel
from tulle.mechanisms.entropy import NoiseSource
from tulle.mechanisms.epsilon_shares import epsilon_share
from tulle.mechanisms.joint_response import (
    ConversionChoice,
    JointResponseConfig,
    JointSubsetConfig,
    respond_jointly,
)
from tulle.mechanisms.randomized_response import RandomizedResponseConfig, randomize_bits
from tulle.mechanisms.subset_ranks import BitMatrix
from tulle.privacy.events import Composed, Event, Parallel, RandomizedResponse, Repeated
from tulle.privacy.fields import check_count

MOST_PARTS = 64
"""Most sizes of units that an event lists one by one."""


class RowShare(enum.Enum):
    """How the rows of a unit share its epsilon."""

    EQUAL = "equal"
    """Every row gets epsilon over the cap, also where a unit has fewer rows."""
    OWN = "own"
    """Every row gets epsilon over the number of rows that its unit keeps."""


class UnitMechanism(Protocol):
    """A way to release the labels of units that own several rows. All settings are public."""

    @property
    def name(self) -> str:
        """The word for it on the command line and on cards."""

    @property
    def epsilon(self) -> float:
        """Largest log-likelihood ratio between any two label vectors of a unit."""

    def num_kept(self, length: int) -> int:
        """Rows that a unit with so many rows keeps."""

    def row_channel(self, length: int) -> BinaryChannel:
        """What the report of a row says, in a unit with so many rows."""

    def event(self, lengths: Iterable[int]) -> Event:
        """What one release costs a unit, where units have these numbers of rows."""

    def release(
        self,
        raw_labels: ArrayLike,
        unit_rows: UnitRows,
        *,
        rng: NoiseSource,
        key: bytes | None = None,
    ) -> UnitNoisyLabels:
        """Draws the noisy labels of all units, once.

        Privacy:
          Unit: all labels of one unit, replace. Event: that of `event`. Relies on: all rows of a
          unit in one group, drawn once.
        """

    def describe(self) -> dict[str, Any]:
        """Settings as plain data."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PerRowResponse:
    """Binary randomized response on each row, with a share of the unit's epsilon."""

    epsilon: float
    """For all rows of a unit together."""
    max_rows_per_unit: int | None
    """Rows of a unit beyond it are dropped. None, all rows, needs RowShare.OWN."""
    share: RowShare = RowShare.OWN
    choice: RowChoice = RowChoice.FIRST

    def __post_init__(self) -> None:
        RandomizedResponse(epsilon=self.epsilon)
        check_row_choice(self.choice)
        if not isinstance(self.share, RowShare):
            raise ConfigError(f"share={self.share!r} must be a RowShare, e.g. RowShare.OWN.")
        if self.max_rows_per_unit is not None:
            check_count("max_rows_per_unit", self.max_rows_per_unit)
            self.response(self.max_rows_per_unit)
        elif self.share is RowShare.EQUAL:
            raise ConfigError(
                "max_rows_per_unit=None with share='equal' bounds nothing; "
                "give a cap, or use RowShare.OWN."
            )

    @property
    def name(self) -> str:
        """The word for it on the command line and on cards."""
        return "unit-rr"

    def num_kept(self, length: int) -> int:
        """Rows that a unit with so many rows keeps."""
        return _num_kept(length, self.max_rows_per_unit)

    def response(self, length: int) -> RandomizedResponseConfig:
        """The randomized response on each row of a unit with so many rows."""
        num_shares = self.num_kept(length)
        if self.share is RowShare.EQUAL and self.max_rows_per_unit is not None:
            num_shares = self.max_rows_per_unit
        return RandomizedResponseConfig(epsilon=epsilon_share(self.epsilon, num_shares))

    def row_channel(self, length: int) -> BinaryChannel:
        """What the report of a row says, in a unit with so many rows."""
        return channel_of(self.response(length).support_probs)

    def event(self, lengths: Iterable[int]) -> Event:
        """What one release costs a unit, where units have these numbers of rows."""
        sizes = sorted({self.num_kept(length) for length in lengths})
        if self.share is RowShare.EQUAL:
            sizes = sizes[-1:]  # one row more costs more: the largest units bound the others
        return _parallel([self._event_of(size) for size in sizes], self.epsilon)

    def release(
        self,
        raw_labels: ArrayLike,
        unit_rows: UnitRows,
        *,
        rng: NoiseSource,
        key: bytes | None = None,
    ) -> UnitNoisyLabels:
        """Draws one noisy label for each kept row.

        Args:
          raw_labels: 0 or 1 for each row of the table.
          unit_rows: The rows of each unit.
          rng: Source of the noise. Sensitive: never log or save its state.
          key: At least 16 secret bytes, for a random choice of rows only.

        Privacy:
          Unit: that of `unit_rows`, replace. Event: `event(lengths)`, with the lengths of
          `unit_rows`. Relies on: rows of units are public, labels are released once.
        """
        labels = check_binary_labels(raw_labels, unit_rows.num_table_rows)
        capped = cap_rows(
            unit_rows, max_rows_per_unit=self.max_rows_per_unit, choice=self.choice, key=key
        )

        def draw(raw_vectors: BitMatrix) -> BitMatrix:
            return randomize_bits(raw_vectors, self.response(raw_vectors.shape[1]), rng=rng)

        # The variance does not depend on the label, so any base rate gives it.
        return release_blocks(labels, capped, draw, self.row_channel, base_rate=0.5)

    def describe(self) -> dict[str, Any]:
        """Settings as plain data."""
        return {
            "mechanism": self.name,
            "epsilon": self.epsilon,
            "max_rows_per_unit": self.max_rows_per_unit,
            "row_share": self.share.value,
            "row_choice": self.choice.value,
        }

    def _event_of(self, size: int) -> Event:
        return Repeated(event=self.response(size).event(), count=size)


@dataclasses.dataclass(frozen=True, kw_only=True)
class JointResponse:
    """One draw for all labels of a unit, of which at most a few are 1."""

    epsilon: float
    """For all labels of a unit together."""
    max_conversions_per_unit: int = 1
    """Conversions of a unit beyond it count as none."""
    max_rows_per_unit: int | None = None
    """Rows of a unit beyond it are dropped; None keeps all."""
    subset: bool = False
    """Subset selection instead of randomized response: better for small epsilon and many
    rows. Needs a cap of one conversion."""
    row_choice: RowChoice = RowChoice.FIRST
    conversion_choice: ConversionChoice = ConversionChoice.FIRST
    assumed_base_rate: float = 0.05
    """A public guess of the share of labels that are 1. Only the stated noise variance uses it."""

    def __post_init__(self) -> None:
        check_row_choice(self.row_choice)
        check_count("max_conversions_per_unit", self.max_conversions_per_unit)
        if not isinstance(self.subset, bool):
            raise ConfigError(f"subset={self.subset!r} must be True or False.")
        if self.subset and self.max_conversions_per_unit != 1:
            raise ConfigError(
                f"max_conversions_per_unit={self.max_conversions_per_unit} must be 1 with "
                "subset=True; use subset=False for more."
            )
        if self.max_rows_per_unit is not None:
            check_count("max_rows_per_unit", self.max_rows_per_unit)
        if not 0 < self.assumed_base_rate < 1:
            raise ConfigError(
                f"assumed_base_rate={self.assumed_base_rate} must be between 0 and 1, e.g. 0.05."
            )
        self.vector_config(self.max_rows_per_unit or 1)

    @property
    def name(self) -> str:
        """The word for it on the command line and on cards."""
        return "joint-subset" if self.subset else "joint-rr"

    def num_kept(self, length: int) -> int:
        """Rows that a unit with so many rows keeps."""
        return _num_kept(length, self.max_rows_per_unit)

    def vector_config(self, length: int) -> JointResponseConfig | JointSubsetConfig:
        """The randomizer of the label vector of a unit with so many rows."""
        num_rows = self.num_kept(length)
        if self.subset:
            return JointSubsetConfig(
                epsilon=self.epsilon, num_rows=num_rows, choice=self.conversion_choice
            )
        return JointResponseConfig(
            epsilon=self.epsilon,
            num_rows=num_rows,
            max_conversions=self.max_conversions_per_unit,
            choice=self.conversion_choice,
        )

    def row_channel(self, length: int) -> BinaryChannel:
        """What the report of a row says about its label within the cap of conversions."""
        return row_channel(self.vector_config(length))

    def event(self, lengths: Iterable[int]) -> Event:
        """What one release costs a unit, where units have these numbers of rows."""
        sizes = sorted({self.num_kept(length) for length in lengths})
        return _parallel([self.vector_config(size).event() for size in sizes], self.epsilon)

    def release(
        self,
        raw_labels: ArrayLike,
        unit_rows: UnitRows,
        *,
        rng: NoiseSource,
        key: bytes | None = None,
    ) -> UnitNoisyLabels:
        """Draws one report about all labels of each unit.

        Args:
          raw_labels: 0 or 1 for each row of the table.
          unit_rows: The rows of each unit.
          rng: Source of the noise. Sensitive: never log or save its state.
          key: At least 16 secret bytes, for a random choice of rows only.

        Privacy:
          Unit: that of `unit_rows`, replace. Event: `event(lengths)`, with the lengths of
          `unit_rows`. Relies on: rows of units are public, labels are released once.
        """
        labels = check_binary_labels(raw_labels, unit_rows.num_table_rows)
        capped = cap_rows(
            unit_rows, max_rows_per_unit=self.max_rows_per_unit, choice=self.row_choice, key=key
        )
        config_of = functools.lru_cache(maxsize=1)(self.vector_config)

        def draw(raw_vectors: BitMatrix) -> BitMatrix:
            return respond_jointly(raw_vectors, config_of(raw_vectors.shape[1]), rng=rng)

        def channel(length: int) -> BinaryChannel:
            return row_channel(config_of(length))

        return release_blocks(labels, capped, draw, channel, base_rate=self.assumed_base_rate)

    def describe(self) -> dict[str, Any]:
        """Settings as plain data."""
        return {
            "mechanism": self.name,
            "epsilon": self.epsilon,
            "max_conversions_per_unit": self.max_conversions_per_unit,
            "max_rows_per_unit": self.max_rows_per_unit,
            "row_choice": self.row_choice.value,
            "conversion_choice": self.conversion_choice.value,
            "assumed_base_rate": self.assumed_base_rate,
        }


def _num_kept(length: int, max_rows_per_unit: int | None) -> int:
    check_count("length", length)
    return length if max_rows_per_unit is None else min(length, max_rows_per_unit)


def _parallel(parts: list[Event], epsilon: float) -> Event:
    """One event for each size of a unit; sizes are public, so a unit stays in its part."""
    if not parts:
        return Composed()
    if len(parts) == 1:
        return parts[0]
    if len(parts) > MOST_PARTS:
        # Everything pure at epsilon is a function of binary randomized response at epsilon
        # (Kairouz, Oh, Viswanath 2015).
        return RandomizedResponse(epsilon=epsilon)
    return Parallel(events=tuple(parts), parts_are_public=True)
