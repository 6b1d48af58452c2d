"""The verbs of `tulle.accounting`: what does this cost, and how much noise does that need?

Each function answers in either direction: with the noise given it prices it, with an epsilon given
it finds the least noise that meets it. No data are read. The words are those of `tulle account`.
"""

import dataclasses
import math

from tulle.accounting.accountant import privacy_curve
from tulle.accounting.answers import (
    Accountant,
    Detail,
    NoiseAnswer,
    Question,
    cost_of_cuts,
    question_of,
)
from tulle.accounting.group_privacy import group_epsilon
from tulle.accounting.training_events import (
    BatchSampling,
    dpsgd_event,
    steps_of_epochs,
    two_phase_event,
)
from tulle.errors import ConfigError
from tulle.privacy import events
from tulle.privacy.fields import (
    check_epsilon,
    did_you_mean,
)
from tulle.privacy.units import Adjacency

_SAMPLERS = ("poisson", "fixed-size")
_LEAST_EPSILON = 1e-300
"""Least epsilon of one report; smaller ones have no inverse among floats, and say nothing."""
_LABEL_SHARE, _MOST_LABEL_EPSILON = 0.6, 3.0
"""What labels get where nobody says it: min(0.6 epsilon, 3), as in the papers."""


def ask_gaussian(
    *,
    delta: float,
    epsilon: float | None = None,
    noise_multiplier: float | None = None,
    count: int = 1,
    replace_factor: float = 2.0,
    adjacency: Adjacency | str = "replace",
    accountant: Accountant | str = "pld",
) -> NoiseAnswer:
    """Prices Gaussian noise on a bounded sum, or finds the least that meets an epsilon.

    Args:
      delta: Probability that the guarantee does not cover.
      epsilon: The target; the least noise that meets it is found.
      noise_multiplier: Or: noise over one largest contribution; it is priced.
      count: Number of releases on the same units.
      replace_factor: Distance of two contributions over the largest one: 2, or less if bounded.
      adjacency: "replace", "add-remove" or "zero-out".
      accountant: "pld", or "rdp" to reproduce a paper.
    """

    def make(noise: float) -> events.Event:
        one = events.Gaussian(noise_multiplier=noise, replace_factor=replace_factor)
        return events.Repeated(event=one, count=count)

    return question_of(epsilon, noise_multiplier, delta, adjacency, accountant).answer(make)


def ask_laplace(
    *,
    delta: float = 0.0,
    epsilon: float | None = None,
    noise_multiplier: float | None = None,
    count: int = 1,
    replace_factor: float = 2.0,
    discrete: bool = False,
    adjacency: Adjacency | str = "replace",
    accountant: Accountant | str = "pld",
) -> NoiseAnswer:
    """Prices Laplace noise on a bounded sum, or finds the least that meets an epsilon.

    Args:
      delta: Probability that the guarantee does not cover.
      epsilon: The target; the least noise that meets it is found.
      noise_multiplier: Or: scale of the noise (not its standard deviation) over one largest
        contribution; it is priced.
      count: Number of releases on the same units.
      replace_factor: Distance of two contributions over the largest one: 2, or less if bounded.
      discrete: Integer noise on whole numbers.
      adjacency: "replace", "add-remove" or "zero-out".
      accountant: "pld", or "rdp" to reproduce a paper.
    """

    def make(noise: float) -> events.Event:
        one: events.Event = events.Laplace(noise_multiplier=noise, replace_factor=replace_factor)
        if discrete:
            one = events.DiscreteLaplace(scale=noise, replace_factor=replace_factor)
        return events.Repeated(event=one, count=count)

    return question_of(epsilon, noise_multiplier, delta, adjacency, accountant).answer(make)


def ask_randomized_response(
    *,
    delta: float = 0.0,
    epsilon: float | None = None,
    response_epsilon: float | None = None,
    num_values: int = 2,
    count: int = 1,
    adjacency: Adjacency | str = "replace",
    accountant: Accountant | str = "pld",
) -> NoiseAnswer:
    """Prices randomized response, once or several times by the same unit, or finds it.

    Args:
      delta: Probability that the guarantee does not cover.
      epsilon: The target; the largest epsilon of one response that meets it is found.
      response_epsilon: Or: the epsilon of one response; it is priced.
      num_values: Number of possible values.
      count: Number of responses of one unit.
      adjacency: "replace", "add-remove" or "zero-out".
      accountant: "pld", or "rdp" to reproduce a paper.
    """

    def make(noise: float) -> events.Event:
        one = events.RandomizedResponse(epsilon=1 / noise, num_values=num_values)
        return events.Repeated(event=one, count=count)

    noise, name = _inverse("response_epsilon", response_epsilon), "response_epsilon"
    question = question_of(epsilon, noise, delta, adjacency, accountant, noise_name=name)
    answer = question.answer(make)
    found = 1 / answer.noise_multiplier
    truth_prob = 1 / (1 + (num_values - 1) * math.exp(-found))
    details: dict[str, Detail] = {"response_epsilon": found, "truth_prob": truth_prob}
    return dataclasses.replace(answer, details=details, is_report=True)


def ask_dpsgd(
    *,
    delta: float,
    num_examples: int,
    batch_size: int,
    steps: int | None = None,
    epochs: float | None = None,
    epsilon: float | None = None,
    noise_multiplier: float | None = None,
    max_batch_size: int | None = None,
    sampler: str = "poisson",
    adjacency: Adjacency | str = "replace",
    accountant: Accountant | str = "pld",
) -> NoiseAnswer:
    """Prices DP-SGD, finds its noise, or, with epsilon and noise given, the most steps that fit.

    Args:
      delta: Probability that the guarantee does not cover.
      num_examples: Rows of the training data.
      batch_size: Expected rows in a batch.
      steps: Number of batches.
      epochs: Or: passes over the data.
      epsilon: The target; the least noise that meets it is found.
      noise_multiplier: Or: noise over one row's clipped gradient; it is priced.
      max_batch_size: Truncate larger Poisson batches to this size.
      sampler: "poisson", or "fixed-size" (replace only).
      adjacency: "replace", "add-remove" or "zero-out".
      accountant: "pld", or "rdp" to reproduce a paper.
    """
    rows = num_examples, batch_size, max_batch_size, sampler
    if None not in (epsilon, noise_multiplier) and steps is None and epochs is None:
        target = question_of(epsilon, None, delta, adjacency, accountant)
        steps = target.most_steps(_sampling(*rows, steps=1), noise_multiplier or 0.0)
        epsilon = None
    sampling = _sampling(*rows, steps=steps, epochs=epochs)
    question = question_of(epsilon, noise_multiplier, delta, adjacency, accountant)
    return _ask_dpsgd(question, sampling)


def ask_hybrid(
    *,
    delta: float,
    num_examples: int,
    batch_size: int,
    steps: int | None = None,
    epochs: float | None = None,
    epsilon: float | None = None,
    noise_multiplier: float | None = None,
    label_epsilon: float | None = None,
    max_batch_size: int | None = None,
    adjacency: Adjacency | str = "replace",
    accountant: Accountant | str = "pld",
) -> NoiseAnswer:
    """Prices the papers' Hybrid, randomized labels and then DP-SGD, accounted jointly.

    Args:
      delta: Probability that the guarantee does not cover.
      num_examples: Rows of the training data.
      batch_size: Expected rows in a batch.
      steps: Number of batches.
      epochs: Or: passes over the data.
      epsilon: The target; the least noise that meets it is found.
      noise_multiplier: Or: noise over one row's clipped gradient; it is priced.
      label_epsilon: What the labels cost; None: min(0.6 epsilon, 3), as in the papers.
      max_batch_size: Truncate larger Poisson batches to this size.
      adjacency: "replace", "add-remove" or "zero-out".
      accountant: "pld", or "rdp" to reproduce a paper.
    """
    sampling = _sampling(num_examples, batch_size, max_batch_size, steps=steps, epochs=epochs)
    question = question_of(epsilon, noise_multiplier, delta, adjacency, accountant)
    for_labels = _label_epsilon(label_epsilon, epsilon)
    answer = question.answer(lambda noise: two_phase_event(sampling, noise, for_labels))
    alone = question.cost(dpsgd_event(sampling, answer.noise_multiplier))
    details: dict[str, Detail] = {
        "steps": sampling.steps,
        "label_epsilon": for_labels,
        "sensitive_columns_epsilon": alone,
        "basic_epsilon": for_labels * sampling.max_rows_per_unit + alone,
    }
    details |= cost_of_cuts(
        question, sampling, answer, lambda uncut, noise: two_phase_event(uncut, noise, for_labels)
    )
    return dataclasses.replace(answer, details=details)


def ask_user(
    *,
    delta: float,
    num_examples: int,
    batch_size: int,
    max_rows_per_user: int,
    steps: int | None = None,
    epochs: float | None = None,
    epsilon: float | None = None,
    noise_multiplier: float | None = None,
    max_batch_size: int | None = None,
    adjacency: Adjacency | str = "replace",
) -> NoiseAnswer:
    """Prices DP-SGD for users who own several rows, beside what group privacy would say.

    Args:
      delta: Probability that the guarantee does not cover.
      num_examples: Rows of the training data.
      batch_size: Expected rows in a batch.
      max_rows_per_user: Most rows of one user.
      steps: Number of batches.
      epochs: Or: passes over the data.
      epsilon: The target; the least noise that meets it is found.
      noise_multiplier: Or: noise over one row's clipped gradient; it is priced.
      max_batch_size: Truncate larger Poisson batches to this size.
      adjacency: "replace", "add-remove" or "zero-out".
    """
    one_row = _sampling(num_examples, batch_size, max_batch_size, steps=steps, epochs=epochs)
    sampling = dataclasses.replace(one_row, max_rows_per_unit=max_rows_per_user)
    question = question_of(epsilon, noise_multiplier, delta, adjacency, Accountant.PLD)
    answer = _ask_dpsgd(question, sampling)
    curve = privacy_curve(dpsgd_event(one_row, answer.noise_multiplier), question.adjacency)
    try:
        group = group_epsilon(curve, max_rows_per_user, delta)
    except ConfigError:
        group = math.inf  # group privacy alone promises nothing here
    details: dict[str, Detail] = {
        "max_rows_per_user": max_rows_per_user,
        "example_epsilon": curve.epsilon(delta),
        "group_privacy_epsilon": group,
    }
    return dataclasses.replace(answer, details=answer.details | details)


def ask_shuffle(
    *,
    delta: float,
    num_reports: int,
    epsilon: float | None = None,
    local_epsilon: float | None = None,
    num_values: int | None = None,
    count: int = 1,
) -> NoiseAnswer:
    """Prices local reports that a shuffler mixes, under replace, or finds them.

    Args:
      delta: Probability that the guarantee does not cover.
      num_reports: Reports in the smallest cell of equal choices.
      epsilon: The target; the largest epsilon of one report that meets it is found.
      local_epsilon: Or: the epsilon of one report before shuffling; it is priced.
      num_values: Values of K-ary randomized response (blanket bound); None: any local randomizer
        (clones bound).
      count: Number of releases on the same units.
    """

    def make(noise: float) -> events.Event:
        local: events.Event = events.EpsilonDelta(epsilon=1 / noise)
        if num_values is not None:
            local = events.RandomizedResponse(epsilon=1 / noise, num_values=num_values)
        return events.Repeated(
            event=events.Shuffled(event=local, num_reports=num_reports), count=count
        )

    noise, name = _inverse("local_epsilon", local_epsilon), "local_epsilon"
    question = question_of(
        epsilon, noise, delta, Adjacency.REPLACE, Accountant.PLD, noise_name=name
    )
    answer = question.answer(make)
    details: dict[str, Detail] = {"local_epsilon": 1 / answer.noise_multiplier}
    return dataclasses.replace(answer, details=details, is_report=True)


def _inverse(name: str, epsilon: float | None) -> float | None:
    """Noise of a report: more of it is less epsilon."""
    if epsilon is None:
        return None
    if check_epsilon(epsilon, name) < _LEAST_EPSILON:
        raise ConfigError(f"{name}={epsilon} must be >= {_LEAST_EPSILON:g}, e.g. 1.")
    return 1 / epsilon


def _sampling(
    num_examples: int,
    batch_size: int,
    max_batch_size: int | None,
    sampler: str = "poisson",
    *,
    steps: int | None = None,
    epochs: float | None = None,
) -> BatchSampling:
    if sampler not in _SAMPLERS:
        raise ConfigError(
            f"sampler={sampler!r} is unknown{did_you_mean(sampler, _SAMPLERS)}; "
            f"use {' or '.join(_SAMPLERS)}."
        )
    if (steps is None) == (epochs is None):
        raise ConfigError("give either steps or epochs: how long the run is.")
    if epochs is not None:
        steps = steps_of_epochs(epochs, num_examples=num_examples, batch_size=batch_size)
    return BatchSampling(
        num_examples=num_examples,
        batch_size=batch_size,
        steps=steps or 0,
        max_batch_size=max_batch_size,
        fixed_size=sampler == "fixed-size",
    )


def _label_epsilon(label_epsilon: float | None, epsilon: float | None) -> float:
    if label_epsilon is None:
        if epsilon is None:
            raise ConfigError("label_epsilon is missing; give it together with the noise.")
        return min(_LABEL_SHARE * epsilon, _MOST_LABEL_EPSILON)
    if epsilon is not None and label_epsilon >= epsilon:
        raise ConfigError(
            f"label_epsilon={label_epsilon} must be < epsilon={epsilon}; "
            "leave something for the sensitive columns."
        )
    return label_epsilon


def _ask_dpsgd(question: Question, sampling: BatchSampling) -> NoiseAnswer:
    answer = question.answer(lambda noise: dpsgd_event(sampling, noise))
    details: dict[str, Detail] = {"steps": sampling.steps}
    details |= cost_of_cuts(question, sampling, answer, dpsgd_event)
    return dataclasses.replace(answer, details=details)
