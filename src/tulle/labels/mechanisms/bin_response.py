"""RR-on-Bins: report a bin of labels by K-ary randomized response.

Of all randomizers it has the least expected loss between report and label under a
public prior. Its reports shrink towards the mean, though, so models are trained on
the debiased target, whose only bias is that of a label within its bin.
"""

import dataclasses
import math
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tulle.errors import ConfigError
from tulle.labels.label_grid import LabelGrid, check_prior
from tulle.labels.label_mechanism import (
    ChannelFacts,
    DescribedMechanism,
    Description,
    NoisyLabels,
    NumberMechanism,
    response_table,
)
from tulle.labels.mechanisms.bin_search import (
    SQUARED,
    Bins,
    BregmanLoss,
    FloatArray,
    IntArray,
    find_bins,
)
from tulle.labels.mechanisms.label_prior import NumberPriorSettings, is_informative
from tulle.mechanisms.entropy import NoiseSource
from tulle.mechanisms.randomized_response import (
    RandomizedResponseConfig,
    release_randomized_response,
)
from tulle.privacy.events import RandomizedResponse


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class BinResponse(NumberMechanism):
    """K-ary randomized response on the best bins. Every field is public information."""

    grid: LabelGrid
    """The labels there may be. One between two values goes to the nearer."""
    prior: FloatArray
    """How likely each value of the grid is. A wrong prior costs accuracy, not privacy."""
    epsilon: float
    """Largest log-likelihood ratio of a report between any two labels."""
    loss: BregmanLoss = SQUARED
    """What reports lose least of."""

    bins: Bins = dataclasses.field(init=False)
    """The bins of least expected loss."""
    response: RandomizedResponseConfig = dataclasses.field(init=False)
    """The randomizer of the bins."""

    name: ClassVar[str] = "rr-on-bins"

    def __post_init__(self) -> None:
        prior = check_prior(self.prior, self.grid.num_values)
        bins = find_bins(prior, self.grid.values, self.epsilon, self.loss)
        if bins.num_bins < 2:
            raise ConfigError(
                f"epsilon={self.epsilon} is so small, or the prior so sure of one label, that the "
                "best report is always the same and tells nothing; raise epsilon, or use the "
                "unbiased mechanism."
            )
        response = RandomizedResponseConfig(epsilon=self.epsilon, num_values=bins.num_bins)
        object.__setattr__(self, "prior", prior)
        object.__setattr__(self, "bins", bins)
        object.__setattr__(self, "response", response)

    @property
    def rests_on_prior(self) -> bool:
        """True if the prior prefers some values, and so must not come from these labels."""
        return is_informative(self.prior)

    def event(self) -> RandomizedResponse:
        """What one noisy label of a unit costs."""
        return self.response.event()

    @property
    def bin_means(self) -> FloatArray:
        """Mean label of each bin under the prior; the middle of a bin without weight."""
        place = self.bins.bin_of_label()
        values = self.grid.values
        weights = np.bincount(place, self.prior)
        middles = np.bincount(place, values) / np.bincount(place)
        sums = np.bincount(place, self.prior * values)
        return np.where(weights > 0, sums / np.where(weights > 0, weights, 1.0), middles)

    @property
    def targets(self) -> FloatArray:
        """What to train on for each report: its mean over the noise is the bin's mean label."""
        lie, gain = self._lie_and_gain()
        means = self.bin_means
        return np.asarray((means - lie * means.sum()) / gain)

    def mean(self, labels: ArrayLike) -> FloatArray:
        """Mean of the target of each label over the noise: the mean label of its bin."""
        return self.bin_means[self._bins_of(labels)]

    def bias(self, labels: ArrayLike) -> FloatArray:
        """How far the target's mean is from each label: what the bin hides."""
        return self.mean(labels) - self.grid.check(labels)

    def variance(self, labels: ArrayLike) -> FloatArray:
        """Variance of the target of each label over the noise."""
        lie, gain = self._lie_and_gain()
        targets = self.targets
        # Law of the target: its own bin with probability gain + lie, every bin with lie.
        means = self.bin_means
        squares = lie * (targets**2).sum() + gain * targets**2
        return np.asarray(squares - means**2)[self._bins_of(labels)]

    @property
    def expected_variance(self) -> float:
        """Variance of the target of a label of the prior."""
        return float(self.variance(self.grid.values) @ self.prior)

    @property
    def expected_squared_bias(self) -> float:
        """Squared bias of the target of a label of the prior."""
        return float(self.bias(self.grid.values) ** 2 @ self.prior)

    def release(self, raw_labels: NDArray[Any], *, rng: NoiseSource | None = None) -> NoisyLabels:
        """Draws one noisy label a row, once.

        Args:
          raw_labels: Numbers in the declared range.
          rng: Source of the noise; None: the operating system. Sensitive: never log its state.

        Privacy:
          Unit: one label, replace. Local: each label is noised on its own.
          Event: one RandomizedResponse. Relies on: one label a unit, drawn once; grid and
          prior not read off these labels.
        """
        reports = release_randomized_response(self._bins_of(raw_labels), self.response, rng=rng)
        return NoisyLabels(
            labels=self.bins.values[reports],
            targets=self.targets[reports],
            noise_variance=np.asarray(self.expected_variance),
        )

    def describe(self) -> dict[str, Any]:
        """Settings and the channel's numbers as plain data."""
        return {
            "mechanism": self.name,
            "epsilon": self.epsilon,
            "realised_epsilon": self.response.realised_epsilon,
            "low": self.grid.low,
            "high": self.grid.high,
            "step": self.grid.step,
            "loss": self.loss.name,
            "num_bins": self.bins.num_bins,
            "bin_lows": self.grid.values[self.bins.starts].tolist(),
            "reports": self.bins.values.tolist(),
            "targets": self.targets.tolist(),
            "expected_loss": self.bins.expected_loss,
            "expected_variance": self.expected_variance,
            "expected_squared_bias": self.expected_squared_bias,
            "largest_bias": float(np.abs(self.bias(self.grid.values)).max()),
        }

    @classmethod
    def channel_facts(cls, described: Description) -> ChannelFacts:
        """Randomized response among the bins, from what `describe` said."""
        names = [f"from {low:.6g}" for low in described["bin_lows"]]
        epsilon = described["realised_epsilon"]
        other = 1 / (math.expm1(epsilon) + len(names))
        return ChannelFacts(
            pictures=(response_table(names, math.exp(epsilon) * other, other),),
            variance=described["expected_variance"],
        )

    def _bins_of(self, labels: ArrayLike) -> IntArray:
        return self.bins.bin_of_label()[self.grid.index_of(labels)]

    def _lie_and_gain(self) -> tuple[float, float]:
        """Probability of each wrong bin, and by how much the right one is likelier."""
        probs = self.response.support_probs
        return float(probs.if_not_held), float(probs.if_held - probs.if_not_held)


@dataclasses.dataclass(frozen=True, kw_only=True)
class BinRr(NumberPriorSettings):
    """Randomized response on bins of a number, which are best for a prior."""

    kind: ClassVar[str] = BinResponse.name
    mechanism_class: ClassVar[type[DescribedMechanism]] = BinResponse

    @classmethod
    def example(cls) -> "BinRr":
        """Labels from 0 to 3, for audits and contracts."""
        return cls(label_low=0, label_high=3, prior=(0.4, 0.3, 0.2, 0.1))

    def _built(self, epsilon: float, prior: FloatArray) -> BinResponse:
        return BinResponse(epsilon=epsilon, grid=self.grid, prior=prior)
