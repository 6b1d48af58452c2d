"""What a released table needs to know of a mechanism that noises each label by itself."""

import dataclasses
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tulle.mechanisms.binary_channel import BinaryChannel
from tulle.mechanisms.entropy import NoiseSource
from tulle.privacy.events import Event

FloatArray = NDArray[np.float64]


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
    """Of a binary label: for forward correction and calibration."""


class RowMechanism(Protocol):
    """A randomizer of single labels with its settings, which are all public."""

    @property
    def name(self) -> str:
        """The word for it on the command line and on cards."""

    @property
    def epsilon(self) -> float:
        """Largest log-likelihood ratio of an output between any two labels."""

    def event(self) -> Event:
        """What one noisy label of a unit costs."""

    def check_labels(self, raw_labels: NDArray[Any]) -> None:
        """Refuses labels outside of the declared values, without showing them.

        Privacy:
          Releases nothing: the error shows none of the labels.
        """

    def release(self, raw_labels: NDArray[Any], *, rng: NoiseSource) -> NoisyLabels:
        """Draws one noisy label a row, once.

        Privacy:
          Unit: one label, replace. Local: each label is noised on its own. Event: that of `event`.
          Relies on: one label a unit, drawn once.
        """

    def describe(self) -> dict[str, Any]:
        """Settings and the channel's numbers as plain data, for whoever trains on the labels."""
