"""The plan of a training run: config, sampler, noise and event, bound together.

What is run and what is accounted come from one object. It refuses a noise or a sampler
that does not give the event of its claim, so nobody can change one without the other.
"""

import dataclasses

from tulle.data.samplers.cyclic_poisson import CyclicPoisson
from tulle.data.samplers.poisson import Poisson
from tulle.data.samplers.truncated_poisson import TruncatedPoisson
from tulle.data.samplers.user_sampling import UserSampling
from tulle.errors import ConfigError
from tulle.privacy.claim import Claim
from tulle.privacy.events import (
    Composed,
    Event,
    Gaussian,
    Grouped,
    NonPrivate,
    RandomizedResponse,
    Repeated,
    SwitchedGaussian,
)
from tulle.privacy.plan import Plan
from tulle.privacy.units import Adjacency, Scope, TrustModel
from tulle.train.cells.cell_words import cells_bounds_of_one_table
from tulle.train.configs import (
    Accounting,
    DpSgdConfig,
    HybridConfig,
    LabelProjectionConfig,
    NonPrivateConfig,
    PrivateConfig,
    RandomizedLabelsConfig,
    StepsConfig,
    TowerConfig,
    TrainConfig,
    TwoPhaseConfig,
)
from tulle.train.data_shape import DataShape
from tulle.train.models.tower_model import TOWERS
from tulle.train.phases import LabelPhase, PlainPhase, PrivatePhase, PublicTower
from tulle.train.plan_words import (
    plan_assumptions,
    plan_bounds,
    plan_columns,
    plan_sentence,
    plan_settings,
)
from tulle.train.step_noise import BandedNoise
from tulle.train.step_sampling import choose_sampler
from tulle.train.unit_level import UserAccounting, UserLevel

RowSampler = TruncatedPoisson | Poisson | CyclicPoisson
StepSampler = RowSampler | UserSampling


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainPlan:
    """Everything that is fixed before training starts. Every field is public information."""

    config: TrainConfig
    shape: DataShape
    plan: Plan
    """What is promised, with its event."""
    label_epsilon: float | None = None
    """Of one randomized label; None if labels are not randomized."""
    sampler: StepSampler | None = None
    noise_multiplier: float | None = None
    """Of the private steps, or of all sums of cells together."""
    epsilon_milestones: tuple[tuple[int, float], ...] = ()
    """Private steps done, and the epsilon spent by then, in ascending order."""

    def __post_init__(self) -> None:
        _check_parts(self)
        if self.plan.event != run_event(self):
            raise ConfigError(
                f"plan {self.plan.name!r} claims for another event than its sampler, noise and "
                "labels give; make it anew with config.make(shape)."
            )
        if what := _first_mismatch(self):
            raise ConfigError(
                f"plan {self.plan.name!r} was made with another {what}; make it anew with "
                "config.make(shape)."
            )

    @property
    def tower_config(self) -> TowerConfig:
        """The config, if it is one of towers that steps train.

        Raises:
          ConfigError: The plan is one of hybrid, which has none.
        """
        if isinstance(self.config, HybridConfig):
            raise ConfigError(
                f"plan {self.plan.name!r} has no steps and no model of towers; use another method."
            )
        return self.config

    @property
    def label_phase(self) -> LabelPhase | None:
        """Steps on randomized labels, if there are any."""
        if self.label_epsilon is None or not isinstance(
            self.config, TwoPhaseConfig | RandomizedLabelsConfig
        ):
            return None
        return self.config.label_phase

    @property
    def private_phase(self) -> PrivatePhase | None:
        """Clipped and noisy steps, if there are any."""
        if self.sampler is None or not isinstance(self.config, StepsConfig):
            return None
        return self.config.private_phase

    @property
    def plain_phase(self) -> PlainPhase | None:
        """Steps on raw data, if this is a baseline."""
        return self.config.phase if isinstance(self.config, NonPrivateConfig) else None

    @property
    def reads_sensitive(self) -> bool:
        """False if no sensitive column is ever looked at."""
        is_plain = self.plain_phase is not None
        return is_plain or run_reads_sensitive(self.config, self.shape, self.sampler)

    @property
    def private_towers(self) -> frozenset[str]:
        """The towers that private steps train."""
        phase = self.private_phase
        is_warm = self.label_phase is not None
        if phase is not None and is_warm and phase.public_tower is PublicTower.FREEZE:
            return frozenset(TOWERS) - {"public"}
        return frozenset(TOWERS)

    @property
    def num_private_steps(self) -> int:
        """Private steps in all."""
        return 0 if self.sampler is None else self.sampler.steps

    def epsilon_by(self, step: int) -> float:
        """What has been spent at most once this many private steps are done."""
        for milestone, epsilon in self.epsilon_milestones:
            if step <= milestone:
                return epsilon
        return self.plan.guarantee.epsilon


def run_event(plan: TrainPlan) -> Event:
    """What the run costs the unit of its headline."""
    if isinstance(plan.config, NonPrivateConfig):
        return NonPrivate()
    labels = None
    if plan.label_epsilon is not None:
        labels = labels_event(plan.config, plan.label_epsilon)
    vocabulary, noisy = _reading_sensitive(plan)
    return compose_parts(vocabulary, labels, noisy)


def noisy_event(
    config: TrainConfig, sampler: StepSampler | None, noise_multiplier: float | None
) -> Event | None:
    """What all private steps, or all sums of cells, cost; None if there are none."""
    if noise_multiplier is None:
        return None
    if isinstance(config, HybridConfig):
        # Distances under replace are counted in full by the sums, so nothing doubles them.
        return Gaussian(noise_multiplier=noise_multiplier, replace_factor=1.0)
    return None if sampler is None else steps_event(config, sampler, noise_multiplier)


def steps_event(config: TrainConfig, sampler: StepSampler, noise_multiplier: float) -> Event:
    """What all private steps cost the unit of a config."""
    if isinstance(sampler, CyclicPoisson):
        gaussian = Gaussian(noise_multiplier=noise_multiplier)
        return sampler.event(gaussian, num_bands=_num_bands(config))
    event = sampler.event(_step_noise(config, noise_multiplier))
    unit = config.unit if isinstance(config, StepsConfig) else None
    if isinstance(unit, UserLevel) and unit.accounting is UserAccounting.GROUP_PRIVACY:
        return Grouped(event=event, group_size=unit.max_rows_per_user)
    return event


def run_reads_sensitive(config: TrainConfig, shape: DataShape, sampler: StepSampler | None) -> bool:
    """Whether private steps or cells look at sensitive columns; False if there are neither."""
    if isinstance(config, HybridConfig):
        return shape.has_sensitive
    return sampler is not None and not isinstance(config, LabelProjectionConfig)


def labels_event(config: TrainConfig, label_epsilon: float) -> Event:
    """What the randomized labels of one unit cost, each drawn once."""
    report = RandomizedResponse(epsilon=label_epsilon)
    unit = None if isinstance(config, NonPrivateConfig) else config.unit
    if isinstance(unit, UserLevel) and unit.max_labels_per_user > 1:
        return Repeated(event=report, count=unit.max_labels_per_user)
    return report


def claimed_adjacency(config: TrainConfig, sampler: StepSampler | None) -> Adjacency:
    """Which neighbours the headline speaks about: replaced ones, but for reproductions."""
    is_paper = (
        isinstance(config, TwoPhaseConfig | DpSgdConfig)
        and config.accounting is Accounting.PAPER_RDP
        and sampler is not None
    )
    return Adjacency.ADD_OR_REMOVE if is_paper else Adjacency.REPLACE


def compose_parts(*parts: Event | None) -> Event:
    """The parts that are there, one after the other on the same units."""
    present = tuple(part for part in parts if part is not None)
    return present[0] if len(present) == 1 else Composed(present)


def _step_noise(config: TrainConfig, noise_multiplier: float) -> Event:
    """What one step releases: labels turn gradients round, or switch those of logits on or off."""
    if isinstance(config, LabelProjectionConfig):
        return SwitchedGaussian(noise_multiplier=noise_multiplier)
    return Gaussian(noise_multiplier=noise_multiplier)


def _num_bands(config: TrainConfig) -> int:
    """Bands of C where the noise of all steps is C^-1 z; its columns have norm 1 at most."""
    noise = config.private_phase.noise if isinstance(config, TwoPhaseConfig | DpSgdConfig) else None
    return noise.num_bands if isinstance(noise, BandedNoise) else 1


def _check_parts(plan: TrainPlan) -> None:
    if isinstance(plan.config, HybridConfig):
        others = (plan.sampler, plan.label_epsilon)
        if plan.noise_multiplier is None or others != (None, None) or plan.epsilon_milestones:
            raise ConfigError(
                "a plan of hybrid has a noise_multiplier, and neither sampler, label_epsilon nor "
                "milestones; make it with config.make(shape)."
            )
    elif (plan.sampler is None) != (plan.noise_multiplier is None):
        raise ConfigError("a sampler and a noise_multiplier go together; give both or none.")


def _first_mismatch(plan: TrainPlan) -> str | None:
    """What of the config or the data the claim does not speak about; None if it fits."""
    config, sampler = plan.config, plan.sampler
    columns = plan_columns(plan.shape.columns, reads_sensitive=plan.reads_sensitive)
    settings = plan_settings(config, plan.label_epsilon, sampler, plan.noise_multiplier)
    if dict(plan.plan.settings) != settings:
        return "config"
    if plan.plan.columns != columns:
        return "set of columns"
    if not _is_described(plan):
        return "description"
    if plan.plan.guarantee.adjacency is not claimed_adjacency(config, sampler):
        return "adjacency"
    if not all(_speaks_of_run(claim, plan) for claim in plan.plan.variants):
        return "variant"
    if isinstance(config, NonPrivateConfig):
        return None
    if isinstance(config, StepsConfig) and sampler is not None:
        if sampler != choose_sampler(config, plan.shape):
            return "sampler"
        if config.private_phase.noise_multiplier not in (None, plan.noise_multiplier):
            return "noise_multiplier"
    return None if _meets_target(plan, config) else "unit or target"


def _reading_sensitive(plan: TrainPlan) -> tuple[Event | None, Event | None]:
    """The vocabularies that are used and the private steps or cells, if there are any."""
    noisy = noisy_event(plan.config, plan.sampler, plan.noise_multiplier)
    is_used = run_reads_sensitive(plan.config, plan.shape, plan.sampler)
    return plan.shape.vocabulary_event if is_used else None, noisy


def _speaks_of_run(claim: Claim, plan: TrainPlan) -> bool:
    """Whether a further claim is about this run: all of it, or all but its labels."""
    if claim.guarantee.unit != plan.plan.guarantee.unit:
        return False
    if claim.event == plan.plan.event:
        return True
    is_of_columns = claim.guarantee.scope is Scope.SENSITIVE_COLUMNS and plan.sampler is not None
    return is_of_columns and claim.event == compose_parts(*_reading_sensitive(plan))


def _is_described(plan: TrainPlan) -> bool:
    """Whether the claim has the words of this config, or those of a version that had others."""
    said, parts = plan.plan, (plan.config, plan.label_epsilon, plan.sampler)
    bounds = [plan_bounds(*parts)]
    if isinstance(plan.config, HybridConfig):
        bounds.append(cells_bounds_of_one_table())
    words = (plan_sentence(*parts), plan_assumptions(*parts), TrustModel.CENTRAL)
    return said.bounds in bounds and (said.mechanism, said.assumptions, said.trust) == words


def _meets_target(plan: TrainPlan, config: PrivateConfig) -> bool:
    guarantee, target = plan.plan.guarantee, config.target
    if target is None or config.unit is None or guarantee.unit != config.unit.unit:
        return False
    if isinstance(config, HybridConfig):
        return (guarantee.epsilon, guarantee.delta) == (target.epsilon, target.delta)
    if plan.private_phase is None:
        return guarantee.epsilon == target.epsilon and guarantee.delta == 0
    # Where the noise was given, epsilon is what that comes to.
    is_given = plan.private_phase.noise_multiplier is not None
    return guarantee.delta == target.delta and (is_given or guarantee.epsilon == target.epsilon)
