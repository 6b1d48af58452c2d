"""How the labels of a table are noised: each by itself, after learning a prior, or by units.

Every way says before a label is read what it will cost, and then checks all labels
before it draws the first noise.
"""

import dataclasses
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from tulle.errors import ConfigError
from tulle.labels.label_prior import LabelPriorConfig, PrivatePrior
from tulle.labels.row_mechanism import RowMechanism
from tulle.labels.units.unit_response import JointResponse, PerRowResponse
from tulle.privacy.events import Composed, Event, RandomizedResponse

FloatArray = NDArray[np.float64]


@dataclasses.dataclass(frozen=True, kw_only=True)
class RowNoise:
    """Each label by itself, by a mechanism that is fixed before a label is read."""

    mechanism: RowMechanism

    def __post_init__(self) -> None:
        if np.ndim(getattr(self.mechanism, "prior", ())) > 1:
            raise ConfigError(
                f"mechanism {self.name!r} has one prior for each row, and a table comes in blocks; "
                "use StagedRelease, or one prior for all rows."
            )

    @property
    def rests_on_prior(self) -> bool:
        """True if somebody gave a prior, and says that it was not made with these labels."""
        prior = getattr(self.mechanism, "prior", None)
        return prior is not None and not np.allclose(prior, prior[0], rtol=1e-9, atol=0.0)

    @property
    def name(self) -> str:
        """The word for it on the command line and on cards."""
        return self.mechanism.name

    @property
    def epsilon(self) -> float:
        """What the noisy label of one row costs."""
        return self.mechanism.epsilon

    def event(self) -> Event:
        """What the release costs one row."""
        return self.mechanism.event()


@dataclasses.dataclass(frozen=True, kw_only=True)
class LearntPriorNoise:
    """First a noisy histogram of all labels, then a mechanism that is best for it."""

    prior: LabelPriorConfig
    build: Callable[[FloatArray], RowMechanism]
    """Makes the mechanism from the weights of the prior."""
    fallback: RowMechanism
    """What is used where the prior gives none. Once a prior is drawn the release must not
    fail: to try again would look at the labels again."""
    name: str

    @property
    def label_epsilon(self) -> float:
        """What the noisy label of one row costs, beside the prior."""
        return self.fallback.epsilon

    @property
    def epsilon(self) -> float:
        """What prior and noisy label of one row cost together."""
        return self.prior.epsilon + self.label_epsilon

    def event(self) -> Event:
        """What the release costs one row."""
        # Which mechanism it will be is not known yet: the binary response of the same
        # epsilon costs as much as the costliest of them (Kairouz, Oh, Viswanath 2016).
        labels = RandomizedResponse(epsilon=self.label_epsilon)
        return Composed((self.prior.event(), labels))

    def mechanism(self, prior: PrivatePrior) -> RowMechanism:
        """The mechanism for a prior that was released."""
        try:
            built = self.build(prior.weights)
        except Exception:
            # Whatever went wrong: a second try would draw a second prior.
            return self.fallback
        return built if built.epsilon <= self.label_epsilon else self.fallback


@dataclasses.dataclass(frozen=True, kw_only=True)
class UnitNoise:
    """Binary labels of all rows of a unit under one budget."""

    mechanism: PerRowResponse | JointResponse
    base_rate: float = 0.05
    """A public guess of the share of ones, for the weights of rows."""

    def __post_init__(self) -> None:
        if not 0 < self.base_rate < 1:
            raise ConfigError(f"base_rate={self.base_rate} must be between 0 and 1, e.g. 0.05.")

    @property
    def name(self) -> str:
        """The word for it on the command line and on cards."""
        return self.mechanism.name

    @property
    def epsilon(self) -> float:
        """What all noisy labels of one unit cost."""
        return self.mechanism.epsilon


LabelNoise = RowNoise | LearntPriorNoise | UnitNoise
