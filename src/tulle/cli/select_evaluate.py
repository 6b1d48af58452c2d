"""`tulle select evaluate`: what another selection would have been worth."""

import dataclasses
import json
from pathlib import Path
from typing import Annotated, Any

import typer

from tulle.cli.clean_stop import stopping_cleanly
from tulle.cli.ledger_options import LedgerOptions
from tulle.cli.option_class import command_taking
from tulle.cli.select_options import (
    DATA,
    OUTPUT,
    PRIVACY,
    AuctionsFile,
    ChoicesFile,
    ColumnOptions,
    SelectionFile,
)

_ESTIMATE = "Estimate"

EVALUATE_SELECTION_EPILOG = (
    "Example: tulle select evaluate selection.toml auctions.parquet choices.parquet --clicks "
    "clicks.csv --target other.toml --epsilon 1 --output evaluation.json"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvaluateOptions(LedgerOptions, ColumnOptions):
    """Options of an evaluation."""

    selection: SelectionFile
    auctions: AuctionsFile
    choices: ChoicesFile
    clicks: Annotated[
        Path,
        typer.Option(
            help="File with the auction_id of each click on a shown ad.", rich_help_panel=DATA
        ),
    ]
    target: Annotated[
        Path,
        typer.Option(help="Settings file of the selection to evaluate.", rich_help_panel=_ESTIMATE),
    ]
    estimator: Annotated[
        str,
        typer.Option(
            help="How decisions are weighted: doubly-robust or inverse-propensity.",
            rich_help_panel=_ESTIMATE,
        ),
    ] = "doubly-robust"
    max_weight: Annotated[
        float | None,
        typer.Option(
            help="Cut larger weights, which biases [default: the floors' own limit].",
            rich_help_panel=_ESTIMATE,
        ),
    ] = None
    confidence: Annotated[
        float,
        typer.Option(help="Confidence of the interval.", rich_help_panel=_ESTIMATE),
    ] = 0.95
    epsilon: Annotated[
        float,
        typer.Option(help="Privacy that the estimate may cost one unit.", rich_help_panel=PRIVACY),
    ]
    seed: Annotated[
        int | None,
        typer.Option(
            help="Make the noise repeatable. Then the release is not private.",
            min=0,
            rich_help_panel=PRIVACY,
        ),
    ] = None
    output: Annotated[
        Path,
        typer.Option(
            help="New JSON file; a record and a card go beside it.", rich_help_panel=OUTPUT
        ),
    ]
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.", rich_help_panel=OUTPUT)] = (
        False
    )


def evaluate_selection(options: EvaluateOptions) -> None:
    """Estimate the clicks of another selection from decisions of this one, with noise.

    Each decision is weighted by its exact probabilities where it was made, so the estimate is not
    biased, and only noisy sums leave. The probabilities themselves never do: with the choice, one
    tells which ad a device favoured. Probabilities averaged over users, which a server could know,
    give biased estimates and are not offered.
    """
    from tulle.select import evaluate as evaluate_decisions
    from tulle.select import selection_of

    with stopping_cleanly("stopped as asked, nothing is out; run the same command again."):
        result = evaluate_decisions(
            options.selection,
            options.auctions,
            options.choices,
            clicks=options.clicks,
            target=options.target,
            epsilon=options.epsilon,
            estimator=options.estimator,
            max_weight=options.max_weight,
            confidence=options.confidence,
            columns=options.columns(),
            output=options.output,
            ledger=options.ledger,
            purpose=options.purpose,
            at=options.at,
            until=options.until,
            again=options.again,
            seed=options.seed,
        )
    facts = {
        **result.numbers,
        "target": selection_of(options.target).mechanism.name,
        "guarantee": str(result.plan.guarantee),
        "stored_before": result.is_stored,
        "verdict": result.card.verdict,
        "file": str(options.output),
    }
    if options.as_json:
        typer.echo(json.dumps(facts, allow_nan=False))
        return
    _print(facts)


def _print(facts: dict[str, Any]) -> None:
    low, high = facts["interval"]
    typer.echo(f"target              {facts['target']}")
    typer.echo(
        f"clicks a decision   {facts['clicks_per_decision']:.5g} (low {low:.5g}, high {high:.5g})"
    )
    typer.echo(f"noise stddev        {facts['noise_stddev']:.3g}")
    typer.echo(f"sampling stddev     {facts['sampling_stddev']:.3g}")
    typer.echo(f"decisions           {facts['num_decisions']:,} of {facts['num_users']:,} units")
    cut = ", cut: the estimate is biased" if facts["is_weight_cut"] else ""
    typer.echo(f"largest weight      {facts['max_weight']:.4g}{cut}")
    typer.echo(f"guarantee           {facts['guarantee']}")
    typer.echo(f"verdict             {facts['verdict']}")
    if facts["stored_before"]:
        typer.echo("nothing was spent: the stored estimate was returned.", err=True)


evaluate_selection_command = command_taking(EvaluateOptions, evaluate_selection)
