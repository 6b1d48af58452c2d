"""What a device adds to the estimate of another selection: one bounded term for each decision.

The exact probability of a choice is private: under randomized response it says whether the ad was
the device's favourite. Together with the choice it undoes the protection of the decision. So it is
used where it is known, and a term made of it leaves in a noisy sum alone.

Bounding is the last thing that a device does: whatever it computed, what it adds to a sum is a
whole number from 0 to NUM_STEPS for each term, and for the square of its total.

Whether a logged rule can tell about another one at all is decided from public data: only ads that
the logging rule may show say anything. What a device finds missing in its own probabilities must
not stop an evaluation: that it stopped would be a release.
"""

import dataclasses
import enum
import math
from collections.abc import Callable
from functools import partial

import numpy as np

from tulle.errors import ConfigError, DataError
from tulle.mechanisms.thresholds import WORD_VALUES
from tulle.select.auctions import (
    Auctions,
    BoolArray,
    FloatArray,
    IntArray,
    check_click_probs,
)
from tulle.select.mechanisms.floors import FloorMechanism
from tulle.select.mechanisms.mechanism import SelectionMechanism
from tulle.select.mechanisms.shortlists import Shortlist, finalist_sizes

NUM_STEPS = 2**24
"""Steps over the range of one term, and over the range of one user's square."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class DecisionLog:
    """Decisions of some auctions. Sensitive, but for users, choices and what was personalised."""

    users: IntArray
    """[auctions], whose device decided."""
    choices: IntArray
    """[auctions], the place of the chosen candidate in the arrays of all candidates."""
    raw_clicks: BoolArray = dataclasses.field(repr=False)
    """[auctions], whether the chosen ad was clicked."""
    raw_scores: FloatArray = dataclasses.field(repr=False)
    """[candidates], by which the device decided."""
    raw_target_scores: FloatArray | None = dataclasses.field(default=None, repr=False)
    """[candidates], by which the evaluated rule would decide; None: the same."""
    raw_model_clicks: FloatArray | None = dataclasses.field(default=None, repr=False)
    """[candidates], the device's predicted probabilities of a click, for a doubly robust estimate;
    None: the server's prediction."""
    is_personalised: BoolArray | None = None
    """[auctions], public: False where the server's winner was shown without a draw; None: all."""

    def __post_init__(self) -> None:
        for name in ("users", "choices", "raw_clicks", "is_personalised"):
            column = getattr(self, name)
            if column is not None and column.shape != self.users.shape:
                raise DataError(f"{name} must have one entry for each decision.")
        for name in ("raw_clicks", "is_personalised"):
            column = getattr(self, name)
            if column is not None and column.dtype != np.bool_:
                raise DataError(f"{name} must be True or False, not {column.dtype}.")
        if self.raw_model_clicks is not None:
            check_click_probs("raw_model_clicks", self.raw_model_clicks)

    def check(self, auctions: Auctions) -> None:
        """Refuses a log that is not of these auctions."""
        if self.users.shape != (len(auctions),):
            raise DataError("the log must have one decision for each auction.")
        if np.any(self.choices < auctions.offsets[:-1]) or np.any(
            self.choices >= auctions.offsets[1:]
        ):
            raise DataError("every choice must be a candidate of its own auction.")
        for name in ("raw_scores", "raw_target_scores", "raw_model_clicks"):
            column = getattr(self, name)
            if column is not None and column.shape != auctions.bids.shape:
                raise DataError(f"{name} must have one entry for each of the candidates.")


class Estimator(enum.Enum):
    """How a decision of one rule tells about another."""

    INVERSE_PROPENSITY = "inverse propensity"
    DOUBLY_ROBUST = "doubly robust"
    """Inverse propensity on top of a model of clicks: less variance where the model is good; terms
    have about twice the range."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class TermRange:
    """What no term leaves. Public."""

    low: float
    high: float

    @property
    def largest_size(self) -> float:
        """Largest size of a term, whatever its sign."""
        return max(-self.low, self.high)


def term_range(estimator: Estimator, max_weighted_value: float, max_value: float) -> TermRange:
    """The range that weights and values give.

    Args:
      estimator: Which term.
      max_weighted_value: Largest weight times value.
      max_value: Largest value of a click.
    """
    if not max_weighted_value > 0:
        raise ConfigError("values must not all be 0: there is nothing to estimate.")
    if estimator is Estimator.INVERSE_PROPENSITY:
        return TermRange(low=0.0, high=max_weighted_value)
    return TermRange(low=-max_weighted_value, high=max_weighted_value + max_value)


def device_terms(
    auctions: Auctions,
    log: DecisionLog,
    rules: tuple[SelectionMechanism, SelectionMechanism],
    *,
    estimator: Estimator,
    values: FloatArray,
    max_weight: float,
) -> FloatArray:
    """[auctions], the term of each decision.

    Args:
      auctions: The public side.
      log: What devices remember.
      rules: The logging and the evaluated one.
      estimator: Which term.
      values: [candidates], what a click is worth. Public.
      max_weight: Largest Q(y) / P(y); larger ones are cut to it.

    Privacy:
      Not noised: as sensitive as the scores and clicks. A term never leaves its device but in a
      noisy sum.
    """
    logging, target = rules
    logging_probs = logging.selection_probs(auctions, log.raw_scores)[log.choices]
    target_scores = log.raw_scores if log.raw_target_scores is None else log.raw_target_scores
    target_probs = target.selection_probs(auctions, target_scores)
    raw_weights = _weights(target_probs[log.choices], logging_probs, max_weight)
    weighted_values = raw_weights * values[log.choices]
    if estimator is Estimator.INVERSE_PROPENSITY:
        return weighted_values * log.raw_clicks
    model = auctions.server_click_probs if log.raw_model_clicks is None else log.raw_model_clicks
    modelled = np.add.reduceat(target_probs * values * model, auctions.offsets[:-1])
    return np.asarray(modelled + weighted_values * (log.raw_clicks - model[log.choices]))


def _weights(target_probs: FloatArray, logging_probs: FloatArray, max_weight: float) -> FloatArray:
    # A choice that could not have been drawn must not show: it gets the largest weight.
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.fmin(target_probs / logging_probs, max_weight)


def term_step(limits: TermRange) -> float:
    """What one step of a term is worth."""
    return (limits.high - limits.low) / NUM_STEPS


def square_step(limits: TermRange, max_decisions_per_user: int) -> float:
    """What one step of a user's square is worth."""
    return (max_decisions_per_user * limits.largest_size) ** 2 / NUM_STEPS


def terms_on_grid(raw_terms: FloatArray, limits: TermRange) -> IntArray:
    """[terms], from 0 to NUM_STEPS, rounded to the nearest step.

    Privacy:
      Not noised. Bounds each term's part of a sum, for any input.
    """
    return _bounded(np.rint((raw_terms - limits.low) / term_step(limits)))


def squares_on_grid(
    raw_steps: IntArray, user_numbers: IntArray, limits: TermRange, max_decisions_per_user: int
) -> IntArray:
    """[users], the square of each user's total, from 0 to NUM_STEPS, rounded up.

    Privacy:
      Not noised. Bounds each user's part of a sum, for any input.

    Args:
      raw_steps: [terms], on the grid.
      user_numbers: [terms], from 0 without gaps.
      limits: Range of the terms.
      max_decisions_per_user: Most terms that a user has.
    """
    raw_terms = limits.low + term_step(limits) * raw_steps
    raw_totals = np.bincount(user_numbers, weights=raw_terms)
    return _bounded(np.ceil(raw_totals**2 / square_step(limits, max_decisions_per_user)))


def _bounded(steps: FloatArray) -> IntArray:
    # fmax and fmin take the bound where a computation went wrong (NaN); clip would keep it.
    return np.fmin(np.fmax(steps, 0), NUM_STEPS).astype(np.int64)


def check_support(
    logging: SelectionMechanism, target: SelectionMechanism, auctions: Auctions, counted: BoolArray
) -> None:
    """Refuses a target that may show an ad which the logging rule never shows.

    Args:
      logging: The rule that decided; its finalists are the best few by server score.
      target: The rule to evaluate. Where its finalists are unknown, they are all candidates.
      auctions: The public side.
      counted: [auctions], the decisions that are evaluated.
    """
    shortlist = _shortlist(logging)
    if shortlist is None:
        raise ConfigError(
            f"logging={logging.name!r} gives no public probability to every finalist, so it tells "
            "nothing about other choices; log with a FloorMechanism."
        )
    missing = _target_sizes(target, auctions) > finalist_sizes(auctions, shortlist)
    if num_missing := int(np.count_nonzero(missing & counted)):
        raise ConfigError(
            f"target={target.name!r} may show ads that logging={logging.name!r} never shows, in "
            f"{num_missing} auctions. Evaluate a target with a shorter shortlist, or log with a "
            "longer one."
        )


def weight_limits(
    logging: SelectionMechanism, target: SelectionMechanism, auctions: Auctions
) -> FloatArray | None:
    """[auctions], what no weight target probability / logging probability exceeds; None if unknown.

    Known where floors are: no finalist's probability is below its floor.

    Args:
      logging: The rule that decided.
      target: The rule to evaluate.
      auctions: The public side.
    """
    if not isinstance(logging, FloorMechanism):
        return None
    floors = _by_size(finalist_sizes(auctions, logging.shortlist), partial(_floor, logging))
    if not isinstance(target, FloorMechanism):
        return 1 / floors
    tops = _by_size(finalist_sizes(auctions, target.shortlist), partial(_top, target))
    return tops / floors


def _shortlist(mechanism: SelectionMechanism) -> Shortlist | None:
    """The public rule for finalists, each of which has a probability; None if there is none."""
    return mechanism.shortlist if 0 < mechanism.epsilon < math.inf else None


def _target_sizes(target: SelectionMechanism, auctions: Auctions) -> IntArray:
    shortlist = target.shortlist
    return auctions.sizes if shortlist is None else finalist_sizes(auctions, shortlist)


def _by_size(sizes: IntArray, chance: Callable[[int], float]) -> FloatArray:
    """[auctions], a probability that follows from the number of finalists."""
    chances = np.ones(int(sizes.max(initial=0)) + 1)
    for size in np.unique(sizes).tolist():
        chances[size] = chance(size)
    return chances[sizes]


def _floor(mechanism: FloorMechanism, num_finalists: int) -> float:
    if num_finalists == 1:
        return 1.0
    return mechanism.masses(num_finalists).floor_words / WORD_VALUES


def _top(mechanism: FloorMechanism, num_finalists: int) -> float:
    return max(mechanism.masses(num_finalists).boosted_words) / WORD_VALUES
