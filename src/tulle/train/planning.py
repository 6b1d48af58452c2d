"""From a config and the shape of the data to a plan: how much noise, and what it buys."""

import dataclasses
import math

from tulle.accounting.accountant import pld_epsilon, privacy_curve
from tulle.accounting.calibration import calibrate_noise
from tulle.accounting.rdp_calibration import calibrate_noise_rdp
from tulle.data.samplers.truncated_poisson import TruncatedPoisson
from tulle.errors import ConfigError
from tulle.privacy.claim import Claim
from tulle.privacy.columns import ColumnRoles
from tulle.privacy.events import Event, Gaussian, NonPrivate
from tulle.privacy.guarantee import Guarantee
from tulle.privacy.plan import Plan
from tulle.privacy.units import Adjacency, Scope, TrustModel, Unit
from tulle.train.configs import (
    Accounting,
    DpSgdConfig,
    HybridConfig,
    NonPrivateConfig,
    PrivateConfig,
    RandomizedLabelsConfig,
    StepsConfig,
    Target,
    TrainConfig,
    TwoPhaseConfig,
    method_name,
)
from tulle.train.data_shape import DataShape
from tulle.train.plan_words import (
    plan_assumptions,
    plan_bounds,
    plan_columns,
    plan_sentence,
    plan_settings,
)
from tulle.train.step_sampling import choose_sampler, with_batch_size
from tulle.train.train_plan import (
    StepSampler,
    TrainPlan,
    claimed_adjacency,
    compose_parts,
    labels_event,
    noisy_event,
    run_reads_sensitive,
)
from tulle.train.unit_level import UserAccounting, UserLevel, chosen_level

_NUM_MILESTONES = 8
_HUGE_EPSILON = 1e6
_FEW_MILESTONES = 4
"""Where a unit has several rows, which take longer to account."""


def make_train_plan(config: TrainConfig, shape: DataShape) -> TrainPlan:
    """Finds the noise that meets the config's target and writes down what follows.

    Raises:
      ConfigError: The config has no target, or one that it cannot meet on such data; or the
        data have a unit column and the config does not say what is protected together.
    """
    if isinstance(config, NonPrivateConfig):
        return _baseline_plan(config, shape)
    config = dataclasses.replace(config, unit=chosen_level(config.unit, shape.columns.unit))
    if isinstance(config, StepsConfig):
        config = with_batch_size(config, shape)
    target = _checked_target(config, shape)
    parts = _calibrated(config, shape, target)
    _check_private(parts)
    plan = Plan(
        name=f"{method_name(config)} training",
        mechanism=plan_sentence(config, parts.label_epsilon, parts.sampler),
        settings=plan_settings(config, parts.label_epsilon, parts.sampler, parts.noise_multiplier),
        event=parts.event,
        guarantee=parts.headline,
        variants=parts.variants(),
        trust=TrustModel.CENTRAL,
        columns=parts.columns,
        bounds=plan_bounds(config, parts.label_epsilon, parts.sampler),
        assumptions=plan_assumptions(config, parts.label_epsilon, parts.sampler),
    )
    return TrainPlan(
        config=config,
        shape=shape,
        plan=plan,
        label_epsilon=parts.label_epsilon,
        sampler=parts.sampler,
        noise_multiplier=parts.noise_multiplier,
        epsilon_milestones=parts.milestones(),
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Parts:
    """Labels, sampler and noise of a private run, before they are put into words."""

    config: PrivateConfig
    shape: DataShape
    target: Target
    label_epsilon: float | None
    sampler: StepSampler | None
    noise_multiplier: float | None = None

    @property
    def labels(self) -> Event | None:
        if self.label_epsilon is None:
            return None
        return labels_event(self.config, self.label_epsilon)

    @property
    def reads_sensitive(self) -> bool:
        return run_reads_sensitive(self.config, self.shape, self.sampler)

    @property
    def columns(self) -> ColumnRoles:
        return plan_columns(self.shape.columns, reads_sensitive=self.reads_sensitive)

    @property
    def vocabulary(self) -> Event | None:
        return self.shape.vocabulary_event if self.reads_sensitive else None

    @property
    def has_noise(self) -> bool:
        """True if there are private steps or cells, which need noise."""
        return self.sampler is not None or isinstance(self.config, HybridConfig)

    @property
    def vocabulary_and_noisy(self) -> tuple[Event | None, Event | None]:
        noisy = noisy_event(self.config, self.sampler, self.noise_multiplier)
        return None if noisy is None else self.vocabulary, noisy

    @property
    def event(self) -> Event:
        vocabulary, noisy = self.vocabulary_and_noisy
        return compose_parts(vocabulary, self.labels, noisy)

    @property
    def delta(self) -> float:
        return self.target.delta if self.has_noise else 0.0

    @property
    def adjacency(self) -> Adjacency:
        return claimed_adjacency(self.config, self.sampler)

    @property
    def headline(self) -> Guarantee:
        """The target, or what the noise gives if that was fixed."""
        epsilon = self.target.epsilon
        if _fixed_noise(self.config) is not None and self.sampler is not None:
            epsilon = pld_epsilon(self.event, self.delta, self.adjacency)
        return self._guarantee(epsilon, self.adjacency, self.columns.scope)

    @property
    def max_rows_per_unit(self) -> int:
        """Most rows of a unit that a batch is accounted to hold."""
        return self.sampler.max_rows_per_unit if isinstance(self.sampler, TruncatedPoisson) else 1

    def variants(self) -> tuple[Claim, ...]:
        """The same run for other neighbours: sensitive columns alone, and replaced rows."""
        claims = []
        vocabulary, noisy = self.vocabulary_and_noisy
        if self.labels is not None and noisy is not None and self.shape.columns.sensitive:
            event = compose_parts(vocabulary, noisy)
            epsilon = pld_epsilon(event, self.delta, self.adjacency)
            guarantee = self._guarantee(epsilon, self.adjacency, Scope.SENSITIVE_COLUMNS)
            claims.append(Claim(guarantee=guarantee, event=event))
        if self.adjacency is not Adjacency.REPLACE:
            epsilon = pld_epsilon(self.event, self.delta, Adjacency.REPLACE)
            scope = self.shape.columns.scope
            guarantee = self._guarantee(epsilon, Adjacency.REPLACE, scope)
            claims.append(Claim(guarantee=guarantee, event=self.event))
        return tuple(claims)

    def milestones(self) -> tuple[tuple[int, float], ...]:
        """epsilon after some of the private steps, for whoever watches the run."""
        if self.sampler is None:
            return ()
        total = self.sampler.steps
        num_marks = _NUM_MILESTONES if self.max_rows_per_unit == 1 else _FEW_MILESTONES
        marks = sorted({total * n // num_marks for n in range(1, num_marks)} - {0})
        found = []
        for mark in marks:
            until = dataclasses.replace(self, sampler=dataclasses.replace(self.sampler, steps=mark))
            found.append((mark, pld_epsilon(until.event, self.delta, self.adjacency)))
        return (*found, (total, self.headline.epsilon))

    def _guarantee(self, epsilon: float, adjacency: Adjacency, scope: Scope) -> Guarantee:
        return Guarantee(
            epsilon=epsilon,
            delta=self.delta,
            unit=chosen_level(self.config.unit, None).unit,
            adjacency=adjacency,
            scope=scope,
        )


def _baseline_plan(config: NonPrivateConfig, shape: DataShape) -> TrainPlan:
    plan = Plan(
        name="nonprivate training",
        mechanism=plan_sentence(config, None, None),
        settings=plan_settings(config, None, None, None),
        event=NonPrivate(),
        guarantee=Guarantee(
            epsilon=math.inf,
            delta=0.0,
            unit=Unit.example(),
            adjacency=Adjacency.REPLACE,
            scope=shape.columns.scope,
        ),
        trust=TrustModel.CENTRAL,
        columns=shape.columns,
    )
    return TrainPlan(config=config, shape=shape, plan=plan)


def _calibrated(config: PrivateConfig, shape: DataShape, target: Target) -> _Parts:
    label_total = _label_total(config, target)
    unit = config.unit
    num_labels = unit.max_labels_per_user if isinstance(unit, UserLevel) else 1
    has_steps = isinstance(config, StepsConfig) and label_total < target.epsilon
    parts = _Parts(
        config=config,
        shape=shape,
        target=target,
        label_epsilon=label_total / num_labels if label_total > 0 else None,
        sampler=choose_sampler(config, shape)
        if has_steps and isinstance(config, StepsConfig)
        else None,
    )
    if not parts.has_noise:
        return parts
    if target.delta == 0:
        raise ConfigError("delta=0.0 is out of reach for private steps; choose e.g. 1e-7.")
    noise = _fixed_noise(config)
    if noise is None:
        _check_room(parts)
        is_paper = isinstance(config, StepsConfig) and _is_paper(config)
        noise = _paper_noise(config, parts) if is_paper else _least_noise(parts)
    return dataclasses.replace(parts, noise_multiplier=noise)


def _least_noise(parts: _Parts) -> float:
    def make_event(noise: float) -> Event:
        return dataclasses.replace(parts, noise_multiplier=noise).event

    target = parts.target
    return calibrate_noise(
        make_event,
        epsilon=target.epsilon,
        delta=target.delta,
        adjacency=Adjacency.REPLACE,
        # With much less noise than one row's share each, many rows spread losses out of reach.
        start=float(parts.max_rows_per_unit),
    )


def _paper_noise(config: PrivateConfig, parts: _Parts) -> float:
    """As the papers do: what the labels leave of epsilon, by Renyi DP of one row's steps."""
    epsilon = parts.target.epsilon - _label_total(config, parts.target)
    delta = parts.target.delta
    if isinstance(config.unit, UserLevel):
        # Proposition 6 of Chua et al. 2024 (PPAI), solved for the guarantee of one row.
        whole, epsilon = epsilon, epsilon / config.unit.max_rows_per_user
        delta *= math.expm1(epsilon) / math.expm1(whole)

    def make_event(noise: float) -> Event:
        if parts.sampler is None:
            raise ConfigError("there are no private steps to find noise for.")
        return parts.sampler.event(Gaussian(noise_multiplier=noise))

    return calibrate_noise_rdp(make_event, epsilon=epsilon, delta=delta)


def _label_total(config: PrivateConfig, target: Target) -> float:
    """The part of epsilon that all randomized labels of a unit have together."""
    if isinstance(config, TwoPhaseConfig):
        return config.split.label_epsilon(target.epsilon)
    return target.epsilon if isinstance(config, RandomizedLabelsConfig) else 0.0


def _fixed_noise(config: PrivateConfig) -> float | None:
    if isinstance(config, StepsConfig):
        return config.private_phase.noise_multiplier
    return None


def _is_paper(config: StepsConfig) -> bool:
    return config.accounting is Accounting.PAPER_RDP


def _checked_target(config: PrivateConfig, shape: DataShape) -> Target:
    if config.target is None:
        raise ConfigError(
            f"{type(config).__name__} has no target; call calibrate(epsilon=…, delta=…) first, "
            "or use NonPrivateConfig to train without privacy."
        )
    if not isinstance(config, HybridConfig | DpSgdConfig) and not shape.public_features:
        raise ConfigError(
            f"method {method_name(config)} trains on public features and there are none; use "
            "HybridConfig or DpSgdConfig."
        )
    if isinstance(config.unit, UserLevel):
        _check_user_level(config, config.unit, shape)
    return config.target


def _check_user_level(config: PrivateConfig, unit: UserLevel, shape: DataShape) -> None:
    if shape.columns.unit is None or shape.num_users is None:
        raise ConfigError(
            "unit='user' needs data with a unit column that says whose each row is; "
            "name it in the schema, or protect each example."
        )
    if shape.vocabulary_event is not None:
        raise ConfigError(
            "the vocabularies of this data were paid for one example, not for one user; "
            "hash sensitive columns instead, or protect each example."
        )
    is_group = unit.accounting is UserAccounting.GROUP_PRIVACY
    if isinstance(config, StepsConfig) and _is_paper(config) and not is_group:
        raise ConfigError(
            "the papers account for users by group privacy; "
            "set accounting=UserAccounting.GROUP_PRIVACY, or account under replace."
        )


def _check_private(parts: _Parts) -> None:
    """Refuses noise and vocabularies that together promise nothing at this delta."""
    if not parts.headline.is_private:
        raise ConfigError(
            f"noise_multiplier={parts.noise_multiplier} and delta={parts.delta:g} leave no finite "
            "epsilon: vocabularies may have used up delta. Raise the noise or delta."
        )


def _check_room(parts: _Parts) -> None:
    """Refuses a target that labels and vocabularies use up before the first step."""
    fixed = compose_parts(parts.vocabulary, parts.labels)
    curve = privacy_curve(fixed, parts.adjacency)
    spent = curve.epsilon(parts.target.delta)
    what = "private steps" if parts.sampler is not None else "sums of cells"
    if math.isinf(spent):
        raise ConfigError(
            f"delta={parts.target.delta:g} leaves nothing for {what}: the vocabularies "
            f"alone need delta > {curve.delta(_HUGE_EPSILON):.2g}; raise delta, or prepare them "
            "with a smaller vocabulary delta."
        )
    if spent >= parts.target.epsilon:
        raise ConfigError(
            f"epsilon={parts.target.epsilon:g} leaves nothing for {what}: labels and "
            f"vocabularies spend {spent:.4g} of it. Raise it, or give the labels less."
        )
