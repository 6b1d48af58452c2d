"""A finished plan as JSON: made where the accountant is, run where the data are.

A machine that trains needs neither the accountant nor its libraries. The event of
the plan is derived again from sampler and noise when the plan is read, and must be
the one that was accounted.
"""

import dataclasses
import itertools
from typing import Any

from tulle.data.prepared.format import PreparedFeature
from tulle.errors import ConfigError
from tulle.privacy.columns import ColumnRoles
from tulle.privacy.event_json import event_from_dict, event_to_dict
from tulle.privacy.fields import canonical_json, check_fields, check_format, check_list, parse_json
from tulle.privacy.plan import Plan
from tulle.train.config_data import config_from_dict, config_to_dict
from tulle.train.configs import StepsConfig
from tulle.train.data_shape import DataShape
from tulle.train.step_sampling import choose_sampler
from tulle.train.train_plan import TrainPlan

_FORMAT = "tulle train plan 1"
_KEYS = (
    *("format", "config", "shape", "plan"),
    *("label_epsilon", "noise_multiplier", "epsilon_milestones"),
)


def train_plan_to_json(plan: TrainPlan) -> str:
    """One line of JSON."""
    return canonical_json(
        {
            "format": _FORMAT,
            "config": config_to_dict(plan.config),
            "shape": _shape_to_dict(plan.shape),
            "plan": plan.plan.to_dict(),
            "label_epsilon": plan.label_epsilon,
            "noise_multiplier": plan.noise_multiplier,
            "epsilon_milestones": [list(mark) for mark in plan.epsilon_milestones],
        }
    )


def train_plan_from_json(text: str) -> TrainPlan:
    """Reads what `train_plan_to_json` wrote.

    Raises:
      ConfigError: It is no such plan, its noise does not give the event it claims, or (where
        the accountant is installed) its event not the epsilon.
    """
    stored = parse_json("train plan", text)
    check_format("train plan", stored, _FORMAT)
    data = check_fields("train plan", stored, _KEYS)
    config, shape = config_from_dict(data["config"]), _shape_from_dict(data["shape"])
    sampler = None
    if data["noise_multiplier"] is not None and isinstance(config, StepsConfig):
        sampler = choose_sampler(config, shape)
    marks = check_list("epsilon_milestones", data["epsilon_milestones"])
    plan = TrainPlan(
        config=config,
        shape=shape,
        plan=Plan.from_dict(data["plan"]),
        label_epsilon=data["label_epsilon"],
        sampler=sampler,
        noise_multiplier=data["noise_multiplier"],
        epsilon_milestones=tuple((int(step), float(epsilon)) for step, epsilon in marks),
    )
    _verify(plan.plan)
    _check_milestones(plan)
    return plan


def _verify(plan: Plan) -> None:
    """Computes every epsilon again, where the accountant is installed."""
    try:
        from tulle.accounting.plan_check import verify_plan

        verify_plan(plan)
    except ImportError:  # A machine that only trains: the card is verified where it is made.
        return


def _check_milestones(plan: TrainPlan) -> None:
    """Marks are shown while a run goes on: they must lead up to what the plan promises."""
    marks = plan.epsilon_milestones
    if not marks:
        return
    is_ascending = all(
        step < later and epsilon <= more
        for (step, epsilon), (later, more) in itertools.pairwise(marks)
    )
    last = (plan.num_private_steps, plan.plan.guarantee.epsilon)
    if not is_ascending or marks[0][0] < 1 or marks[-1] != last:
        raise ConfigError(
            f"plan {plan.plan.name!r} has epsilon_milestones that do not ascend to its last step "
            "and its epsilon; make it anew with config.make(shape)."
        )


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
