"""`tulle select decide`, `bill` and `evaluate`: choices, what they cost, what they tell."""

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tulle.cli.options import (
    DATA,
    OUTPUT,
    PRIVACY,
    AsJson,
    LedgerOptions,
    OutputOptions,
    json_schema_option,
    option,
    taking_options,
)
from tulle.cli.terminal import print_facts, showing_progress, stopping_cleanly

if TYPE_CHECKING:
    from tulle.privacy.plan import Plan
    from tulle.runs.record import Result
    from tulle.select.decisions.bills import FileBill
    from tulle.select.decisions.chosen_ads import SelectionRecord
    from tulle.select.files.auction_files import AuctionColumns

SelectionFile = Annotated[
    Path,
    typer.Argument(
        metavar="SELECTION.toml", help="Mechanism, privacy and pricing, as `plan` writes them."
    ),
]
AuctionsFile = Annotated[
    Path,
    typer.Argument(
        metavar="AUCTIONS",
        help="One row a candidate, or JSON lines with one auction each: .parquet, .csv, .jsonl.",
    ),
]
ChoicesFile = Annotated[
    Path, typer.Argument(metavar="CHOICES", help="What `decide` wrote for these auctions.")
]


SelectSchema = Annotated[
    bool, json_schema_option("tulle.select.settings:SelectionFile", "Settings of tulle select")
]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ColumnOptions:
    """Names of the columns of auctions."""

    auction_column: Annotated[str, option(DATA, "Column with the auction of a candidate.")] = (
        "auction_id"
    )
    ad_column: Annotated[str, option(DATA, "Column with the ad.")] = "ad"
    bid_column: Annotated[
        str, option(DATA, "Column with the value of a click to the advertiser.")
    ] = "bid"
    server_column: Annotated[
        str, option(DATA, "Column with the probability of a click by public data.")
    ] = "p_server"
    device_column: Annotated[
        str, option(DATA, "Column with the probability of a click by private data.")
    ] = "p_device"
    user_column: Annotated[
        str, option(DATA, "Column with the user of each auction; may be absent.")
    ] = "user_id"
    consent_column: Annotated[
        str,
        option(
            DATA, "Column that says whether the user agreed to personalised ads; may be absent."
        ),
    ] = "consent"

    def columns(self) -> "AuctionColumns":
        """The names as the reader of auctions takes them."""
        from tulle.select.files.auction_files import AuctionColumns

        return AuctionColumns(
            auction=self.auction_column,
            ad=self.ad_column,
            bid=self.bid_column,
            server_prob=self.server_column,
            device_prob=self.device_column,
            user=self.user_column,
            consent=self.consent_column,
        )


DECIDE_EPILOG = (
    "Example: tulle select decide selection.toml auctions.parquet --output choices.parquet"
    "\n\nExample: tulle select decide selection.toml auctions.jsonl --output choices.jsonl "
    "--ledger ledger.db"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class DecideCommandOptions(OutputOptions, LedgerOptions, ColumnOptions):
    """Options of decisions."""

    selection: SelectionFile
    auctions: AuctionsFile
    output: Annotated[
        Path,
        option(
            OUTPUT,
            "New file of choices (.parquet, .jsonl or .csv); a record and a card go beside it.",
        ),
    ]
    seed: Annotated[
        int | None,
        option(PRIVACY, "Make the draws repeatable. Then they are not private.", least=0),
    ] = None
    json_schema: SelectSchema = False


@taking_options
def decide(options: DecideCommandOptions) -> None:
    """Draw the ad of every auction, privately, and write choices with a record and a card.

    All scores are checked first; then the ledger is charged; then each auction is drawn, once.
    The same command with the same ledger gives back the stored choices and spends nothing.
    Choices leave exactly as drawn, so counts and bills need no further noise.
    """
    from tulle.select import decide as decide_auctions

    with (
        stopping_cleanly(),
        showing_progress("decide auctions", quiet=options.quiet) as report,
    ):
        result = decide_auctions(
            options.selection,
            options.auctions,
            columns=options.columns(),
            output=options.output,
            **options.charge(),
            seed=options.seed,
            watch=lambda rows: report(rows, 0, 0),
        )
    _print_result(result, options.output, as_json=options.as_json)


def _print_result(result: "Result[SelectionRecord, Plan]", output: Path, *, as_json: bool) -> None:
    from tulle.runs.release_files import card_path, record_path

    record = result.record
    facts: dict[str, object] = {
        "choices": str(output),
        "record": str(record_path(output)),
        "card": str(card_path(output)),
        "auctions": record.num_requests,
        "without_ad": record.num_without_ad,
        "personalised": record.num_personalised,
        "mechanism": record.plan.mechanism,
        "guarantee": str(record.plan.guarantee),
        "stored_before": result.is_stored,
        "verdict": result.card.verdict,
    }
    print_facts(facts, as_json=as_json)
    if as_json:
        return
    if not record.num_personalised and record.plan.guarantee.epsilon > 0:
        typer.echo(
            "no decision was personalised: see consent, least_finalists and min_cell_size of the "
            "settings.",
            err=True,
        )
    if result.is_stored:
        typer.echo("nothing was spent: the stored choices were returned.", err=True)


BILL_EPILOG = (
    "Example: tulle select bill selection.toml auctions.parquet choices.parquet --output bill.csv"
    "\n\nExample: tulle select bill per-click.toml auctions.parquet choices.parquet --clicks "
    "clicks.csv --json"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class BillOptions(ColumnOptions):
    """Options of a bill."""

    selection: SelectionFile
    auctions: AuctionsFile
    choices: ChoicesFile
    clicks: Annotated[
        Path | None,
        option(
            DATA,
            "File with the auction_id of each click, for prices of clicks. Nothing protects "
            "clicks.",
        ),
    ] = None
    output: Annotated[Path | None, option(OUTPUT, "New CSV file with one line an ad.")] = None
    top: Annotated[int, option(OUTPUT, "Number of ads to print, by amount.", least=0)] = 10
    as_json: AsJson = False


@taking_options
def bill(options: BillOptions) -> None:
    """Count impressions and add up what each ad pays, exactly.

    Prices follow from public columns; private predictions are not read. A bill is
    post-processing of choices that are out already, so it costs nothing. Amounts are whole
    millionths of the currency.
    """
    from tulle.select import bill as bill_choices
    from tulle.select import selection_of

    config = selection_of(options.selection)
    made = bill_choices(
        config,
        options.auctions,
        options.choices,
        clicks=options.clicks,
        columns=options.columns(),
        output=options.output,
    )
    if options.as_json:
        facts = {"pricing": config.pricing.name, **made.to_dict()}
        typer.echo(json.dumps(facts, allow_nan=False))
        return
    _print_bill(made, config.pricing.name, options.top)


def _print_bill(made: "FileBill", pricing: str, top: int) -> None:
    bill = made.bill
    typer.echo(f"pricing         {pricing}, paid by {bill.paid_event.value}")
    typer.echo(f"impressions     {bill.num_impressions:,}")
    if made.num_without_choice:
        typer.echo(f"without choice  {made.num_without_choice:,} auctions, which nobody pays")
    typer.echo(f"ads             {len(bill.lines):,}")
    typer.echo(f"total           {bill.total}")
    pairs = sorted(zip(made.ads, bill.lines, strict=True), key=lambda pair: -pair[1].amount_micros)
    for ad, line in pairs[:top]:
        clicks = "" if line.clicks is None else f", {line.clicks:,} clicks"
        typer.echo(f"  ad {ad}: {line.impressions:,} impressions{clicks}, {line.amount}")


_ESTIMATE = "Estimate"

EVALUATE_EPILOG = (
    "Example: tulle select evaluate selection.toml auctions.parquet choices.parquet --clicks "
    "clicks.csv --target other.toml --epsilon 1 --output evaluation.json"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvaluateOptions(LedgerOptions, ColumnOptions):
    """Options of an evaluation."""

    selection: SelectionFile
    auctions: AuctionsFile
    choices: ChoicesFile
    clicks: Annotated[Path, option(DATA, "File with the auction_id of each click on a shown ad.")]
    target: Annotated[Path, option(_ESTIMATE, "Settings file of the selection to evaluate.")]
    estimator: Annotated[
        str, option(_ESTIMATE, "How decisions are weighted: doubly-robust or inverse-propensity.")
    ] = "doubly-robust"
    max_weight: Annotated[
        float | None,
        option(_ESTIMATE, "Cut larger weights, which biases [default: the floors' own limit]."),
    ] = None
    confidence: Annotated[float, option(_ESTIMATE, "Confidence of the interval.")] = 0.95
    epsilon: Annotated[float, option(PRIVACY, "Privacy that the estimate may cost one unit.")]
    seed: Annotated[
        int | None,
        option(PRIVACY, "Make the noise repeatable. Then the release is not private.", least=0),
    ] = None
    output: Annotated[Path, option(OUTPUT, "New JSON file; a record and a card go beside it.")]
    as_json: AsJson = False


@taking_options
def evaluate(options: EvaluateOptions) -> None:
    """Estimate the clicks of another selection from decisions of this one, with noise.

    Each decision is weighted by its exact probabilities where it was made, so the estimate is not
    biased, and only noisy sums leave. The probabilities themselves never do: with the choice, one
    tells which ad a device favoured. Probabilities averaged over users, which a server could know,
    give biased estimates and are not offered.
    """
    from tulle.select import evaluate as evaluate_decisions
    from tulle.select import selection_of

    with stopping_cleanly():
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
            **options.charge(),
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
    _print_estimate(facts)


def _print_estimate(facts: dict[str, Any]) -> None:
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
