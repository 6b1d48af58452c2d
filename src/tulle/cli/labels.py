"""`tulle labels`: release labels once, train anywhere."""

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tulle.cli.labels_options import LabelPlanOptions, ReleaseCommandOptions
from tulle.cli.options import (
    DATA,
    AsJson,
    PanelledCommand,
    layout_words,
    option,
    taking_options,
)
from tulle.cli.terminal import print_facts, showing_progress, stopping_cleanly
from tulle.errors import ConfigError

if TYPE_CHECKING:
    from tulle.labels.label_noise import LabelNoise, LabelSettings
    from tulle.labels.label_plan import Comparison, LabelPlan
    from tulle.labels.label_release import ReleaseRecord
    from tulle.privacy.plan import Plan
    from tulle.runs.record import Result

_RELEASE_EPILOG = (
    "Example: tulle labels release clicks.parquet --schema schema.toml --mechanism rr --epsilon 2 "
    "--output noisy.parquet"
    '\n\nExample: tulle labels release clicks.parquet --schema schema.toml --unit "user per day" '
    "--mechanism joint-rr --epsilon 3 --output noisy.parquet --ledger ledger.db"
    "\n\nExample: tulle labels release sales.csv --schema schema.toml --mechanism unbiased "
    "--label-low 0 --label-high 400 --epsilon 2 --prior-epsilon 0.1 --output noisy.parquet"
)

_PLAN_EPILOG = (
    'Example: tulle labels plan clicks.parquet --schema schema.toml --unit "user per 7 days" '
    "--epsilon 2"
    "\n\nExample: tulle labels plan sales.csv --schema schema.toml --label-low 0 --label-high 400 "
    "--epsilon 2"
    "\n\nExample: tulle labels plan clicks.parquet --schema schema.toml --mechanism rr --epsilon 2"
)

_EVALUATE_EPILOG = (
    "Example: tulle labels evaluate predictions.parquet --release noisy.parquet"
    "\n\nExample: tulle labels evaluate predictions.parquet --raw test.parquet --schema schema.toml"
)

_MOST_ROWS = 8
"""Most options that a comparison prints; the others are worse and rarely of interest."""

_SAID = (
    "label_low",
    "label_high",
    "label_step",
    "num_classes",
    "prior",
    "prior_epsilon",
    "base_rate",
)
"""Settings that describe the labels, which whoever asks has given already."""


@taking_options
def release(options: ReleaseCommandOptions) -> None:
    """Write public columns with noisy labels, targets, weights, a record and a card.

    All labels are checked first; then the ledger is charged; then noise is drawn, once. The
    same command with the same ledger gives back the stored table and spends nothing.
    """
    from tulle.labels import release as release_labels

    with (
        stopping_cleanly(),
        showing_progress("release labels", quiet=options.quiet) as report,
    ):
        result = release_labels(
            options.tables,
            options.schema,
            epsilon=options.epsilon,
            mechanism=options.chosen(options.mechanism),
            unit=options.unit,
            partner=options.partner,
            layout=options.layout,
            allow_public=options.allow_public or (),
            output=options.output,
            **options.charge(),
            seed=options.seed,
            watch=lambda rows: report(rows, 0, 0),
        )
    _print_result(result, options.output, as_json=options.as_json)


@taking_options
def plan(options: LabelPlanOptions) -> None:
    """Compare mechanisms by the noise they leave, or print the plan of one.

    No label is read: only columns that say whose a row is and when it happened, and these
    only for a unit that may own several rows.
    """
    from tulle.labels import plan as plan_release

    made = plan_release(
        options.tables,
        options.schema,
        epsilon=options.epsilon,
        mechanism=options.chosen(options.mechanism),
        unit=options.unit,
        partner=options.partner,
        layout=options.layout,
        allow_public=options.allow_public or (),
    )
    if made.comparison is None:
        _print_plan(made, as_json=options.as_json)
    elif options.as_json:
        typer.echo(json.dumps(made.comparison.describe(), allow_nan=False))
    else:
        _print_comparison(made, made.comparison, show_all=options.verbose)


def evaluate(
    predictions: Annotated[
        Path,
        typer.Argument(
            help="File with the columns row (from 0) and probability, such as tulle train "
            "--predictions writes."
        ),
    ],
    release: Annotated[
        Path | None,
        option(DATA, "Released table: gives estimates with errors, at no cost of privacy."),
    ] = None,
    raw: Annotated[
        Path | None,
        option(
            DATA, "Raw table, in place of a release: gives exact figures, which are not protected."
        ),
    ] = None,
    schema: Annotated[
        Path | None,
        option(DATA, "TOML or JSON file with the role of each column of the raw table."),
    ] = None,
    layout: Annotated[
        str | None,
        option(
            DATA,
            "Name of a public log that the raw table is, in place of a schema.",
            words=layout_words,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compare predicted probabilities with labels: ranking, likelihood, calibration, bidding.

    Rows that a model was trained on flatter it: predict rows it has not seen. AUC alone
    misleads a bidder, so the likelihood relative to a constant and the utility of bids by
    the predictions come with it.
    """
    if (release is None) == (raw is None):
        raise ConfigError("give either --release for noisy labels or --raw for true ones.")
    if release is not None:
        facts = _on_release(predictions, release)
    else:
        facts = _on_raw(predictions, raw, schema, layout)
        typer.echo("these figures are exact and not protected: keep them with the data.", err=True)
    if as_json:
        typer.echo(json.dumps(facts, allow_nan=False))
        return
    for name, value in facts.items():
        if name == "auc_loss" and "auc" not in facts:
            typer.echo(f"{'auc':<40}{_shown(_auc(value))}")
        typer.echo(f"{name.replace('_', ' '):<40}{_shown(value)}")


def _print_result(result: "Result[ReleaseRecord, Plan]", output: Path, *, as_json: bool) -> None:
    from tulle.runs.release_files import card_path, record_path

    record, plan = result.record, result.record.plan
    facts: dict[str, object] = {
        "table": str(output),
        "record": str(record_path(output)),
        "card": str(card_path(output)),
        "rows": record.num_rows,
        "mechanism": plan.settings["mechanism"],
        "unit": str(plan.guarantee.unit),
        "epsilon": plan.guarantee.epsilon,
        "added_columns": list(record.columns),
        "stored_before": result.is_stored,
        "verdict": result.card.verdict,
    }
    print_facts(facts, as_json=as_json)
    if result.is_stored and not as_json:
        typer.echo("nothing was spent: the stored release was returned.", err=True)


def _print_plan(made: "LabelPlan", *, as_json: bool) -> None:
    plan = made.plan
    if as_json:
        typer.echo(plan.to_json())
        return
    typer.echo(plan.mechanism)
    typer.echo(str(plan.guarantee))
    for name, value in plan.settings.items():
        typer.echo(f"  {name}: {value}")


def _print_comparison(made: "LabelPlan", comparison: "Comparison", *, show_all: bool) -> None:
    rows = comparison.table()
    shown = rows if show_all else rows[:_MOST_ROWS]
    width = max(len(str(row["mechanism"])) for row in (*shown, {"mechanism": "mechanism"}))
    heads = [name.replace("_", " ") for name in rows[0] if name != "mechanism"]
    typer.echo(f"{'mechanism':<{width}}" + "".join(f"{head:>20}" for head in heads))
    for row in shown:
        numbers = [value for name, value in row.items() if name != "mechanism"]
        cells = "".join(f"{number:>20.5g}" for number in numbers)
        typer.echo(f"{row['mechanism']:<{width}}{cells}")
    if len(shown) < len(rows):
        typer.echo(f"and {len(rows) - len(shown)} more, which --verbose shows")
    typer.echo(f"recommended: {command_words(made.mechanism)}")
    for remark in comparison.remarks:
        typer.echo(remark)


def command_words(mechanism: "LabelSettings | LabelNoise") -> str:
    """A mechanism with its settings as the command line takes them, defaults left out."""
    fields: Any = dataclasses.fields(mechanism)  # type: ignore[arg-type]
    given = [(field.name, getattr(mechanism, field.name), field.default) for field in fields]
    options = [
        f"--{name.replace('_', '-')} {getattr(value, 'value', value)}"
        for name, value, default in given
        if value not in (None, default) and name not in _SAID
    ]
    return " ".join([getattr(mechanism, "kind", ""), *options]).strip()


def _on_release(predictions: Path, release: Path) -> dict[str, Any]:
    from tulle.labels import evaluate as evaluate_on_release

    return evaluate_on_release(predictions, release).to_dict()


def _on_raw(
    predictions: Path, raw: Path | None, schema: Path | None, layout: str | None
) -> dict[str, Any]:
    from tulle.labels import evaluate_raw

    if schema is None and layout is None:
        raise ConfigError("--raw needs --schema, which names the label, or --layout.")
    facts = evaluate_raw(predictions, raw, schema, layout=layout).to_dict()
    return {name: value for name, value in facts.items() if name != "deciles"}


def _auc(loss: Any) -> Any:
    """The area under the curve that a loss of it leaves."""
    if isinstance(loss, dict):
        return loss | {"value": 1 - loss["value"]}
    return 1 - loss


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return f"{value['value']:.5g} (standard error {value['standard_error']:.2g})"
    if isinstance(value, list):
        return ", ".join(f"{entry:.5g}" for entry in value)
    return f"{value:.5g}" if isinstance(value, float) else f"{value}"


labels_app = typer.Typer(
    name="labels",
    help="Release labels once under label differential privacy, and train anywhere.",
    epilog="A synthetic log to try it on, with --layout attribution: "
    "tulle data synth attribution --rows 5000 --output log.parquet",
    no_args_is_help=True,
)

labels_app.command("release", epilog=_RELEASE_EPILOG, cls=PanelledCommand)(release)

labels_app.command("plan", epilog=_PLAN_EPILOG, cls=PanelledCommand)(plan)

labels_app.command("evaluate", epilog=_EVALUATE_EPILOG, cls=PanelledCommand)(evaluate)
