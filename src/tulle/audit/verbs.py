"""The verbs of `tulle.audit`: randomizers, private steps and a whole training run, attacked.

Randomizers and steps run on synthetic inputs and cost nothing. A training run is a real one: it
reads data, and is charged as any other.
"""

import dataclasses
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tulle.atomic_files import reporting_disk_errors, write_text
from tulle.audit.added_noise import ADDED_NOISE, TOTALS
from tulle.audit.mechanism_audit import MechanismAudit, Randomizer, audit_randomizer
from tulle.audit.responses import CHOICES, LABELS, RESPONSES
from tulle.errors import ConfigError, RunStateError
from tulle.mechanisms.entropy import noise_source
from tulle.privacy.fields import did_you_mean

if TYPE_CHECKING:
    from tulle.accounting.ledger import Ledger
    from tulle.accounting.spans import Moment
    from tulle.audit.step_audit import StepAudit, StepAuditConfig
    from tulle.audit.training_audit import TrainingAudit
    from tulle.data.features.feature_plan import FeaturePlan
    from tulle.data.named_logs import SchemaLike
    from tulle.train.methods.train_plan import TrainPlan
    from tulle.train.run_context import Watch
    from tulle.train.settings.units import UnitLevel
    from tulle.train.training_data import Watch as DataWatch
    from tulle.train.verbs import MethodLike

TWINS = {"half-noise": 0.5}
"""Faulty twins of private steps, each with its noise over that of the claim."""

RANDOMIZERS: tuple[Randomizer, ...] = (*ADDED_NOISE, *RESPONSES, *LABELS, *TOTALS, *CHOICES)
"""All randomizers of the product that are audited; those of the lab are listed there."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepAudits:
    """What was found about private steps, engine by engine. No data were read."""

    audits: "tuple[StepAudit, ...]"
    config: "StepAuditConfig"
    twin: str | None
    """The fault that was planted; None if what is released was audited."""
    seed: int | None

    @property
    def is_violated(self) -> bool:
        """True if a claim is wrong, but for the probability of a false alarm."""
        return any(audit.is_violated for audit in self.audits)

    def to_dict(self) -> dict[str, object]:
        """Plain data."""
        return {
            "audit": "step",
            "data": "synthetic",
            "twin": self.twin,
            "noise_factor": self.config.noise_factor,
            "draws": self.config.num_runs,
            "seed": self.seed,
            "is_violated": self.is_violated,
            "engines": [audit.to_dict() for audit in self.audits],
        }


def audit_mechanisms(
    only: Sequence[str] = (),
    *,
    among: Sequence[Randomizer] = RANDOMIZERS,
    draws: int = 20_000,
    noise_factor: float = 1.0,
    false_alarm_prob: float = 1e-6,
    seed: int | None = None,
    watch: Callable[[MechanismAudit], None] | None = None,
) -> tuple[MechanismAudit, ...]:
    """Draws from randomizers on two neighbouring inputs and tests their whole claims.

    Args:
      only: Names of randomizers; none: all of them.
      among: The randomizers that there are, those of the product unless others are given.
      draws: Number of draws on each of the two inputs.
      noise_factor: Factor on the noise that is drawn, in (0, 1]; below 1 it plants a fault.
      false_alarm_prob: Largest probability to call one right randomizer wrong.
      seed: Makes the draws repeatable; None: entropy of the operating system.
      watch: Function that is told each result as it is found.

    Privacy:
      Inputs are synthetic: no data are read, and nothing is charged.

    Raises:
      ConfigError: A randomizer is unknown, or a setting out of range.
    """
    if not 0 < noise_factor <= 1:
        raise ConfigError(
            f"noise_factor={noise_factor:g} must be in (0, 1]; 1 audits what is released."
        )
    rng = noise_source(seed)
    chosen = [find_randomizer(name, among) for name in only] if only else among
    found = []
    for randomizer in chosen:
        audit = audit_randomizer(
            randomizer,
            num_draws=draws,
            rng=rng,
            noise_factor=noise_factor,
            false_alarm_prob=false_alarm_prob,
        )
        found.append(audit)
        if watch is not None:
            watch(audit)
    return tuple(found)


def audit_steps(
    only: Sequence[str] = (),
    *,
    draws: int = 50_000,
    epsilon: float = 4.0,
    delta: float = 1e-5,
    twin: str | None = None,
    false_alarm_prob: float = 1e-6,
    seed: int | None = None,
    output: str | Path | None = None,
    watch: Callable[[str], None] | None = None,
) -> StepAudits:
    """Takes private steps on two neighbouring data sets and tests the whole claim of their plan.

    Args:
      only: "dense", "lazy", "lattice", "banded" or "selected"; none: all of them.
      draws: Number of runs on each of the two data sets.
      epsilon: Epsilon of the plan that is audited.
      delta: Delta of the plan that is audited.
      twin: A faulty twin to audit instead, "half-noise"; it must be caught.
      false_alarm_prob: Largest probability to call right steps wrong.
      seed: Makes the draws repeatable; None: entropy of the operating system.
      output: New JSON file for the result.
      watch: Function that is told what is run next.

    Privacy:
      Data sets are synthetic: no data are read, and nothing is charged.

    Raises:
      ConfigError: An engine or a twin is unknown, or a setting out of range.
      RunStateError: The file exists already.
    """
    # Steps need torch, which audits of randomizers do without.
    from tulle.audit.audited_steps import AUDITED_STEPS, find_steps
    from tulle.audit.step_audit import StepAuditConfig, audit_step

    if twin is not None and twin not in TWINS:
        raise ConfigError(
            f"twin={twin!r} is unknown{did_you_mean(twin, TWINS)}; use {', '.join(TWINS)}, or "
            "leave it out to audit what is released."
        )
    chosen = [find_steps(name) for name in only] if only else AUDITED_STEPS
    config = StepAuditConfig(
        num_runs=draws,
        epsilon=epsilon,
        delta=delta,
        noise_factor=1.0 if twin is None else TWINS[twin],
        false_alarm_prob=false_alarm_prob,
    )
    target = None if output is None else Path(output)
    if target is not None and target.exists():
        raise RunStateError(f"{target.name} exists already; name a new file.")
    rng = noise_source(seed)
    audits = tuple(audit_step(steps, config, rng=rng, say=watch) for steps in chosen)
    found = StepAudits(audits=audits, config=config, twin=twin, seed=seed)
    if target is not None:
        with reporting_disk_errors(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            write_text(target, json.dumps(found.to_dict(), indent=2, allow_nan=False) + "\n")
    return found


def audit_run(
    data: object,
    schema: "SchemaLike | None" = None,
    *,
    canaries: int = 1000,
    false_alarm_prob: float = 0.05,
    epsilon: float | None = None,
    delta: float | None = None,
    method: "MethodLike" = "mosaic",
    unit: "UnitLevel | str | None" = None,
    layout: str | None = None,
    allow_public: Sequence[str] = (),
    features: "FeaturePlan | None" = None,
    test: object = None,
    rows: int | None = None,
    synth_seed: int | None = None,
    cache: str | os.PathLike[str] | None = None,
    output: str | os.PathLike[str] | None = None,
    ledger: "Ledger | str | os.PathLike[str] | None" = None,
    purpose: str | None = None,
    at: "Moment | None" = None,
    until: "Moment | None" = None,
    seed: int | None = None,
    device: str = "cpu",
    watch: "Watch | None" = None,
    watch_data: "DataWatch | None" = None,
    watch_plan: "Callable[[TrainPlan], None] | None" = None,
) -> "TrainingAudit":
    """Trains on data some of whose labels are coins, and guesses the coins from the model.

    Args:
      data: Training data as for `tulle.train.fit`, like all settings that are not named here.
      schema: Roles of the columns.
      canaries: Number of training rows whose labels become fair coins.
      false_alarm_prob: Largest probability that the lower bound is above the truth.
      epsilon, delta, method, unit: The guarantee and the method, as for `tulle.train.fit`.
      layout, allow_public, features, test, rows, synth_seed, cache: The rows, as for it.
      output: New folder of the run, whose card has the audit. The model in it was trained on coins
        too: do not serve it.
      ledger, purpose, at, until: The run is charged as any other.
      seed: Makes noise and coins repeatable. Then the release is not private.
      device: "cpu" or "cuda".
      watch, watch_data, watch_plan: Are told what is done, as for `tulle.train.fit`.

    Privacy:
      The run is one more run on these data and costs what its plan says. Counts of right guesses
      are exact: where the model reads sensitive columns, no guarantee covers them, so show them to
      those who may see the rows.

    Raises:
      ConfigError: The claim does not speak of replaced labels, or a setting does not fit.
      SpendRefusedError: A budget does not cover it. Nothing was spent.
      RunStateError: The folder holds a run already; an audit is never resumed.
    """
    from tulle.audit.training_audit import audit_training
    from tulle.train.examples import planned_shape
    from tulle.train.methods.catalogue import chosen_method
    from tulle.train.run_context import RunOptions
    from tulle.train.training_data import DataChoice, TrainingData
    from tulle.train.training_run import check_charge, training_charge
    from tulle.train.verbs import check_unit

    choice = DataChoice(
        source=data,
        schema=schema,
        layout=layout,
        allow_public=allow_public,
        features=features,
        test=test,
        rows=rows,
        synth_seed=synth_seed,
        cache=None if cache is None else Path(cache),
        watch=watch_data,
    )
    check_unit(unit, choice)
    chosen = chosen_method(method, epsilon=epsilon, delta=delta, unit=unit)
    charge = training_charge(chosen, ledger, purpose=purpose, at=at, until=until)
    opened = TrainingData(dataclasses.replace(choice, public_only=chosen.reads_labels_alone))
    made = chosen.make(planned_shape(opened.planned, chosen))
    check_charge(made, charge)
    if watch_plan is not None:
        watch_plan(made)
    train_rows, _ = opened.examples()
    options = RunOptions(
        folder=None if output is None else Path(output),
        seed=seed,
        device=device,
        charge=charge,
        watch=watch,
        encoder=opened.encoder,
    )
    return audit_training(
        train_rows,
        made,
        num_canaries=canaries,
        options=options,
        false_alarm_prob=false_alarm_prob,
    )


def find_randomizer(name: str, among: Sequence[Randomizer] = RANDOMIZERS) -> Randomizer:
    """The randomizer of a name.

    Args:
      name: What it is called.
      among: Where to look for it.

    Raises:
      ConfigError: There is none.
    """
    for randomizer in among:
        if randomizer.name == name:
            return randomizer
    names = [randomizer.name for randomizer in among]
    raise ConfigError(
        f"randomizer {name!r} is unknown{did_you_mean(name, names)}; use one of {', '.join(names)}."
    )
