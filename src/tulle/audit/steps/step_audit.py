"""Profile audit of a private step: many runs on two neighbours against the plan's whole curve.

Plan, sampler, engine, clipping, noise and optimizer are those of training. What the attacker has
is what a run releases: its weights, after every step where they are private then.
"""

import dataclasses
from collections.abc import Callable, Mapping

import numpy as np
import torch
from numpy.typing import NDArray

from tulle.accounting.accountant import privacy_curve
from tulle.audit.profile import ProfileAuditConfig, ProfileAuditResult, audit_profile
from tulle.audit.steps.engines import AuditedEngine, turns_of
from tulle.audit.steps.neighbours import Background, NeighbourRows, along_canaries
from tulle.audit.steps.scores import label_scores
from tulle.errors import ConfigError
from tulle.mechanisms.entropy import NoiseSource
from tulle.privacy.fields import check_count, check_finite
from tulle.privacy.units import Adjacency
from tulle.runs.interruption import StopRequest
from tulle.train.engine_choice import start_engine
from tulle.train.fitting import make_plan
from tulle.train.journal import MemoryJournal
from tulle.train.methods.private_steps import tower_method
from tulle.train.private_training import step_settings
from tulle.train.run_context import RunContext
from tulle.train.train_plan import TrainPlan

FloatArray = NDArray[np.float64]

LEAST_RUNS = 1000
_RATE = 1.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepAuditConfig:
    """Settings of an audit of private steps. Every field is public information."""

    num_runs: int = 50_000
    """On each of two neighbouring data sets."""
    epsilon: float = 4.0
    """What the plan is calibrated to."""
    delta: float = 1e-5
    noise_factor: float = 1.0
    """Times the noise of the steps; the claim stays that of 1. Less plants a fault."""
    false_alarm_prob: float = 1e-6
    """Largest chance that a right engine is called wrong."""

    def __post_init__(self) -> None:
        check_count("num_runs", self.num_runs, least=LEAST_RUNS)
        if not 0 < check_finite("noise_factor", self.noise_factor) <= 1:
            raise ConfigError(
                f"noise_factor={self.noise_factor} must be in (0, 1]; 1 audits what is released."
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepAudit:
    """What was found about one engine."""

    engine: str
    noise_multiplier: float
    """Of the plan."""
    num_steps: int
    profiles: Mapping[Background, ProfileAuditResult]

    @property
    def is_violated(self) -> bool:
        """True if the claim is wrong, but for the chance of a false alarm."""
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
        """In one word for tables."""
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
    engine: AuditedEngine,
    config: StepAuditConfig,
    *,
    rng: NoiseSource,
    say: Callable[[str], None] | None = None,
) -> StepAudit:
    """Runs an engine on two neighbouring data sets and holds the runs against its plan.

    Args:
      engine: What to audit.
      config: How many runs, of which plan, and how sure to be.
      rng: Source of batches and noise.
      say: Is told what is run next.

    Privacy:
      Data sets are made up: no data are read, and nothing is charged.
    """
    tell = say or (lambda _: None)
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
        one, other = (_scores(engine, plan, each, label, config, rng) for label in (0, 1))
        profiles[background] = audit_profile(one, other, claim, profile_config)
    settings = step_settings(plan)
    return StepAudit(
        engine=engine.name,
        noise_multiplier=settings.noise_multiplier,
        num_steps=settings.num_steps,
        profiles=profiles,
    )


def _scores(
    engine: AuditedEngine,
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
    engine: AuditedEngine,
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
    model = towers.model.build(plan.shape.features, seed=towers.initial_seed)
    context = RunContext(
        device=torch.device("cpu"),
        rng=rng,
        journal=MemoryJournal(),
        stop=StopRequest(),
        noise_placement=engine.placement,
    )
    taking = start_engine(model, rows.examples(canary_label), plan, drawn, context)
    taking.begin(0)
    steps_a_look = 1 if engine.sees_every_step else settings.num_steps
    seen = [along_canaries(model.parameters)]
    for _ in range(settings.num_steps // steps_a_look):
        for _ in range(steps_a_look):
            taking.take([_RATE])
        taking.state()
        seen.append(along_canaries(model.parameters))
    return np.diff(seen, axis=0) * settings.expected_size / (settings.clip_norm * _RATE)
