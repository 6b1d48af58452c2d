"""Audit of a whole training run: labels by coins in, a trained model out, guesses from it.

The attack sees what everybody sees, the model. It is weaker than the guarantee assumes, whose
attacker sees every step: a bound far below the claim is no sign of a loose claim, and only a
bound above it says something for certain.
"""

import dataclasses

import numpy as np
from numpy.typing import NDArray

from tulle.audit.canary_audit import OneRunConfig, OneRunResult, audit_canaries
from tulle.audit.canary_labels import LabelCanaries, plant_label_canaries
from tulle.errors import ConfigError
from tulle.mechanisms.entropy import NoiseSource
from tulle.privacy.units import Adjacency
from tulle.train.examples import ExampleSet
from tulle.train.fitting import FitResult, fit
from tulle.train.methods.method import Accounting, Method
from tulle.train.run_options import RunOptions
from tulle.train.train_plan import TrainPlan

_DELTA_WITHOUT_CLAIM = 1e-5
_LEAST_PROB = 1e-300


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class TrainingAudit:
    """A run on data with canaries, and what it gave away."""

    result: OneRunResult
    run: FitResult
    """Its model was trained on labels that are partly coins: do not serve it."""
    canaries: LabelCanaries
    scores: NDArray[np.float64]
    """Of each canary, by the model; high where the coin seems to be 1."""


def audit_training(
    examples: ExampleSet,
    config: Method | TrainPlan,
    *,
    num_canaries: int,
    rng: NoiseSource,
    options: RunOptions | None = None,
    false_alarm_prob: float = 0.05,
) -> TrainingAudit:
    """Trains on data with label canaries and guesses their coins from the model.

    Args:
      examples: Training rows.
      config: A calibrated config, or a plan for these data; a baseline without privacy too.
      num_canaries: Rows whose labels become coins; 1,000 to 10,000 show most.
      rng: Source of the canaries and their coins. Training draws its own noise.
      options: As for any run: folder, ledger, device.
      false_alarm_prob: Largest chance that a right run is called wrong.

    Privacy:
      The run is one more run on these data and costs what its plan says; charge it. Scores
      and counts of right guesses say nothing about labels, which coins took the place of. But
      they are exact, and come from all columns that the model reads: where these are sensitive,
      no guarantee covers the counts, so show them to those who may see the rows.

    Raises:
      ConfigError: The claim does not speak of replaced labels, or there are fewer rows.
    """
    _check_adjacency(config)
    # Looked at first: a setting that is wrong must not cost a run its budget.
    audit_config = OneRunConfig(delta=_DELTA_WITHOUT_CLAIM, false_alarm_prob=false_alarm_prob)
    canaries = plant_label_canaries(examples, num_canaries, rng=rng)
    run = fit(canaries.examples, config, options=options)
    scores = _log_odds(run.model.predict_proba(canaries.examples.select(canaries.rows)))
    if run.plan.method.is_private:
        claimed_delta = run.plan.privacy.guarantee.delta
        audit_config = dataclasses.replace(audit_config, delta=claimed_delta)
    result = audit_canaries(
        scores,
        canaries.coins,
        run.plan.privacy.event,
        Adjacency.REPLACE,
        audit_config,
    )
    return TrainingAudit(result=result, run=run, canaries=canaries, scores=scores)


def _check_adjacency(config: Method | TrainPlan) -> None:
    method = config.method if isinstance(config, TrainPlan) else config
    if method.accounting is not Accounting.REPLACE_PLD:
        raise ConfigError(
            "accounting='paper' says nothing sound about replaced labels, so there is no claim "
            "to audit; use accounting='replace'."
        )


def _log_odds(probs: NDArray[np.float64]) -> NDArray[np.float64]:
    """The loss at label 0 minus that at label 1: high where the model was taught 1."""
    kept = np.clip(probs, _LEAST_PROB, None)
    return np.asarray(np.log(kept) - np.log(np.clip(1 - probs, _LEAST_PROB, None)))
