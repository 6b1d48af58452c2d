"""`tulle select evaluate`: what another selection would have been worth."""

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tulle.cli.clean_stop import stopping_cleanly
from tulle.cli.ledger_options import LedgerOptions, charge_of
from tulle.cli.option_class import command_taking
from tulle.cli.release_output import write_card_beside
from tulle.cli.select_options import AuctionsFile, ChoicesFile, ColumnOptions, SelectionFile
from tulle.errors import ConfigError

if TYPE_CHECKING:
    from tulle.select.evaluation.device_terms import Estimator

EVALUATE_SELECTION_EPILOG = (
    "Example: tulle select evaluate selection.toml auctions.parquet choices.parquet --clicks "
    "clicks.csv --target other.toml --epsilon 1 --out evaluation.json"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvaluateOptions(LedgerOptions, ColumnOptions):
    """Options of an evaluation."""

    selection: SelectionFile
    auctions: AuctionsFile
    choices: ChoicesFile
    clicks: Annotated[Path, typer.Option(help="auction_id of each click on a shown ad.")]
    target: Annotated[Path, typer.Option(help="Settings of the selection to evaluate.")]
    epsilon: Annotated[float, typer.Option(help="What the estimate may cost one unit.")]
    out: Annotated[Path, typer.Option(help="New JSON file; a card goes beside it.")]
    estimator: Annotated[str, typer.Option(help="doubly-robust or inverse-propensity.")] = (
        "doubly-robust"
    )
    max_weight: Annotated[
        float | None,
        typer.Option(help="Cut larger weights, which biases [default: the floors' own limit]."),
    ] = None
    confidence: Annotated[float, typer.Option(help="Of the interval.")] = 0.95
    seed: Annotated[
        int | None,
        typer.Option(help="Makes the noise repeatable. Then the release is not private.", min=0),
    ] = None
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False


def evaluate_selection(options: EvaluateOptions) -> None:
    """Estimate the clicks of another selection from decisions of this one, with noise.

    Each decision is weighted by its exact chances where it was made, so the estimate is not
    biased, and only noisy sums leave. The chances themselves never do: with the choice, one
    tells which ad a device favoured. Chances averaged over users, which a server could know,
    give biased estimates and are not offered.
    """
    from tulle.mechanisms.entropy import SeededNoise, release_rng
    from tulle.report.select_card import select_card
    from tulle.runs.release_once import ReleaseOptions
    from tulle.select.deciding.evaluating import EvaluationFiles, evaluate_files
    from tulle.select.deciding.evaluation_plan import EvaluationConfig
    from tulle.select.settings_file import read_settings

    config = EvaluationConfig(
        logging=read_settings(options.selection),
        target=read_settings(options.target),
        epsilon=options.epsilon,
        estimator=_estimator(options.estimator),
        max_weight=options.max_weight,
        confidence=options.confidence,
    )
    files = EvaluationFiles(
        auctions=options.auctions,
        choices=options.choices,
        clicks=options.clicks,
        columns=options.columns(),
    )
    with stopping_cleanly("stopped as asked, nothing is out; run the same command again."):
        released, numbers = evaluate_files(
            config,
            files,
            options.out,
            rng=release_rng() if options.seed is None else SeededNoise(options.seed),
            options=ReleaseOptions(
                charge=charge_of(options, default_purpose="select"), again=options.again
            ),
        )
    card = select_card(released.record)
    write_card_beside(options.out, card)
    facts = {
        **numbers,
        "target": config.target.mechanism.name,
        "guarantee": str(released.record.plan.guarantee),
        "stored_before": released.is_stored,
        "verdict": card.verdict,
        "file": str(options.out),
    }
    if options.as_json:
        typer.echo(json.dumps(facts, allow_nan=False))
        return
    _print(facts)


def _estimator(name: str) -> "Estimator":
    from tulle.privacy.fields import did_you_mean
    from tulle.select.evaluation.device_terms import Estimator

    known = {estimator.value.replace(" ", "-"): estimator for estimator in Estimator}
    if name not in known:
        raise ConfigError(
            f"--estimator {name} is unknown{did_you_mean(name, known)}; use one of "
            f"{', '.join(known)}."
        )
    return known[name]


def _print(facts: dict[str, Any]) -> None:
    low, high = facts["interval"]
    typer.echo(f"target              {facts['target']}")
    typer.echo(f"clicks a decision   {facts['clicks_per_decision']:.5g} ({low:.5g} to {high:.5g})")
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
