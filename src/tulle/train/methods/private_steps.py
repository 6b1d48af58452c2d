"""What the methods with private steps share: their sampler, their event, and their words.

A steps method takes steps of DP-SGD: batches are drawn at random, each unit's gradient is clipped,
and Gaussian noise is added to the sum. Everything
that a plan claims about these steps (event, bounds, assumptions, settings on the card) is derived
here from the same settings that the steps run with.
"""

import dataclasses
from typing import TYPE_CHECKING, ClassVar, Self

from tulle.data.samplers.cyclic_poisson import CyclicPoisson
from tulle.data.samplers.poisson import Poisson
from tulle.data.samplers.user_sampling import UserSampling
from tulle.errors import ConfigError
from tulle.privacy.codec import plain_data
from tulle.privacy.events import Event, Gaussian, Grouped
from tulle.privacy.fields import Scalar, canonical_json, check_count
from tulle.privacy.plan import Assumption, Bound
from tulle.train.methods.method import (
    Accounting,
    Method,
    Target,
    TowerMethod,
    Trained,
    check_kinds,
    enforced,
)
from tulle.train.settings.phases import PrivatePhase
from tulle.train.settings.step_mechanism import StepSampler
from tulle.train.settings.units import DataShape, UnitLevel, UserAccounting, UserLevel
from tulle.train.step_sampling import choose_sampler, chosen_batch_size

if TYPE_CHECKING:
    from tulle.train.examples import ExampleSet
    from tulle.train.methods.train_plan import TrainPlan
    from tulle.train.models.tower_model import TowerModel
    from tulle.train.steps.places import StepPlace
    from tulle.train.steps.step_context import StepContext
    from tulle.train.steps.step_settings import StepSettings
    from tulle.train.training_run import TrainingRun

_STEPS = "Steps on all columns with clipped gradients and Gaussian noise (DP-SGD)."


class StepsMethod(TowerMethod):
    """A method with private steps."""

    is_shareable: ClassVar[bool] = True

    private_phase: PrivatePhase
    """Settings of the clipped and noisy steps."""

    def private_steps(self) -> PrivatePhase | None:
        """Settings of the clipped and noisy steps; None if nothing is left for them."""
        return self.private_phase if self.has_steps else None

    @property
    def fixed_noise(self) -> float | None:
        """The noise multiplier, if the settings give it; None if the target decides it."""
        return self.private_phase.noise_multiplier

    @property
    def has_steps(self) -> bool:
        """False if nothing of epsilon is left for private steps."""
        return True

    def fitted_to(self, shape: DataShape) -> Self:
        """Returns the settings with the batch size that a plan for such data has."""
        fitted = super().fitted_to(shape)
        size = chosen_batch_size(fitted.unit, fitted.private_phase, shape)
        return fitted.with_batch_size(size)

    def with_batch_size(self, batch_size: int) -> Self:
        """Returns the settings with another batch size of the private steps."""
        phase = dataclasses.replace(self.private_phase, batch_size=batch_size)
        return dataclasses.replace(self, private_phase=phase)  # type: ignore[type-var]

    def sampler(self, shape: DataShape) -> StepSampler | None:
        """Sampler of the batches of private steps; None if there are no such steps."""
        if not self.has_steps:
            return None
        return choose_sampler(
            self.unit, self.private_phase, shape, target=self.target, is_paper=self.is_paper
        )

    @property
    def is_paper(self) -> bool:
        """True if the noise follows the papers' accounting, for reproductions alone."""
        return self.accounting is Accounting.PAPER_RDP

    def noisy_event(self, sampler: StepSampler | None, noise_multiplier: float) -> Event:
        """Privacy event of all private steps together, for the unit of the method.

        Args:
          sampler: Sampler of the batches.
          noise_multiplier: Noise standard deviation divided by the clip norm.
        """
        if sampler is None:
            raise ConfigError("there are no private steps to find noise for.")
        # The steps cost one row this event. If rows of a user are sampled one by one, the papers'
        # accounting takes the user for a group of that many rows.
        event = self.private_phase.noise.event(self.step_event(noise_multiplier), sampler)
        unit = self.unit
        if isinstance(unit, UserLevel) and unit.accounting is UserAccounting.GROUP_PRIVACY:
            return Grouped(event=event, group_size=unit.max_rows_per_user)
        return event

    def step_event(self, noise_multiplier: float) -> Event:
        """Privacy event of one step, for the rows of its batch."""
        return Gaussian(noise_multiplier=noise_multiplier)

    def reads_sensitive(self, shape: DataShape) -> bool:
        """True if there are private steps, which read all columns."""
        return self.sampler(shape) is not None

    def check_shape(self, shape: DataShape) -> None:
        """Refuses users whose rows the papers' accounting does not cover."""
        super().check_shape(shape)
        unit = self.unit
        if (
            self.is_paper
            and isinstance(unit, UserLevel)
            and unit.accounting is not UserAccounting.GROUP_PRIVACY
        ):
            raise ConfigError(
                "the papers account for users by group privacy; "
                "set accounting=UserAccounting.GROUP_PRIVACY, or account under replace."
            )

    def take_private_steps(self, model: "TowerModel", run: "TrainingRun") -> Trained:
        """Takes the private steps of a run's plan, from its present weights on."""
        from tulle.train.methods.private_training import train_privately
        from tulle.train.steps.processes.processes import Opening

        # Rows that exceed what a user may contribute were dropped before sampling: the sampler
        # and its probabilities only know the rows that are left.
        plan, context, chosen = run.plan, run.step_context, run.rows.private_rows
        examples = run.examples if chosen is None else run.examples.select(chosen)
        if context.processes is not None:
            Opening.of_run(plan.to_json(), examples, chosen, context).send(context.processes)
        steps = train_privately(model, examples, plan, context)
        return Trained(
            model=self.trained(model, run),
            noise_description=steps.noise_description,
            num_private_steps=steps.num_taken,
        )

    def start_steps(
        self,
        model: "TowerModel",
        examples: "ExampleSet",
        plan: "TrainPlan",
        settings: "StepSettings",
        context: "StepContext",
    ) -> "StepPlace":
        """Starts the private steps of a plan, on the device and processes of the context.

        Args:
          model: The model, which is trained in place.
          examples: The rows that the plan's sampler draws from.
          plan: Plan that fixes the batches and the number of steps.
          settings: What every step does.
          context: Device, randomness and processes of the run.
        """
        from tulle.train.steps.places import start_steps

        sampler, optimizer = plan.sampler, self.private_phase.optimizer
        if sampler is None:
            raise ConfigError(f"plan {plan.privacy.name!r} has no private steps.")
        return start_steps(model, examples, sampler, optimizer, settings, context)


def check_shareable(plan: "TrainPlan") -> None:
    """Refuses a plan that several processes cannot work on together, before it costs anything.

    Raises:
      ConfigError: The plan has no private steps, or chooses or projects in each step.
    """
    from tulle.train.steps.places import check_several_processes

    phase = plan.private_phase
    if phase is None:
        raise ConfigError(
            "only private steps are shared by several processes, and this run has none; start it "
            "with one process."
        )
    if not plan.method.is_shareable:
        raise ConfigError(
            f"method {plan.method.kind} needs all rows of a step in one process; start one "
            "process, or use DpSgdConfig with several."
        )
    check_several_processes(phase.noise)


def tower_method(plan: "TrainPlan") -> TowerMethod:
    """The method of a plan, if steps train its model.

    Raises:
      ConfigError: The method has no steps and no model of towers.
    """
    if not isinstance(plan.method, TowerMethod):
        raise ConfigError(
            f"method {plan.method.kind} has no steps and no model of towers; use another method."
        )
    return plan.method


def steps_method(plan: "TrainPlan") -> StepsMethod:
    """The method of a plan, if it has private steps.

    Raises:
      ConfigError: The method has none.
    """
    if not isinstance(plan.method, StepsMethod):
        raise ConfigError(f"method {plan.method.kind} has no private steps; use another method.")
    return plan.method


def check_steps_method(method: StepsMethod) -> None:
    """Refuses settings of another type, and noise that the unit or the accounting do not allow."""
    check_count("initial_seed", method.initial_seed, least=0)
    check_kinds(
        method,
        {
            "private_phase": (PrivatePhase, "a PrivatePhase"),
            "unit": (UnitLevel | None, "ExampleLevel() or UserLevel()"),
            "accounting": (Accounting, "an Accounting"),
            "target": (Target | None, "set by calibrate()"),
        },
    )
    noise = method.private_phase.noise
    if noise.num_groups is None:
        return
    # Noise that divides rows into groups (correlated noise) is accounted for units of one row that
    # is replaced by another one: its proof needs each unit to be in one group only.
    name = type(noise).__name__
    if isinstance(method.unit, UserLevel):
        raise ConfigError(
            f"{name}() protects single examples: the rows of a user would be in several "
            "groups, whose noise is correlated. Use IndependentNoise() for users."
        )
    if method.accounting is Accounting.PAPER_RDP:
        raise ConfigError(
            f"{name}() needs accounting=Accounting.REPLACE_PLD: its groups follow the places "
            "of rows, so that adding or removing a row is not covered."
        )


def steps_sentence(phase: PrivatePhase) -> str:
    """Sentence on the card that says what the private steps do, for a reader of no papers."""
    return _STEPS + phase.noise.sentence()


def steps_settings(
    method: StepsMethod, sampler: StepSampler, noise_multiplier: float | None
) -> dict[str, Scalar]:
    """Settings of the private steps that a plan and its card show.

    Args:
      method: The method with its private steps.
      sampler: Sampler of the batches.
      noise_multiplier: Noise standard deviation divided by the clip norm; None if it is not found
        yet.
    """
    phase = method.private_phase
    noise = phase.noise.settings(clip_norm=phase.clip_norm, num_steps=sampler.steps)
    settings = noise | {
        "clip_norm": phase.clip_norm,
        "monitor_share": phase.monitor_share,
        "optimizer": canonical_json(plain_data(phase.optimizer)),
        "public_tower": phase.public_tower.value,
        "sampler": type(sampler).__name__,
        "sampling_prob": sampler.sampling_prob,
        "steps": sampler.steps,
        "noise_multiplier": noise_multiplier,
        "accounting": method.accounting.value,
    }
    if isinstance(sampler, UserSampling):
        return settings | {"num_users": sampler.num_users}
    settings |= {"num_rows": sampler.num_rows, "expected_batch_size": sampler.expected_size}
    if isinstance(sampler, CyclicPoisson):
        return settings | {"num_groups": sampler.num_groups, "group_seed": sampler.group_seed}
    if isinstance(sampler, Poisson):
        return settings
    return settings | {"max_batch_size": sampler.max_batch_size}


def model_settings(method: TowerMethod) -> dict[str, Scalar]:
    """Settings of the method and of its model that a plan and its card show."""
    return {
        "method": method.kind,
        "model": canonical_json(plain_data(method.model)),
        "initial_seed": method.initial_seed,
    }


def steps_bounds(method: StepsMethod, sampler: StepSampler) -> tuple[Bound, ...]:
    """Bounds on what one unit adds to a step."""
    what = "user" if isinstance(sampler, UserSampling) else "row"
    clipped = Bound(
        what=f"L2 norm of the part of one {what} in a step",
        limit=method.private_phase.clip_norm,
        where="clipped over all trained parameters and the monitored loss together",
    )
    return (clipped, *method.private_phase.noise.bounds(sampler))


def rows_bounds(method: Method, *, has_labels: bool, has_steps: bool) -> tuple[Bound, ...]:
    """Bounds on the rows of one user that take part in each phase; none if each row is a unit.

    Args:
      method: The method, whose unit says how many rows a user may have.
      has_labels: True if labels are randomized.
      has_steps: True if there are private steps.
    """
    unit = method.unit
    if not isinstance(unit, UserLevel):
        return ()
    where = f"rows chosen {unit.choice.value}, before sampling"
    bounds = []
    if has_labels:
        bounds.append(Bound(what="randomized labels per user", limit=unit.label_cap, where=where))
    if has_steps:
        bounds.append(Bound(what="rows per user", limit=unit.max_rows_per_user, where=where))
    return tuple(bounds)


def steps_assumptions(method: StepsMethod, sampler: StepSampler) -> tuple[Assumption, ...]:
    """Assumptions that the claim about private steps rests on."""
    kind = "users" if isinstance(sampler, UserSampling) else "rows"
    return (
        enforced(
            f"Batches are independent draws of {kind}, and nobody sees who is in them.",
            f"drawn by {type(sampler).__name__} with entropy of its own, never stored",
        ),
        enforced(
            "Sums are divided by the public expected batch size.",
            "the step knows no other size",
        ),
        enforced(
            "A run that was interrupted takes no step twice.",
            "steps are charged in blocks before they are taken and never repeated",
        ),
        *method.private_phase.noise.assumptions(),
    )
