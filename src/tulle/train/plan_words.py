"""What a training plan says of itself: sentence, settings, bounds and assumptions."""

import dataclasses
from typing import TYPE_CHECKING

from tulle.data.samplers.cyclic_poisson import CyclicPoisson
from tulle.data.samplers.poisson import Poisson
from tulle.data.samplers.user_sampling import UserSampling
from tulle.privacy.columns import ColumnRoles
from tulle.privacy.conditions import Assumption, Bound, Status
from tulle.privacy.fields import canonical_json
from tulle.privacy.settings import Scalar
from tulle.train.cells.cell_words import (
    cells_assumptions,
    cells_bounds,
    cells_sentence,
    cells_settings,
)
from tulle.train.configs import (
    Accounting,
    HybridConfig,
    LabelProjectionConfig,
    NonPrivateConfig,
    RandomizedLabelsConfig,
    StepsConfig,
    TrainConfig,
    TwoPhaseConfig,
    method_name,
)
from tulle.train.noise_words import (
    noise_assumptions,
    noise_bounds,
    noise_sentence,
    noise_settings,
)
from tulle.train.phases import PrivatePhase
from tulle.train.projected.projection_words import (
    projection_assumptions,
    projection_bound,
    projection_sentence,
    projection_settings,
)
from tulle.train.unit_level import UserLevel

if TYPE_CHECKING:
    from tulle.train.train_plan import StepSampler


def plan_columns(columns: ColumnRoles, *, reads_sensitive: bool) -> ColumnRoles:
    """The roles as a run uses them: sensitive columns that it never reads are ignored."""
    if reads_sensitive or not columns.sensitive:
        return columns
    ignored = (*columns.ignored, *columns.sensitive)
    return dataclasses.replace(columns, sensitive=(), ignored=ignored)


def plan_sentence(
    config: TrainConfig, label_epsilon: float | None, sampler: "StepSampler | None"
) -> str:
    """What will run, for a reader who knows neither the papers nor the code."""
    labels = "Labels are randomized once; public columns are trained on them."
    steps = "Steps on all columns with clipped gradients and Gaussian noise (DP-SGD)."
    if isinstance(config, NonPrivateConfig):
        return "Ordinary training on all columns and true labels, without any noise."
    if isinstance(config, HybridConfig):
        return cells_sentence()
    if sampler is None or isinstance(config, RandomizedLabelsConfig):
        return f"{labels} Sensitive columns are not used."
    if isinstance(config, LabelProjectionConfig):
        return projection_sentence()
    steps += noise_sentence(config.private_phase)
    if label_epsilon is None:
        return steps
    return f"{labels} {steps.replace('Steps', 'Then steps')}"


def plan_settings(
    config: TrainConfig,
    label_epsilon: float | None,
    sampler: "StepSampler | None",
    noise_multiplier: float | None,
) -> dict[str, Scalar]:
    """Sampler, clip, noise, steps and all else that decides what runs."""
    settings: dict[str, Scalar] = {"method": method_name(config)}
    if isinstance(config, HybridConfig):
        settings |= cells_settings(config.cells, noise_multiplier)
        return settings | {"accounting": Accounting.REPLACE_PLD.value}
    settings |= {
        "model": canonical_json(config.model.to_dict()),
        "initial_seed": config.initial_seed,
    }
    if isinstance(config, NonPrivateConfig):
        phase = config.phase
        return settings | {"epochs": phase.epochs, "batch_size": phase.batch_size}
    if label_epsilon is not None and isinstance(config, TwoPhaseConfig | RandomizedLabelsConfig):
        settings |= {
            "label_epsilon": label_epsilon,
            "label_correction": config.label_phase.correction.value,
            "label_epochs": config.label_phase.epochs,
            "label_batch_size": config.label_phase.batch_size,
            "label_optimizer": canonical_json(config.label_phase.optimizer.to_dict()),
        }
    if sampler is not None and not isinstance(config, RandomizedLabelsConfig):
        settings |= _step_settings(config.private_phase, sampler)
        settings |= {"noise_multiplier": noise_multiplier, "accounting": config.accounting.value}
    if isinstance(config, LabelProjectionConfig):
        settings |= projection_settings(config.projection)
    return settings


def plan_bounds(
    config: TrainConfig, label_epsilon: float | None, sampler: "StepSampler | None"
) -> tuple[Bound, ...]:
    """Most that one unit adds to each phase."""
    if isinstance(config, HybridConfig):
        return cells_bounds()
    bounds = []
    unit = None if isinstance(config, NonPrivateConfig) else config.unit
    if isinstance(unit, UserLevel):
        where = f"rows chosen {unit.choice.value}, before sampling"
        if label_epsilon is not None:
            limit = unit.label_cap
            bounds.append(Bound(what="randomized labels per user", limit=limit, where=where))
        if sampler is not None:
            limit = unit.max_rows_per_user
            bounds.append(Bound(what="rows per user", limit=limit, where=where))
    if sampler is not None and isinstance(config, LabelProjectionConfig):
        bounds.append(projection_bound(config.private_phase.clip_norm))
    elif sampler is not None and isinstance(config, StepsConfig):
        what = "user" if isinstance(sampler, UserSampling) else "row"
        bounds.append(
            Bound(
                what=f"L2 norm of the part of one {what} in a step",
                limit=config.private_phase.clip_norm,
                where="clipped over all trained parameters and the monitored loss together",
            )
        )
        bounds += noise_bounds(config.private_phase, sampler)
    return tuple(bounds)


def plan_assumptions(
    config: TrainConfig, label_epsilon: float | None, sampler: "StepSampler | None"
) -> tuple[Assumption, ...]:
    """On what the claims rest, each with what makes it true."""
    if isinstance(config, HybridConfig):
        return cells_assumptions()
    found = []
    if label_epsilon is not None:
        found += [
            _enforced(
                "Each label is randomized once and the report is kept.",
                "reports are written to the run before training and read back when it goes on",
            ),
            _enforced(
                "Training on randomized labels reads no sensitive column.",
                "it is handed the public part of the data, from which the rest cannot be reached",
            ),
        ]
    if sampler is not None:
        kind = "users" if isinstance(sampler, UserSampling) else "rows"
        found += [
            _enforced(
                f"Batches are independent draws of {kind}, and nobody sees who is in them.",
                f"drawn by {type(sampler).__name__} with entropy of its own, never stored",
            ),
            _enforced(
                "Sums are divided by the public expected batch size.",
                "the step knows no other size",
            ),
            _enforced(
                "A run that was interrupted takes no step twice.",
                "steps are charged in blocks before they are taken and never repeated",
            ),
        ]
        if isinstance(config, StepsConfig):
            found += noise_assumptions(config.private_phase)
        if isinstance(config, LabelProjectionConfig):
            found += projection_assumptions()
    return tuple(found)


def _step_settings(phase: PrivatePhase, sampler: "StepSampler") -> dict[str, Scalar]:
    settings = noise_settings(phase, sampler) | {
        "clip_norm": phase.clip_norm,
        "monitor_share": phase.monitor_share,
        "optimizer": canonical_json(phase.optimizer.to_dict()),
        "public_tower": phase.public_tower.value,
        "sampler": type(sampler).__name__,
        "sampling_prob": sampler.sampling_prob,
        "steps": sampler.steps,
    }
    if isinstance(sampler, UserSampling):
        return settings | {"num_users": sampler.num_users}
    settings |= {"num_rows": sampler.num_rows, "expected_batch_size": sampler.expected_size}
    if isinstance(sampler, CyclicPoisson):
        return settings | {"num_groups": sampler.num_groups, "group_seed": sampler.group_seed}
    if isinstance(sampler, Poisson):
        return settings
    return settings | {"max_batch_size": sampler.max_batch_size}


def _enforced(statement: str, evidence: str) -> Assumption:
    return Assumption(statement=statement, status=Status.ENFORCED, evidence=evidence)
