"""Questions an engineer asks before spending: what does this cost, how much noise for that?

Each function answers in either direction: with `noise` given it prices it, with
`epsilon` given it finds the least noise. Commands and pages call these.
"""

import dataclasses
import enum
import math
from collections.abc import Callable

from tulle.accounting.accountant import pld_epsilon, privacy_curve
from tulle.accounting.calibration import calibrate_noise, calibrate_steps
from tulle.accounting.rdp import rdp_epsilon
from tulle.accounting.theorems import group_epsilon
from tulle.accounting.training_events import BatchSampling, dpsgd_event, two_phase_event
from tulle.errors import ConfigError
from tulle.privacy import events
from tulle.privacy.cut_batches import roomy_batch_size
from tulle.privacy.units import Adjacency

Detail = float | int | str
_NOTICED_COST = 1.02
"""Cut batches that raise epsilon by more are answered with the room that would spare it."""


class Method(enum.Enum):
    """How epsilon is computed."""

    PLD = "pld"
    """Privacy loss distributions: the certificate."""
    RDP = "rdp"
    """Renyi DP, to reproduce papers."""

    def epsilon(self, event: events.Event, delta: float, adjacency: Adjacency) -> float:
        """What an event costs by this method."""
        compute = pld_epsilon if self is Method.PLD else rdp_epsilon
        return compute(event, delta, adjacency)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Question:
    """What is given: an epsilon or a noise, and what the claim is about."""

    epsilon: float | None = None
    noise: float | None = None
    delta: float
    adjacency: Adjacency
    method: Method = Method.PLD

    def __post_init__(self) -> None:
        if (self.epsilon is None) == (self.noise is None):
            raise ConfigError(
                "give either an epsilon or a noise (--noise-multiplier, --response-epsilon or "
                "--local-epsilon): one is found from the other."
            )
        for name in ("epsilon", "noise"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise ConfigError(f"{name}={value} must be a finite number > 0, e.g. 1.")
        if not 0 <= self.delta < 1:
            raise ConfigError(f"delta={self.delta} must be in [0, 1); choose e.g. 1e-7.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Answer:
    """The noise, what it costs, and the event that says so."""

    noise: float
    epsilon: float
    event: events.Event
    details: dict[str, Detail] = dataclasses.field(default_factory=dict)


def ask_gaussian(question: Question, *, count: int = 1, replace_factor: float = 2.0) -> Answer:
    """`count` Gaussian releases on the same units."""

    def make(noise: float) -> events.Event:
        one = events.Gaussian(noise_multiplier=noise, replace_factor=replace_factor)
        return events.Repeated(event=one, count=count)

    return _answer(question, make)


def ask_laplace(
    question: Question, *, count: int = 1, replace_factor: float = 2.0, discrete: bool = False
) -> Answer:
    """`count` Laplace releases on the same units; `discrete` for whole numbers."""

    def make(noise: float) -> events.Event:
        one: events.Event = events.Laplace(noise_multiplier=noise, replace_factor=replace_factor)
        if discrete:
            one = events.DiscreteLaplace(scale=noise, replace_factor=replace_factor)
        return events.Repeated(event=one, count=count)

    return _answer(question, make)


def ask_randomized_response(question: Question, *, num_values: int = 2, count: int = 1) -> Answer:
    """`count` responses of one unit; the noise is 1 / (epsilon of one response)."""

    def make(noise: float) -> events.Event:
        one = events.RandomizedResponse(epsilon=1 / noise, num_values=num_values)
        return events.Repeated(event=one, count=count)

    answer = _answer(question, make)
    response_epsilon = 1 / answer.noise
    truth_prob = 1 / (1 + (num_values - 1) * math.exp(-response_epsilon))
    details: dict[str, Detail] = {"response_epsilon": response_epsilon, "truth_prob": truth_prob}
    return dataclasses.replace(answer, details=details)


def ask_dpsgd(question: Question, sampling: BatchSampling) -> Answer:
    """DP-SGD; the noise is relative to one row's clipped gradient."""
    answer = _answer(question, lambda noise: dpsgd_event(sampling, noise))
    details = _cost_of_cuts(question, sampling, answer, dpsgd_event)
    return dataclasses.replace(answer, details=details)


def ask_steps(question: Question, sampling: BatchSampling, noise: float) -> int:
    """The most DP-SGD steps that this noise allows within epsilon; `sampling.steps` is not used."""
    if question.epsilon is None:
        raise ConfigError("epsilon is missing; the number of steps follows from it.")

    def make(steps: int) -> events.Event:
        return dpsgd_event(dataclasses.replace(sampling, steps=steps), noise)

    return calibrate_steps(
        make,
        epsilon=question.epsilon,
        delta=question.delta,
        adjacency=question.adjacency,
        spent_epsilon=question.method.epsilon,
    )


def ask_two_phase(
    question: Question, sampling: BatchSampling, label_epsilon: float | None = None
) -> Answer:
    """Randomized labels and DP-SGD, accounted jointly.

    Without `label_epsilon` the labels get min(0.6 epsilon, 3), as in the papers.
    """
    if label_epsilon is None:
        if question.epsilon is None:
            raise ConfigError("label_epsilon is missing; give it together with the noise.")
        label_epsilon = min(0.6 * question.epsilon, 3.0)
    if question.epsilon is not None and label_epsilon >= question.epsilon:
        raise ConfigError(
            f"label_epsilon={label_epsilon} must be < epsilon={question.epsilon}; "
            "leave something for the sensitive columns."
        )
    answer = _answer(question, lambda noise: two_phase_event(sampling, noise, label_epsilon))
    training = dpsgd_event(sampling, answer.noise)
    alone = question.method.epsilon(training, question.delta, question.adjacency)
    details: dict[str, Detail] = {
        "label_epsilon": label_epsilon,
        "sensitive_columns_epsilon": alone,
        "basic_epsilon": label_epsilon * sampling.max_rows_per_unit + alone,
    }
    details |= _cost_of_cuts(
        question,
        sampling,
        answer,
        lambda uncut, noise: two_phase_event(uncut, noise, label_epsilon),
    )
    return dataclasses.replace(answer, details=details)


def ask_user(question: Question, sampling: BatchSampling) -> Answer:
    """DP-SGD for users with several rows, next to what group privacy would say."""
    answer = ask_dpsgd(question, sampling)
    one_row = dataclasses.replace(sampling, max_rows_per_unit=1)
    curve = privacy_curve(dpsgd_event(one_row, answer.noise), question.adjacency)
    try:
        group = group_epsilon(curve, sampling.max_rows_per_unit, question.delta)
    except ConfigError:
        group = math.inf  # group privacy alone promises nothing here
    details: dict[str, Detail] = {
        "max_rows_per_user": sampling.max_rows_per_unit,
        "example_epsilon": curve.epsilon(question.delta),
        "group_privacy_epsilon": group,
    }
    return dataclasses.replace(answer, details=answer.details | details)


def ask_shuffle(
    question: Question, *, num_reports: int, num_values: int | None, count: int = 1
) -> Answer:
    """Shuffled local reports; the noise is 1 / (epsilon of one report).

    With `num_values` the reports are K-ary randomized response (blanket bound);
    without, any local randomizer (clones bound).
    """

    def make(noise: float) -> events.Event:
        local: events.Event = events.EpsilonDelta(epsilon=1 / noise)
        if num_values is not None:
            local = events.RandomizedResponse(epsilon=1 / noise, num_values=num_values)
        return events.Repeated(
            event=events.Shuffled(event=local, num_reports=num_reports), count=count
        )

    answer = _answer(question, make)
    return dataclasses.replace(answer, details={"local_epsilon": 1 / answer.noise})


def _cost_of_cuts(
    question: Question,
    sampling: BatchSampling,
    answer: Answer,
    make_event: Callable[[BatchSampling, float], events.Event],
) -> dict[str, Detail]:
    """What the same noise would cost if no batch were cut, and the room that it takes.

    With little room epsilon can be ten times what it could be, where a unit has several rows.
    """
    if sampling.max_batch_size is None:
        return {}
    uncut = make_event(dataclasses.replace(sampling, max_batch_size=None), answer.noise)
    epsilon = question.method.epsilon(uncut, question.delta, question.adjacency)
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


def _answer(question: Question, make_event: Callable[[float], events.Event]) -> Answer:
    noise = question.noise
    if noise is None:
        noise = calibrate_noise(
            make_event,
            epsilon=question.epsilon or 0.0,
            delta=question.delta,
            adjacency=question.adjacency,
            spent_epsilon=question.method.epsilon,
        )
    event = make_event(noise)
    epsilon = question.method.epsilon(event, question.delta, question.adjacency)
    return Answer(noise=noise, epsilon=epsilon, event=event)
