"""`tulle account`: what a mechanism costs, and how much noise a target needs."""

import json
import math
from typing import TYPE_CHECKING, Annotated

import typer

from tulle.errors import ConfigError, TulleError
from tulle.privacy.fields import did_you_mean, text_if_infinite

if TYPE_CHECKING:
    from tulle.accounting.answers import Answer, Question
    from tulle.accounting.training_events import BatchSampling

account_app = typer.Typer(
    name="account",
    help="Price a mechanism, or find the least noise for a target. No data are read. An epsilon "
    'without limit is inf (in JSON the text "Infinity"), and ends with exit code 1.',
    no_args_is_help=True,
)

_Epsilon = Annotated[
    float | None, typer.Option(help="Target; finds the least noise that meets it.")
]
_Noise = Annotated[
    float | None, typer.Option(help="Noise over one row's largest contribution; prices it.")
]
_Delta = Annotated[float, typer.Option(help="Chance that the guarantee does not cover, e.g. 1e-7.")]
_Count = Annotated[int, typer.Option(help="How many releases on the same units.", min=1)]
_Adjacency = Annotated[str, typer.Option(help="replace, add-remove or zero-out.")]
_Accountant = Annotated[
    str, typer.Option(help="pld, or rdp to reproduce a paper (add-remove only).")
]
_ReplaceFactor = Annotated[
    float,
    typer.Option(help="Distance of two contributions over the largest: 2, or less if bounded."),
]
_NumExamples = Annotated[int, typer.Option(help="Rows of the training data.", min=1)]
_BatchSize = Annotated[int, typer.Option(help="Expected rows in a batch.", min=1)]
_Steps = Annotated[int | None, typer.Option(help="Number of batches.", min=1)]
_Epochs = Annotated[float | None, typer.Option(help="Instead of --steps.")]
_MaxBatchSize = Annotated[
    int | None, typer.Option(help="Truncate larger Poisson batches to this size.", min=1)
]
_Sampler = Annotated[str, typer.Option(help="poisson, or fixed-size (replace only).")]
_AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]

_LEAST_EPSILON = 1e-300
"""Of one report; smaller ones have no inverse among floats, and say nothing anyway."""
_WEAKER_IF_LARGER = {"response_epsilon", "local_epsilon", "truth_prob"}
"""Settings found for a target that only less of is sure to meet."""


@account_app.command(epilog="Example: tulle account gaussian --epsilon 1 --delta 1e-6")
def gaussian(
    delta: _Delta,
    epsilon: _Epsilon = None,
    noise_multiplier: _Noise = None,
    count: _Count = 1,
    replace_factor: _ReplaceFactor = 2.0,
    adjacency: _Adjacency = "replace",
    accountant: _Accountant = "pld",
    as_json: _AsJson = False,
) -> None:
    """Gaussian noise on a bounded sum. For mosaic training take --replace-factor 1."""
    from tulle.accounting.answers import ask_gaussian

    question = _question(epsilon, noise_multiplier, delta, adjacency, accountant)
    answer = ask_gaussian(question, count=count, replace_factor=replace_factor)
    _print_answer("noise_multiplier", question, answer, as_json=as_json)


@account_app.command(
    epilog="Example: tulle account laplace --noise-multiplier 2 --adjacency add-remove"
)
def laplace(
    delta: _Delta = 0.0,
    epsilon: _Epsilon = None,
    noise_multiplier: _Noise = None,
    count: _Count = 1,
    replace_factor: _ReplaceFactor = 2.0,
    discrete: Annotated[bool, typer.Option(help="Integer noise on whole numbers.")] = False,
    adjacency: _Adjacency = "replace",
    accountant: _Accountant = "pld",
    as_json: _AsJson = False,
) -> None:
    """Laplace noise on a bounded sum; the noise is its scale, not its standard deviation."""
    from tulle.accounting.answers import ask_laplace

    question = _question(epsilon, noise_multiplier, delta, adjacency, accountant)
    answer = ask_laplace(question, count=count, replace_factor=replace_factor, discrete=discrete)
    _print_answer("noise_multiplier", question, answer, as_json=as_json)


@account_app.command(
    epilog="Example: tulle account rr --response-epsilon 1 --num-values 15 --count 50 --delta 1e-6"
)
def rr(
    delta: _Delta = 0.0,
    epsilon: _Epsilon = None,
    response_epsilon: Annotated[
        float | None, typer.Option(help="epsilon of one response; prices it.")
    ] = None,
    num_values: Annotated[int, typer.Option(help="Number of possible values.", min=2)] = 2,
    count: _Count = 1,
    adjacency: _Adjacency = "replace",
    accountant: _Accountant = "pld",
    as_json: _AsJson = False,
) -> None:
    """Randomized response, once or several times by the same unit."""
    from tulle.accounting.answers import ask_randomized_response

    noise = _inverse("response-epsilon", response_epsilon)
    question = _question(epsilon, noise, delta, adjacency, accountant)
    answer = ask_randomized_response(question, num_values=num_values, count=count)
    _print_answer(None, question, answer, as_json=as_json)


@account_app.command(
    epilog="Example: tulle account dpsgd --epsilon 3 --delta 1e-7 --num-examples 36000000 "
    "--batch-size 16384 --steps 2200"
)
def dpsgd(
    delta: _Delta,
    num_examples: _NumExamples,
    batch_size: _BatchSize,
    steps: _Steps = None,
    epochs: _Epochs = None,
    epsilon: _Epsilon = None,
    noise_multiplier: _Noise = None,
    max_batch_size: _MaxBatchSize = None,
    sampler: _Sampler = "poisson",
    adjacency: _Adjacency = "replace",
    accountant: _Accountant = "pld",
    as_json: _AsJson = False,
) -> None:
    """DP-SGD. With both --epsilon and --noise-multiplier: the most steps that fit."""
    from tulle.accounting.answers import ask_dpsgd, ask_steps

    solve_steps = epsilon is not None and noise_multiplier is not None
    if solve_steps and steps is None and epochs is None:
        sampling = _sampling(num_examples, batch_size, 1, None, max_batch_size, sampler)
        target = _question(epsilon, None, delta, adjacency, accountant)
        steps = ask_steps(target, sampling, noise_multiplier or 0.0)
        epsilon = None
    sampling = _sampling(num_examples, batch_size, steps, epochs, max_batch_size, sampler)
    question = _question(epsilon, noise_multiplier, delta, adjacency, accountant)
    answer = ask_dpsgd(question, sampling)
    _print_answer("noise_multiplier", question, answer, sampling, as_json=as_json)


@account_app.command(
    "two-phase",
    hidden=True,
    epilog="Example: tulle account two-phase --epsilon 5 --delta 1e-7 --label-epsilon 3 "
    "--num-examples 12800000 --batch-size 16384 --steps 781 --json",
)
@account_app.command(
    "hybrid",
    epilog="Example: tulle account hybrid --epsilon 5 --delta 1e-7 --label-epsilon 3 "
    "--num-examples 12800000 --batch-size 16384 --steps 781 --json",
)
def hybrid(
    delta: _Delta,
    num_examples: _NumExamples,
    batch_size: _BatchSize,
    steps: _Steps = None,
    epochs: _Epochs = None,
    epsilon: _Epsilon = None,
    noise_multiplier: _Noise = None,
    label_epsilon: Annotated[
        float | None, typer.Option(help="Spent on the labels; default min(0.6 epsilon, 3).")
    ] = None,
    max_batch_size: _MaxBatchSize = None,
    adjacency: _Adjacency = "replace",
    accountant: _Accountant = "pld",
    as_json: _AsJson = False,
) -> None:
    """The Hybrid algorithm of the papers: randomized labels, then DP-SGD, accounted jointly."""
    from tulle.accounting.answers import ask_two_phase

    sampling = _sampling(num_examples, batch_size, steps, epochs, max_batch_size, "poisson")
    question = _question(epsilon, noise_multiplier, delta, adjacency, accountant)
    answer = ask_two_phase(question, sampling, label_epsilon)
    _print_answer("noise_multiplier", question, answer, sampling, as_json=as_json)


@account_app.command(
    epilog="Example: tulle account user --noise-multiplier 1 --delta 1e-6 --num-examples 1000000 "
    "--batch-size 1000 --steps 1000 --max-rows-per-user 5"
)
def user(
    delta: _Delta,
    num_examples: _NumExamples,
    batch_size: _BatchSize,
    max_rows_per_user: Annotated[int, typer.Option(help="Most rows of one user.", min=1)],
    steps: _Steps = None,
    epochs: _Epochs = None,
    epsilon: _Epsilon = None,
    noise_multiplier: _Noise = None,
    max_batch_size: _MaxBatchSize = None,
    adjacency: _Adjacency = "replace",
    as_json: _AsJson = False,
) -> None:
    """DP-SGD for users who own several rows."""
    import dataclasses

    from tulle.accounting.answers import ask_user

    rows = _sampling(num_examples, batch_size, steps, epochs, max_batch_size, "poisson")
    sampling = dataclasses.replace(rows, max_rows_per_unit=max_rows_per_user)
    question = _question(epsilon, noise_multiplier, delta, adjacency, "pld")
    answer = ask_user(question, sampling)
    _print_answer("noise_multiplier", question, answer, sampling, as_json=as_json)


@account_app.command(
    epilog="Example: tulle account shuffle --local-epsilon 3 --num-values 15 "
    "--num-reports 10000 --delta 1e-6"
)
def shuffle(
    delta: _Delta,
    num_reports: Annotated[
        int, typer.Option(help="Reports in the smallest cell of equal choices.", min=1)
    ],
    epsilon: _Epsilon = None,
    local_epsilon: Annotated[
        float | None, typer.Option(help="epsilon of one report before shuffling; prices it.")
    ] = None,
    num_values: Annotated[
        int | None,
        typer.Option(
            help="K of K-ary randomized response; without it: any local randomizer.", min=2
        ),
    ] = None,
    count: _Count = 1,
    as_json: _AsJson = False,
) -> None:
    """Local reports mixed by a shuffler, under replace."""
    from tulle.accounting.answers import ask_shuffle

    noise = _inverse("local-epsilon", local_epsilon)
    question = _question(epsilon, noise, delta, "replace", "pld")
    answer = ask_shuffle(question, num_reports=num_reports, num_values=num_values, count=count)
    _print_answer(None, question, answer, as_json=as_json)


def _question(
    epsilon: float | None, noise: float | None, delta: float, adjacency: str, accountant: str
) -> "Question":
    from tulle.accounting.answers import Method, Question
    from tulle.privacy.units import Adjacency

    try:
        method = Method(accountant)
    except ValueError:
        known = [method.value for method in Method]
        raise ConfigError(
            f"accountant={accountant!r} is unknown{did_you_mean(accountant, known)}; "
            f"use {' or '.join(known)}."
        ) from None
    return Question(
        epsilon=epsilon,
        noise=noise,
        delta=delta,
        adjacency=Adjacency.parse(adjacency),
        method=method,
    )


def _inverse(option: str, epsilon: float | None) -> float | None:
    if epsilon is None:
        return None
    if not 0 < epsilon < math.inf:
        raise ConfigError(f"{option}={epsilon} must be a finite number > 0, e.g. 1.")
    if epsilon < _LEAST_EPSILON:
        raise ConfigError(f"{option}={epsilon} must be >= {_LEAST_EPSILON:g}, e.g. 1.")
    return 1 / epsilon


def _sampling(
    num_examples: int,
    batch_size: int,
    steps: int | None,
    epochs: float | None,
    max_batch_size: int | None,
    sampler: str,
) -> "BatchSampling":
    from tulle.accounting.training_events import BatchSampling, steps_of_epochs

    samplers = ("poisson", "fixed-size")
    if sampler not in samplers:
        raise ConfigError(
            f"sampler={sampler!r} is unknown{did_you_mean(sampler, samplers)}; "
            f"use {' or '.join(samplers)}."
        )
    if (steps is None) == (epochs is None):
        raise ConfigError("give either --steps or --epochs: how long the run is.")
    if epochs is not None:
        steps = steps_of_epochs(epochs, num_examples=num_examples, batch_size=batch_size)
    return BatchSampling(
        num_examples=num_examples,
        batch_size=batch_size,
        steps=steps or 0,
        max_batch_size=max_batch_size,
        fixed_size=sampler == "fixed-size",
    )


def _print_answer(
    noise_name: str | None,
    question: "Question",
    answer: "Answer",
    sampling: "BatchSampling | None" = None,
    *,
    as_json: bool,
) -> None:
    from tulle.privacy.event_json import event_to_dict
    from tulle.privacy.rounding import BINARY_NOISE, round_down, round_up

    facts: dict[str, object] = {} if noise_name is None else {noise_name: answer.noise}
    facts["epsilon"] = answer.epsilon
    facts["delta"] = question.delta
    facts["adjacency"] = question.adjacency.value
    facts["accountant"] = question.method.value
    if sampling is not None:
        facts["steps"] = sampling.steps
    facts |= answer.details
    if as_json:
        in_json = {n: text_if_infinite(v) if isinstance(v, float) else v for n, v in facts.items()}
        typer.echo(json.dumps(in_json | {"event": event_to_dict(answer.event)}, allow_nan=False))
    else:
        for name, value in facts.items():
            if isinstance(value, float):
                rounded = round_down if name in _WEAKER_IF_LARGER else round_up
                value = f"{rounded(value, 6, slack=BINARY_NOISE):.6g}"
            typer.echo(f"{name}: {value}")
    _check_that_something_holds(question, answer)


def _check_that_something_holds(question: "Question", answer: "Answer") -> None:
    """Ends with an error where the answer is that nothing is promised."""
    if math.isfinite(answer.epsilon):
        return
    way_out = (
        "give a --delta above 0, e.g. 1e-7, or ask for noise that needs none (laplace, rr)"
        if question.delta == 0
        else "add noise, or release less"
    )
    raise TulleError(
        f"no guarantee: the epsilon is infinite at --delta {question.delta:g}; {way_out}."
    )
