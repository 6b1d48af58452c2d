"""`tulle account`: what a mechanism costs, and how much noise a target needs."""

import csv
import functools
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tulle.cli.options import DATA, PRIVACY, AsJson, PanelledCommand, option
from tulle.errors import ConfigError, DataError, TulleError, reason_of
from tulle.privacy.fields import text_if_infinite

if TYPE_CHECKING:
    from tulle.accounting.answers import NoiseAnswer
    from tulle.privacy.plan import Plan

account_app = typer.Typer(
    name="account",
    help="Price a mechanism, or find the least noise for a target. No data are read. An epsilon "
    'without limit is inf (in JSON the text "Infinity"), and ends with exit code 1.',
    no_args_is_help=True,
)

_NOISE, _RUN = "Mechanism", "Training run"
_Epsilon = Annotated[
    float | None, option(PRIVACY, "Target epsilon; the least noise that meets it is found.")
]
_Delta = Annotated[
    float, option(PRIVACY, "Probability that the guarantee does not cover, e.g. 1e-7.")
]
_Adjacency = Annotated[str, option(PRIVACY, "Neighbouring data: replace, add-remove or zero-out.")]
_Accountant = Annotated[
    str, option(PRIVACY, "Accountant: pld, or rdp to reproduce a paper (add-remove only).")
]
_Noise = Annotated[
    float | None, option(_NOISE, "Noise over one row's largest contribution; it is priced.")
]
_Count = Annotated[int, option(_NOISE, "Number of releases on the same units.", least=1)]
_ReplaceFactor = Annotated[
    float,
    option(_NOISE, "Distance of two contributions over the largest one: 2, or less if bounded."),
]
_NumExamples = Annotated[int, option(_RUN, "Number of rows of the training data.", least=1)]
_BatchSize = Annotated[int, option(_RUN, "Expected number of rows in a batch.", least=1)]
_Steps = Annotated[int | None, option(_RUN, "Number of batches.", least=1)]
_Epochs = Annotated[
    float | None, option(_RUN, "Number of passes over the data, instead of --steps.")
]
_MaxBatchSize = Annotated[
    int | None, option(_RUN, "Truncate larger Poisson batches to this size.", least=1)
]
_Sampler = Annotated[
    str, option(_RUN, "How batches are sampled: poisson, or fixed-size (replace only).")
]


def _asking(
    name: str | None = None, *, epilog: str, verb: str | None = None, hidden: bool = False
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Makes a command of a signature: its options are the keywords of a verb of the library.

    Args:
      name: The command, if it is not called as the function.
      epilog: Examples.
      verb: The verb of `tulle.accounting.verbs`, if it is not ask_ and the name of the function.
      hidden: Whether the help of the group leaves it out.
    """

    def make(signature: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(signature)
        def ask(*, as_json: bool, **given: Any) -> None:
            from tulle.accounting import verbs

            ask_verb = getattr(verbs, verb or f"ask_{signature.__name__}")
            _print_answer(ask_verb(**given), as_json=as_json)

        account_app.command(name, cls=PanelledCommand, epilog=epilog, hidden=hidden)(ask)
        return signature

    return make


_WEAKER_IF_LARGER = {"response_epsilon", "local_epsilon", "truth_prob"}
"""Settings found for a target, of which only less is sure to meet it: they are rounded down."""


@_asking(epilog="Example: tulle account gaussian --epsilon 1 --delta 1e-6")
def gaussian(
    delta: _Delta,
    epsilon: _Epsilon = None,
    noise_multiplier: _Noise = None,
    count: _Count = 1,
    replace_factor: _ReplaceFactor = 2.0,
    adjacency: _Adjacency = "replace",
    accountant: _Accountant = "pld",
    as_json: AsJson = False,
) -> None:
    """Gaussian noise on a bounded sum. For mosaic training take --replace-factor 1."""


@_asking(
    epilog="Example: tulle account laplace --noise-multiplier 2 --adjacency add-remove",
)
def laplace(
    delta: _Delta = 0.0,
    epsilon: _Epsilon = None,
    noise_multiplier: _Noise = None,
    count: _Count = 1,
    replace_factor: _ReplaceFactor = 2.0,
    discrete: Annotated[bool, option(_NOISE, "Integer noise on whole numbers.")] = False,
    adjacency: _Adjacency = "replace",
    accountant: _Accountant = "pld",
    as_json: AsJson = False,
) -> None:
    """Laplace noise on a bounded sum; the noise is its scale, not its standard deviation."""


@_asking(
    verb="ask_randomized_response",
    epilog="Example: tulle account rr --response-epsilon 1 --num-values 15 --count 50 --delta 1e-6",
)
def rr(
    delta: _Delta = 0.0,
    epsilon: _Epsilon = None,
    response_epsilon: Annotated[
        float | None, option(_NOISE, "Epsilon of one response; it is priced.")
    ] = None,
    num_values: Annotated[int, option(_NOISE, "Number of possible values.", least=2)] = 2,
    count: _Count = 1,
    adjacency: _Adjacency = "replace",
    accountant: _Accountant = "pld",
    as_json: AsJson = False,
) -> None:
    """Randomized response, once or several times by the same unit."""


@_asking(
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
    as_json: AsJson = False,
) -> None:
    """DP-SGD. With both --epsilon and --noise-multiplier: the most steps that fit."""


@_asking(
    "two-phase",
    hidden=True,
    verb="ask_hybrid",
    epilog="Example: tulle account two-phase --epsilon 5 --delta 1e-7 --label-epsilon 3 "
    "--num-examples 12800000 --batch-size 16384 --steps 781 --json",
)
@_asking(
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
        float | None, option(PRIVACY, "Epsilon of the labels; default: min(0.6 epsilon, 3).")
    ] = None,
    max_batch_size: _MaxBatchSize = None,
    adjacency: _Adjacency = "replace",
    accountant: _Accountant = "pld",
    as_json: AsJson = False,
) -> None:
    """The Hybrid algorithm of the papers: randomized labels, then DP-SGD, accounted jointly."""


@_asking(
    epilog="Example: tulle account user --noise-multiplier 1 --delta 1e-6 --num-examples 1000000 "
    "--batch-size 1000 --steps 1000 --max-rows-per-user 5",
)
def user(
    delta: _Delta,
    num_examples: _NumExamples,
    batch_size: _BatchSize,
    max_rows_per_user: Annotated[int, option(_RUN, "Most rows of one user.", least=1)],
    steps: _Steps = None,
    epochs: _Epochs = None,
    epsilon: _Epsilon = None,
    noise_multiplier: _Noise = None,
    max_batch_size: _MaxBatchSize = None,
    adjacency: _Adjacency = "replace",
    as_json: AsJson = False,
) -> None:
    """DP-SGD for users who own several rows."""


@_asking(
    epilog="Example: tulle account shuffle --local-epsilon 3 --num-values 15 "
    "--num-reports 10000 --delta 1e-6",
)
def shuffle(
    delta: _Delta,
    num_reports: Annotated[
        int, option(_NOISE, "Number of reports in the smallest cell of equal choices.", least=1)
    ],
    epsilon: _Epsilon = None,
    local_epsilon: Annotated[
        float | None, option(_NOISE, "Epsilon of one report before shuffling; it is priced.")
    ] = None,
    num_values: Annotated[
        int | None,
        option(
            _NOISE,
            "Number of values of randomized response; without it: any local randomizer.",
            least=2,
        ),
    ] = None,
    count: _Count = 1,
    as_json: AsJson = False,
) -> None:
    """Local reports mixed by a shuffler, under replace."""


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


_CARD, _TRAIN_PLAN = "tulle card ", "tulle train plan "


@account_app.command(
    "plan",
    cls=PanelledCommand,
    epilog="Example: tulle account plan plan.json --header impressions.csv",
)
def check_plan(
    plan: Annotated[
        Path, typer.Argument(help="The plan.json of a run, or what `tulle plan --output` wrote.")
    ],
    header: Annotated[
        Path | None, option(DATA, "CSV file whose first line must have every column of the plan.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Recompute every epsilon that a plan claims, and check its columns. Reads no rows."""
    from tulle.accounting.accountant import verify_plan
    from tulle.privacy.guarantee import round_up

    loaded = _plan_in(plan)
    epsilons = verify_plan(loaded)
    if header is not None:
        loaded.columns.check_against(_header_columns(header))
    if as_json:
        claims = [
            {"claim": str(claim.guarantee), "epsilon": text_if_infinite(epsilon)}
            for claim, epsilon in zip(loaded.claims, epsilons, strict=True)
        ]
        facts = {"plan": loaded.name, "fingerprint": loaded.fingerprint(), "claims": claims}
        typer.echo(json.dumps(facts, allow_nan=False))
        return
    typer.echo(f"{loaded.name}: {loaded.mechanism}")
    for claim, epsilon in zip(loaded.claims, epsilons, strict=True):
        typer.echo(f"  {claim.guarantee}: its event gives epsilon={round_up(epsilon, 6):.6g}")


def _plan_in(path: Path) -> "Plan":
    """The plan in a file; of a finished training plan, what follows from it."""
    from tulle.privacy.fields import parse_json
    from tulle.privacy.plan import Plan

    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(
            f"{path} cannot be read: {reason_of(error)}; give the plan.json of a run, or what "
            "`tulle plan --output FILE` wrote."
        ) from None
    data = parse_json(path.name, text)
    written_as = str(data.get("format")) if isinstance(data, dict) else ""
    if written_as.startswith(_CARD):
        raise ConfigError(
            f"{path} is a card, which says what was promised; its plan is the plan.json in the "
            "folder of a run."
        )
    if written_as.startswith(_TRAIN_PLAN):
        from tulle.train.methods.train_plan import TrainPlan

        return TrainPlan.from_json(text).privacy
    return Plan.from_dict(data)


def _header_columns(path: Path) -> list[str]:
    try:
        with path.open(encoding="utf-8", newline="") as file:
            columns = next(csv.reader(file), [])
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        shown = error if isinstance(error, csv.Error) else reason_of(error)
        raise DataError(f"{path} cannot be read: {shown}; give a CSV file with a header.") from None
    if not columns:
        raise DataError(f"{path} is empty; give a CSV file with a header.")
    return columns
