"""Settings of the label benchmark. None was chosen by a figure on test rows.

Learning rates of the logistic regression were chosen on noisy labels that were held back. A
first run used the rate of the corrected losses for naive training too and made it look worse
than it is; it then got rates of its own by the same rule. Perceptrons have one rate for all.
"""

import hashlib

from tulle.train import (
    MLP,
    Adam,
    ExampleLevel,
    LabelCorrection,
    LabelPhase,
    LabelProjectionConfig,
    LogisticRegression,
    PlainPhase,
    PrivatePhase,
)
from tulle.train.settings.models import ModelSettings, TableSharing

DELTA = 1e-7
SPLIT_KEY = hashlib.sha256(b"80/20 split of the hybrid benchmark").digest()
REAL_EPSILONS = (0.5, 1.0, 2.0, 3.0)
LINEAR_EPSILONS = (1.0, 2.0, 3.0, 4.0, 5.0, 10.0)
"""Of Table A."""
DEEP_EPSILONS = (0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 10.0)
"""Of Table C."""
MAX_LOGIT = 8.0
"""Bounds the debiased loss from below; a chance of 1 in 3,000 is within it."""

LEAST_ROWS = 300
"""Values of a public column in fewer training rows are one value where label sums are released."""

_DEEP_RATE = 1e-3
_LINEAR_RATE, _SYNTH_LINEAR_RATE = 1e-2, 3e-2
_NAIVE_RATES, _SYNTH_NAIVE_RATES = (1e-3, 3e-3), (1e-3, 1e-2)
"""Of logistic regression on reports as if they were labels: up to epsilon 1 a row, and above."""


def model_settings(model: str, source: str) -> ModelSettings:
    """A logistic regression, or the perceptron of the papers for the log."""
    if model == "lr":
        return LogisticRegression(tables=TableSharing.PER_FEATURE)
    return MLP.hybrid_attribution() if "synth" in source else MLP.semi_sensitive_search()


def optimizer(model: str, source: str, *, naive_epsilon: float | None = None) -> Adam:
    """Rates of logistic regression were chosen by labels_rates.py, at epsilon 1 and 3.

    Args:
      model: "lr" or "mlp".
      source: The log.
      naive_epsilon: Of a report that is taken for a label; None where the loss is corrected.
    """
    if model != "lr":
        return Adam(learning_rate=_DEEP_RATE)
    is_synth = "synth" in source
    if naive_epsilon is None:
        return Adam(learning_rate=_SYNTH_LINEAR_RATE if is_synth else _LINEAR_RATE)
    rates = _SYNTH_NAIVE_RATES if is_synth else _NAIVE_RATES
    return Adam(learning_rate=rates[naive_epsilon > 1])


def plain_phase(model: str, source: str) -> PlainPhase:
    """One epoch on true labels: the baseline."""
    return PlainPhase(epochs=1.0, optimizer=optimizer(model, source))


def label_phase(
    model: str, source: str, correction: LabelCorrection, row_epsilon: float
) -> LabelPhase:
    """One epoch on reports, with the batches and steps of the baseline."""
    naive_epsilon = None if correction.corrects_loss else row_epsilon
    is_debiased = correction is LabelCorrection.DEBIASED
    return LabelPhase(
        epochs=1.0,
        optimizer=optimizer(model, source, naive_epsilon=naive_epsilon),
        correction=correction,
        max_logit=MAX_LOGIT if is_debiased else None,
        weight_rows=is_debiased,
    )


def projection_config(model: str) -> LabelProjectionConfig:
    """Label projection on real clicks, with batches and rates of method_jobs.py's DP-SGD.

    The gradient of a row's logit has the norm sqrt(17) in the logistic regression.
    """
    phase = PrivatePhase(
        epochs=8.0,
        batch_size=16384,
        clip_norm=4.2 if model == "lr" else 5.0,
        optimizer=Adam(learning_rate=_LINEAR_RATE if model == "lr" else 2e-3),
    )
    settings = model_settings(model, "clicks")
    return LabelProjectionConfig(model=settings, private_phase=phase, unit=ExampleLevel())
