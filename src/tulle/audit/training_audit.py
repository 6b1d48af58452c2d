"""Audit of a whole training run: labels by coins in, a trained model out, guesses from it.

The attack sees what everybody sees, the model. It is weaker than the guarantee assumes, whose
attacker sees every step: a bound far below the claim is no sign of a loose claim, and only a
bound above it says something for certain.

Canaries are rows of the data itself, one of a unit at most, whose labels become fair coins. A
flipped label is a replaced one, so nothing is added to the data, and the claim that is audited is
the claim of the run. The coins are for the audit alone: training is handed labels and cannot tell
which of them were drawn.
"""

import dataclasses
import hashlib
import math
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tulle.atomic_files import reporting_disk_errors
from tulle.audit.one_run import OneRunConfig, OneRunResult, audit_canaries
from tulle.errors import ConfigError, DataError
from tulle.mechanisms.entropy import NoiseSource, noise_source
from tulle.mechanisms.exact import sample_bernoulli
from tulle.privacy.fields import check_count, null_if_infinite
from tulle.privacy.units import Adjacency
from tulle.runs.card import write_card
from tulle.runs.card_entries import AuditResult
from tulle.runs.folder import RunFolder
from tulle.runs.record import card_of, read_training
from tulle.train.examples import ExampleSet
from tulle.train.fitting import FitResult, fit
from tulle.train.methods.method import Accounting, Method
from tulle.train.methods.train_plan import TrainPlan
from tulle.train.run_context import RunOptions

IntArray = NDArray[np.int64]
_DELTA_WITHOUT_CLAIM = 1e-5
"""The delta at which a run without privacy is compared."""
_LEAST_PROB = 1e-300
"""Keeps the log-odds of a model that is sure of a label finite."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class LabelCanaries:
    """Data with canaries. Sensitive: the coins must not reach the training."""

    examples: ExampleSet
    """The rows to train on."""
    rows: IntArray
    """Which of them are canaries, ascending."""
    coins: IntArray
    """The label of each canary."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class TrainingAudit:
    """A run on data with canaries, and what it gave away."""

    result: OneRunResult
    run: FitResult
    """The run. Its model was trained on labels that are partly coins: do not serve it."""
    canaries: LabelCanaries
    scores: NDArray[np.float64]
    """Score of each canary by the model; high where the coin seems to be 1."""

    @property
    def evidence(self) -> AuditResult:
        """What the audit proved, for the card of the run."""
        result, claim = self.result, self.run.plan.privacy.guarantee.epsilon
        lower_bound = result.curve_lower_bound
        if result.is_violated:  # The bound is rounded down, and the claim is proven wrong.
            lower_bound = max(lower_bound, math.nextafter(claim, math.inf))
        return AuditResult(
            method=f"one run with {result.guesses.num_canaries} label canaries, seen by its model",
            lower_bound=lower_bound,
            claim=claim,
            confidence=1 - result.false_alarm_prob,
        )

    def to_dict(self) -> dict[str, object]:
        """Plain data; the epsilon of a run without privacy is null."""
        result, evidence = self.result, self.evidence
        return {
            "method": self.run.plan.privacy.settings["method"],
            "claimed_epsilon": null_if_infinite(evidence.claim),
            "epsilon_lower_bound": result.epsilon_lower_bound,
            "curve_lower_bound": result.curve_lower_bound,
            "delta": result.delta,
            "confidence": evidence.confidence,
            "canaries": result.guesses.num_canaries,
            "guesses": result.guesses.num_guesses,
            "right_guesses": result.guesses.num_correct,
            "is_violated": result.is_violated,
        }


def audit_training(
    examples: ExampleSet,
    config: Method | TrainPlan,
    *,
    num_canaries: int = 1000,
    options: RunOptions | None = None,
    rng: NoiseSource | None = None,
    false_alarm_prob: float = 0.05,
) -> TrainingAudit:
    """Trains on data with label canaries and guesses their coins from the model.

    Args:
      examples: Training rows.
      config: A calibrated config, or a plan for these data; a baseline without privacy too.
      num_canaries: Number of rows whose labels become coins; 1,000 to 10,000 show most.
      options: Options of any run: folder, ledger, device. The card in the folder has the audit.
      rng: Source of the canaries and their coins; None: entropy of the operating system, or
        draws that follow from the seed of the options. Training draws its own noise.
      false_alarm_prob: Largest probability that a right run is called wrong.

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
    options = options or RunOptions()
    coins = _coins_source(options.seed) if rng is None else rng
    canaries = plant_label_canaries(examples, num_canaries, rng=coins)
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
    audit = TrainingAudit(result=result, run=run, canaries=canaries, scores=scores)
    if options.folder is not None:
        _write_card(options.folder, audit)
    return audit


def plant_label_canaries(
    examples: ExampleSet, num_canaries: int, *, rng: NoiseSource
) -> LabelCanaries:
    """Gives some rows a label by a fair coin.

    Args:
      examples: Rows with labels 0 and 1. They are not changed.
      num_canaries: How many rows, in as many units.
      rng: Source of the choice and of the coins.

    Privacy:
      The labels of canaries are lost to the training. What is released about the coins tells
      nothing about the labels that they took the place of.
    """
    if examples.labels is None:
        raise DataError("the rows have no label column; name one in the schema.")
    check_count("num_canaries", num_canaries)
    candidates = _one_row_a_unit(examples, rng)
    if num_canaries > candidates.size:
        raise ConfigError(
            f"num_canaries={num_canaries} must be <= {candidates.size}, the number of units with "
            "a row; lower it."
        )
    # Words tie so rarely that no order is favoured.
    order = np.argsort(rng.words(candidates.size), kind="stable")
    rows = np.sort(candidates[order[:num_canaries]])
    coins = sample_bernoulli(0.5, num_canaries, rng=rng).astype(np.int64)
    labels = np.array(examples.labels, copy=True)
    labels[rows] = coins
    # They are other data now, whatever they were read from.
    planted = dataclasses.replace(examples, labels=labels, fingerprint="")
    return LabelCanaries(examples=planted, rows=rows, coins=coins)


def _coins_source(seed: int | None) -> NoiseSource:
    """Source of the coins, which never gives the words that the training draws.

    A seed repeats both, so the coins use a key of their own that is derived from it.
    """
    if seed is None:
        return noise_source(None)
    digest = hashlib.sha256(f"coins {seed}".encode()).digest()
    return noise_source(int.from_bytes(digest[:8], "big"))


def _write_card(folder: Path, audit: TrainingAudit) -> None:
    record = read_training(RunFolder.open(folder))
    card = dataclasses.replace(card_of(record), audit=audit.evidence)
    with reporting_disk_errors(folder / "card.json"):
        write_card(folder, card)


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


def _one_row_a_unit(examples: ExampleSet, rng: NoiseSource) -> IntArray:
    """Rows of different units: a claim for units speaks of one coin of each."""
    shuffled = np.argsort(rng.words(examples.num_rows), kind="stable")
    if examples.units is None:
        return shuffled
    _, first = np.unique(examples.units[shuffled], return_index=True)
    return np.asarray(shuffled[first], dtype=np.int64)
