"""What each device adds to an estimate, from its own exact chances.

With the chance P(y) by which the logging rule chose ad y, the chance Q(y) of the evaluated rule,
the value v(y) of a click and a model q of clicks, a decision adds

    inverse propensity:  Q(y) / P(y) v(y) click
    doubly robust:       sum_j Q(j) v(j) q(j) + Q(y) / P(y) v(y) (click - q(y))

Its mean over draws and clicks is the value of the evaluated rule, whatever q is.
"""

import dataclasses
import enum

import numpy as np

from tulle.errors import ConfigError
from tulle.select.auctions import Auctions, FloatArray
from tulle.select.evaluation.decision_log import DecisionLog
from tulle.select.mechanism import SelectionMechanism


class Estimator(enum.Enum):
    """How a decision of one rule tells about another."""

    INVERSE_PROPENSITY = "inverse propensity"
    DOUBLY_ROBUST = "doubly robust"
    """Less variance where the model of clicks is good; terms have about twice the range."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class TermRange:
    """What no term leaves. Public."""

    low: float
    high: float

    @property
    def largest_size(self) -> float:
        """Of a term, whatever its sign."""
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
