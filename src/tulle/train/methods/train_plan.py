"""The plan of a training run: method, shape of the data and noise; all else follows from them.

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
from pathlib import Path
from typing import Any

from tulle.atomic_files import write_text
from tulle.data.prepared.dataset import PreparedFeature
from tulle.errors import ConfigError
from tulle.privacy.events import Composed, Event, NonPrivate, event_from_dict, event_to_dict
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
from tulle.train.methods.method import Accounting, Method
from tulle.train.settings.models import TOWERS
from tulle.train.settings.phases import LabelPhase, PlainPhase, PrivatePhase, PublicTower
from tulle.train.settings.step_mechanism import StepSampler
from tulle.train.settings.units import DataShape, chosen_level

_FORMAT, _FIRST_FORMAT = "tulle train plan 2", "tulle train plan 1"
_KEYS = (
    *("format", "method", "shape", "noise_multiplier", "epsilon"),
    *("variant_epsilons", "epsilon_milestones"),
)
_FIRST_KEYS = (
    *("format", "config", "shape", "plan"),
    *("label_epsilon", "noise_multiplier", "epsilon_milestones"),
)


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
    def label_epsilon(self) -> float | None:
        """Epsilon of one randomized label; None if labels are not randomized."""
        return self.method.label_epsilon

    @property
    def label_phase(self) -> LabelPhase | None:
        """Settings of the steps on randomized labels; None if there are none."""
        return self.method.label_steps()

    @property
    def private_phase(self) -> PrivatePhase | None:
        """Settings of the clipped and noisy steps; None if there are none."""
        return self.method.private_steps()

    @property
    def plain_phase(self) -> PlainPhase | None:
        """Settings of the steps on raw data; None unless this is a baseline."""
        return self.method.plain_steps()

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
    def private_towers(self) -> frozenset[str]:
        """The towers that private steps train."""
        # FREEZE leaves the public tower as the label phase has trained it.
        phase = self.private_phase
        is_warm = self.label_phase is not None
        if phase is not None and is_warm and phase.public_tower is PublicTower.FREEZE:
            return frozenset(TOWERS) - {"public"}
        return frozenset(TOWERS)

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
        words = self.method.words(self.shape, self.noise_multiplier)
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
                "shape": _shape_to_dict(self.shape),
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
    noise = data["noise_multiplier"]
    variants = check_list("variant_epsilons", data["variant_epsilons"])
    return TrainPlan(
        method=method_from(data["method"]),
        shape=_shape_from_dict(data["shape"]),
        noise_multiplier=None if noise is None else check_finite("noise_multiplier", noise),
        epsilon=infinite_if_null("epsilon", data["epsilon"]),
        variant_epsilons=tuple(infinite_if_null("variant_epsilons", one) for one in variants),
        epsilon_milestones=_milestones(data["epsilon_milestones"]),
    )


def _from_first_format(stored: object) -> TrainPlan:
    """A plan of version 0.1.0, which stored what is derived now; both must agree."""
    data = check_fields("train plan", stored, _FIRST_KEYS)
    promised = Plan.from_dict(data["plan"])
    noise = data["noise_multiplier"]
    plan = TrainPlan(
        method=method_from(data["config"]),
        shape=_shape_from_dict(data["shape"]),
        noise_multiplier=None if noise is None else check_finite("noise_multiplier", noise),
        epsilon=promised.guarantee.epsilon,
        variant_epsilons=tuple(claim.guarantee.epsilon for claim in promised.variants),
        epsilon_milestones=_milestones(data["epsilon_milestones"]),
    )
    # Trusting either side alone would let an edited file claim what its settings do not give.
    derived = plan.privacy
    if (promised.event, promised.guarantee, promised.columns, promised.variants) != (
        derived.event,
        derived.guarantee,
        derived.columns,
        derived.variants,
    ):
        raise ConfigError(
            f"plan {promised.name!r} claims for another event, guarantee or set of columns than "
            "its settings give; make it anew with this version."
        )
    return plan


def _milestones(data: object) -> tuple[tuple[int, float], ...]:
    marks = check_list("epsilon_milestones", data)
    return tuple((int(step), float(epsilon)) for step, epsilon in marks)


def _shape_to_dict(shape: DataShape) -> dict[str, Any]:
    event = shape.vocabulary_event
    return {
        "features": [dataclasses.asdict(feature) for feature in shape.features],
        "columns": shape.columns.to_dict(),
        "num_label_rows": shape.num_label_rows,
        "num_private_rows": shape.num_private_rows,
        "num_users": shape.num_users,
        "vocabulary_event": None if event is None else event_to_dict(event),
    }


def _shape_from_dict(data: object) -> DataShape:
    names = [field.name for field in dataclasses.fields(DataShape)]
    fields = dict(check_fields("shape", data, names))
    event = fields["vocabulary_event"]
    features = check_list("features", fields["features"])
    return DataShape(
        features=tuple(PreparedFeature.from_dict(feature) for feature in features),
        columns=ColumnRoles.from_dict(fields["columns"]),
        num_label_rows=fields["num_label_rows"],
        num_private_rows=fields["num_private_rows"],
        num_users=fields["num_users"],
        vocabulary_event=None if event is None else event_from_dict(event),
    )
