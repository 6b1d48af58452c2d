"""Questions about noise and their answers: what an epsilon needs, or what a noise costs."""

import dataclasses
import enum
from collections.abc import Callable

from tulle.accounting.accountant import calibrate_noise, calibrate_steps, pld_epsilon
from tulle.accounting.rdp import rdp_epsilon
from tulle.accounting.training_events import BatchSampling, dpsgd_event
from tulle.errors import ConfigError
from tulle.privacy import events
from tulle.privacy.cut_batches import roomy_batch_size
from tulle.privacy.fields import check_choice, check_delta, check_epsilon, text_if_infinite
from tulle.privacy.units import Adjacency

Detail = float | int | str
_NOTICED_COST = 1.02
"""Cut batches that raise epsilon by more are answered with the room that would spare it."""


class Accountant(enum.Enum):
    """How epsilon is computed."""

    PLD = "pld"
    """Privacy loss distributions: the certificate."""
    RDP = "rdp"
    """Renyi DP, to reproduce papers. Under add-remove only."""

    def epsilon(self, event: events.Event, delta: float, adjacency: Adjacency) -> float:
        """What an event costs by this accountant.

        Args:
          event: What was released.
          delta: Probability that the guarantee does not cover.
          adjacency: Which data sets are neighbours.
        """
        compute = pld_epsilon if self is Accountant.PLD else rdp_epsilon
        return compute(event, delta, adjacency)


@dataclasses.dataclass(frozen=True, kw_only=True)
class NoiseAnswer:
    """The noise, what it costs, and the event that says so."""

    noise_multiplier: float
    """Noise relative to one largest contribution; of reports, 1 / (epsilon of one report)."""
    epsilon: float
    """What the noise costs; math.inf if nothing is promised."""
    delta: float
    adjacency: Adjacency
    accountant: Accountant
    event: events.Event
    details: dict[str, Detail] = dataclasses.field(default_factory=dict)
    """What else was found: steps, epsilon of one report, what group privacy would say."""
    is_report: bool = False
    """True if the details have the epsilon of one report, which says more than the noise."""

    def facts(self) -> dict[str, Detail]:
        """The answer in the order of reading, without its event."""
        noise: dict[str, Detail] = {"noise_multiplier": self.noise_multiplier}
        return (
            ({} if self.is_report else noise)
            | {
                "epsilon": self.epsilon,
                "delta": self.delta,
                "adjacency": self.adjacency.value,
                "accountant": self.accountant.value,
            }
            | self.details
        )

    def to_dict(self) -> dict[str, object]:
        """Plain data; an infinite epsilon is the text "Infinity"."""
        facts = {
            name: text_if_infinite(value) if isinstance(value, float) else value
            for name, value in self.facts().items()
        }
        return facts | {"event": events.event_to_dict(self.event)}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Question:
    """What is given: an epsilon or a noise, and what the claim is about."""

    epsilon: float | None
    noise: float | None
    delta: float
    adjacency: Adjacency
    accountant: Accountant

    def cost(self, event: events.Event) -> float:
        """What an event costs by the accountant that was asked for."""
        return self.accountant.epsilon(event, self.delta, self.adjacency)

    def answer(self, make_event: Callable[[float], events.Event]) -> NoiseAnswer:
        """Prices the noise that is given, or finds the least that meets the epsilon.

        Args:
          make_event: Builds the event from its noise; more noise must cost less.
        """
        noise = self.noise
        if noise is None:
            noise = calibrate_noise(
                make_event,
                epsilon=self.epsilon or 0.0,
                delta=self.delta,
                adjacency=self.adjacency,
                spent_epsilon=self.accountant.epsilon,
            )
        event = make_event(noise)
        return NoiseAnswer(
            noise_multiplier=noise,
            epsilon=self.cost(event),
            delta=self.delta,
            adjacency=self.adjacency,
            accountant=self.accountant,
            event=event,
        )

    def most_steps(self, sampling: BatchSampling, noise: float) -> int:
        """The most DP-SGD steps that this noise allows within epsilon."""
        return calibrate_steps(
            lambda steps: dpsgd_event(dataclasses.replace(sampling, steps=steps), noise),
            epsilon=self.epsilon or 0.0,
            delta=self.delta,
            adjacency=self.adjacency,
            spent_epsilon=self.accountant.epsilon,
        )


def question_of(
    epsilon: float | None,
    noise: float | None,
    delta: float,
    adjacency: Adjacency | str,
    accountant: Accountant | str,
    *,
    noise_name: str = "noise_multiplier",
) -> Question:
    """The question that is asked by an epsilon or a noise, checked.

    Args:
      epsilon: The target; None to price a noise.
      noise: The noise that is priced; None to find it.
      delta: Probability that the guarantee does not cover.
      adjacency: Which neighbours the claim is about, also by its word.
      accountant: How epsilon is computed, also by its word.
      noise_name: How messages call the setting that gives the noise.

    Raises:
      ConfigError: Neither is given, or both, or a value is out of range.
    """
    if (epsilon is None) == (noise is None):
        raise ConfigError(f"give either epsilon or {noise_name}: one is found from the other.")
    for name, value in (("epsilon", epsilon), (noise_name, noise)):
        if value is not None:
            check_epsilon(value, name)
    check_delta(delta)
    return Question(
        epsilon=epsilon,
        noise=noise,
        delta=delta,
        adjacency=Adjacency.parse(adjacency) if isinstance(adjacency, str) else adjacency,
        accountant=check_choice("accountant", accountant, Accountant),
    )


def cost_of_cuts(
    question: Question,
    sampling: BatchSampling,
    answer: NoiseAnswer,
    make_event: Callable[[BatchSampling, float], events.Event],
) -> dict[str, Detail]:
    """What the same noise would cost if no batch were cut, and the room that it takes.

    With little room epsilon can be ten times what it could be, where a unit has several rows.

    Args:
      question: The delta and the accountant.
      sampling: The batches, which are cut if they have a largest size.
      answer: The noise, and what it costs with cut batches.
      make_event: Builds the event from batches and noise.
    """
    if sampling.max_batch_size is None:
        return {}
    uncut = make_event(dataclasses.replace(sampling, max_batch_size=None), answer.noise_multiplier)
    epsilon = question.cost(uncut)
    details: dict[str, Detail] = {"epsilon_if_never_cut": epsilon}
    if answer.epsilon > _NOTICED_COST * epsilon and question.delta > 0:
        details["max_batch_size_hardly_cut"] = roomy_batch_size(
            num_rows=sampling.num_examples,
            sampling_prob=sampling.sampling_prob,
            max_rows_per_unit=sampling.max_rows_per_unit,
            steps=sampling.steps,
            delta=question.delta,
        )
    return details
