"""What a device adds to the estimate of another selection: one bounded term for each decision.

The exact probability of a choice is private: under randomized response it says whether the ad was
the device's favourite. Together with the choice it undoes the protection of the decision. So it is
used where it is known, and a term made of it leaves in a noisy sum alone.

Bounding is the last thing that a device does: whatever it computed, what it adds to a sum is a
whole number from 0 to NUM_STEPS for each term, and for the square of its total.
"""

import dataclasses
import enum

import numpy as np

from tulle.errors import ConfigError, DataError
from tulle.select.auctions import (
    Auctions,
    BoolArray,
    FloatArray,
    IntArray,
    check_click_probs,
)
from tulle.select.mechanisms.mechanism import SelectionMechanism

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
