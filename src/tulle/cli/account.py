"""`tulle account`: what a mechanism costs, and how much noise a target needs."""

import json
import math
from typing import TYPE_CHECKING, Annotated

import typer

from tulle.cli.option_class import PanelledCommand
from tulle.errors import TulleError

if TYPE_CHECKING:
    from tulle.accounting.answers import NoiseAnswer

account_app = typer.Typer(
    name="account",
    help="Price a mechanism, or find the least noise for a target. No data are read. An epsilon "
    'without limit is inf (in JSON the text "Infinity"), and ends with exit code 1.',
    no_args_is_help=True,
)

_PRIVACY, _NOISE, _RUN, _OUTPUT = "Privacy", "Mechanism", "Training run", "Output"
_Epsilon = Annotated[
    float | None,
    typer.Option(
        help="Target epsilon; the least noise that meets it is found.", rich_help_panel=_PRIVACY
    ),
]
_Delta = Annotated[
    float,
    typer.Option(
        help="Probability that the guarantee does not cover, e.g. 1e-7.", rich_help_panel=_PRIVACY
    ),
]
_Adjacency = Annotated[
    str,
    typer.Option(
        help="Neighbouring data: replace, add-remove or zero-out.", rich_help_panel=_PRIVACY
    ),
]
_Accountant = Annotated[
    str,
    typer.Option(
        help="Accountant: pld, or rdp to reproduce a paper (add-remove only).",
        rich_help_panel=_PRIVACY,
    ),
]
_Noise = Annotated[
    float | None,
    typer.Option(
        help="Noise over one row's largest contribution; it is priced.", rich_help_panel=_NOISE
    ),
]
_Count = Annotated[
    int, typer.Option(help="Number of releases on the same units.", min=1, rich_help_panel=_NOISE)
]
_ReplaceFactor = Annotated[
    float,
    typer.Option(
        help="Distance of two contributions over the largest one: 2, or less if bounded.",
        rich_help_panel=_NOISE,
    ),
]
_NumExamples = Annotated[
    int, typer.Option(help="Number of rows of the training data.", min=1, rich_help_panel=_RUN)
]
_BatchSize = Annotated[
    int, typer.Option(help="Expected number of rows in a batch.", min=1, rich_help_panel=_RUN)
]
_Steps = Annotated[int | None, typer.Option(help="Number of batches.", min=1, rich_help_panel=_RUN)]
_Epochs = Annotated[
    float | None,
    typer.Option(help="Number of passes over the data, instead of --steps.", rich_help_panel=_RUN),
]
_MaxBatchSize = Annotated[
    int | None,
    typer.Option(help="Truncate larger Poisson batches to this size.", min=1, rich_help_panel=_RUN),
]
_Sampler = Annotated[
    str,
    typer.Option(
        help="How batches are sampled: poisson, or fixed-size (replace only).",
        rich_help_panel=_RUN,
    ),
]
_AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.", rich_help_panel=_OUTPUT)]

_WEAKER_IF_LARGER = {"response_epsilon", "local_epsilon", "truth_prob"}
"""Settings found for a target, of which only less is sure to meet it: they are rounded down."""


@account_app.command(
    cls=PanelledCommand, epilog="Example: tulle account gaussian --epsilon 1 --delta 1e-6"
)
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
    from tulle.accounting.verbs import ask_gaussian

    answer = ask_gaussian(
        delta=delta,
        epsilon=epsilon,
        noise_multiplier=noise_multiplier,
        count=count,
        replace_factor=replace_factor,
        adjacency=adjacency,
        accountant=accountant,
    )
    _print_answer(answer, as_json=as_json)


@account_app.command(
    cls=PanelledCommand,
    epilog="Example: tulle account laplace --noise-multiplier 2 --adjacency add-remove",
)
def laplace(
    delta: _Delta = 0.0,
    epsilon: _Epsilon = None,
    noise_multiplier: _Noise = None,
    count: _Count = 1,
    replace_factor: _ReplaceFactor = 2.0,
    discrete: Annotated[
        bool, typer.Option(help="Integer noise on whole numbers.", rich_help_panel=_NOISE)
    ] = False,
    adjacency: _Adjacency = "replace",
    accountant: _Accountant = "pld",
    as_json: _AsJson = False,
) -> None:
    """Laplace noise on a bounded sum; the noise is its scale, not its standard deviation."""
    from tulle.accounting.verbs import ask_laplace

    answer = ask_laplace(
        delta=delta,
        epsilon=epsilon,
        noise_multiplier=noise_multiplier,
        count=count,
        replace_factor=replace_factor,
        discrete=discrete,
        adjacency=adjacency,
        accountant=accountant,
    )
    _print_answer(answer, as_json=as_json)


@account_app.command(
    cls=PanelledCommand,
    epilog="Example: tulle account rr --response-epsilon 1 --num-values 15 --count 50 --delta 1e-6",
)
def rr(
    delta: _Delta = 0.0,
    epsilon: _Epsilon = None,
    response_epsilon: Annotated[
        float | None,
        typer.Option(help="Epsilon of one response; it is priced.", rich_help_panel=_NOISE),
    ] = None,
    num_values: Annotated[
        int, typer.Option(help="Number of possible values.", min=2, rich_help_panel=_NOISE)
    ] = 2,
    count: _Count = 1,
    adjacency: _Adjacency = "replace",
    accountant: _Accountant = "pld",
    as_json: _AsJson = False,
) -> None:
    """Randomized response, once or several times by the same unit."""
    from tulle.accounting.verbs import ask_randomized_response

    answer = ask_randomized_response(
        delta=delta,
        epsilon=epsilon,
        response_epsilon=response_epsilon,
        num_values=num_values,
        count=count,
        adjacency=adjacency,
        accountant=accountant,
    )
    _print_answer(answer, as_json=as_json)


@account_app.command(
    cls=PanelledCommand,
    epilog="Example: tulle account dpsgd --epsilon 3 --delta 1e-7 --num-examples 36000000 "
    "--batch-size 16384 --steps 2200",
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
    from tulle.accounting.verbs import ask_dpsgd

    answer = ask_dpsgd(
        delta=delta,
        num_examples=num_examples,
        batch_size=batch_size,
        steps=steps,
        epochs=epochs,
        epsilon=epsilon,
        noise_multiplier=noise_multiplier,
        max_batch_size=max_batch_size,
        sampler=sampler,
        adjacency=adjacency,
        accountant=accountant,
    )
    _print_answer(answer, as_json=as_json)


@account_app.command(
    "two-phase",
    cls=PanelledCommand,
    hidden=True,
    epilog="Example: tulle account two-phase --epsilon 5 --delta 1e-7 --label-epsilon 3 "
    "--num-examples 12800000 --batch-size 16384 --steps 781 --json",
)
@account_app.command(
    "hybrid",
    cls=PanelledCommand,
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
        float | None,
        typer.Option(
            help="Epsilon of the labels; default: min(0.6 epsilon, 3).", rich_help_panel=_PRIVACY
        ),
    ] = None,
    max_batch_size: _MaxBatchSize = None,
    adjacency: _Adjacency = "replace",
    accountant: _Accountant = "pld",
    as_json: _AsJson = False,
) -> None:
    """The Hybrid algorithm of the papers: randomized labels, then DP-SGD, accounted jointly."""
    from tulle.accounting.verbs import ask_hybrid

    answer = ask_hybrid(
        delta=delta,
        num_examples=num_examples,
        batch_size=batch_size,
        steps=steps,
        epochs=epochs,
        epsilon=epsilon,
        noise_multiplier=noise_multiplier,
        label_epsilon=label_epsilon,
        max_batch_size=max_batch_size,
        adjacency=adjacency,
        accountant=accountant,
    )
    _print_answer(answer, as_json=as_json)


@account_app.command(
    cls=PanelledCommand,
    epilog="Example: tulle account user --noise-multiplier 1 --delta 1e-6 --num-examples 1000000 "
    "--batch-size 1000 --steps 1000 --max-rows-per-user 5",
)
def user(
    delta: _Delta,
    num_examples: _NumExamples,
    batch_size: _BatchSize,
    max_rows_per_user: Annotated[
        int, typer.Option(help="Most rows of one user.", min=1, rich_help_panel=_RUN)
    ],
    steps: _Steps = None,
    epochs: _Epochs = None,
    epsilon: _Epsilon = None,
    noise_multiplier: _Noise = None,
    max_batch_size: _MaxBatchSize = None,
    adjacency: _Adjacency = "replace",
    as_json: _AsJson = False,
) -> None:
    """DP-SGD for users who own several rows."""
    from tulle.accounting.verbs import ask_user

    answer = ask_user(
        delta=delta,
        num_examples=num_examples,
        batch_size=batch_size,
        max_rows_per_user=max_rows_per_user,
        steps=steps,
        epochs=epochs,
        epsilon=epsilon,
        noise_multiplier=noise_multiplier,
        max_batch_size=max_batch_size,
        adjacency=adjacency,
    )
    _print_answer(answer, as_json=as_json)


@account_app.command(
    cls=PanelledCommand,
    epilog="Example: tulle account shuffle --local-epsilon 3 --num-values 15 "
    "--num-reports 10000 --delta 1e-6",
)
def shuffle(
    delta: _Delta,
    num_reports: Annotated[
        int,
        typer.Option(
            help="Number of reports in the smallest cell of equal choices.",
            min=1,
            rich_help_panel=_NOISE,
        ),
    ],
    epsilon: _Epsilon = None,
    local_epsilon: Annotated[
        float | None,
        typer.Option(
            help="Epsilon of one report before shuffling; it is priced.", rich_help_panel=_NOISE
        ),
    ] = None,
    num_values: Annotated[
        int | None,
        typer.Option(
            help="Number of values of randomized response; without it: any local randomizer.",
            min=2,
            rich_help_panel=_NOISE,
        ),
    ] = None,
    count: _Count = 1,
    as_json: _AsJson = False,
) -> None:
    """Local reports mixed by a shuffler, under replace."""
    from tulle.accounting.verbs import ask_shuffle

    answer = ask_shuffle(
        delta=delta,
        num_reports=num_reports,
        epsilon=epsilon,
        local_epsilon=local_epsilon,
        num_values=num_values,
        count=count,
    )
    _print_answer(answer, as_json=as_json)


def _print_answer(answer: "NoiseAnswer", *, as_json: bool) -> None:
    from tulle.privacy.guarantee import BINARY_NOISE, round_down, round_up

    if as_json:
        typer.echo(json.dumps(answer.to_dict(), allow_nan=False))
    else:
        for name, value in answer.facts().items():
            if isinstance(value, float):
                rounded = round_down if name in _WEAKER_IF_LARGER else round_up
                value = f"{rounded(value, 6, slack=BINARY_NOISE):.6g}"
            typer.echo(f"{name}: {value}")
    _check_that_something_holds(answer)


def _check_that_something_holds(answer: "NoiseAnswer") -> None:
    """Ends with an error where the answer is that nothing is promised."""
    if math.isfinite(answer.epsilon):
        return
    way_out = (
        "give a --delta above 0, e.g. 1e-7, or ask for noise that needs none (laplace, rr)"
        if answer.delta == 0
        else "add noise, or release less"
    )
    raise TulleError(
        f"no guarantee: the epsilon is infinite at --delta {answer.delta:g}; {way_out}."
    )
