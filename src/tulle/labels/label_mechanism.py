"""What a mechanism for labels is: how it noises them, and what it says of itself.

A mechanism owns all that the rest of tulle asks it. It draws noisy labels and states what they
cost; it describes itself as plain data for the record of a release; and it reads that description
again, to show a page its channel and its variance. So a new mechanism is one file, whose settings
enter the list in `labels/mechanisms/catalogue.py`.
"""

import abc
import dataclasses
import enum
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Protocol, SupportsFloat

import numpy as np
from numpy.typing import NDArray

from tulle.labels.label_grid import LabelGrid
from tulle.mechanisms.entropy import NoiseSource
from tulle.mechanisms.noisy_reports import BinaryChannel
from tulle.privacy.events import Event

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
Description = Mapping[str, Any]
"""What `describe` gave, also after it went through JSON."""

MOST_VALUES_SHOWN = 60
"""Most values of a label that a picture lists one by one; more cannot be told apart on a page."""


class LabelKind(enum.Enum):
    """What labels are, which decides by which other mechanisms one is compared."""

    BITS = "0 or 1"
    CLASSES = "classes"
    NUMBERS = "numbers"
    UNITS = "0 or 1, all rows of a unit under one budget"


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class NoisyLabels:
    """Labels after the noise. A function of reports and public settings alone: may be published."""

    labels: NDArray[Any]
    """What was drawn: integers for classes, floats for numbers."""
    targets: FloatArray | None
    """What to train on: its mean over the noise is the label. None where no single number
    has that mean (more than two classes, or a mechanism that cannot be undone)."""
    noise_variance: FloatArray | None
    """Variance of the target over the noise, expected under the mechanism's prior: one number,
    or one a row. None where there is no target."""
    channel: BinaryChannel | None = None
    """The channel of a binary label, for forward correction and calibration."""
    rows: IntArray | None = None
    """Which of the rows were kept, ascending; None: all of them."""
    weights: FloatArray | None = None
    """Weight of each row in a mean or a loss on targets; None: all are alike."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ChannelTable:
    """Probability of each report (column) for each label (row)."""

    labels: Sequence[str | float]
    reports: Sequence[str | float]
    probs: Sequence[Sequence[float]]
    about: str = "What comes out, for each label that goes in. Rows add up to 100%."


@dataclasses.dataclass(frozen=True, kw_only=True)
class NoiseDensity:
    """The law of noise that is added to a label, whatever the label is."""

    name: str
    noise: Sequence[float]
    """Amounts of noise, ascending, in units of the label."""
    density: Sequence[float]
    """Probability of each amount for each unit of the label."""
    laplace_scale: float | None
    """Scale of Laplace noise of the same epsilon, to compare with; None if this is that noise."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class RowChannels:
    """What a report of one row says, by the number of rows that its unit has."""

    num_rows: Sequence[int]
    probs_if_positive: Sequence[float]
    """Probability of a report of 1 for a label of 1."""
    probs_if_negative: Sequence[float]
    """Probability of a report of 1 for a label of 0."""


Picture = ChannelTable | NoiseDensity | RowChannels


@dataclasses.dataclass(frozen=True, kw_only=True)
class ChannelFacts:
    """What a page shows of the mechanism of a release."""

    pictures: tuple[Picture, ...]
    variance: float | None = None
    """Variance of the noise in a target; None where it has none, or one for each row."""
    true_report_prob: float | None = None
    """Probability that a report is the label; None where labels are numbers, or it differs by
    row."""


class DescribedMechanism(Protocol):
    """What mechanisms for single labels and for the labels of units say of themselves."""

    label_kind: ClassVar[LabelKind]

    @property
    def name(self) -> str:
        """The word for it on the command line and on cards."""

    @property
    def epsilon(self) -> float:
        """Largest log-likelihood ratio of an output between any two inputs of a unit."""

    def describe(self) -> dict[str, Any]:
        """Settings and the channel's numbers as plain data, for whoever trains on the labels."""

    @classmethod
    def channel_facts(cls, described: Description) -> ChannelFacts:
        """What a page shows of the mechanism.

        Args:
          described: What `describe` of such a mechanism gave, from the record of a release.
        """


class RowMechanism(DescribedMechanism, Protocol):
    """A randomizer of single labels with its settings, which are all public."""

    has_rising_outputs: ClassVar[bool]
    """True if the larger an output is, the likelier is the larger label; for audits."""

    @property
    def rests_on_prior(self) -> bool:
        """True if somebody gave a prior, and says that it was not made with these labels."""

    @property
    def far_labels(self) -> tuple[float, float]:
        """Two labels that are as different as any, ascending: what an audit draws on."""

    def event(self) -> Event:
        """What one noisy label of a unit costs."""

    def check_labels(self, raw_labels: NDArray[Any]) -> None:
        """Refuses labels outside of the declared values, without showing them.

        Privacy:
          Releases nothing: the error shows none of the labels.
        """

    def release(self, raw_labels: NDArray[Any], *, rng: NoiseSource | None = None) -> NoisyLabels:
        """Draws one noisy label a row, once.

        Args:
          raw_labels: One label a row.
          rng: Source of the noise; None: the operating system. Sensitive: never log its state.

        Privacy:
          Unit: one label, replace. Local: each label is noised on its own. Event: that of `event`.
          Relies on: one label a unit, drawn once.
        """


class NumberMechanism(abc.ABC):
    """What mechanisms for labels that are numbers in a declared range share."""

    label_kind: ClassVar[LabelKind] = LabelKind.NUMBERS
    has_rising_outputs: ClassVar[bool] = False

    grid: LabelGrid
    """The declared range."""

    @property
    def far_labels(self) -> tuple[float, float]:
        """The ends of the range."""
        return self.grid.low, self.grid.high

    def check_labels(self, raw_labels: NDArray[Any]) -> None:
        """Refuses labels outside of the declared range, without showing them.

        Privacy:
          Releases nothing: the error shows none of the labels.
        """
        self.grid.check(raw_labels)

    @abc.abstractmethod
    def mean(self, label: float, /) -> SupportsFloat:
        """Mean of the target, or of the noisy label where there is none."""

    @abc.abstractmethod
    def variance(self, label: float, /) -> SupportsFloat:
        """Variance of what `mean` is the mean of."""

    @classmethod
    def grid_of(cls, described: Description) -> LabelGrid:
        """The declared range, from what `describe` said: by itself, or among the other settings."""
        found = described.get("grid", described)
        return LabelGrid(low=found["low"], high=found["high"], step=found["step"])


def response_table(names: Sequence[str], true_prob: float, other_prob: float) -> ChannelTable:
    """The channel of randomized response, in short where there are too many values to see.

    Args:
      names: What the values are called.
      true_prob: Probability of the true value.
      other_prob: Probability of each other value.
    """
    if len(names) > MOST_VALUES_SHOWN:
        return ChannelTable(
            labels=(f"any of {len(names):,}",),
            reports=("the truth", "each other value", "all others"),
            probs=((true_prob, other_prob, other_prob * (len(names) - 1)),),
            about=f"All {len(names):,} values are treated alike.",
        )
    probs = [[true_prob if row == column else other_prob for column in names] for row in names]
    return ChannelTable(labels=names, reports=names, probs=probs)
