"""Noisy numbers whose mean is the label: the unbiased randomizer of least variance.

A label is rounded at random to one of a few atoms, without bias, and the atom is
replaced by an output drawn from the optimal channel for a public prior. Losses that
are linear in the label (squared, logistic, Poisson) keep their gradient's mean, so
models may be trained on the outputs as if they were labels.
"""

import dataclasses
import math
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tulle.errors import ConfigError, RunStateError
from tulle.labels.label_grid import LabelGrid, check_prior
from tulle.labels.label_mechanism import (
    MOST_VALUES_SHOWN,
    ChannelFacts,
    ChannelTable,
    DescribedMechanism,
    Description,
    NoisyLabels,
    NumberMechanism,
)
from tulle.labels.mechanisms.label_prior import NumberPriorSettings, is_informative
from tulle.labels.mechanisms.unbiased_program import FloatArray, Problem
from tulle.labels.mechanisms.unbiased_search import Rounding, SearchLimits, Solution, solve
from tulle.mechanisms.entropy import NoiseSource, release_rng
from tulle.mechanisms.finite_channel import FiniteChannel
from tulle.mechanisms.thresholds import WORD_VALUES
from tulle.privacy.events import EpsilonDelta
from tulle.privacy.fields import check_count

LEAST_EPSILON, MOST_EPSILON = 0.01, 16.0
"""Range of epsilon in which the linear program is well conditioned; tests solve both ends."""
MOST_ATOMS = 40
"""Most values that labels are rounded to by default; more take longer and gain little."""

_EPSILON_MARGIN = 1e-9
"""Share of epsilon that the search leaves to the rounding of probabilities to whole words."""
_FLOOR_SHARE = 1e-3
"""Weight that all atoms together have at least: an atom of weight 0 would have no price."""
_PRIOR_SHARE = 0.5
"""Share of the atoms that follow the prior; the others are spread evenly, as it may be wrong."""
_MAX_RELATIVE_BIAS = 1e-9
"""Bias, in ranges of the label, above which the mechanism is refused as not unbiased."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class UnbiasedResponse(NumberMechanism):
    """The optimal unbiased randomizer of a label. Every field is public information."""

    grid: LabelGrid
    """The declared range. Labels between its values are welcome: they are rounded at random."""
    prior: FloatArray
    """How likely each value of the grid is. A wrong prior costs variance, not privacy.

    For the search, an atom's weight is lifted to 0.001 / number of atoms where it is less.
    """
    epsilon: float
    """Largest log-likelihood ratio of an output between any two labels."""
    atoms: int = MOST_ATOMS
    """Most labels that enter the linear program; more cost time and save variance."""
    limits: SearchLimits = dataclasses.field(default_factory=SearchLimits)
    """Limits at which the search for the optimum stops."""

    rounding: Rounding = dataclasses.field(init=False)
    """Randomizer from labels to atoms."""
    channel: FiniteChannel = dataclasses.field(init=False)
    """Randomizer from atoms to outputs."""
    relative_gap: float = dataclasses.field(init=False)
    """No unbiased randomizer of the atoms saves more than this share of the variance: proven
    by a dual solution, for the prior that the search uses."""

    name: ClassVar[str] = "unbiased"

    def __post_init__(self) -> None:
        if not LEAST_EPSILON <= self.epsilon <= MOST_EPSILON:
            raise ConfigError(
                f"epsilon={self.epsilon} must be from {LEAST_EPSILON} to {MOST_EPSILON} for the "
                "unbiased mechanism; use discrete Laplace noise outside of that."
            )
        prior = check_prior(self.prior, self.grid.num_values)
        values = self.grid.values
        rounding = Rounding(atoms=choose_atoms(values, prior, self.atoms))
        problem = _problem(rounding, rounding.pushed(values, prior), self.epsilon)
        solution = solve(problem, self.limits)
        channel = _channel(problem, solution, self.grid, self.epsilon)
        for field, value in {
            "prior": prior,
            "rounding": rounding,
            "channel": channel,
            "relative_gap": solution.relative_gap,
        }.items():
            object.__setattr__(self, field, value)
        _check_bias(self)

    @property
    def rests_on_prior(self) -> bool:
        """True if the prior prefers some values, and so must not come from these labels."""
        return is_informative(self.prior)

    @property
    def outputs(self) -> FloatArray:
        """All noisy labels there are, ascending."""
        return np.array(self.channel.outputs)

    @property
    def expected_variance(self) -> float:
        """Variance of the noise of a label of the prior, rounding included."""
        return float(self.variance(self.grid.values) @ self.prior)

    def event(self) -> EpsilonDelta:
        """What one noisy label of a unit costs."""
        return EpsilonDelta(epsilon=self.epsilon)

    def mean(self, labels: ArrayLike) -> FloatArray:
        """Mean of the noisy label of each label: the label itself, up to `bias`."""
        return self.rounding.mixed(self.channel.mean(), self.grid.check(labels))

    def bias(self, labels: ArrayLike) -> FloatArray:
        """What rounding to words leaves: at most 1e-9 of the range."""
        return self.mean(labels) - self.grid.check(labels)

    def variance(self, labels: ArrayLike) -> FloatArray:
        """Variance of the noisy label of each label, over rounding and noise."""
        checked = self.grid.check(labels)
        noise = self.rounding.mixed(self.channel.variance(), checked)
        return np.asarray(noise + self.rounding.variance(checked))

    def realised_channel(self, labels: ArrayLike) -> list[list[Fraction]]:
        """Exact probability of each output (column) for each label (row), rounding included."""
        checked = self.grid.check(labels)
        rows = self.channel.realised_channel()
        result = []
        for below, words, is_top in zip(
            self.rounding.lower_atoms(checked).tolist(),
            self.rounding.thresholds(checked).tolist(),
            self.rounding.is_top(checked).tolist(),
            strict=True,
        ):
            up = Fraction(1) if is_top else Fraction(words, WORD_VALUES)
            pairs = zip(rows[below], rows[below + 1], strict=True)
            result.append([(1 - up) * low + up * high for low, high in pairs])
        return result

    def release(self, raw_labels: NDArray[Any], *, rng: NoiseSource | None = None) -> NoisyLabels:
        """Draws one noisy label a row, once.

        Args:
          raw_labels: Numbers in the declared range.
          rng: Source of the noise; None: the operating system. Sensitive: never log its state.

        Privacy:
          Unit: one label, replace. Local: each label is noised on its own.
          Event: EpsilonDelta(epsilon). Relies on: one label a unit, drawn once; grid and
          prior not read off these labels.
        """
        labels, rng = self.grid.check(raw_labels), rng or release_rng()
        atoms = self.rounding.draw(labels, rng=rng)
        noisy = self.outputs[self.channel.draw(atoms, rng=rng)]
        return NoisyLabels(
            labels=noisy, targets=noisy, noise_variance=np.asarray(self.expected_variance)
        )

    def describe(self) -> dict[str, Any]:
        """Settings and the channel's numbers as plain data."""
        return {
            "mechanism": self.name,
            "epsilon": self.epsilon,
            "realised_epsilon": self.channel.realised_epsilon,
            "low": self.grid.low,
            "high": self.grid.high,
            "step": self.grid.step,
            "atoms": self.rounding.atoms.tolist(),
            "outputs": list(self.channel.outputs),
            "channel": self.channel.channel_matrix().tolist(),
            "expected_variance": self.expected_variance,
            "largest_bias": float(np.abs(self.bias(self.rounding.atoms)).max()),
            "relative_gap_to_optimum": self.relative_gap,
        }

    @classmethod
    def channel_facts(cls, described: Description) -> ChannelFacts:
        """The channel from what `describe` said: some of many labels, outputs in groups."""
        atoms, outputs = described["atoms"], described["outputs"]
        every, group = (-(-len(values) // MOST_VALUES_SHOWN) for values in (atoms, outputs))
        starts = range(0, len(outputs), group)
        table = ChannelTable(
            labels=atoms[::every],
            reports=[outputs[start] for start in starts],
            probs=[
                [math.fsum(row[start : start + group]) for start in starts]
                for row in described["channel"][::every]
            ],
        )
        return ChannelFacts(pictures=(table,), variance=described["expected_variance"])


@dataclasses.dataclass(frozen=True, kw_only=True)
class UnbiasedRr(NumberPriorSettings):
    """The response to a number without bias that has the least variance under a prior."""

    atoms: int | None = None
    """Values that labels are rounded to at random; None: as many as there are, at most 40."""

    kind: ClassVar[str] = UnbiasedResponse.name
    mechanism_class: ClassVar[type[DescribedMechanism]] = UnbiasedResponse

    @classmethod
    def example(cls) -> "UnbiasedRr":
        """Labels from 0 to 3, for audits and contracts."""
        return cls(label_low=0, label_high=3, prior=(0.4, 0.3, 0.2, 0.1))

    def _built(self, epsilon: float, prior: FloatArray) -> UnbiasedResponse:
        atoms = min(self.atoms or MOST_ATOMS, self._num_values)
        return UnbiasedResponse(epsilon=epsilon, grid=self.grid, prior=prior, atoms=atoms)


def choose_atoms(values: FloatArray, prior: FloatArray, max_atoms: int) -> FloatArray:
    """Some of the values, with both ends, close together where labels are likely.

    Rounding adds about p h^2 / 6 for spacing h, which is least for spacing as
    p^(-1/3); half of the atoms are spread evenly, since the prior may be wrong.

    Args:
      values: All values of the label, ascending.
      prior: How likely each is.
      max_atoms: Most values to take.
    """
    check_count("atoms", max_atoms, least=2)
    if values.size <= max_atoms:
        return values
    likely = np.cbrt(prior)
    density = (1 - _PRIOR_SHARE) / values.size + _PRIOR_SHARE * likely / likely.sum()
    # Between neighbours, so that the first value is at 0 and the last at the end.
    reached = np.concatenate([[0.0], np.cumsum((density[1:] + density[:-1]) / 2)])
    wanted = np.linspace(0.0, reached[-1], max_atoms)
    places = np.rint(np.interp(wanted, reached, np.arange(values.size))).astype(np.int64)
    return np.asarray(values[np.unique(np.concatenate([places, [0, values.size - 1]]))])


def _problem(rounding: Rounding, atom_prior: FloatArray, epsilon: float) -> Problem:
    """The linear program for atoms moved to [0, 1], at an epsilon lowered by 1e-9 of it."""
    atoms = rounding.atoms
    lifted = np.maximum(atom_prior, _FLOOR_SHARE / atoms.size)
    return Problem(
        labels=(atoms - atoms[0]) / (atoms[-1] - atoms[0]),
        prior=lifted / lifted.sum(),
        low_share=math.exp(-epsilon * (1 - _EPSILON_MARGIN)),
    )


def _channel(
    problem: Problem, solution: Solution, grid: LabelGrid, epsilon: float
) -> FiniteChannel:
    order = np.argsort(solution.columns.outputs)
    columns = solution.columns.select(order)
    probs = columns.shares(problem).T * solution.weights[order]
    outputs = grid.low + (grid.high - grid.low) * columns.outputs
    return FiniteChannel.from_probs(probs, outputs=outputs.tolist(), epsilon=epsilon)


def _check_bias(response: UnbiasedResponse) -> None:
    """The mean at every atom is the atom; means between atoms follow linearly."""
    limit = _MAX_RELATIVE_BIAS * (response.grid.high - response.grid.low)
    bias = float(np.abs(response.bias(response.rounding.atoms)).max())
    if bias > limit:
        raise RunStateError(
            f"the randomizer's mean is off by {bias:.2g}, above {limit:.2g}; take fewer atoms than "
            f"{response.atoms} or a larger epsilon than {response.epsilon}."
        )
