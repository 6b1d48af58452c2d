"""What label privacy leaves of a label, by the functions behind `tulle labels plan`."""

import dataclasses
from typing import Any

from tulle.labels.label_grid import LabelGrid
from tulle.labels.mechanisms.class_response import BinaryResponse, ClassResponse
from tulle.labels.numeric_planner import NumericOption, plan_numeric
from tulle.mechanisms.noisy_reports import variance_per_report
from tulle.studio.panel import ChoiceField, Given, NumberField, Panel, command_line, count_field

_BINARY, _CLASSES, _NUMBERS = "0 or 1", "classes", "numbers"
_TABLE = "display.tsv"


@dataclasses.dataclass(frozen=True, kw_only=True)
class LabelMechanism:
    """One mechanism and the noise it leaves."""

    name: str
    variance: float
    bias: float
    mean_squared_error: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class LabelsAnswer:
    """The noise of each mechanism, the recommended one first."""

    truth_prob: float | None
    """Probability that a label is reported as it is; None for numbers."""
    flip_prob: float | None
    """Probability that it is not."""
    mechanisms: tuple[LabelMechanism, ...]
    left_out: tuple[str, ...]
    """Reasons why mechanisms are missing."""
    commands: tuple[str, ...]


def answer_labels(given: Given) -> LabelsAnswer:
    """The noise on one label. No label is read."""
    by_kind = {_BINARY: _binary, _CLASSES: _classes, _NUMBERS: _numbers}
    return by_kind[given["kind"]](given)


def _binary(given: Given) -> LabelsAnswer:
    response = BinaryResponse(epsilon=given["epsilon"])
    truth_prob = float(response.channel.prob_if_positive)
    return _response(response.name, truth_prob, response.variance(0), _commands(given, {}))


def _classes(given: Given) -> LabelsAnswer:
    response = ClassResponse(epsilon=given["epsilon"], num_classes=given["num_classes"])
    truth_prob = float(response.response.support_probs.if_held)
    variance = variance_per_report(response.response)
    options = {"--num-classes": given["num_classes"]}
    return _response(response.name, truth_prob, variance, _commands(given, options))


def _numbers(given: Given) -> LabelsAnswer:
    made = plan_numeric(LabelGrid(low=0.0, high=given["label_high"]), epsilon=given["epsilon"])
    options = {"--label-low": 0, "--label-high": given["label_high"]}
    return LabelsAnswer(
        truth_prob=None,
        flip_prob=None,
        mechanisms=tuple(_mechanism(option) for option in made.options),
        left_out=made.left_out,
        commands=_commands(given, options),
    )


def _response(
    name: str, truth_prob: float, variance: float, commands: tuple[str, ...]
) -> LabelsAnswer:
    only = NumericOption(name=name, variance=variance, squared_bias=0.0)
    return LabelsAnswer(
        truth_prob=truth_prob,
        flip_prob=1 - truth_prob,
        mechanisms=(_mechanism(only),),
        left_out=(),
        commands=commands,
    )


def _mechanism(option: NumericOption) -> LabelMechanism:
    found: dict[str, Any] = option.describe()
    return LabelMechanism(
        name=option.name,
        variance=option.variance,
        bias=found["bias"],
        mean_squared_error=option.mean_squared_error,
    )


def _commands(given: Given, options: dict[str, float]) -> tuple[str, ...]:
    """A synthetic table stands for one's own: no label of it is read."""
    return (
        command_line(("data", "synth", "display"), {"--rows": 100, "--output": _TABLE}),
        command_line(
            ("labels", "plan", _TABLE),
            {"--layout": "display", "--epsilon": given["epsilon"], **options},
        ),
    )


LABELS = Panel(
    name="labels",
    title="Labels",
    purpose="How noisy a label becomes when labels alone are protected.",
    fields=(
        ChoiceField(name="kind", label="labels are", choices=(_BINARY, _CLASSES, _NUMBERS)),
        NumberField(name="epsilon", label="epsilon", default=2.0, least=0.05, most=12.0),
        count_field(
            "num_classes", "classes", default=5, least=2, most=100, only_if=("kind", _CLASSES)
        ),
        count_field(
            "label_high", "largest label", default=40, least=2, most=100, only_if=("kind", _NUMBERS)
        ),
    ),
    answer=answer_labels,
)
