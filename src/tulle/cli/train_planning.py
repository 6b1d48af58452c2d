"""From settings to the plan of a run, before a label or a feature is read."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from tulle.cli.train_data import ChosenData
from tulle.cli.train_settings import TrainSettings
from tulle.errors import ConfigError, RunStateError, reason_of

if TYPE_CHECKING:
    from tulle.train.data_shape import DataShape
    from tulle.train.train_plan import TrainPlan


def plan_run(settings: TrainSettings, data: ChosenData) -> "TrainPlan":
    """The plan for these data. Looks at numbers of rows and at unit ids alone.

    Raises:
      ConfigError: A batch size above the data, a target that cannot be met, or data with a unit
        column and no choice of what is protected.
    """
    from tulle.train.training_rows import planned_shape

    shape = planned_shape(data.planned(), settings.method)
    _check_unit(settings, shape)
    _check_plain_batches(settings, shape)
    return settings.method.make(shape)


def plan_line(plan: "TrainPlan") -> str:
    """Guarantee, noise, steps and batches in one line."""
    from tulle.privacy.rounding import BINARY_NOISE, round_up

    parts = [str(plan.privacy.guarantee)]
    if plan.label_epsilon is not None:
        parts.append(f"labels epsilon={round_up(plan.label_epsilon, 4, slack=BINARY_NOISE):.4g}")
    if plan.private_phase is not None:
        parts += [
            f"noise multiplier {plan.noise_multiplier:.4g}",
            f"{plan.num_private_steps:,} steps",
            f"batch size {plan.private_phase.batch_size:,}",
        ]
    elif plan.noise_multiplier is not None:
        parts.append(f"noise multiplier {plan.noise_multiplier:.4g}")
    return f"plan: {', '.join(parts)}"


def resumed_line(plan: "TrainPlan", path: Path) -> str | None:
    """How a run of mosaic goes on; None for other methods, whose steps show it."""
    from tulle.runs.folder import RunFolder
    from tulle.train.run_results import has_begun_model

    if plan.method.has_steps_to_resume:
        return None
    if has_begun_model(RunFolder.open(path)):
        return "resume: the model of this run was written already, and is not made again"
    return "resume: nothing was released before the stop, so it begins anew; what was paid counts"


def write_finished(path: Path, plan: "TrainPlan") -> None:
    """Saves a plan for another machine, whole or not at all."""
    from tulle.durable_files import stage_text, sync_folder

    if path.exists():
        raise ConfigError(f"--finished {path} exists; choose another name.")
    try:
        os.replace(stage_text(path, plan.to_json() + "\n"), path)
        sync_folder(path.parent)
    except OSError as error:
        raise RunStateError(
            f"--finished {path} cannot be written: {error.strerror}; name a folder that exists."
        ) from None


def read_finished(path: Path) -> "TrainPlan":
    """Reads what `write_finished` wrote."""
    from tulle.train.train_plan import TrainPlan

    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"--finished-plan {path} cannot be read: {reason_of(error)}; make it with "
            "`tulle plan --finished FILE`."
        ) from None
    return TrainPlan.from_json(text)


def _check_unit(settings: TrainSettings, shape: "DataShape") -> None:
    """Refuses to choose a unit for the user where the data say whose each row is."""
    chosen, column = settings.method, shape.columns.unit
    if not chosen.is_private or chosen.unit is not None or column is None:
        return
    method = "" if chosen.protects_users else "--method hybrid "
    raise ConfigError(
        f"--unit is missing: column {column!r} says whose each row is, and a guarantee for one row "
        f"is weak for who has many. Give {method}--unit user to protect all rows of one {column}, "
        "or --unit example to protect each row on its own."
    )


def _check_plain_batches(settings: TrainSettings, shape: "DataShape") -> None:
    """Refuses batches of steps without noise that were asked for and are larger than the data."""
    plain, labels = settings.method.plain_steps(), settings.method.label_steps()
    if plain is not None and settings.is_batch_size_given:
        _check_fits("batch_size", plain.batch_size, shape)
    if labels is not None and settings.is_label_batch_size_given:
        _check_fits("label_batch_size", labels.batch_size, shape)


def _check_fits(name: str, batch_size: int, shape: "DataShape") -> None:
    if batch_size > shape.num_label_rows:
        raise ConfigError(
            f"{name}={batch_size} must be <= the number of training rows, "
            f"{shape.num_label_rows}; lower it."
        )
