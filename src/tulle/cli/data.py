"""`tulle data`: prepare logs for training, describe them, make synthetic ones."""

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tulle.cli.options import (
    DATA,
    OUTPUT,
    OutputOptions,
    PanelledCommand,
    keywords,
    option,
    taking_options,
)
from tulle.cli.terminal import print_facts, showing_progress

if TYPE_CHECKING:
    from tulle.data.description import Description, RawStatistic

_NEVER = "never"
_WARNING = (
    f"Release '{_NEVER}': an exact statistic of sensitive data. Release a noisy one in its place, "
    "charged to a ledger. Under add-or-remove not even the number of rows is public."
)

LayoutName = Annotated[
    str | None,
    typer.Option(
        help="A public log: display, attribution, search, search-by-user, taobao, "
        "taobao-tables, browser-impressions or browser-conversions."
    ),
]
SchemaFile = Annotated[
    Path | None,
    typer.Option(help="TOML or JSON file with the role of each column, for any CSV or Parquet."),
]
SkipBadLines = Annotated[
    bool, typer.Option("--skip-bad-lines", help="Count and leave out lines that cannot be read.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress on stderr.")]

data_app = typer.Typer(
    name="data",
    help="Prepare logs for training, describe them, make synthetic ones.",
    no_args_is_help=True,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PrepareOptions:
    """Which log, and how its values become ids."""

    inputs: Annotated[list[Path], typer.Argument(help="Files of one log, in order.")]
    output: Annotated[Path, typer.Option(help="Folder to write; must not exist.")]
    layout: LayoutName = None
    schema: SchemaFile = None
    allow_public: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN",
            help="Let the schema make this column public, though a known log protects it.",
        ),
    ] = None
    hash_bins_public: Annotated[
        int | None, typer.Option(help="Number of hash bins for public columns [default: 100000].")
    ] = None
    hash_bins_sensitive: Annotated[
        int | None, typer.Option(help="Number of hash bins for sensitive columns [default: 50000].")
    ] = None
    min_count_public: Annotated[
        int | None,
        typer.Option(help="Or: one id for each public value with at least this many rows."),
    ] = None
    min_count_sensitive: Annotated[
        int | None,
        typer.Option(help="Or: one id for each sensitive value with such a noisy count."),
    ] = None
    vocabulary_epsilon: Annotated[
        float | None,
        typer.Option(
            help="Epsilon of the noisy counts of sensitive values under add-or-remove; a replace "
            "budget is charged twice that."
        ),
    ] = None
    vocabulary_delta: Annotated[
        float | None, typer.Option(help="Probability that a value of one row alone is kept.")
    ] = None
    ledger: Annotated[
        Path | None, typer.Option(help="Ledger to charge for the counts, purpose 'vocabulary'.")
    ] = None
    log: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN",
            help="Column of numbers that becomes buckets of its logarithm, in place of the bins "
            "that its kind and role would give it.",
        ),
    ] = None
    private_quantiles: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN",
            help="Sensitive column of numbers whose bins are noisy quantiles, paid for by "
            "--vocabulary-epsilon.",
        ),
    ] = None
    hour: Annotated[bool, typer.Option("--hour", help="Add the hour of the time.")] = False
    day_of_week: Annotated[
        bool, typer.Option("--day-of-week", help="Add the day of the week of the time.")
    ] = False
    like: Annotated[
        Path | None, typer.Option(help="Prepared dataset whose ids to use, e.g. for a test set.")
    ] = None
    salt: Annotated[
        str | None, typer.Option(help="Salt of the hashes in hexadecimal [default: random].")
    ] = None
    num_classes: Annotated[int, typer.Option(help="Number of classes n: labels 0 to n - 1.")] = 2
    values: Annotated[
        bool,
        typer.Option("--values", help="Labels are amounts or counts from 0 on, and no classes."),
    ] = False
    drop_rows_without_unit: Annotated[
        bool, typer.Option("--drop-rows-without-unit", help="Leave out rows that name no unit.")
    ] = False
    skip_bad_lines: SkipBadLines = False
    resume: Annotated[
        bool, typer.Option("--resume/--no-resume", help="Continue an interrupted run, or not.")
    ] = True
    as_json: AsJson = False
    quiet: Quiet = False


@data_app.command(
    epilog="Example: tulle data prepare train.txt --layout display --output display-train "
    "--hash-bins-public 100000 --hash-bins-sensitive 50000"
)
@taking_options
def prepare(options: PrepareOptions) -> None:
    """Write a log as memory-mapped arrays, in one streaming pass.

    An interrupted run continues when the same command is given again. The folder holds raw
    data: keep it where the log is.
    """
    from tulle.data import prepare as prepare_data

    with showing_progress("prepare", quiet=options.quiet) as report:
        given = keywords(options, "inputs", "as_json", "quiet")
        result = prepare_data(options.inputs, watch=report, **given)
    dataset, roles = result.dataset, [feature.role for feature in result.dataset.features]
    facts = {
        "folder": str(options.output),
        "rows": dataset.num_rows,
        "public_features": roles.count("public"),
        "sensitive_features": roles.count("sensitive"),
        "bad_lines_left_out": result.num_bad_lines,
        "rows_resumed": result.num_rows_resumed,
        "fingerprint": dataset.fingerprint,
    }
    print_facts(facts, as_json=options.as_json, width=20)


@data_app.command(
    epilog="Example: tulle data synth display --rows 1000000 --seed 1 --output display.tsv"
)
def synth(
    shape: Annotated[
        str,
        typer.Argument(
            help="display, attribution, search, taobao; taobao-tables or impressions, which make "
            "a folder of files; auctions."
        ),
    ],
    rows: Annotated[
        int,
        typer.Option(help="Number of rows; for impressions of users, for auctions of auctions."),
    ],
    output: Annotated[
        Path, typer.Option(help="New file or folder. Files may end in .gz, .zst or .parquet.")
    ],
    seed: Annotated[int, typer.Option(help="Seed that fixes the log.")] = 0,
    as_json: AsJson = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no progress on stderr.")] = False,
) -> None:
    """Write a synthetic log with known truth. It holds nobody's data."""
    from tulle.data import write_synthetic

    with showing_progress("writing", quiet=quiet) as report:
        write_synthetic(
            shape, output, rows=rows, seed=seed, watch=lambda done: report(done, done, rows)
        )
    if as_json:
        facts = {"shape": shape, "rows": rows, "seed": seed, "output": str(output)}
        typer.echo(json.dumps(facts))
    else:
        what = {"impressions": "users", "auctions": "auctions"}.get(shape, "rows")
        typer.echo(f"{output}: a synthetic log, {shape} of {rows:,} {what}, seed {seed}")


_AUCTIONS_EPILOG = (
    "Example: tulle data auctions log.parquet --output auctions.parquet --server-predictions "
    "server.parquet --device-predictions device.parquet"
    "\n\nExample: tulle data auctions raw_sample.csv --format taobao --ad-table ad_feature.csv "
    "--output auctions.parquet --server-predictions server.parquet --device-predictions "
    "device.parquet --bid-factor 0.001"
)

_COLUMNS, _PREDICTIONS, _AUCTIONS = "Columns", "Predictions", "Auctions"
_KEEP = (
    "the file holds predictions made from private data, and the figures are exact: keep both "
    "with the log."
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class AuctionsOptions(OutputOptions):
    """Options of auctions from a log."""

    log: Annotated[
        Path,
        typer.Argument(
            metavar="LOG", help="Log of shown ads: Parquet, CSV or JSON lines, one row an ad."
        ),
    ]
    output: Annotated[Path, option(OUTPUT, "New file of auctions: .parquet, .csv or .jsonl.")]
    ad_table: Annotated[Path | None, option(DATA, "File with one row an ad and its price.")] = None
    format_name: Annotated[
        str | None,
        option(_COLUMNS, "taobao: the columns of raw_sample.csv and ad_feature.csv.", "--format"),
    ] = None
    user: Annotated[str | None, option(_COLUMNS, "Column with the user [default: user_id].")] = None
    time: Annotated[
        str | None, option(_COLUMNS, "Column with the time, in whole seconds [default: timestamp].")
    ] = None
    ad: Annotated[str | None, option(_COLUMNS, "Column with the ad [default: ad_id].")] = None
    price: Annotated[
        str | None,
        option(
            _COLUMNS, "Column with the price, in the log or in the table of ads [default: price]."
        ),
    ] = None
    click: Annotated[
        str | None, option(_COLUMNS, "Column that says whether the ad was clicked, to keep it.")
    ] = None
    consent: Annotated[
        str | None, option(_COLUMNS, "Column that says who agreed to personalised ads, to keep it.")
    ] = None
    server_predictions: Annotated[
        Path | None,
        option(
            _PREDICTIONS,
            "Probabilities of a click by public data: Parquet with row (of the log, from 0) "
            "and probability, as tulle train --predictions writes it.",
        ),
    ] = None
    device_predictions: Annotated[
        Path | None, option(_PREDICTIONS, "The same by private data too. They stay raw.")
    ] = None
    server_column: Annotated[
        str | None,
        option(_PREDICTIONS, "Or: column of the log with the probabilities by public data."),
    ] = None
    device_column: Annotated[
        str | None,
        option(_PREDICTIONS, "Or: column of the log with the probabilities by private data."),
    ] = None
    bid_factor: Annotated[float, option(_AUCTIONS, "Bid for a click divided by the price.")] = 1.0
    min_candidates: Annotated[
        int, option(_AUCTIONS, "Leave out auctions with fewer candidates.")
    ] = 2


@data_app.command(cls=PanelledCommand, epilog=_AUCTIONS_EPILOG)
@taking_options
def auctions(options: AuctionsOptions) -> None:
    """Make auctions of a log: ads shown to one user at one time compete for one slot.

    Bids are prices times a factor. The least server score is printed, for a reserve. An ad that
    an auction has twice is merged into its first row. Auctions in which a candidate lacks a
    prediction of the server are left out.

    Predictions name rows of this log: give the log that was predicted, whole, and prepare it
    without leaving out rows. The models should not have been trained on these rows.
    """
    from tulle.select import auctions_from_log

    roles = ("user", "time", "ad", "price", "click", "consent")
    columns = {role: getattr(options, role) for role in roles}
    columns |= {"server_prob": options.server_column, "device_prob": options.device_column}
    others = ("log", "output", "format_name", "server_column", "device_column", "as_json", "quiet")
    with showing_progress("auctions", quiet=options.quiet) as report:
        facts = auctions_from_log(
            options.log,
            options.output,
            layout=options.format_name,
            columns={role: name for role, name in columns.items() if name},
            watch=lambda rows: report(rows, 0, 0),
            **keywords(options, *roles, *others),
        )
    shown = {"output": str(options.output)} | facts.to_dict()
    if not options.as_json:
        known = {name: value for name, value in shown.items() if value is not None}
        shown = {n: f"{v:.6g}" if isinstance(v, float) else v for n, v in known.items()}
    print_facts(shown, as_json=options.as_json, width=30)
    if not options.quiet:
        typer.echo(_KEEP, err=True)


@data_app.command(
    epilog="Example: tulle data describe clicks.parquet --schema criteo_search_parquet.toml"
)
def describe(
    inputs: Annotated[
        list[Path], typer.Argument(help="Files of one log, or the folder of a prepared dataset.")
    ],
    layout: LayoutName = None,
    schema: SchemaFile = None,
    skip_bad_lines: SkipBadLines = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Print rows, label rate, cardinalities and rows per unit, and what must not be released.

    The figures are exact statistics of raw data, for those who may see the data.
    """
    from tulle.data import describe as describe_data

    with showing_progress("describe", quiet=quiet) as report:
        description = describe_data(
            inputs,
            schema,
            layout=layout,
            skip_bad_lines=skip_bad_lines,
            watch=lambda rows: report(rows, 0, 0),
        )
    if as_json:
        typer.echo(json.dumps(description.to_dict(), allow_nan=False))
    else:
        _print_description(description)


def _print_description(description: "Description") -> None:
    bad, rate = description.num_bad_lines, description.label_rate
    figures = {"rows": description.num_rows} | ({"bad lines left out": bad} if bad.value else {})
    figures |= {} if rate is None else {"label rate": rate}
    figures |= {f"rows per unit, {name}": f for name, f in description.rows_per_unit.items()}
    lines = [
        (name, "", "", _number(figure, 4 if figure is rate else 0), "", _mark(figure))
        for name, figure in figures.items()
    ]
    lines += [("",) * 6, ("column", "role", "kind", "distinct", "missing", "release")]
    for column in description.columns:
        missing = "" if column.missing_share is None else f"{column.missing_share.value:.1%}"
        distinct = column.num_distinct
        words = (column.name, column.role, column.kind)
        lines.append((*words, _number(distinct), missing, _mark(distinct)))
    widths = [max(len(line[place]) for line in lines) for place in range(6)]
    for name, role, kind, value, missing, mark in lines:
        text = f"{name:<{widths[0]}}  {role:<{widths[1]}}  {kind:<{widths[2]}}"
        typer.echo(f"{text}  {value:>{widths[3]}}  {missing:>{widths[4]}}  {mark}".rstrip())
    for column in description.columns:
        if column.hint:
            typer.echo(
                f"\n{column.name} holds {column.hint}, and the schema does not say its kind: "
                "integer, real or categorical."
            )
    typer.echo(f"\n{_WARNING}")


def _number(figure: "RawStatistic", decimals: int = 0) -> str:
    error = f" ±{figure.relative_error:.1%}" if figure.relative_error else ""
    return f"{figure.value:,.{decimals}f}{error}"


def _mark(figure: "RawStatistic") -> str:
    return _NEVER if figure.must_not_be_released else "yes"
