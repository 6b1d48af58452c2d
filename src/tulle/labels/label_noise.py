"""How the labels of a table are noised: what is said before a label is read, and the one draw.

Settings without an epsilon become noise once it is known. Noise says what a plan needs: its cost,
its settings, its bounds. A release then looks at all labels before it draws the first one, so that
a wrong label costs nothing; `summary` keeps what the draw must know of labels that it has not
reached yet. Noise is for single labels (here), learns a prior first (`mechanisms/label_prior.py`),
or is for all labels of a unit together (`mechanisms/unit_response.py`).
"""

import abc
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from tulle.errors import ConfigError
from tulle.labels.label_mechanism import DescribedMechanism, NoisyLabels, RowMechanism
from tulle.labels.unit_rows import UnitRows
from tulle.mechanisms.entropy import NoiseSource
from tulle.privacy.events import Event
from tulle.privacy.fields import Scalar
from tulle.privacy.plan import Assumption, Bound, Status
from tulle.privacy.units import Unit


class LabelDraw(Protocol):
    """One pass of noise over the blocks of a table, in their order."""

    @property
    def description(self) -> dict[str, Any]:
        """The mechanism in plain data, with what was drawn before the first label."""

    def next_block(self, raw_labels: NDArray[Any]) -> NoisyLabels:
        """Noisy labels of the next rows of the table.

        Privacy:
          Unit and event: those of the noise, for one pass over all rows. Relies on: the caller
          has paid, and gives each row once, in the order of the table.
        """


ONE_LABEL_A_ROW = (Bound(what="labels per row", limit=1, where="one noisy label a row"),)
"""The bound of all noise on single labels."""


class LabelNoise(abc.ABC):
    """A mechanism with its epsilon, for the labels of a whole table; by default row by row."""

    is_for_units: ClassVar[bool] = False
    """True if the rows of a unit share one budget, so that the unit may own several."""

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """The word for it on the command line and on cards."""

    @property
    @abc.abstractmethod
    def epsilon(self) -> float:
        """What the noisy labels of one unit cost."""

    @abc.abstractmethod
    def event(self, unit_rows: UnitRows | None = None) -> Event:
        """What the release costs one unit.

        Args:
          unit_rows: The rows of each unit, where units may own several.
        """

    @abc.abstractmethod
    def sentence(self, unit: Unit) -> str:
        """How the labels are randomized, as the beginning of a sentence."""

    @abc.abstractmethod
    def settings(self) -> dict[str, Scalar]:
        """Public settings by name, for the plan."""

    def bounds(self) -> tuple[Bound, ...]:
        """What is bounded before the noise, for the plan."""
        return ONE_LABEL_A_ROW

    def assumptions(self) -> tuple[Assumption, ...]:
        """What the guarantee rests on that is true of this noise alone."""
        return ()

    @abc.abstractmethod
    def check_labels(self, raw_labels: NDArray[Any]) -> None:
        """Refuses labels that the mechanism cannot take, without showing them.

        Privacy:
          Releases nothing: the error shows none of the labels.
        """

    def summary(self, raw_labels: NDArray[Any]) -> NDArray[Any] | None:
        """What must be known of a block before the first draw. As sensitive as the labels.

        Privacy:
          Releases nothing.
        """
        del raw_labels
        return None

    @abc.abstractmethod
    def start(
        self,
        raw_summaries: Sequence[NDArray[Any] | None],
        unit_rows: UnitRows | None,
        *,
        rng: NoiseSource,
    ) -> LabelDraw:
        """Begins the one draw.

        Args:
          raw_summaries: What `summary` gave for each block, in order.
          unit_rows: The rows of each unit, where units may own several.
          rng: Source of the noise. Sensitive: never log or save its state.

        Privacy:
          Unit and event: those of the noise. Relies on: the caller has paid, and starts once.
        """


@runtime_checkable
class LabelSettings(Protocol):
    """Settings of a label mechanism: all but its epsilon. Every field is public information."""

    kind: ClassVar[str]
    """The word for it on the command line, on cards and in plain data."""
    mechanism_class: ClassVar[type[DescribedMechanism]]

    @classmethod
    def example(cls) -> Self:
        """Small settings of this kind, on which audits and contracts try the mechanism."""

    def noise(self, epsilon: float) -> LabelNoise:
        """The noise on labels that costs this epsilon in all.

        Args:
          epsilon: What the release may cost one unit.
        """


@dataclasses.dataclass(frozen=True, kw_only=True)
class RowNoise(LabelNoise):
    """Noise on each label by itself, by a mechanism that is fixed before a label is read."""

    mechanism: RowMechanism

    def __post_init__(self) -> None:
        # Only prior-rr can have a matrix of priors: for releases in stages, row by row.
        if np.ndim(getattr(self.mechanism, "prior", ())) > 1:
            raise ConfigError(
                f"mechanism {self.name!r} has one prior for each row, and a table comes in blocks; "
                "use StagedRelease, or one prior for all rows."
            )

    @property
    def name(self) -> str:
        """The word for it on the command line and on cards."""
        return self.mechanism.name

    @property
    def epsilon(self) -> float:
        """What the noisy label of one row costs."""
        return self.mechanism.epsilon

    def event(self, unit_rows: UnitRows | None = None) -> Event:
        """What the release costs one row, whoever owns it."""
        del unit_rows
        return self.mechanism.event()

    def sentence(self, unit: Unit) -> str:
        """How the labels are randomized."""
        del unit
        return "each label is randomized once"

    def settings(self) -> dict[str, Scalar]:
        """The settings of the mechanism."""
        return single_values(self.mechanism.describe())

    def assumptions(self) -> tuple[Assumption, ...]:
        """A prior that somebody gives must not come from these labels."""
        if not self.mechanism.rests_on_prior:
            return ()
        statement = "The given prior was not made with the labels that are released."
        return (Assumption(statement=statement, status=Status.ASSUMED),)

    def check_labels(self, raw_labels: NDArray[Any]) -> None:
        """Refuses labels outside of the declared values, without showing them.

        Privacy:
          Releases nothing: the error shows none of the labels.
        """
        self.mechanism.check_labels(raw_labels)

    def start(
        self,
        raw_summaries: Sequence[NDArray[Any] | None],
        unit_rows: UnitRows | None,
        *,
        rng: NoiseSource,
    ) -> "RowDraw":
        """Begins the one draw.

        Args:
          raw_summaries: Nothing for each block.
          unit_rows: Ignored: a row is a unit.
          rng: Source of the noise. Sensitive: never log or save its state.

        Privacy:
          Unit: one row, replace. Event: that of the mechanism. Relies on: the caller has paid.
        """
        del raw_summaries, unit_rows
        return RowDraw(self.mechanism, self.mechanism.describe(), rng)


@dataclasses.dataclass(frozen=True)
class RowDraw:
    """A pass of noise on each label by itself."""

    mechanism: RowMechanism
    description: dict[str, Any]
    rng: NoiseSource

    def next_block(self, raw_labels: NDArray[Any]) -> NoisyLabels:
        """Noisy labels of the next rows of the table.

        Privacy:
          Unit: one row, replace. Event: that of the mechanism. Relies on: each row comes once.
        """
        return self.mechanism.release(raw_labels, rng=self.rng)


def single_values(described: Mapping[str, Any]) -> dict[str, Scalar]:
    """Single values by name; those of an object within have its name before theirs."""
    flat: dict[str, Scalar] = {}
    for name, value in described.items():
        if isinstance(value, Mapping):
            inner = single_values(value)
            flat |= {f"{name}_{inner_name}": found for inner_name, found in inner.items()}
        elif isinstance(value, str | int | float | bool):
            flat[name] = value
    return flat
