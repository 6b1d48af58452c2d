"""Profile audit of a private step: many runs on two neighbours against the plan's whole curve.

Plan, sampler, engine, clipping, noise and optimizer are those of training. What the attacker has
is what a run releases: its weights, after every step where they are private then.
"""

import dataclasses
import itertools
from collections.abc import Callable, Mapping

import numpy as np
import torch
from numpy.typing import NDArray

from tulle.accounting.accountant import privacy_curve
from tulle.audit.audited_steps import (
    AuditedSteps,
    Background,
    NeighbourRows,
    Turns,
    along_canaries,
    turns_of,
)
from tulle.audit.profile import ProfileAuditConfig, ProfileAuditResult, audit_profile
from tulle.errors import ConfigError
from tulle.mechanisms.entropy import NoiseSource, noise_source
from tulle.privacy.fields import check_count, check_finite
from tulle.privacy.units import Adjacency
from tulle.runs.records import StopRequest
from tulle.train.fitting import make_plan
from tulle.train.methods.private_steps import steps_method, tower_method
from tulle.train.methods.private_training import step_settings
from tulle.train.methods.train_plan import TrainPlan
from tulle.train.models.trained_towers import build_model
from tulle.train.steps.step_context import MemoryJournal, StepContext

FloatArray = NDArray[np.float64]
LEAST_RUNS = 1000
"""Least number of runs of an audit; fewer show next to nothing."""
_RATE = 1.0
"""Learning rate of the audited steps, by which weights are turned back into sums."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepAuditConfig:
    """Settings of an audit of private steps. Every field is public information."""

    num_runs: int = 50_000
    """Number of runs on each of two neighbouring data sets."""
    epsilon: float = 4.0
    """Epsilon that the plan is calibrated to."""
    delta: float = 1e-5
    noise_factor: float = 1.0
    """Factor on the noise of the steps; the claim stays that of 1. Less plants a fault."""
    false_alarm_prob: float = 1e-6
    """Largest probability that right steps are called wrong."""

    def __post_init__(self) -> None:
        check_count("num_runs", self.num_runs, least=LEAST_RUNS)
        if not 0 < check_finite("noise_factor", self.noise_factor) <= 1:
            raise ConfigError(
                f"noise_factor={self.noise_factor} must be in (0, 1]; 1 audits what is released."
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepAudit:
    """What was found about the steps of one engine."""

    engine: str
    noise_multiplier: float
    """Noise multiplier of the plan."""
    num_steps: int
    profiles: Mapping[Background, ProfileAuditResult]

    @property
    def is_violated(self) -> bool:
        """True if the claim is wrong, but for the probability of a false alarm."""
        return any(profile.is_violated for profile in self.profiles.values())

    @property
    def worst(self) -> ProfileAuditResult:
        """The profile that comes nearest to the claim, or is furthest beyond it."""
        return max(self.profiles.values(), key=lambda profile: profile.worst_excess)

    @property
    def epsilon_lower_bound(self) -> float:
        """No engine with these runs has a smaller epsilon at the delta of the plan."""
        return max(profile.epsilon_lower_bound for profile in self.profiles.values())

    @property
    def verdict(self) -> str:
        """The result in one word for tables."""
        return "VIOLATED" if self.is_violated else "holds"

    def to_dict(self) -> dict[str, object]:
        """Plain data."""
        return {
            "engine": self.engine,
            "claimed_epsilon": self.worst.claimed_epsilon,
            "epsilon_lower_bound": self.epsilon_lower_bound,
            "delta": self.worst.delta,
            "noise_multiplier": self.noise_multiplier,
            "num_steps": self.num_steps,
            "is_violated": self.is_violated,
            "backgrounds": {
                background.value: {
                    "worst_excess": profile.worst_excess,
                    "threshold_quantile": profile.threshold_quantile,
                    "epsilon_lower_bound": profile.epsilon_lower_bound,
                    "num_runs": profile.num_runs,
                    "false_alarm_prob": profile.false_alarm_prob,
                    "is_violated": profile.is_violated,
                }
                for background, profile in self.profiles.items()
            },
        }


def audit_step(
    engine: AuditedSteps,
    config: StepAuditConfig | None = None,
    *,
    rng: NoiseSource | None = None,
    say: Callable[[str], None] | None = None,
) -> StepAudit:
    """Takes private steps on two neighbouring data sets and holds the runs against their plan.

    Args:
      engine: The steps to audit.
      config: How many runs, of which plan, and how sure to be.
      rng: Source of batches and noise; None: entropy of the operating system.
      say: Function that is told what is run next.

    Privacy:
      Data sets are synthetic: no data are read, and nothing is charged.
    """
    tell = say or (lambda _: None)
    config = config or StepAuditConfig()
    source = noise_source(None) if rng is None else rng
    tell(f"{engine.name}: plan")
    rows = {each: NeighbourRows(num_runs=config.num_runs, background=each) for each in Background}
    any_rows = rows[Background.APART]
    calibrated = engine.config(any_rows.num_rows).calibrate(
        epsilon=config.epsilon, delta=config.delta
    )
    plan = make_plan(any_rows.examples(0), calibrated)
    claim = privacy_curve(plan.privacy.event, Adjacency.REPLACE)
    profile_config = ProfileAuditConfig(
        false_alarm_prob=config.false_alarm_prob / len(Background), delta=config.delta
    )
    profiles = {}
    for background, each in rows.items():
        tell(f"{engine.name}: {config.num_runs:,} runs a data set, other rows {background.value}")
        one, other = (_scores(engine, plan, each, label, config, source) for label in (0, 1))
        profiles[background] = audit_profile(one, other, claim, profile_config)
    settings = step_settings(plan)
    return StepAudit(
        engine=engine.name,
        noise_multiplier=settings.noise_multiplier,
        num_steps=settings.num_steps,
        profiles=profiles,
    )


def label_scores(
    sums: FloatArray, whitening: FloatArray, turns: Turns, noise_stddev: float
) -> FloatArray:
    """[runs]: the log likelihood ratio of label 1 against label 0.

    A canary adds 1 to the sum of a step that it is in, with label 1, and -1 with label 0. Over
    all batches that it may be in, what is seen has a mixture of normal laws.

    Args:
      sums: [looks, runs]: sums of the steps along the canaries in clip norms, times `whitening`.
      whitening: [looks, steps]: see `AuditedSteps.whitening`.
      turns: When a canary may be in a batch.
      noise_stddev: Standard deviation of the noise of each look, in clip norms.
    """
    patterns = np.array(list(itertools.product([0, 1], repeat=len(turns.steps))))
    probs = np.prod(np.where(patterns == 1, turns.prob, 1 - turns.prob), axis=1)
    means = patterns[probs > 0] @ whitening[:, list(turns.steps)].T
    logs = np.log(probs[probs > 0])[:, None]

    def log_density(sign: int) -> FloatArray:
        distances = np.square(sums - sign * means[:, :, None]).sum(axis=1)
        density = np.logaddexp.reduce(logs - distances / (2 * noise_stddev**2), axis=0)
        return np.asarray(density, dtype=np.float64)

    return log_density(1) - log_density(-1)


def _scores(
    engine: AuditedSteps,
    plan: TrainPlan,
    rows: NeighbourRows,
    canary_label: int,
    config: StepAuditConfig,
    rng: NoiseSource,
) -> FloatArray:
    turns, whitening = turns_of(plan, rows.canaries), engine.whitening()
    looks = _looks(engine, plan, rows, canary_label, config.noise_factor, rng)
    if turns.is_audited is not None:
        looks = looks[:, turns.is_audited]
    # One look at the end shows the sum of all steps.
    seen = whitening @ looks if engine.sees_every_step else whitening[:, :1] @ looks
    return label_scores(seen, whitening, turns, step_settings(plan).noise_multiplier)


def _looks(
    engine: AuditedSteps,
    plan: TrainPlan,
    rows: NeighbourRows,
    canary_label: int,
    noise_factor: float,
    rng: NoiseSource,
) -> FloatArray:
    """[looks, runs]: sums since the last look along the canaries, in clip norms."""
    settings = step_settings(plan)
    drawn = dataclasses.replace(settings, noise_multiplier=noise_factor * settings.noise_multiplier)
    towers = tower_method(plan)
    model = build_model(towers.model, plan.shape.features, seed=towers.initial_seed)
    context = StepContext(
        device=torch.device("cpu"),
        rng=rng,
        journal=MemoryJournal(),
        stop=StopRequest(),
        noise_placement=engine.placement,
    )
    taking = steps_method(plan).start_steps(
        model, rows.examples(canary_label), plan, drawn, context
    )
    taking.begin(0)
    steps_a_look = 1 if engine.sees_every_step else settings.num_steps
    seen = [along_canaries(model.parameters)]
    for _ in range(settings.num_steps // steps_a_look):
        for _ in range(steps_a_look):
            taking.take([_RATE])
        taking.state()
        seen.append(along_canaries(model.parameters))
    return np.diff(seen, axis=0) * settings.expected_size / (settings.clip_norm * _RATE)
