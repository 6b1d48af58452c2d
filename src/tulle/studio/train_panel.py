"""Noise of a training run, by the functions behind `tulle account`."""

import dataclasses

from tulle.accounting.answers import NoiseAnswer
from tulle.accounting.training_events import steps_of_epochs
from tulle.accounting.verbs import ask_dpsgd, ask_gaussian, ask_hybrid
from tulle.studio.panel import ChoiceField, FieldError, Given, NumberField, Panel, command_line

_DP_SGD, _HYBRID, _MOSAIC = "dp-sgd", "hybrid", "mosaic"
_STEPS = ("method", _DP_SGD, _HYBRID)
"""The methods that have steps and batches."""
_MOST_STEPS = 300_000
"""Most steps of a plan; more take minutes to account for."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainAnswer:
    """What a run needs and how its budget is split."""

    noise_multiplier: float
    epsilon: float
    """What that noise costs, at most the epsilon that was asked for."""
    commands: tuple[str, ...]
    steps: int | None = None
    """Number of steps; None for mosaic, which sums over all rows."""
    sampling_prob: float | None = None
    """Probability of one row to be in a batch; None for mosaic, which has no batches."""
    label_epsilon: float | None = None
    """Epsilon of the randomized labels of hybrid; None for the other methods."""
    sensitive_columns_epsilon: float | None = None
    """Epsilon of the private steps of hybrid alone; None for the other methods."""
    basic_epsilon: float | None = None
    """Sum of both epsilons above, without accounting for them jointly."""


def answer_training(given: Given) -> TrainAnswer:
    """The least noise that keeps a run within its epsilon.

    Raises:
      ConfigError: No such run is possible.
    """
    if given["method"] == _MOSAIC:
        return _answer_mosaic(given)
    is_hybrid = given["method"] == _HYBRID
    label_epsilon = given["label_share"] * given["epsilon"]
    steps = _num_steps(given)
    asked = {name: given[name] for name in ("epsilon", "delta", "num_examples", "batch_size")}
    found = (
        ask_hybrid(**asked, steps=steps, label_epsilon=label_epsilon)
        if is_hybrid
        else ask_dpsgd(**asked, steps=steps)
    )
    return TrainAnswer(
        noise_multiplier=found.noise_multiplier,
        steps=steps,
        sampling_prob=given["batch_size"] / given["num_examples"],
        epsilon=found.epsilon,
        label_epsilon=_detail(found, "label_epsilon"),
        sensitive_columns_epsilon=_detail(found, "sensitive_columns_epsilon"),
        basic_epsilon=_detail(found, "basic_epsilon"),
        commands=(_command(given, label_epsilon if is_hybrid else None),),
    )


def _answer_mosaic(given: Given) -> TrainAnswer:
    """All noisy sums of a run together are one Gaussian release over all rows."""
    epsilon, delta = given["epsilon"], given["delta"]
    found = ask_gaussian(epsilon=epsilon, delta=delta, replace_factor=1.0)
    options = {"--epsilon": epsilon, "--delta": delta}
    return TrainAnswer(
        noise_multiplier=found.noise_multiplier,
        epsilon=found.epsilon,
        commands=(command_line(("account", "gaussian"), options | {"--replace-factor": 1.0}),),
    )


def _num_steps(given: Given) -> int:
    rows, batch = given["num_examples"], given["batch_size"]
    steps = steps_of_epochs(given["epochs"], num_examples=rows, batch_size=batch)
    if steps > _MOST_STEPS:
        raise FieldError(
            "batch_size",
            f"batch_size={batch} makes {steps:,} steps and the page stops at {_MOST_STEPS:,}; take "
            "larger batches or fewer epochs, or ask the command line.",
        )
    return steps


def _detail(answer: NoiseAnswer, name: str) -> float | None:
    value = answer.details.get(name)
    return None if value is None else float(value)


def _command(given: Given, label_epsilon: float | None) -> str:
    options = {
        "--epsilon": given["epsilon"],
        "--delta": given["delta"],
        "--num-examples": given["num_examples"],
        "--batch-size": given["batch_size"],
        "--epochs": given["epochs"],
    }
    if label_epsilon is None:
        return command_line(("account", "dpsgd"), options)
    return command_line(("account", _HYBRID), options | {"--label-epsilon": label_epsilon})


TRAIN = Panel(
    name="train",
    title="Train",
    purpose="How much noise a training run needs for one row to stay hidden (replace).",
    fields=(
        ChoiceField(name="method", label="method", choices=(_DP_SGD, _HYBRID, _MOSAIC)),
        NumberField(name="epsilon", label="epsilon", default=3.0, least=0.1, most=20.0),
        NumberField(name="delta", label="delta", default=1e-7, least=1e-12, most=1e-3),
        NumberField(
            name="num_examples",
            label="rows",
            default=1_000_000,
            least=1_000,
            most=1_000_000_000,
            is_whole=True,
            only_if=_STEPS,
        ),
        NumberField(
            name="batch_size",
            label="rows in a batch",
            default=16_384,
            least=16,
            most=1_000_000,
            is_whole=True,
            only_if=_STEPS,
        ),
        NumberField(
            name="epochs", label="epochs", default=4.0, least=0.1, most=100.0, only_if=_STEPS
        ),
        NumberField(
            name="label_share",
            label="share of epsilon for labels",
            default=0.6,
            least=0.05,
            most=0.95,
            step=0.05,
            only_if=("method", _HYBRID),
        ),
    ),
    answer=answer_training,
)
