"""The plan of a training run: method, shape of the data and noise; all else follows from them.

`make_train_plan` finds the noise that a target needs, and the epsilons that this noise buys.

What is run and what is accounted come from one object. It stores what cannot be derived: the
settings of the method, the public shape of the data, the noise multiplier, and the epsilons that
accounting found for them. Sampler, event, columns and words are derived, so that nobody can change
one without the other. A finished plan can be written as JSON on the machine that has the
accountant, and run on the machine that has the data.
"""

import dataclasses
import functools
import itertools
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tulle.atomic_files import write_text
from tulle.data.samplers.truncated_poisson import TruncatedPoisson
from tulle.errors import ConfigError
from tulle.privacy.events import Composed, Event, Gaussian, NonPrivate
from tulle.privacy.fields import (
    canonical_json,
    check_fields,
    check_finite,
    check_format,
    check_list,
    infinite_if_null,
    null_if_infinite,
    parse_json,
)
from tulle.privacy.guarantee import Claim, Guarantee
from tulle.privacy.plan import ColumnRoles, Plan
from tulle.privacy.units import Adjacency, Scope, TrustModel
from tulle.train.methods.catalogue import method_data, method_from
from tulle.train.methods.method import Accounting, Method, Target
from tulle.train.settings.phases import PrivatePhase
from tulle.train.settings.step_mechanism import StepSampler
from tulle.train.settings.units import DataShape, UserLevel, chosen_level

_FORMAT, _FIRST_FORMAT = "tulle train plan 2", "tulle train plan 1"
_KEYS = (
    *("format", "method", "shape", "noise_multiplier", "epsilon"),
    *("variant_epsilons", "epsilon_milestones"),
)
_FIRST_KEYS = (
    *("format", "config", "shape", "plan"),
    *("label_epsilon", "noise_multiplier", "epsilon_milestones"),
)
_NUM_MILESTONES, _FEW_MILESTONES = 8, 4
"""Number of milestones; fewer where a unit has several rows, which take longer to account."""
_HUGE_EPSILON = 1e6
"""An epsilon that promises nothing: the delta that is left there no epsilon can buy."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlannedRun:
    """What a run will do, before anybody has computed what it costs in epsilon."""

    method: Method
    """Settings of the training method."""
    shape: DataShape
    """Features, column roles and numbers of rows and users of the data, which are all public."""
    noise_multiplier: float | None = None
    """Noise standard deviation of the private steps, or of all noisy sums together, divided by the
    sensitivity; None for methods without Gaussian noise."""

    def __post_init__(self) -> None:
        if (self.noise_multiplier is not None) != self.method.has_noise(self.shape):
            raise ConfigError(
                f"noise_multiplier={self.noise_multiplier} does not go with method "
                f"{self.method.kind} on such data; make the plan with method.make(shape)."
            )

    @functools.cached_property
    def sampler(self) -> StepSampler | None:
        """Sampler of the batches of private steps; None if there are no such steps."""
        return self.method.sampler(self.shape)

    @property
    def private_phase(self) -> PrivatePhase | None:
        """Settings of the clipped and noisy steps; None if there are none."""
        return self.method.private_steps()

    @property
    def reads_sensitive(self) -> bool:
        """False if the run never reads a sensitive column."""
        return self.method.reads_sensitive(self.shape)

    @property
    def columns(self) -> ColumnRoles:
        """The roles as a run uses them: sensitive columns that it never reads are ignored."""
        columns = self.shape.columns
        if self.reads_sensitive or not columns.sensitive:
            return columns
        ignored = (*columns.ignored, *columns.sensitive)
        return dataclasses.replace(columns, sensitive=(), ignored=ignored)

    @property
    def num_private_steps(self) -> int:
        """Number of private steps in all."""
        return 0 if self.sampler is None else self.sampler.steps

    @property
    def is_paper(self) -> bool:
        """True if the noise follows the papers' accounting, for reproductions alone."""
        return self.sampler is not None and self.method.accounting is Accounting.PAPER_RDP

    @property
    def adjacency(self) -> Adjacency:
        """Adjacency of the headline guarantee: replace, except in reproductions of papers."""
        return Adjacency.ADD_OR_REMOVE if self.is_paper else Adjacency.REPLACE

    @property
    def delta(self) -> float:
        """The delta of the guarantee: 0 where only labels are randomized."""
        target = self.method.target
        return 0.0 if target is None or self.noise_multiplier is None else target.delta

    @property
    def event(self) -> Event:
        """Privacy event of the whole run, vocabularies of sensitive columns included."""
        return self.event_until(self.num_private_steps)

    def event_until(self, step: int) -> Event:
        """Privacy event of the run if it ends after this many private steps."""
        if not self.method.is_private:
            return NonPrivate()
        return compose_parts(self._vocabulary, self.method.labels_event(), self._noisy(step))

    @property
    def charged_event(self) -> Event:
        """Privacy event that the ledger is charged for.

        The vocabularies of the data are not in it: they were charged before.
        """
        if not self.method.is_private:
            return NonPrivate()
        return compose_parts(self.method.labels_event(), self._noisy(self.num_private_steps))

    @functools.cached_property
    def variants(self) -> tuple[tuple[Adjacency, Scope, Event], ...]:
        """Adjacency, scope and event of further claims about the same run.

        They are about sensitive columns alone, and about replaced rows.
        """
        found = []
        noisy = self._noisy(self.num_private_steps)
        has_labels = self.method.labels_event() is not None
        # Randomized labels tell nothing about sensitive columns: these cost the noisy part alone.
        if has_labels and noisy is not None and self.shape.columns.sensitive:
            event = compose_parts(self._vocabulary, noisy)
            found.append((self.adjacency, Scope.SENSITIVE_COLUMNS, event))
        if self.adjacency is not Adjacency.REPLACE:
            found.append((Adjacency.REPLACE, self.shape.columns.scope, self.event))
        return tuple(found)

    @property
    def _vocabulary(self) -> Event | None:
        return self.shape.vocabulary_event if self.reads_sensitive else None

    def _noisy(self, num_steps: int) -> Event | None:
        if self.noise_multiplier is None:
            return None
        sampler = self.sampler
        if sampler is not None and sampler.steps != num_steps:
            sampler = dataclasses.replace(sampler, steps=num_steps)
        return self.method.noisy_event(sampler, self.noise_multiplier)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainPlan(PlannedRun):
    """Everything that is fixed before training starts. Every field is public information."""

    epsilon: float = math.inf
    """Epsilon of the whole run, as accounting found it; infinite for a baseline."""
    variant_epsilons: tuple[float, ...] = ()
    """The epsilons of the further claims about the run, in the order of `variants`."""
    epsilon_milestones: tuple[tuple[int, float], ...] = ()
    """Pairs of private steps done and epsilon spent by then, in ascending order."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.method.is_private:
            self._check_target()
        elif self.epsilon != math.inf:
            raise ConfigError(f"epsilon={self.epsilon} has no meaning for a baseline.")
        if len(self.variant_epsilons) != len(self.variants):
            raise ConfigError(
                f"a plan of method {self.method.kind} has {len(self.variants)} further claims, "
                f"not {len(self.variant_epsilons)}; make it with method.make(shape)."
            )
        self._check_milestones()

    @functools.cached_property
    def privacy(self) -> Plan:
        """The public part of the plan: guarantee, event, bounds, assumptions and settings."""
        words = self.method.all_words(self.shape, self.noise_multiplier)
        return Plan(
            name=f"{self.method.kind} training",
            mechanism=words.sentence,
            settings=words.settings,
            event=self.event,
            guarantee=self._guarantee(self.epsilon, self.adjacency, self.columns.scope),
            variants=tuple(
                Claim(guarantee=self._guarantee(epsilon, adjacency, scope), event=event)
                for epsilon, (adjacency, scope, event) in zip(
                    self.variant_epsilons, self.variants, strict=True
                )
            ),
            trust=TrustModel.CENTRAL,
            columns=self.columns,
            bounds=words.bounds,
            assumptions=words.assumptions,
        )

    @property
    def guarantee(self) -> Guarantee:
        """The headline guarantee of the run."""
        return self.privacy.guarantee

    def epsilon_by(self, step: int) -> float:
        """Upper bound on the epsilon spent once this many private steps are done."""
        # Epsilon grows with the steps, so the next milestone bounds every step before it.
        for milestone, epsilon in self.epsilon_milestones:
            if step <= milestone:
                return epsilon
        return self.epsilon

    def save(self, path: Path) -> None:
        """Writes the plan into a new file, whole or not at all, for another machine.

        Raises:
          ConfigError: The file exists.
          RunStateError: It cannot be written.
        """
        if path.exists():
            raise ConfigError(f"output={path.name!r} exists; choose another name.")
        write_text(path, self.to_json() + "\n")

    def to_json(self) -> str:
        """The plan as one line of JSON, which `from_json` reads where the data are."""
        noise = None if self.noise_multiplier is None else float(self.noise_multiplier)
        return canonical_json(
            {
                "format": _FORMAT,
                "method": method_data(self.method),
                "shape": self.shape.to_dict(),
                "noise_multiplier": noise,
                "epsilon": null_if_infinite(self.epsilon),
                "variant_epsilons": [null_if_infinite(one) for one in self.variant_epsilons],
                "epsilon_milestones": [list(mark) for mark in self.epsilon_milestones],
            }
        )

    @classmethod
    def from_json(cls, text: str) -> "TrainPlan":
        """Reads what `to_json` wrote, now or in version 0.1.0.

        Raises:
          ConfigError: The text is no such plan, contradicts itself, or (where the accountant is
            installed) claims an epsilon that its noise does not give.
        """
        stored = parse_json("train plan", text)
        check_format("train plan", stored, _FORMAT, _FIRST_FORMAT)
        is_first = isinstance(stored, dict) and stored.get("format") == _FIRST_FORMAT
        plan = _from_first_format(stored) if is_first else _from_data(stored)
        plan.verify()
        return plan

    def verify(self) -> None:
        """Computes every epsilon again, where the accountant is installed.

        Raises:
          ConfigError: The noise does not give an epsilon that the plan claims.
        """
        try:
            from tulle.accounting.accountant import verify_plan
        except ImportError:  # A machine that only trains: the card is verified where it is made.
            return
        verify_plan(self.privacy)

    def _guarantee(self, epsilon: float, adjacency: Adjacency, scope: Scope) -> Guarantee:
        return Guarantee(
            epsilon=epsilon,
            delta=self.delta,
            unit=chosen_level(self.method.unit, None).unit,
            adjacency=adjacency,
            scope=scope,
        )

    def _check_target(self) -> None:
        """Checks that epsilon is the target, or that the noise is the one that settings fix."""
        target, fixed = self.method.target, self.method.fixed_noise
        if target is None:
            raise ConfigError(
                f"method {self.method.kind} has no target; call calibrate(epsilon=…, delta=…) "
                "and then make(shape)."
            )
        has_fixed_noise = fixed is not None and self.noise_multiplier is not None
        if has_fixed_noise and fixed != self.noise_multiplier:
            raise ConfigError(
                f"noise_multiplier={self.noise_multiplier} is not the {fixed} that the settings "
                "fix; make the plan with method.make(shape)."
            )
        if not has_fixed_noise and self.epsilon != target.epsilon:
            raise ConfigError(
                f"epsilon={self.epsilon} is not the target epsilon={target.epsilon} of the "
                "settings; make the plan with method.make(shape)."
            )

    def _check_milestones(self) -> None:
        """Checks that milestones ascend to the last step and the epsilon of the plan."""
        # They are shown while a run goes on, so wrong ones would mislead about what was spent.
        marks = self.epsilon_milestones
        if not marks:
            return
        is_ascending = all(
            step < later and epsilon <= more
            for (step, epsilon), (later, more) in itertools.pairwise(marks)
        )
        last = (self.num_private_steps, self.epsilon)
        if not is_ascending or marks[0][0] < 1 or marks[-1] != last:
            raise ConfigError(
                f"a plan of method {self.method.kind} has epsilon_milestones that do not ascend to "
                "its last step and its epsilon; make it anew with method.make(shape)."
            )


def compose_parts(*parts: Event | None) -> Event:
    """Composition of the given events on the same units; parts that are None are left out."""
    present = tuple(part for part in parts if part is not None)
    return present[0] if len(present) == 1 else Composed(present)


def _from_data(stored: object) -> TrainPlan:
    data = check_fields("train plan", stored, _KEYS)
    variants = check_list("variant_epsilons", data["variant_epsilons"])
    epsilons = [infinite_if_null("variant_epsilons", one) for one in variants]
    return _read(data, data["method"], infinite_if_null("epsilon", data["epsilon"]), epsilons)


def _from_first_format(stored: object) -> TrainPlan:
    """A plan of version 0.1.0, which stored what is derived now; both must agree."""
    data = check_fields("train plan", stored, _FIRST_KEYS)
    promised = Plan.from_dict(data["plan"])
    epsilons = [claim.guarantee.epsilon for claim in promised.variants]
    plan = _read(data, data["config"], promised.guarantee.epsilon, epsilons)
    # Trusting either side alone would let an edited file claim what its settings do not give.
    claims = ("event", "guarantee", "columns", "variants")
    if any(getattr(promised, name) != getattr(plan.privacy, name) for name in claims):
        raise ConfigError(
            f"plan {promised.name!r} claims for another event, guarantee or set of columns than "
            "its settings give; make it anew with this version."
        )
    return plan


def _read(
    data: Mapping[str, Any], method: object, epsilon: float, variant_epsilons: Sequence[float]
) -> TrainPlan:
    noise = data["noise_multiplier"]
    marks = check_list("epsilon_milestones", data["epsilon_milestones"])
    return TrainPlan(
        method=method_from(method),
        shape=DataShape.from_dict(data["shape"]),
        noise_multiplier=None if noise is None else check_finite("noise_multiplier", noise),
        epsilon=epsilon,
        variant_epsilons=tuple(variant_epsilons),
        epsilon_milestones=tuple((int(step), float(by_then)) for step, by_then in marks),
    )


def make_train_plan(method: Method, shape: DataShape) -> TrainPlan:
    """Finds the noise that meets the method's target, and the epsilons that follow from it.

    Raises:
      ConfigError: No target, one that cannot be met on such data, or no unit where one is needed.
    """
    # A finished plan does without the accountant, so that only who makes one loads it.
    from tulle.accounting.accountant import pld_epsilon

    if not method.is_private:
        method.check_shape(shape)
        return TrainPlan(method=method, shape=shape)
    target = method.target
    if target is None:
        raise ConfigError(
            f"{type(method).__name__} has no target; call calibrate(epsilon=…, delta=…) first, "
            "or use NonPrivateConfig to train without privacy."
        )
    method = method.fitted_to(shape)
    method.check_shape(shape)
    noise = _noise_multiplier(method, shape, target)
    run = PlannedRun(method=method, shape=shape, noise_multiplier=noise)
    epsilon = target.epsilon
    if method.fixed_noise is not None and noise is not None:
        epsilon = pld_epsilon(run.event, run.delta, run.adjacency)
    if not math.isfinite(epsilon):
        raise ConfigError(
            f"noise_multiplier={noise} and delta={target.delta:g} leave no finite epsilon: "
            "vocabularies may have used up delta. Raise the noise or delta."
        )
    return TrainPlan(
        method=method,
        shape=shape,
        noise_multiplier=noise,
        epsilon=epsilon,
        variant_epsilons=tuple(
            pld_epsilon(event, run.delta, adjacency) for adjacency, _, event in run.variants
        ),
        epsilon_milestones=_milestones(run, epsilon),
    )


def _milestones(run: PlannedRun, epsilon: float) -> tuple[tuple[int, float], ...]:
    """Epsilon after some of the private steps, for whoever watches the run."""
    from tulle.accounting.accountant import pld_epsilon

    if run.sampler is None:
        return ()
    total = run.sampler.steps
    num_marks = _NUM_MILESTONES if _rows_per_unit(run.sampler) == 1 else _FEW_MILESTONES
    marks = sorted({total * n // num_marks for n in range(1, num_marks)} - {0})
    found = [(mark, pld_epsilon(run.event_until(mark), run.delta, run.adjacency)) for mark in marks]
    return (*found, (total, epsilon))


def _noise_multiplier(method: Method, shape: DataShape, target: Target) -> float | None:
    """The noise that the settings fix, or the least that meets the target; None if none is."""
    from tulle.accounting.accountant import calibrate_noise

    if not method.has_noise(shape):
        return None
    if target.delta == 0:
        raise ConfigError("delta=0.0 is out of reach for private steps; choose e.g. 1e-7.")
    if method.fixed_noise is not None:
        return float(method.fixed_noise)
    _check_room(method, shape, target)
    if method.accounting is Accounting.PAPER_RDP:
        return _paper_noise(method, shape, target)
    return calibrate_noise(
        lambda noise: PlannedRun(method=method, shape=shape, noise_multiplier=noise).event,
        epsilon=target.epsilon,
        delta=target.delta,
        adjacency=Adjacency.REPLACE,
        # With much less noise than one row's share each, many rows spread losses out of reach.
        start=float(_rows_per_unit(method.sampler(shape))),
    )


def _paper_noise(method: Method, shape: DataShape, target: Target) -> float:
    """The papers' noise: for what labels leave of epsilon, by Renyi DP of one row's steps."""
    from tulle.accounting.rdp import calibrate_noise_rdp

    unit, delta = method.unit, target.delta
    num_labels = unit.max_labels_per_user if isinstance(unit, UserLevel) else 1
    epsilon = target.epsilon - (method.label_epsilon or 0.0) * num_labels
    if isinstance(unit, UserLevel):
        # Proposition 6 of Chua et al. 2024 (PPAI), solved for the guarantee of one row.
        whole, epsilon = epsilon, epsilon / unit.max_rows_per_user
        delta *= math.expm1(epsilon) / math.expm1(whole)
    if (sampler := method.sampler(shape)) is None:
        raise ConfigError("there are no private steps to find noise for.")
    return calibrate_noise_rdp(
        lambda noise: sampler.event(Gaussian(noise_multiplier=noise)), epsilon=epsilon, delta=delta
    )


def _rows_per_unit(sampler: StepSampler | None) -> int:
    """Most rows of a unit that a batch is accounted to hold."""
    return sampler.max_rows_per_unit if isinstance(sampler, TruncatedPoisson) else 1


def _check_room(method: Method, shape: DataShape, target: Target) -> None:
    """Refuses a target that labels and vocabularies use up before the first step."""
    from tulle.accounting.accountant import privacy_curve

    sampler = method.sampler(shape)
    vocabulary = shape.vocabulary_event if method.reads_sensitive(shape) else None
    is_paper = sampler is not None and method.accounting is Accounting.PAPER_RDP
    curve = privacy_curve(
        compose_parts(vocabulary, method.labels_event()),
        Adjacency.ADD_OR_REMOVE if is_paper else Adjacency.REPLACE,
    )
    spent = curve.epsilon(target.delta)
    what = "private steps" if sampler is not None else "sums of cells"
    if math.isinf(spent):
        raise ConfigError(
            f"delta={target.delta:g} leaves nothing for {what}: the vocabularies "
            f"alone need delta > {curve.delta(_HUGE_EPSILON):.2g}; raise delta, or prepare them "
            "with a smaller vocabulary delta."
        )
    if spent >= target.epsilon:
        raise ConfigError(
            f"epsilon={target.epsilon:g} leaves nothing for {what}: labels and "
            f"vocabularies spend {spent:.4g} of it. Raise it, or give the labels less."
        )
