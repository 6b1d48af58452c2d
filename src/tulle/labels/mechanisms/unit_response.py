"""Noisy labels where a unit owns several rows: noise on each row, or one draw for the unit.

Noise on each row shares epsilon among the rows of a unit, so many rows mean much
noise. One draw for all labels of a unit spends epsilon once, and drops conversions
beyond a cap instead. Both are private under replacement of a unit's labels only:
the rows of a unit, their number and their order must be public.
"""

import abc
import dataclasses
import enum
import functools
from collections.abc import Iterable
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tulle.errors import ConfigError
from tulle.labels.label_mechanism import (
    ChannelFacts,
    Description,
    LabelKind,
    RowChannels,
)
from tulle.labels.unit_rows import (
    KeptRows,
    UnitNoisyLabels,
    UnitRows,
    cap_rows,
    channel_of,
    check_binary_labels,
    release_blocks,
)
from tulle.mechanisms.entropy import NoiseSource, release_rng
from tulle.mechanisms.joint_response import (
    ConversionChoice,
    JointResponseConfig,
    JointSubsetConfig,
    release_joint_response,
)
from tulle.mechanisms.noisy_reports import BinaryChannel
from tulle.mechanisms.randomized_response import (
    RandomizedResponseConfig,
    epsilon_share,
    release_randomized_bits,
)
from tulle.mechanisms.subset_ranks import BitMatrix
from tulle.privacy.events import Composed, Event, Parallel, RandomizedResponse, Repeated
from tulle.privacy.fields import check_choice, check_count, check_prob
from tulle.privacy.plan import Bound

MOST_PARTS = 64
"""Most sizes of units that an event lists one by one; more would make a plan unreadable."""

BASE_RATE = 0.05
"""Share of labels that are 1 where nobody guesses another; weights and variances use it."""

_MOST_ROWS_SHOWN = 30
"""Most rows of a unit for which a page shows the channel."""


class RowShare(enum.Enum):
    """How the rows of a unit share its epsilon."""

    EQUAL = "equal"
    """Every row gets epsilon over the cap, also where a unit has fewer rows."""
    OWN = "own"
    """Every row gets epsilon over the number of rows that its unit keeps."""


_CHOICES: dict[str, type[enum.Enum]] = {
    "row_choice": KeptRows,
    "row_share": RowShare,
    "conversion_choice": ConversionChoice,
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class UnitResponse(abc.ABC):
    """A way to release the labels of units that own several rows. All settings are public.

    The ways share a cap on rows, a draw for each size of a unit, and what it costs.
    """

    label_kind: ClassVar[LabelKind] = LabelKind.UNITS
    described: ClassVar[tuple[str, ...]]
    """Fields that a record states, in its order."""

    epsilon: float
    """Largest log-likelihood ratio between any two label vectors of a unit."""
    max_rows_per_unit: int | None = None
    """Most rows of a unit that are kept; further ones are dropped. None: all are kept."""
    row_choice: KeptRows = KeptRows.FIRST
    """Which rows of a unit are kept where it has more."""

    def __post_init__(self) -> None:
        for name, choices in _CHOICES.items():
            if hasattr(self, name):
                object.__setattr__(self, name, check_choice(name, getattr(self, name), choices))
        if self.max_rows_per_unit is not None:
            check_count("max_rows_per_unit", self.max_rows_per_unit)

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """The word for it on the command line and on cards."""

    @property
    @abc.abstractmethod
    def most_ones(self) -> int:
        """Number of labels of 1 by which the two units differ that an audit draws on."""

    def num_kept(self, length: int) -> int:
        """Rows that a unit with that many rows keeps."""
        check_count("length", length)
        return length if self.max_rows_per_unit is None else min(length, self.max_rows_per_unit)

    @property
    def guessed_rate(self) -> float:
        """Share of labels that are 1 at which variances are stated."""
        return BASE_RATE

    @abc.abstractmethod
    def row_channel(self, length: int) -> BinaryChannel:
        """What the report of a row says, in a unit with that many rows."""

    def other_ways(self) -> "list[PerRowResponse | JointResponse]":
        """The other ways to share the same epsilon, with the same caps."""
        shared: Any = {"epsilon": self.epsilon, "max_rows_per_unit": self.max_rows_per_unit}
        cap = self.max_conversions_per_unit if isinstance(self, JointResponse) else 1
        ways: list[PerRowResponse | JointResponse] = [PerRowResponse(**shared)]
        for subset in (False, True) if cap == 1 else (False,):
            ways.append(
                JointResponse(
                    **shared,
                    max_conversions_per_unit=cap,
                    subset=subset,
                    assumed_base_rate=self.guessed_rate,
                )
            )
        if self.max_rows_per_unit is not None:
            ways.append(PerRowResponse(**shared, row_share=RowShare.EQUAL))
        return [way for way in ways if way.describe() != self.describe()]

    def describe(self) -> dict[str, Any]:
        """Settings as plain data."""
        values = {name: getattr(self, name) for name in self.described}
        return {"mechanism": self.name} | {
            name: value.value if isinstance(value, enum.Enum) else value
            for name, value in values.items()
        }

    def bounds(self) -> tuple[Bound, ...]:
        """The cap on rows, where there is one."""
        if self.max_rows_per_unit is None:
            return ()
        where = f"{self.row_choice.value} rows of the unit, before the noise"
        return (Bound(what="rows per unit", limit=self.max_rows_per_unit, where=where),)

    def event(self, lengths: Iterable[int]) -> Event:
        """What one release costs a unit, where units have these numbers of rows."""
        sizes = self._charged(sorted({self.num_kept(length) for length in lengths}))
        parts = [self._event_of(size) for size in sizes]
        if len(parts) < 2:
            return parts[0] if parts else Composed()
        if len(parts) > MOST_PARTS:
            # Everything pure at epsilon is a function of binary randomized response at epsilon
            # (Kairouz, Oh, Viswanath 2015).
            return RandomizedResponse(epsilon=self.epsilon)
        # Sizes of units are public, so a unit stays in its part.
        return Parallel(events=tuple(parts), parts_are_public=True)

    def release(
        self,
        raw_labels: ArrayLike,
        unit_rows: UnitRows,
        *,
        rng: NoiseSource | None = None,
        key: bytes | None = None,
    ) -> UnitNoisyLabels:
        """Draws the noisy labels of all units, once.

        Args:
          raw_labels: 0 or 1 for each row of the table.
          unit_rows: The rows of each unit.
          rng: Source of the noise; None: the operating system. Sensitive: never log its state.
          key: Key of at least 16 secret bytes, for a random choice of rows only.

        Privacy:
          Unit: that of `unit_rows`, replace. Event: `event(lengths)`, with the lengths of
          `unit_rows`. Relies on: rows of units are public, labels are released once.
        """
        labels = check_binary_labels(raw_labels, unit_rows.num_table_rows)
        capped = cap_rows(
            unit_rows, max_rows_per_unit=self.max_rows_per_unit, choice=self.row_choice, key=key
        )
        return self._drawn(labels, capped, rng or release_rng())

    @classmethod
    def channel_facts(cls, described: Description) -> ChannelFacts:
        """The channel of a row, by the number of rows that its unit has."""
        own = cls.from_description(described)
        sizes = own.sizes_shown()
        channels = [own.row_channel(size) for size in sizes]
        picture = RowChannels(
            num_rows=sizes,
            probs_if_positive=[float(channel.prob_if_positive) for channel in channels],
            probs_if_negative=[float(channel.prob_if_negative) for channel in channels],
        )
        return ChannelFacts(pictures=(picture,))

    @classmethod
    def from_description(cls, described: Description) -> Self:
        """The mechanism that `describe` spoke of."""
        return cls(**{name: described[name] for name in cls.described})

    def sizes_shown(self) -> range:
        """The numbers of rows that a unit may keep, as far as a page shows them."""
        return range(1, min(self.max_rows_per_unit or _MOST_ROWS_SHOWN, _MOST_ROWS_SHOWN) + 1)

    def _charged(self, sizes: list[int]) -> list[int]:
        """The sizes of units whose events bound those of all."""
        return sizes

    @abc.abstractmethod
    def _event_of(self, size: int) -> Event:
        """What a unit pays that keeps that many rows."""

    @abc.abstractmethod
    def _drawn(
        self, raw_labels: NDArray[np.uint8], capped: UnitRows, rng: NoiseSource
    ) -> UnitNoisyLabels:
        """The noisy labels of the rows that are kept."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PerRowResponse(UnitResponse):
    """Binary randomized response on each row, with a share of the unit's epsilon."""

    row_share: RowShare = RowShare.OWN
    """How the rows of a unit share epsilon. Equal shares need a cap on rows."""

    name: ClassVar[str] = "unit-rr"
    described: ClassVar[tuple[str, ...]] = (
        *("epsilon", "max_rows_per_unit", "row_share", "row_choice"),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        RandomizedResponse(epsilon=self.epsilon)
        if self.max_rows_per_unit is not None:
            self.response(self.max_rows_per_unit)
        elif self.row_share is RowShare.EQUAL:
            raise ConfigError(
                "max_rows_per_unit=None with row_share='equal' bounds nothing; give a cap, or use "
                "row_share='own'."
            )

    @property
    def most_ones(self) -> int:
        """All rows: each of them tells a part."""
        return self.max_rows_per_unit or _MOST_ROWS_SHOWN

    def response(self, length: int) -> RandomizedResponseConfig:
        """The randomized response on each row of a unit with that many rows."""
        num_shares = self.num_kept(length)
        if self.row_share is RowShare.EQUAL and self.max_rows_per_unit is not None:
            num_shares = self.max_rows_per_unit
        return RandomizedResponseConfig(epsilon=epsilon_share(self.epsilon, num_shares))

    def row_channel(self, length: int) -> BinaryChannel:
        """What the report of a row says, in a unit with that many rows."""
        return channel_of(self.response(length).support_probs)

    def _charged(self, sizes: list[int]) -> list[int]:
        # With equal shares one row more costs more: the largest units bound the others.
        return sizes[-1:] if self.row_share is RowShare.EQUAL else sizes

    def _event_of(self, size: int) -> Event:
        return Repeated(event=self.response(size).event(), count=size)

    def _drawn(
        self, raw_labels: NDArray[np.uint8], capped: UnitRows, rng: NoiseSource
    ) -> UnitNoisyLabels:
        def draw(raw_vectors: BitMatrix) -> BitMatrix:
            return release_randomized_bits(
                raw_vectors, self.response(raw_vectors.shape[1]), rng=rng
            )

        # The variance does not depend on the label, so any base rate gives it.
        return release_blocks(raw_labels, capped, draw, self.row_channel, base_rate=0.5)


@dataclasses.dataclass(frozen=True, kw_only=True)
class JointResponse(UnitResponse):
    """One draw for all labels of a unit, of which at most a few are 1."""

    max_conversions_per_unit: int = 1
    """Most conversions of a unit that count; further ones count as none."""
    subset: bool = False
    """Subset selection instead of randomized response: better for small epsilon and many
    rows. Needs a cap of one conversion."""
    conversion_choice: ConversionChoice = ConversionChoice.FIRST
    """Which conversions of a unit count where it has more."""
    assumed_base_rate: float = BASE_RATE
    """A public guess of the share of labels that are 1. Only the stated noise variance uses it."""

    most_ones: ClassVar[int] = 1
    described: ClassVar[tuple[str, ...]] = (
        *("epsilon", "max_conversions_per_unit", "max_rows_per_unit", "row_choice"),
        *("conversion_choice", "assumed_base_rate"),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("max_conversions_per_unit", self.max_conversions_per_unit)
        if self.subset and self.max_conversions_per_unit != 1:
            raise ConfigError(
                f"max_conversions_per_unit={self.max_conversions_per_unit} must be 1 with "
                "subset=True; use subset=False for more."
            )
        check_prob("assumed_base_rate", self.assumed_base_rate)
        self.vector_config(self.max_rows_per_unit or 1)

    @property
    def guessed_rate(self) -> float:
        """Share of labels that are 1 at which variances are stated."""
        return self.assumed_base_rate

    @property
    def name(self) -> str:
        """The word for it on the command line and on cards."""
        return "joint-subset" if self.subset else "joint-rr"

    def vector_config(self, length: int) -> JointResponseConfig | JointSubsetConfig:
        """The randomizer of the label vector of a unit with that many rows."""
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
        return channel_of(self.vector_config(length).row_probs)

    def bounds(self) -> tuple[Bound, ...]:
        """The caps on rows and on conversions."""
        limit = self.max_conversions_per_unit
        where = "a fixed rule on the unit's own labels, before the noise"
        return (
            *super().bounds(),
            Bound(what="conversions per unit", limit=limit, where=where),
        )

    @classmethod
    def from_description(cls, described: Description) -> Self:
        """The mechanism that `describe` spoke of."""
        subset = described["mechanism"] == "joint-subset"
        return dataclasses.replace(super().from_description(described), subset=subset)

    def _event_of(self, size: int) -> Event:
        return self.vector_config(size).event()

    def _drawn(
        self, raw_labels: NDArray[np.uint8], capped: UnitRows, rng: NoiseSource
    ) -> UnitNoisyLabels:
        # Units of one size come together, and making the randomizer of a size takes a while.
        config_of = functools.lru_cache(maxsize=1)(self.vector_config)

        def draw(raw_vectors: BitMatrix) -> BitMatrix:
            return release_joint_response(raw_vectors, config_of(raw_vectors.shape[1]), rng=rng)

        def channel(length: int) -> BinaryChannel:
            return channel_of(config_of(length).row_probs)

        return release_blocks(raw_labels, capped, draw, channel, base_rate=self.assumed_base_rate)
